//! Compares ONNX's operator `Attention` with the same computation composed of other operators.

use super::{Sketch, assert_close, ints, noise};
use crate::execution_plan::ExecutionPlan;
use crate::{CpuOps, Executor, ReferenceOps};
use flagperf_onnx::{Attribute, DType, Graph, Tensor};

fn run(graph: &Graph, inputs: &[Tensor]) -> [Tensor; 2] {
    let reference = Executor::load(graph, ReferenceOps).unwrap().run_host(inputs).unwrap().remove(0);
    [Executor::load(graph, CpuOps).unwrap().run_host(inputs).unwrap().remove(0), reference]
}

/// Asserts that both graphs give the same output for the same inputs.
#[track_caller]
fn assert_equivalent(operator: &Graph, composed: &Graph) {
    let specs = operator.inputs.iter().map(|input| input.spec.to_string());
    let inputs: Vec<Tensor> = (1..).zip(specs).map(|(seed, spec)| noise(&spec, seed)).collect();
    let [_, expected] = run(composed, &inputs);
    for output in run(operator, &inputs) {
        assert_close("Attention", &output, &expected, 2e-5);
    }
}

fn inputs(specs: [&str; 3]) -> Sketch {
    let [q, k, v] = specs;
    Sketch::new().input("q", q).input("k", k).input("v", v)
}

const SEPARATE_HEADS: [&str; 3] = ["2,4,5,9,f32", "2,4,7,9,f32", "2,4,7,3,f32"];

/// Composes attention over heads in a dimension of their own, with a constant factor and an optional mask that is added
/// to the scores.
fn composed(sketch: Sketch, [q, k, v]: [&str; 3], factor: f32, mask: Option<&str>) -> Sketch {
    let sketch = sketch
        .weight("factor", Tensor::scalar(factor))
        .node_with("Transpose", &[k], &["transposed"], [("perm", ints(&[0, 1, 3, 2]))])
        .node("MatMul", &[q, "transposed"], &["product"])
        .node("Mul", &["product", "factor"], &["scores"]);
    let (sketch, scores) = match mask {
        Some(mask) => (sketch.node("Add", &["scores", mask], &["masked"]), "masked"),
        None => (sketch, "scores"),
    };
    let sketch = sketch.node_with("Softmax", &[scores], &["weights"], [("axis", Attribute::Int(-1))]);
    sketch.node("MatMul", &["weights", v], &["made"])
}

#[test]
fn the_default_scale_is_one_over_the_square_root_of_the_width() {
    let plain = composed(inputs(SEPARATE_HEADS), ["q", "k", "v"], 1.0 / 3.0, None).output("made", "2,4,5,3,f32");
    assert_equivalent(
        &inputs(SEPARATE_HEADS).node("Attention", &["q", "k", "v"], &["y"]).output("y", "2,4,5,3,f32"),
        &plain,
    );
    let scaled = composed(inputs(SEPARATE_HEADS), ["q", "k", "v"], 0.75, None).output("made", "2,4,5,3,f32");
    let scale = [("scale", Attribute::Float(0.75))];
    assert_equivalent(
        &inputs(SEPARATE_HEADS).node_with("Attention", &["q", "k", "v"], &["y"], scale).output("y", "2,4,5,3,f32"),
        &scaled,
    );
}

#[test]
fn a_mask_is_added_to_the_scores_or_selects_the_visible_positions() {
    for mask in ["5,7", "2,1,1,7", "2,4,5,7"] {
        let fed = || inputs(SEPARATE_HEADS).input("mask", &format!("{mask},f32"));
        let expected = composed(fed(), ["q", "k", "v"], 1.0 / 3.0, Some("mask")).output("made", "2,4,5,3,f32");
        let operator = fed().node("Attention", &["q", "k", "v", "mask"], &["y"]).output("y", "2,4,5,3,f32");
        assert_equivalent(&operator, &expected);
    }
    let fed = || inputs(SEPARATE_HEADS).input("seen", "2,1,5,7,bool");
    let low = |sketch: Sketch| {
        let sketch = sketch.weight("none", Tensor::scalar(0f32)).weight("low", Tensor::scalar(f32::NEG_INFINITY));
        sketch.node("Where", &["seen", "none", "low"], &["mask"])
    };
    let expected = composed(low(fed()), ["q", "k", "v"], 1.0 / 3.0, Some("mask")).output("made", "2,4,5,3,f32");
    assert_equivalent(&fed().node("Attention", &["q", "k", "v", "seen"], &["y"]).output("y", "2,4,5,3,f32"), &expected);
}

#[test]
fn a_completely_masked_row_is_zero() {
    let seen: Vec<bool> = (0..35).map(|at| at / 7 != 2).collect();
    let sketch = inputs(SEPARATE_HEADS).weight("seen", Tensor::from_bools([5, 7], &seen).unwrap());
    let graph = sketch.node("Attention", &["q", "k", "v", "seen"], &["y"]).output("y", "2,4,5,3,f32");
    let open = inputs(SEPARATE_HEADS).node("Attention", &["q", "k", "v"], &["y"]).output("y", "2,4,5,3,f32");
    let fed: Vec<Tensor> = (1..).zip(SEPARATE_HEADS).map(|(seed, spec)| noise(spec, seed)).collect();
    let mut expected = run(&open, &fed)[1].to_f64();
    expected.chunks_mut(3).skip(2).step_by(5).for_each(|row| row.fill(0.0));
    let expected = Tensor::from_vec([2, 4, 5, 3], expected).unwrap().cast(DType::F32);
    for output in run(&graph, &fed) {
        assert_close("Attention", &output, &expected, 2e-5);
    }
}

#[test]
fn causal_attention_ignores_later_columns() {
    let causal = || [("is_causal", Attribute::Int(1))];
    let bars = (0..35).map(|at| if at % 7 <= at / 7 { 0f32 } else { f32::NEG_INFINITY }).collect();
    let bars: Tensor = Tensor::from_vec([5, 7], bars).unwrap();
    let sketch = inputs(SEPARATE_HEADS).weight("past", bars.clone());
    let expected = composed(sketch, ["q", "k", "v"], 1.0 / 3.0, Some("past")).output("made", "2,4,5,3,f32");
    assert_equivalent(
        &inputs(SEPARATE_HEADS).node_with("Attention", &["q", "k", "v"], &["y"], causal()).output("y", "2,4,5,3,f32"),
        &expected,
    );

    let fed = || inputs(SEPARATE_HEADS).input("mask", "2,1,5,7,f32");
    let both = fed().weight("past", bars).node("Add", &["mask", "past"], &["sum"]);
    let expected = composed(both, ["q", "k", "v"], 1.0 / 3.0, Some("sum")).output("made", "2,4,5,3,f32");
    let operator = fed().node_with("Attention", &["q", "k", "v", "mask"], &["y"], causal());
    assert_equivalent(&operator.output("y", "2,4,5,3,f32"), &expected);
}

#[test]
fn heads_side_by_side_are_split_and_shared() {
    let specs = ["2,5,36,f32", "2,7,18,f32", "2,7,6,f32"];
    let counts = [("q_num_heads", Attribute::Int(4)), ("kv_num_heads", Attribute::Int(2))];
    let operator = inputs(specs).node_with("Attention", &["q", "k", "v"], &["y"], counts).output("y", "2,5,12,f32");
    let mut inferred = operator.clone();
    assert_eq!(flagperf_onnx::infer_shapes(&mut inferred), []);
    assert_eq!(inferred.values["y"].to_string(), "2,5,12,f32");
    let split_heads = |sketch: Sketch, x: &str, shape: &[i64]| {
        let [sizes, split, heads] = ["sizes", "split", "heads"].map(|part| format!("{x}.{part}"));
        sketch.weight(&sizes, super::int_list(shape)).node("Reshape", &[x, &sizes], &[&split]).node_with(
            "Transpose",
            &[&split],
            &[&heads],
            [("perm", ints(&[0, 2, 1, 3]))],
        )
    };
    let mut sketch = split_heads(inputs(specs), "q", &[2, 5, 4, 9]);
    // Heads 0 and 1 of q use head 0 of k and v, heads 2 and 3 use head 1.
    sketch = split_heads(split_heads(sketch, "k", &[2, 7, 2, 9]), "v", &[2, 7, 2, 3])
        .weight("which", super::int_list(&[0, 0, 1, 1]));
    for x in ["k", "v"] {
        let (heads, repeated) = (format!("{x}.heads"), format!("{x}.repeated"));
        sketch = sketch.node_with("Gather", &[&heads, "which"], &[&repeated], [("axis", Attribute::Int(1))]);
    }
    sketch = composed(sketch, ["q.heads", "k.repeated", "v.repeated"], 1.0 / 3.0, None)
        .node_with("Transpose", &["made"], &["rows"], [("perm", ints(&[0, 2, 1, 3]))])
        .weight("wide", super::int_list(&[2, 5, 12]));
    assert_equivalent(&operator, &sketch.node("Reshape", &["rows", "wide"], &["y"]).output("y", "2,5,12,f32"));
}

#[track_caller]
fn load_error(inputs_named: &[&str], outputs: &[&str], attribute: Option<(&str, Attribute)>) -> String {
    let sketch = inputs(SEPARATE_HEADS).input("p", "2,4,1,9,f32");
    let sketch = match attribute {
        Some(attribute) => sketch.node_with("Attention", inputs_named, outputs, [attribute]),
        None => sketch.node("Attention", inputs_named, outputs),
    };
    Executor::load(&sketch.output("y", "2,4,5,3,f32"), ReferenceOps).err().expect("an error").to_string()
}

#[test]
fn an_unsupported_part_of_the_operator_is_named() {
    let prefix = "node `y` (Attention): not supported: ";
    let plain = ["q", "k", "v"];
    let more = ["q", "k", "v", "", "", "", "", "p"];
    assert_eq!(load_error(&more, &["y"], None), format!("{prefix}inputs after `nonpad_kv_seqlen`"));
    let other = Some(("top_window_size", Attribute::Int(2)));
    assert_eq!(load_error(&plain, &["y"], other), format!("{prefix}attribute `top_window_size`"));
    let mode = Some(("qk_matmul_output_mode", Attribute::Int(4)));
    assert_eq!(load_error(&plain, &["y"], mode), format!("{prefix}`qk_matmul_output_mode` 4"));
}

#[test]
fn head_counts_that_do_not_match_the_inputs_are_named() {
    let failure = |specs: [&str; 3], attributes: [(&str, Attribute); 2]| {
        let graph =
            inputs(specs).node_with("Attention", &["q", "k", "v"], &["y"], attributes).output("y", "2,5,12,f32");
        let fed: Vec<Tensor> = specs.iter().map(|spec| noise(spec, 1)).collect();
        Executor::load(&graph, ReferenceOps).unwrap().run_host(&fed).unwrap_err().to_string()
    };
    let counts = |q, kv| [("q_num_heads", Attribute::Int(q)), ("kv_num_heads", Attribute::Int(kv))];
    let specs = ["2,5,12,f32", "2,7,12,f32", "2,7,12,f32"];
    assert_eq!(failure(specs, counts(5, 1)), "node `y` (Attention): [2, 5, 12] cannot be split into 5 heads");
    assert_eq!(failure(specs, counts(4, 3)), "node `y` (Attention): 4 heads of q cannot share 3 heads of k and v");
    let unknown = [("scale", Attribute::Float(1.0)), ("is_causal", Attribute::Int(0))];
    let text = "node `y` (Attention): [2, 5, 12] has no head dimension, and the number of heads is not given";
    assert_eq!(failure(specs, unknown), text);
}

#[test]
fn attentions_with_one_mask_share_what_they_need_of_it() {
    let [q, k, v] = SEPARATE_HEADS;
    for mask_type in ["bool", "f32"] {
        let sketch =
            Sketch::new().input("q", q).input("k", k).input("v", v).input("mask", &format!("2,1,1,7,{mask_type}"));
        let sketch = sketch.node("Attention", &["q", "k", "v", "mask"], &["a"]).value("a", "2,4,5,3,f32");
        let sketch = sketch.node("Attention", &["q", "k", "v", "mask"], &["b"]).value("b", "2,4,5,3,f32");
        let graph = sketch.node("Sub", &["a", "b"], &["difference"]).node("Add", &["a", "difference"], &["y"]);
        let graph = graph.output("y", "2,4,5,3,f32");
        let mut plan = ExecutionPlan::of_graph(&graph).unwrap();
        plan.fuse();
        // Both attentions, the sum and the difference; the mask as numbers, its largest numbers, and the rows that it hides.
        assert_eq!(plan.steps.len(), if mask_type == "bool" { 7 } else { 6 });
        // The second sample is hidden completely.
        let visible: Vec<bool> = (0..14).map(|place| place < 7 && place != 3).collect();
        let mask = match mask_type {
            "bool" => {
                let bytes: Vec<u8> = visible.into_iter().map(u8::from).collect();
                Tensor::from_bytes([2, 1, 1, 7], DType::Bool, &bytes).unwrap()
            }
            _ => {
                let numbers = visible.into_iter().map(|visible| if visible { 0.5 } else { f32::NEG_INFINITY });
                Tensor::from_vec([2, 1, 1, 7], numbers.collect::<Vec<f32>>()).unwrap()
            }
        };
        let inputs = [noise(q, 1), noise(k, 2), noise(v, 3), mask];
        let [output, expected] = run(&graph, &inputs);
        assert_close("Attention", &output, &expected, 2e-5);
        let elements = output.to_f64();
        assert!(elements[..60].iter().any(|element| *element != 0.0));
        assert!(elements[60..].iter().all(|element| *element == 0.0));
    }
}
