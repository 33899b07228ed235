//! The values of a graph that numbers of 16 bits reach.

use std::collections::HashSet;

use flagperf_onnx::{DType, Graph, captured_names};

/// The values that have 16 bits, or are computed from such values.
pub(super) struct HalfValues<'g>(HashSet<&'g str>);

impl<'g> HalfValues<'g> {
    pub(super) fn of(graph: &'g Graph) -> Self {
        let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
        let inputs = graph.inputs.iter().map(|input| (&input.name, input.spec.dtype));
        let weights = graph.weights.iter().map(|(name, weight)| (name, weight.spec.dtype));
        let values = graph.values.iter().map(|(name, spec)| (name, spec.dtype));
        let outputs = graph.outputs.iter().map(|output| (&output.name, output.spec.dtype));
        let all = inputs.chain(weights).chain(values).chain(outputs);
        let mut half: HashSet<&str> = all.filter(|(_, dtype)| is_half(*dtype)).map(|(name, _)| name.as_str()).collect();
        for node in &graph.nodes {
            let captured = captured_names(node, graph.opset);
            if node.inputs.iter().chain(&captured).any(|name| half.contains(name.as_str())) {
                half.extend(node.outputs.iter().map(String::as_str));
            }
        }
        HalfValues(half)
    }

    /// Returns whether numbers of 16 bits reach a value.
    pub(super) fn reach(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
