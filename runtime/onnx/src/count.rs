//! Counts parameters and multiply-adds: what a model costs, from its shapes alone.
//!
//! Reads no weight's bytes.

use std::collections::HashMap;

use crate::check;
use crate::inference::Attributes;
use crate::{Attribute, Dim, Graph, Node, Role};

/// What a graph consists of and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Learned numbers.
    pub parameters: u64,
    /// Numbers that layers keep beside them (running statistics).
    pub buffers: u64,
    /// Multiply-adds of convolutions and matrix products for one sample; a multiply-add is two floating-point
    /// operations. `None` when a shape that they depend on is not known.
    pub multiply_adds_per_sample: Option<u64>,
}

/// Counts a graph. A sample is one row of the first dimension of the first input: a named one counts as 1, a fixed one
/// divides the whole.
pub fn count(graph: &Graph) -> Counts {
    let elements = |role: Role| {
        let weights = graph.weights.values().filter(|weight| weight.role == role);
        weights.filter_map(|weight| product(&weight.spec.dims)).sum()
    };
    Counts {
        parameters: elements(Role::Parameter),
        buffers: elements(Role::Buffer),
        multiply_adds_per_sample: multiply_adds(graph),
    }
}

fn multiply_adds(graph: &Graph) -> Option<u64> {
    let batch = graph.inputs.first().and_then(|input| input.spec.dims.first());
    let rows = batch.and_then(Dim::fixed).unwrap_or(1) as u64;
    let mut inference = check::begin(graph);
    // With one row wherever the batch's name stands, what follows from it becomes a number.
    for input in &graph.inputs {
        let mut spec = input.spec.clone();
        for dim in spec.dims.iter_mut().filter(|dim| dim.fixed().is_none() && batch == Some(dim)) {
            *dim = Dim::Fixed(1);
        }
        inference.declare(&input.name, &spec);
    }
    let (values, _) = check::run(graph, inference);
    let mut shapes: HashMap<&str, &[Dim]> = HashMap::new();
    shapes.extend(graph.weights.iter().map(|(name, weight)| (name.as_str(), weight.spec.dims.as_slice())));
    shapes.extend(graph.inputs.iter().map(|input| (input.name.as_str(), input.spec.dims.as_slice())));
    shapes.extend(values.iter().map(|(name, spec)| (name.as_str(), spec.dims.as_slice())));
    let total = graph.nodes.iter().map(|node| of_node(node, &shapes)).sum::<Option<u64>>()?;
    total.checked_div(rows)
}

/// Multiply-adds of one node: elements of the output times those summed for each. Other operators have none.
fn of_node(node: &Node, shapes: &HashMap<&str, &[Dim]>) -> Option<u64> {
    let shape = |name: Option<&String>| shapes.get(name?.as_str()).copied();
    let output = || product(shape(node.outputs.first())?);
    let first = || shape(node.inputs.first());
    match node.op.as_str() {
        // Each output sums over a group's channels and the window.
        "Conv" => output()?.checked_mul(product(shape(node.inputs.get(1))?.get(1..)?)?),
        // Each input is spread over a group's channels and the window.
        "ConvTranspose" => product(first()?)?.checked_mul(product(shape(node.inputs.get(1))?.get(1..)?)?),
        "Gemm" => {
            let transposed = Attributes(&node.attributes).flag("transA").ok()?;
            output()?.checked_mul(first()?.get(usize::from(!transposed))?.fixed()? as u64)
        }
        "MatMul" => output()?.checked_mul(first()?.last()?.fixed()? as u64),
        op if uncounted(op) || !matches!(node.domain.as_str(), "" | "ai.onnx") => None,
        _ if node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_))) => None,
        _ => Some(0),
    }
}

/// Operators with products in them that are not counted: the total is then unknown rather than too small.
fn uncounted(op: &str) -> bool {
    let quantised = op.ends_with("Integer") || op.starts_with("QLinear");
    quantised || matches!(op, "Attention" | "DeformConv" | "Einsum" | "GRU" | "LSTM" | "RNN")
}

/// Number of elements; `None` when a size is not known.
fn product(dims: &[Dim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |all, dim| all.checked_mul(dim.fixed()? as u64))
}
