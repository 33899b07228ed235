//! An ONNX file: read, checked, counted, rewritten, written and read again, and executed if it is small.

#![no_main]

mod support;

use flagperf_onnx::layers::{self, Conv2d, Linear, Pool2d};
use flagperf_onnx::{
    DType, Graph, GraphBuilder, HalfPrecision, Tensor, TensorSpec, byte_count, check, check_limits, count,
    find_unknown_operator, infer_shapes, lower, read_onnx, to_half_precision, write_onnx,
};
use flagperf_onnx_exec::{CpuOps, Executor, ReferenceOps, TensorOps};
use libfuzzer_sys::fuzz_target;

/// A graph is executed if all of its values together have at most this many elements.
const ELEMENTS_MAX: usize = 1 << 16;
const NODES_MAX: usize = 64;

fuzz_target!(init: support::write_seeds(seeds), |bytes: &[u8]| {
    let Ok(mut graph) = read_onnx(&support::write("model.onnx", bytes)) else { return };
    let _ = find_unknown_operator(&graph);
    let is_valid = check_limits(&graph).is_ok() && check(&graph).is_ok();
    let _ = count(&graph);
    check_rewritten(&graph);
    infer_shapes(&mut graph);
    for half in [HalfPrecision::F16, HalfPrecision::BF16] {
        let _ = to_half_precision(&graph, half, &[]);
    }
    if let Ok(lowered) = lower(&graph, 17, &[]) {
        check_rewritten(&lowered);
    }
    if is_valid && is_small(&graph) {
        execute(&graph, CpuOps);
        execute(&graph, ReferenceOps);
    }
});

/// Writes a graph and reads it again: it must be the same.
fn check_rewritten(graph: &Graph) {
    let path = support::FOLDER.join("again.onnx");
    if write_onnx(graph, &path).is_err() {
        return;
    }
    let again = read_onnx(&path).unwrap_or_else(|error| panic!("a written graph cannot be read: {error}"));
    // As text, because NaN differs from itself.
    let text = |graph: &Graph| {
        let weights: Vec<_> = graph.weights.iter().map(|(name, weight)| (name, &weight.spec, weight.role)).collect();
        format!("{:?} {:?} {:?} {weights:?} {}", graph.inputs, graph.outputs, graph.nodes, graph.opset)
    };
    assert_eq!(text(&again), text(graph));
}

/// Returns whether every value has a known and small size.
fn is_small(graph: &Graph) -> bool {
    let weights = graph.weights.values().map(|weight| &weight.spec);
    let specs = graph.inputs.iter().map(|input| &input.spec).chain(graph.values.values()).chain(weights);
    let sizes: Option<Vec<usize>> = specs.map(|spec| byte_count(&spec.fixed_shape()?, spec.dtype)).collect();
    let is_known = |name: &String| name.is_empty() || graph.values.contains_key(name);
    graph.nodes.len() <= NODES_MAX
        && graph.nodes.iter().flat_map(|node| &node.outputs).all(is_known)
        && sizes.is_some_and(|sizes| sizes.into_iter().fold(0, usize::saturating_add) <= ELEMENTS_MAX)
}

/// Executes a graph on zeros. Its outputs must be as declared.
fn execute(graph: &Graph, ops: impl TensorOps) {
    let Ok(executor) = Executor::load(graph, ops) else { return };
    let zeros = |spec: &TensorSpec| {
        let shape = spec.fixed_shape()?;
        Tensor::from_bytes(shape.clone(), spec.dtype, &vec![0; byte_count(&shape, spec.dtype)?]).ok()
    };
    let inputs: Option<Vec<Tensor>> = graph.inputs.iter().map(|input| zeros(&input.spec)).collect();
    let Some(Ok(outputs)) = inputs.map(|inputs| executor.run_host(&inputs)) else { return };
    assert_eq!(outputs.len(), graph.outputs.len());
    for (output, declared) in outputs.iter().zip(&graph.outputs) {
        assert_eq!(output.dtype(), declared.spec.dtype, "output `{}`", declared.name);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [convolutions(), multiplication(), table()].iter().map(|graph| written(graph)).collect()
}

fn written(graph: &Graph) -> Vec<u8> {
    let path = support::FOLDER.join("seed.onnx");
    write_onnx(graph, &path).expect("a file");
    std::fs::read(path).expect("a file")
}

fn spec(text: &str) -> TensorSpec {
    text.parse().expect("a specification")
}

fn convolutions() -> Graph {
    let mut graph = GraphBuilder::new("convolutions");
    let x = graph.input("x", spec("1,2,6,6,f32")).expect("an input");
    let x = layers::conv2d(&mut graph, "c", &x, Conv2d::new(2, 3, 3)).expect("a layer");
    let x = layers::relu(&mut graph, "r", &x).expect("a layer");
    let x = layers::max_pool2d(&mut graph, "p", &x, Pool2d::new(2)).expect("a layer");
    let x = layers::global_avg_pool(&mut graph, "g", &x).expect("a layer");
    graph.output("y", &x).expect("an output");
    graph.finish().expect("a graph")
}

fn multiplication() -> Graph {
    let mut graph = GraphBuilder::new("multiplication");
    let x = graph.input("x", spec("N,4,f32")).expect("an input");
    let x = layers::linear(&mut graph, "l", &x, Linear::new(4, 3)).expect("a layer");
    let x = layers::gelu(&mut graph, "g", &x).expect("a layer");
    let x = layers::softmax(&mut graph, "s", &x, -1).expect("a layer");
    graph.output("y", &x).expect("an output");
    graph.finish().expect("a graph")
}

fn table() -> Graph {
    let mut graph = GraphBuilder::new("table");
    let x = graph.input("ids", spec("2,3,i64")).expect("an input");
    let x = layers::embedding(&mut graph, "e", &x, [5, 4], DType::F32).expect("a layer");
    graph.output("y", &x).expect("an output");
    graph.finish().expect("a graph")
}
