//! Compares attention fused from products and a softmax with the reference library, which runs node by node.

use super::{Sketch, assert_close, int_list, ints, noise};
use crate::{CpuOps, Executor, NodeEvent, ReferenceOps, TensorOps};
use flagperf_onnx::{Attribute, Graph, Tensor};

/// Asserts for two batch sizes that the fused graph gives the reference's outputs, and that it has the expected number
/// of steps.
#[track_caller]
fn check(graph: &Graph, expected_steps: usize) {
    let model = Executor::load(graph, CpuOps).unwrap();
    let reference = Executor::load(graph, ReferenceOps).unwrap();
    for rows in [1, 3] {
        let inputs: Vec<Tensor> = (1..)
            .zip(&graph.inputs)
            .map(|(seed, input)| noise(&input.spec.to_string().replace('N', &rows.to_string()), seed))
            .collect();
        let expected = reference.run_host(&inputs).unwrap();
        let uploaded = inputs.iter().map(|input| model.ops().upload(input).unwrap()).collect();
        let mut steps = 0;
        let outputs = model
            .run_observed(uploaded, &mut |event| steps += usize::from(matches!(event, NodeEvent::Ended(..))))
            .unwrap();
        for (i, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
            assert_close("fused", &model.download(i, output).unwrap(), expected, 2e-5);
        }
        assert_eq!(steps, expected_steps);
    }
}

/// Declares q, k and v; k is not yet transposed, as in exported models.
fn operands() -> Sketch {
    Sketch::new().input("q", "N,2,5,4,f32").input("k", "N,2,7,4,f32").input("v", "N,2,7,3,f32")
}

fn transposed(sketch: Sketch) -> Sketch {
    sketch.node_with("Transpose", &["k"], &["kt"], [("perm", ints(&[0, 1, 3, 2]))])
}

fn last_axis() -> [(&'static str, Attribute); 1] {
    [("axis", Attribute::Int(-1))]
}

/// Multiplies the softmax of `scores` by v.
fn weighed(sketch: Sketch, scores: &str) -> Graph {
    let sketch = sketch.node_with("Softmax", &[scores], &["weights"], last_axis());
    sketch.node("MatMul", &["weights", "v"], &["y"]).output("y", "N,2,5,3,f32")
}

/// Returns an attention in which `between` is applied to the product of q and the keys.
fn graph(between: impl FnOnce(Sketch) -> (Sketch, &'static str)) -> Graph {
    let (sketch, scores) = between(transposed(operands()).node("MatMul", &["q", "kt"], &["qk"]));
    weighed(sketch, scores)
}

fn half() -> Tensor {
    Tensor::scalar(0.5f32)
}

#[test]
fn products_around_a_softmax_are_fused_into_one_step() {
    check(&graph(|sketch| (sketch, "qk")), 1);
}

#[test]
fn a_scale_on_the_scores_is_fused() {
    for (op, inputs) in [("Mul", ["qk", "c"]), ("Mul", ["c", "qk"]), ("Div", ["qk", "c"])] {
        let scaled = |sketch: Sketch| (sketch.weight("c", half()).node(op, &inputs, &["scaled"]), "scaled");
        check(&graph(scaled), 1);
    }
}

#[test]
fn scales_on_both_factors_are_fused() {
    let factors = |sketch: Sketch| sketch.weight("c", half()).weight("d", Tensor::from_vec([1], vec![3f32]).unwrap());
    let after = transposed(factors(operands())).node("Mul", &["q", "c"], &["sq"]).node("Div", &["kt", "d"], &["sk"]);
    check(&weighed(after.node("MatMul", &["sq", "sk"], &["qk"]), "qk"), 1);
    let before = factors(operands()).node("Mul", &["k", "c"], &["sk"]);
    let before = before.node_with("Transpose", &["sk"], &["kt"], [("perm", ints(&[0, 1, 3, 2]))]);
    check(&weighed(before.node("MatMul", &["q", "kt"], &["qk"]), "qk"), 1);
}

/// PyTorch's exporter computes the square root of the head's size from a shape.
#[test]
fn a_scale_computed_from_a_shape_is_fused() {
    let scaled = |sketch: Sketch| {
        let sketch = sketch
            .weight("from", int_list(&[-1]))
            .weight("to", int_list(&[i64::MAX]))
            .node("Shape", &["q"], &["shape"])
            .node("Slice", &["shape", "from", "to"], &["width"])
            .node_with("Cast", &["width"], &["real"], [("to", Attribute::Int(1))])
            .node("Sqrt", &["real"], &["root"]);
        (sketch.node("Div", &["qk", "root"], &["scaled"]), "scaled")
    };
    check(&graph(scaled), 5);
}

#[test]
fn a_mask_is_fused_as_either_operand_of_the_sum() {
    for (mask, inputs) in [
        ("N,1,1,7,f32", ["qk", "mask"]),
        ("N,2,5,7,f32", ["mask", "qk"]),
        ("5,7,f32", ["qk", "mask"]),
        ("5,1,f32", ["qk", "mask"]),
    ] {
        let masked = |sketch: Sketch| (sketch.input("mask", mask).node("Add", &inputs, &["masked"]), "masked");
        check(&graph(masked), 1);
    }
}

#[test]
fn a_scale_followed_by_a_mask_is_fused() {
    let both = |sketch: Sketch| {
        let sketch = sketch.weight("c", half()).weight("mask", noise("5,7,f32", 8)).node("Mul", &["qk", "c"], &["s"]);
        (sketch.node("Add", &["s", "mask"], &["masked"]), "masked")
    };
    check(&graph(both), 1);
}

/// From (B,S,H,E) directly to (B,H,E,S).
#[test]
fn a_transpose_of_more_than_two_dimensions_is_fused() {
    let sketch = Sketch::new().input("q", "N,2,5,4,f32").input("k", "N,7,2,4,f32").input("v", "N,2,7,3,f32");
    let sketch = sketch.node_with("Transpose", &["k"], &["kt"], [("perm", ints(&[0, 2, 3, 1]))]);
    check(&weighed(sketch.node("MatMul", &["q", "kt"], &["qk"]), "qk"), 1);
}

#[test]
fn keys_need_no_transpose() {
    let sketch = Sketch::new().input("q", "N,2,5,4,f32").input("k", "N,2,4,7,f32").input("v", "N,2,7,3,f32");
    check(&weighed(sketch.node("MatMul", &["q", "k"], &["qk"]), "qk"), 1);
}

#[test]
fn keys_and_values_with_fewer_heads_are_broadcast() {
    let sketch = Sketch::new().input("q", "N,2,5,4,f32").input("k", "N,1,7,4,f32").input("v", "7,3,f32");
    check(&weighed(transposed(sketch).node("MatMul", &["q", "kt"], &["qk"]), "qk"), 1);
}

#[test]
fn two_consecutive_attentions_become_two_steps() {
    let first = Sketch(graph(|sketch| (sketch, "qk")));
    let mut sketch = Sketch(Graph { outputs: Vec::new(), ..first.0 }).input("w", "N,2,6,3,f32");
    sketch = sketch.node_with("Transpose", &["w"], &["wt"], [("perm", ints(&[0, 1, 3, 2]))]);
    sketch = sketch.node("MatMul", &["y", "wt"], &["qk2"]).node_with("Softmax", &["qk2"], &["p"], last_axis());
    check(&sketch.node("MatMul", &["p", "w"], &["z"]).output("z", "N,2,5,3,f32"), 2);
}

#[test]
fn a_transpose_with_another_reader_is_kept() {
    let two = graph(|sketch| (sketch.node("Neg", &["kt"], &["minus"]), "qk"));
    check(&Sketch(two).output("minus", "N,2,4,7,f32"), 3);
}

#[test]
fn scores_with_another_reader_are_kept() {
    for (read, left) in [("qk", 5), ("scaled", 5), ("weights", 5)] {
        let scaled = |sketch: Sketch| (sketch.weight("c", half()).node("Mul", &["qk", "c"], &["scaled"]), "scaled");
        check(&Sketch(graph(scaled)).output(read, "N,2,5,7,f32"), left);
        let again = Sketch(graph(scaled)).node("Neg", &[read], &["minus"]);
        check(&again.output("minus", "N,2,5,7,f32"), left + 1);
    }
}

#[test]
fn a_factor_with_another_reader_is_kept() {
    let sketch = transposed(operands()).weight("c", half()).node("Mul", &["q", "c"], &["sq"]);
    let graph = weighed(sketch.node("MatMul", &["sq", "kt"], &["qk"]), "qk");
    check(&Sketch(graph).output("sq", "N,2,5,4,f32"), 2);
}

#[test]
fn a_softmax_over_another_axis_or_its_logarithm_is_not_fused() {
    for (op, axis) in [("Softmax", 2), ("Softmax", -2), ("LogSoftmax", -1)] {
        let sketch = transposed(operands()).node("MatMul", &["q", "kt"], &["qk"]);
        let sketch = sketch.node_with(op, &["qk"], &["weights"], [("axis", Attribute::Int(axis))]);
        check(&sketch.node("MatMul", &["weights", "v"], &["y"]).output("y", "N,2,5,3,f32"), 4);
    }
}

#[test]
fn a_softmax_over_the_last_axis_is_fused_whichever_end_the_axis_counts_from() {
    // Before operator set 13, a softmax over another axis is one over a matrix.
    for (opset, other) in [(20, 4), (12, 7)] {
        for (axis, steps) in [(3, 1), (-1, 1), (2, other)] {
            let sketch = transposed(operands()).node("MatMul", &["q", "kt"], &["qk"]);
            let sketch = sketch.node_with("Softmax", &["qk"], &["weights"], [("axis", Attribute::Int(axis))]);
            let graph = sketch.node("MatMul", &["weights", "v"], &["y"]).output("y", "N,2,5,3,f32");
            check(&Graph { opset, ..graph }, steps);
        }
    }
}

#[test]
fn a_scale_that_is_not_a_single_number_on_the_host_is_not_fused() {
    let by_row = |sketch: Sketch| (sketch.weight("c", noise("7,f32", 4)).node("Mul", &["qk", "c"], &["s"]), "s");
    check(&graph(by_row), 5);
    let listed = |sketch: Sketch| {
        let sketch = sketch.weight("list", int_list(&[1, 2, 3, 4, 5, 6, 7]));
        let sketch = sketch.node_with("Cast", &["list"], &["c"], [("to", Attribute::Int(1))]);
        (sketch.node("Mul", &["qk", "c"], &["s"]), "s")
    };
    check(&graph(listed), 5);
    let fed = |sketch: Sketch| (sketch.input("c", "1,f32").node("Mul", &["qk", "c"], &["s"]), "s");
    check(&graph(fed), 5);
    let inverse = |sketch: Sketch| (sketch.weight("c", half()).node("Div", &["c", "qk"], &["s"]), "s");
    check(&graph(inverse), 5);
}

#[test]
fn a_mask_before_the_scale_is_not_fused() {
    let scaled = |sketch: Sketch| {
        let sketch =
            sketch.weight("c", half()).weight("mask", noise("5,7,f32", 8)).node("Add", &["qk", "mask"], &["m"]);
        (sketch.node("Mul", &["m", "c"], &["s"]), "s")
    };
    check(&graph(scaled), 6);
}

/// The scores broadcast to their mask because they have fewer dimensions or a dimension of size one.
#[test]
fn a_mask_larger_than_the_scores_gives_the_result_of_the_graph() {
    for batch in ["", "1,"] {
        let operand = |sizes: &str| format!("{batch}2,{sizes},f32");
        let (q, k, v) = (operand("5,4"), operand("7,4"), operand("7,3"));
        let order: Vec<i64> = if batch.is_empty() { vec![0, 2, 1] } else { vec![0, 1, 3, 2] };
        let sketch = Sketch::new().input("q", &q).input("k", &k).input("v", &v).input("mask", "N,2,5,7,f32");
        let sketch = sketch.node_with("Transpose", &["k"], &["kt"], [("perm", ints(&order))]);
        let sketch = sketch.node("MatMul", &["q", "kt"], &["qk"]);
        let sketch = sketch.node("Add", &["qk", "mask"], &["m"]).node_with("Softmax", &["m"], &["p"], last_axis());
        check(&sketch.node("MatMul", &["p", "v"], &["y"]).output("y", "N,2,5,3,f32"), 1);
    }
}

#[test]
fn products_with_vectors_are_not_fused() {
    let sketch = Sketch::new().input("q", "4,f32").input("k", "N,4,f32").input("v", "N,3,f32");
    let sketch = sketch.node_with("Transpose", &["k"], &["kt"], [("perm", ints(&[1, 0]))]);
    let sketch = sketch.node("MatMul", &["q", "kt"], &["qk"]).node_with("Softmax", &["qk"], &["p"], last_axis());
    check(&sketch.node("MatMul", &["p", "v"], &["y"]).output("y", "3,f32"), 4);
    let sketch = Sketch::new().input("q", "N,2,5,4,f32").input("k", "N,2,7,4,f32").input("v", "7,f32");
    let sketch = transposed(sketch).node("MatMul", &["q", "kt"], &["qk"]);
    let sketch = sketch.node_with("Softmax", &["qk"], &["p"], last_axis());
    check(&sketch.node("MatMul", &["p", "v"], &["y"]).output("y", "N,2,5,f32"), 4);
}

#[test]
fn a_softmax_of_something_other_than_a_product_is_not_fused() {
    let sketch = Sketch::new().input("q", "N,2,5,7,f32").input("v", "N,2,7,3,f32");
    check(&weighed(sketch, "q"), 2);
    let sum = Sketch::new().input("q", "N,2,5,7,f32").input("v", "N,2,7,3,f32").node("Add", &["q", "q"], &["sum"]);
    check(&weighed(sum, "sum"), 3);
}
