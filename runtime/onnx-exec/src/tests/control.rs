//! Tests of `If`, `Loop` and `Scan`, whose subgraphs are encoded as in a file.

use super::{Sketch, int_list, noise};
use crate::{ExecError, Executor, ReferenceOps};
use flagperf_onnx::{Attribute, Graph, Tensor};

/// Encodes a field that contains bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 1 << 14);
    let length = [(bytes.len() as u8 & 127) | 128, (bytes.len() >> 7) as u8];
    [&[tag << 3 | 2], &length[..], bytes].concat()
}

/// Encodes a subgraph of nodes `(operator, inputs, output)`.
pub(super) fn body(inputs: &[&str], nodes: &[(&str, &[&str], &str)], outputs: &[&str]) -> Attribute {
    let named = |tag: u8, names: &[&str]| -> Vec<u8> {
        names.iter().flat_map(|name| field(tag, &field(1, name.as_bytes()))).collect()
    };
    let node = |(op, inputs, output): &(&str, &[&str], &str)| {
        let inputs = inputs.iter().flat_map(|name| field(1, name.as_bytes()));
        field(1, &inputs.chain(field(2, output.as_bytes())).chain(field(4, op.as_bytes())).collect::<Vec<u8>>())
    };
    let nodes: Vec<u8> = nodes.iter().flat_map(node).collect();
    Attribute::Encoded(field(6, &[nodes, named(11, inputs), named(12, outputs)].concat()))
}

fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>, ExecError> {
    let reference = Executor::load(graph, ReferenceOps)?.run_host(inputs)?;
    #[cfg(feature = "cpu")]
    assert_eq!(Executor::load(graph, crate::CpuOps)?.run_host(inputs)?, reference);
    Ok(reference.iter().map(Tensor::to_f64).collect())
}

#[test]
fn a_loop_without_an_end_is_an_error_of_the_reference() {
    let nodes: [(&str, &[&str], &str); 2] = [("Identity", &["c"], "again"), ("Neg", &["v"], "next")];
    let attributes = [("body", body(&["i", "c", "v"], &nodes, &["again", "next"]))];
    let sketch = Sketch::new().input("x", "2,f32").weight("true", Tensor::from_bools([], &[true]).unwrap());
    let graph = sketch.node_with("Loop", &["", "true", "x"], &["y"], attributes).output("y", "2,f32");
    let x = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
    let error = Executor::load(&graph, ReferenceOps).unwrap().run_host(&[x]).unwrap_err().to_string();
    assert!(error.contains("more than 100000 iterations"), "{error}");
}

#[test]
fn a_branch_reads_values_around_it() {
    let attributes = [
        ("then_branch", body(&[], &[("Add", &["x", "w"], "sum")], &["sum"])),
        ("else_branch", body(&[], &[("Neg", &["x"], "minus")], &["minus"])),
    ];
    let sketch = Sketch::new()
        .input("c", "bool")
        .input("x", "2,f32")
        .weight("w", int_list(&[10, 20]).cast(flagperf_onnx::DType::F32));
    let graph = sketch.node_with("If", &["c"], &["y"], attributes).output("y", "2,f32");
    let x = int_list(&[1, 2]).cast(flagperf_onnx::DType::F32);
    for (condition, expected) in [(true, vec![11.0, 22.0]), (false, vec![-1.0, -2.0])] {
        let condition = Tensor::from_bools([], &[condition]).unwrap();
        assert_eq!(run(&graph, &[condition, x.clone()]).unwrap(), [expected]);
    }
}

#[test]
fn a_loop_carries_values_and_collects_others() {
    let nodes: &[(&str, &[&str], &str)] =
        &[("Add", &["total", "i"], "next"), ("Mul", &["i", "i"], "square"), ("Less", &["next", "bound"], "goes_on")];
    let attributes = [("body", body(&["i", "c", "total"], nodes, &["goes_on", "next", "square"]))];
    let sketch = Sketch::new().input("start", "i64").weight("most", Tensor::scalar(10i64));
    let sketch = sketch.weight("bound", Tensor::scalar(6i64));
    let sketch = sketch.node_with("Loop", &["most", "", "start"], &["last", "squares"], attributes);
    let graph = Sketch(sketch.output("last", "i64")).output("squares", "?,i64");
    let outputs = run(&graph, &[Tensor::scalar(0i64)]).unwrap();
    assert_eq!(outputs, [vec![6.0], vec![0.0, 1.0, 4.0, 9.0]]);
}

#[test]
fn a_scan_runs_over_an_axis_in_either_direction() {
    let nodes: &[(&str, &[&str], &str)] = &[("Add", &["sum", "row"], "next"), ("Identity", &["next"], "copy")];
    let graph = |direction: i64| {
        let attributes = [
            ("body", body(&["sum", "row"], nodes, &["next", "copy"])),
            ("num_scan_inputs", Attribute::Int(1)),
            ("scan_input_directions", Attribute::Ints(vec![direction])),
        ];
        let sketch = Sketch::new().input("zero", "i64").input("x", "3,i64");
        let sketch = sketch.node_with("Scan", &["zero", "x"], &["last", "sums"], attributes);
        Sketch(sketch.output("last", "i64")).output("sums", "?,i64")
    };
    let inputs = [Tensor::scalar(0i64), int_list(&[1, 2, 4])];
    assert_eq!(run(&graph(0), &inputs).unwrap(), [vec![7.0], vec![1.0, 3.0, 7.0]]);
    assert_eq!(run(&graph(1), &inputs).unwrap(), [vec![7.0], vec![4.0, 6.0, 7.0]]);
}

#[test]
fn a_node_in_a_subgraph_is_named_in_errors() {
    let sketch = || Sketch::new().input("c", "bool").input("x", "2,f32");
    let with = |then_branch| {
        let attributes = [("then_branch", then_branch), ("else_branch", body(&[], &[("Neg", &["x"], "a")], &["a"]))];
        sketch().node_with("If", &["c"], &["y"], attributes).output("y", "2,f32")
    };
    let unknown = with(body(&[], &[("Wobble", &["x"], "b")], &["b"]));
    let message = run(&unknown, &[]).unwrap_err().to_string();
    assert_eq!(message, "node `Wobble_0`: the executor does not support the operator `Wobble`");
    let undefined = with(body(&[], &[("Neg", &["z"], "b")], &["b"]));
    let message = run(&undefined, &[]).unwrap_err().to_string();
    assert_eq!(message, "`Neg_0` reads the value `z`, which no earlier node defines");
    let missing = with(Attribute::Int(1));
    let message = run(&missing, &[noise("2,f32", 1)]).unwrap_err().to_string();
    assert_eq!(message, "node `y` (If): attribute `then_branch`: there is no subgraph");
}
