//! Counts a model's parameters and multiply-adds from its shapes alone.
//!
//! Does not read the bytes of weights.

use std::collections::HashMap;

use crate::check;
use crate::shape_inference::Attributes;
use crate::{Attribute, Dim, Graph, Node, WeightRole};

/// The parameters, buffers and multiply-adds of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Learned numbers.
    pub parameters: u64,
    /// Numbers that layers keep in addition to their parameters (running statistics).
    pub buffers: u64,
    /// Multiply-adds of convolutions and matrix products for one sample. A multiply-add is two floating-point
    /// operations. `None` when a shape that the number depends on is unknown.
    pub multiply_adds_per_sample: Option<u64>,
}

/// Counts a graph. A sample is one row of the first dimension of the first input. A named dimension counts as 1 row;
/// with a fixed one, the total is divided by its size.
pub fn count(graph: &Graph) -> Counts {
    let elements = |role: WeightRole| {
        let weights = graph.weights.values().filter(|weight| weight.role == role);
        weights.filter_map(|weight| element_count(&weight.spec.dims)).sum()
    };
    Counts {
        parameters: elements(WeightRole::Parameter),
        buffers: elements(WeightRole::Buffer),
        multiply_adds_per_sample: multiply_adds(graph),
    }
}

fn multiply_adds(graph: &Graph) -> Option<u64> {
    let batch = graph.inputs.first().and_then(|input| input.spec.dims.first());
    let rows = batch.and_then(Dim::fixed).unwrap_or(1) as u64;
    let mut inference = check::start_inference(graph);
    // With 1 in place of the batch dimension's name, every size computed from it becomes a number.
    for input in &graph.inputs {
        let mut spec = input.spec.clone();
        for dim in spec.dims.iter_mut().filter(|dim| dim.fixed().is_none() && batch == Some(dim)) {
            *dim = Dim::Fixed(1);
        }
        inference.declare(&input.name, &spec);
    }
    let (values, _) = check::infer_nodes(graph, inference);
    let mut shapes: HashMap<&str, &[Dim]> = HashMap::new();
    shapes.extend(graph.weights.iter().map(|(name, weight)| (name.as_str(), weight.spec.dims.as_slice())));
    shapes.extend(graph.inputs.iter().map(|input| (input.name.as_str(), input.spec.dims.as_slice())));
    shapes.extend(values.iter().map(|(name, spec)| (name.as_str(), spec.dims.as_slice())));
    let total = graph.nodes.iter().map(|node| node_multiply_adds(node, &shapes)).sum::<Option<u64>>()?;
    total.checked_div(rows)
}

/// Returns the multiply-adds of one node: the output's elements times the products summed for each. Operators other
/// than convolutions and matrix products have none.
fn node_multiply_adds(node: &Node, shapes: &HashMap<&str, &[Dim]>) -> Option<u64> {
    let shape = |name: Option<&String>| shapes.get(name?.as_str()).copied();
    let output = || element_count(shape(node.outputs.first())?);
    let first = || shape(node.inputs.first());
    match node.op.as_str() {
        // Each output element sums over the channels of a group and the window.
        "Conv" => output()?.checked_mul(element_count(shape(node.inputs.get(1))?.get(1..)?)?),
        // Each input element contributes to the channels of a group and the window.
        "ConvTranspose" => element_count(first()?)?.checked_mul(element_count(shape(node.inputs.get(1))?.get(1..)?)?),
        "Gemm" => {
            let transposed = Attributes(&node.attributes).flag("transA").ok()?;
            output()?.checked_mul(first()?.get(usize::from(!transposed))?.fixed()? as u64)
        }
        "MatMul" => output()?.checked_mul(first()?.last()?.fixed()? as u64),
        op if is_uncounted(op) || !matches!(node.domain.as_str(), "" | "ai.onnx") => None,
        _ if node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_))) => None,
        _ => Some(0),
    }
}

/// Returns whether an operator computes products that are not counted. The total is then unknown rather than too small.
fn is_uncounted(op: &str) -> bool {
    let quantised = op.ends_with("Integer") || op.starts_with("QLinear");
    quantised || matches!(op, "Attention" | "DeformConv" | "Einsum" | "GRU" | "LSTM" | "RNN")
}

/// Returns the number of elements; `None` when a size is unknown.
fn element_count(dims: &[Dim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |all, dim| all.checked_mul(dim.fixed()? as u64))
}
