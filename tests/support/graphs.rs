//! Graphs for tests of engines.

use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{DType, Graph, GraphBuilder};

/// Returns a model of one linear layer from `N,3,f32` to this number of outputs, with seeded weights.
pub fn linear(outputs: usize) -> Graph {
    let mut builder = GraphBuilder::new("linear");
    let x = builder.input("x", "N,3,f32".parse().expect("a shape")).expect("an input");
    let y = layers::linear(&mut builder, "fc", &x, Linear::new(3, outputs)).expect("a layer");
    builder.output("y", &y).expect("an output");
    let mut graph = builder.finish().expect("a graph");
    graph.seed_weights(7);
    graph
}

/// Returns a model that selects rows of a table of ten by `N,i64`: it fails for another index.
pub fn table() -> Graph {
    let mut builder = GraphBuilder::new("table");
    let x = builder.input("x", "N,i64".parse().expect("a shape")).expect("an input");
    let y = layers::embedding(&mut builder, "table", &x, [10, 3], DType::F32).expect("a layer");
    builder.output("y", &y).expect("an output");
    let mut graph = builder.finish().expect("a graph");
    graph.seed_weights(7);
    graph
}

/// Returns a model from `N,3,f32` that fails whenever it runs: its rows of three never have seven elements.
pub fn failing() -> Graph {
    let mut builder = GraphBuilder::new("failing");
    let x = builder.input("x", "N,3,f32".parse().expect("a shape")).expect("an input");
    let y = layers::reshape(&mut builder, "impossible", &x, &[7]).expect("a layer");
    builder.output("y", &y).expect("an output");
    builder.finish().expect("a graph")
}
