//! ONNX's operator Attention, against the same written out in other operators.

use super::{Sketch, assert_close, ints, noise};
use crate::exec::{CandleOps, Executor, ReferenceOps};
use crate::{Attribute, DType, Graph, Tensor};

fn run(graph: &Graph, inputs: &[Tensor]) -> [Tensor; 2] {
    let reference = Executor::load(graph, ReferenceOps).unwrap().run_host(inputs).unwrap().remove(0);
    [Executor::load(graph, CandleOps).unwrap().run_host(inputs).unwrap().remove(0), reference]
}

/// Both graphs read the same inputs.
#[track_caller]
fn same(operator: &Graph, written_out: &Graph) {
    let specs = operator.inputs.iter().map(|input| input.spec.to_string());
    let inputs: Vec<Tensor> = (1..).zip(specs).map(|(seed, spec)| noise(&spec, seed)).collect();
    let [_, expected] = run(written_out, &inputs);
    for output in run(operator, &inputs) {
        assert_close("Attention", &output, &expected, 2e-5);
    }
}

fn inputs(specs: [&str; 3]) -> Sketch {
    let [q, k, v] = specs;
    Sketch::new().input("q", q).input("k", k).input("v", v)
}

const APART: [&str; 3] = ["2,4,5,9,f32", "2,4,7,9,f32", "2,4,7,3,f32"];

/// Attention over heads that lie apart, with the factor as a constant and whatever is added to the scores.
fn written_out(sketch: Sketch, [q, k, v]: [&str; 3], factor: f32, mask: Option<&str>) -> Sketch {
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
fn the_scale_is_the_root_of_the_width_unless_given() {
    let plain = written_out(inputs(APART), ["q", "k", "v"], 1.0 / 3.0, None).output("made", "2,4,5,3,f32");
    same(&inputs(APART).node("Attention", &["q", "k", "v"], &["y"]).output("y", "2,4,5,3,f32"), &plain);
    let scaled = written_out(inputs(APART), ["q", "k", "v"], 0.75, None).output("made", "2,4,5,3,f32");
    let scale = [("scale", Attribute::Float(0.75))];
    same(&inputs(APART).node_with("Attention", &["q", "k", "v"], &["y"], scale).output("y", "2,4,5,3,f32"), &scaled);
}

#[test]
fn masks_are_summands_or_say_what_is_seen() {
    for mask in ["5,7", "2,1,1,7", "2,4,5,7"] {
        let fed = || inputs(APART).input("mask", &format!("{mask},f32"));
        let expected = written_out(fed(), ["q", "k", "v"], 1.0 / 3.0, Some("mask")).output("made", "2,4,5,3,f32");
        let operator = fed().node("Attention", &["q", "k", "v", "mask"], &["y"]).output("y", "2,4,5,3,f32");
        same(&operator, &expected);
    }
    let fed = || inputs(APART).input("seen", "2,1,5,7,bool");
    let low = |sketch: Sketch| {
        let sketch = sketch.weight("none", Tensor::scalar(0f32)).weight("low", Tensor::scalar(f32::NEG_INFINITY));
        sketch.node("Where", &["seen", "none", "low"], &["mask"])
    };
    let expected = written_out(low(fed()), ["q", "k", "v"], 1.0 / 3.0, Some("mask")).output("made", "2,4,5,3,f32");
    same(&fed().node("Attention", &["q", "k", "v", "seen"], &["y"]).output("y", "2,4,5,3,f32"), &expected);
}

#[test]
fn a_row_that_sees_nothing_is_zeros() {
    let seen: Vec<bool> = (0..35).map(|at| at / 7 != 2).collect();
    let sketch = inputs(APART).weight("seen", Tensor::from_bools([5, 7], &seen).unwrap());
    let graph = sketch.node("Attention", &["q", "k", "v", "seen"], &["y"]).output("y", "2,4,5,3,f32");
    let open = inputs(APART).node("Attention", &["q", "k", "v"], &["y"]).output("y", "2,4,5,3,f32");
    let fed: Vec<Tensor> = (1..).zip(APART).map(|(seed, spec)| noise(spec, seed)).collect();
    let mut expected = run(&open, &fed)[1].to_f64();
    expected.chunks_mut(3).skip(2).step_by(5).for_each(|row| row.fill(0.0));
    let expected = Tensor::from_vec([2, 4, 5, 3], expected).unwrap().cast(DType::F32);
    for output in run(&graph, &fed) {
        assert_close("Attention", &output, &expected, 2e-5);
    }
}

#[test]
fn a_causal_one_sees_no_later_column() {
    let causal = || [("is_causal", Attribute::Int(1))];
    let bars = (0..35).map(|at| if at % 7 <= at / 7 { 0f32 } else { f32::NEG_INFINITY }).collect();
    let bars: Tensor = Tensor::from_vec([5, 7], bars).unwrap();
    let sketch = inputs(APART).weight("past", bars.clone());
    let expected = written_out(sketch, ["q", "k", "v"], 1.0 / 3.0, Some("past")).output("made", "2,4,5,3,f32");
    same(
        &inputs(APART).node_with("Attention", &["q", "k", "v"], &["y"], causal()).output("y", "2,4,5,3,f32"),
        &expected,
    );

    let fed = || inputs(APART).input("mask", "2,1,5,7,f32");
    let both = fed().weight("past", bars).node("Add", &["mask", "past"], &["sum"]);
    let expected = written_out(both, ["q", "k", "v"], 1.0 / 3.0, Some("sum")).output("made", "2,4,5,3,f32");
    let operator = fed().node_with("Attention", &["q", "k", "v", "mask"], &["y"], causal());
    same(&operator.output("y", "2,4,5,3,f32"), &expected);
}

#[test]
fn heads_side_by_side_are_parted_and_shared() {
    let specs = ["2,5,36,f32", "2,7,18,f32", "2,7,6,f32"];
    let counts = [("q_num_heads", Attribute::Int(4)), ("kv_num_heads", Attribute::Int(2))];
    let operator = inputs(specs).node_with("Attention", &["q", "k", "v"], &["y"], counts).output("y", "2,5,12,f32");
    let mut inferred = operator.clone();
    assert_eq!(crate::infer(&mut inferred), []);
    assert_eq!(inferred.values["y"].to_string(), "2,5,12,f32");
    let apart = |sketch: Sketch, x: &str, shape: &[i64]| {
        let [sizes, parted, heads] = ["sizes", "parted", "heads"].map(|part| format!("{x}.{part}"));
        sketch.weight(&sizes, super::int_list(shape)).node("Reshape", &[x, &sizes], &[&parted]).node_with(
            "Transpose",
            &[&parted],
            &[&heads],
            [("perm", ints(&[0, 2, 1, 3]))],
        )
    };
    let mut sketch = apart(inputs(specs), "q", &[2, 5, 4, 9]);
    // Heads 0 and 1 of q see head 0 of k and v, heads 2 and 3 the other.
    sketch =
        apart(apart(sketch, "k", &[2, 7, 2, 9]), "v", &[2, 7, 2, 3]).weight("which", super::int_list(&[0, 0, 1, 1]));
    for x in ["k", "v"] {
        let (heads, repeated) = (format!("{x}.heads"), format!("{x}.repeated"));
        sketch = sketch.node_with("Gather", &[&heads, "which"], &[&repeated], [("axis", Attribute::Int(1))]);
    }
    sketch = written_out(sketch, ["q.heads", "k.repeated", "v.repeated"], 1.0 / 3.0, None)
        .node_with("Transpose", &["made"], &["rows"], [("perm", ints(&[0, 2, 1, 3]))])
        .weight("wide", super::int_list(&[2, 5, 12]));
    same(&operator, &sketch.node("Reshape", &["rows", "wide"], &["y"]).output("y", "2,5,12,f32"));
}

#[track_caller]
fn refused(inputs_named: &[&str], outputs: &[&str], attribute: Option<(&str, Attribute)>) -> String {
    let sketch = inputs(APART).input("p", "2,4,1,9,f32");
    let sketch = match attribute {
        Some(attribute) => sketch.node_with("Attention", inputs_named, outputs, [attribute]),
        None => sketch.node("Attention", inputs_named, outputs),
    };
    Executor::load(&sketch.output("y", "2,4,5,3,f32"), ReferenceOps).err().expect("an error").to_string()
}

#[test]
fn what_is_not_supported_is_named() {
    let prefix = "node `y` (Attention): not supported: ";
    let plain = ["q", "k", "v"];
    assert_eq!(refused(&["q", "k", "v", "", "p", "p"], &["y"], None), format!("{prefix}inputs after `attn_mask`"));
    assert_eq!(refused(&plain, &["y", "present"], None), format!("{prefix}outputs after `Y`"));
    let softcap = Some(("softcap", Attribute::Float(2.0)));
    assert_eq!(refused(&plain, &["y"], softcap), format!("{prefix}`softcap`"));
    let precision = Some(("softmax_precision", Attribute::Int(1)));
    assert_eq!(refused(&plain, &["y"], precision), format!("{prefix}`softmax_precision`"));
}

#[test]
fn heads_that_do_not_fit_are_named() {
    let failure = |specs: [&str; 3], attributes: [(&str, Attribute); 2]| {
        let graph =
            inputs(specs).node_with("Attention", &["q", "k", "v"], &["y"], attributes).output("y", "2,5,12,f32");
        let fed: Vec<Tensor> = specs.iter().map(|spec| noise(spec, 1)).collect();
        Executor::load(&graph, ReferenceOps).unwrap().run_host(&fed).unwrap_err().to_string()
    };
    let counts = |q, kv| [("q_num_heads", Attribute::Int(q)), ("kv_num_heads", Attribute::Int(kv))];
    let specs = ["2,5,12,f32", "2,7,12,f32", "2,7,12,f32"];
    assert_eq!(failure(specs, counts(5, 1)), "node `y` (Attention): [2, 5, 12] does not part into 5 heads");
    assert_eq!(failure(specs, counts(4, 3)), "node `y` (Attention): 4 heads of q cannot share 3 of k and v");
    let unknown = [("scale", Attribute::Float(1.0)), ("is_causal", Attribute::Int(0))];
    let text = "node `y` (Attention): [2, 5, 12] has no heads, and their number is not given";
    assert_eq!(failure(specs, unknown), text);
}
