//! Layers whose weights are stored as int8 compute nearly what the original ones do, and their weights stay so in memory.

use flagperf_onnx::{DType, Graph, GraphBuilder, Tensor, layers, to_f16};

use crate::program::NodeEvent;
use crate::{CpuOps, Executor, ReferenceOps, TensorOps};

/// Two layers of 32 inputs, the first for each position of a sequence.
fn graph() -> Graph {
    let mut g = GraphBuilder::new("layers");
    let x = g.input("x", "2,5,32,f32".parse().unwrap()).unwrap();
    let x = layers::linear(&mut g, "first", &x, layers::Linear { bias: false, ..layers::Linear::new(32, 32) }).unwrap();
    let x = layers::reshape(&mut g, "rows", &x, &[10, 32]).unwrap();
    let y = layers::linear(&mut g, "second", &x, layers::Linear::new(32, 8)).unwrap();
    g.output("y", &y).unwrap();
    g.finish().unwrap()
}

/// Runs a graph on numbers from -1 to 1, and returns the output and the operators that ran.
fn run<O: TensorOps>(graph: &Graph, ops: O) -> (Vec<f64>, Vec<String>) {
    let numbers = (0..320).map(|at| (f64::from(at) * 0.37).sin() as f32).collect();
    let input = Tensor::from_vec([2, 5, 32], numbers).unwrap().cast(graph.inputs[0].spec.dtype);
    let executor = Executor::load(graph, ops).unwrap();
    let uploaded = executor.ops().upload(&input).unwrap();
    let mut operators = Vec::new();
    let mut observe = |event: NodeEvent<'_>| {
        if let NodeEvent::Begins(node) = event {
            operators.push(node.op.to_owned());
        }
    };
    let outputs = executor.run_observed(vec![uploaded], &mut observe).unwrap();
    (executor.download(0, &outputs[0]).unwrap().to_f64(), operators)
}

#[track_caller]
fn assert_close(actual: &[f64], expected: &[f64], share: f64) {
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let error = actual.iter().zip(expected).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    assert!(error <= share * largest, "{error} of {largest}");
}

#[test]
fn every_library_computes_them_in_each_precision() {
    let original = graph();
    let mut int8 = original.clone();
    int8.store_as_int8(&["*".to_owned()]).unwrap();
    assert_eq!(int8.weights.values().filter(|weight| weight.spec.dtype == DType::I8).count(), 2);
    let half = to_f16(&int8, &[]).unwrap();
    flagperf_onnx::check(&half).unwrap();

    let expected = run(&original, CpuOps).0;
    let reference = run(&int8, ReferenceOps).0;
    assert_close(&reference, &expected, 0.02);
    assert_close(&run(&half, CpuOps).0, &reference, 0.01);
    let (actual, operators) = run(&int8, CpuOps);
    assert_close(&actual, &reference, 1e-6);
    assert_eq!(operators.iter().filter(|op| *op == "Cast").count(), 2, "{operators:?}");
}
