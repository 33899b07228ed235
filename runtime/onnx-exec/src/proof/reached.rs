//! The values of a graph that are computed from given ones.

use std::collections::HashSet;

use flagperf_onnx::{DType, Graph, Node, captured_names};

/// Returns the values that are computed from the elements of inputs, not only from their shapes. The inputs are among them.
pub(super) fn values_from_inputs<'g>(graph: &'g Graph, inputs: impl Iterator<Item = &'g str>) -> HashSet<&'g str> {
    reached(graph, inputs.collect(), |node| !matches!(node.op.as_str(), "Shape" | "Size"))
}

/// Returns the values that have 16 bits, or are computed from such values.
pub(super) fn half_values(graph: &Graph) -> HashSet<&str> {
    let inputs = graph.inputs.iter().map(|input| (&input.name, input.spec.dtype));
    let weights = graph.weights.iter().map(|(name, weight)| (name, weight.spec.dtype));
    let values = graph.values.iter().map(|(name, spec)| (name, spec.dtype));
    let outputs = graph.outputs.iter().map(|output| (&output.name, output.spec.dtype));
    let half = inputs.chain(weights).chain(values).chain(outputs);
    let half = half.filter(|(_, dtype)| matches!(dtype, DType::F16 | DType::BF16)).map(|(name, _)| name.as_str());
    reached(graph, half.collect(), |_| true)
}

/// Adds the outputs of every node that reads one of the values, except of those that pass nothing on.
fn reached<'g>(graph: &'g Graph, mut values: HashSet<&'g str>, passes_on: impl Fn(&Node) -> bool) -> HashSet<&'g str> {
    for node in graph.nodes.iter().filter(|node| passes_on(node)) {
        let captured = captured_names(node, graph.opset);
        if node.inputs.iter().chain(&captured).any(|name| values.contains(name.as_str())) {
            values.extend(node.outputs.iter().map(String::as_str));
        }
    }
    values
}
