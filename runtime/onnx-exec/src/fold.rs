//! Computes the constants of a graph: nodes whose inputs are the same in every run.

use std::collections::HashMap;

use super::{Executor, ReferenceOps};
use flagperf_onnx::rewrite::{has_subgraph, is_random, replace_by_constants, simplify};
use flagperf_onnx::{
    Graph, LowerError, Node, Tensor, TensorSpec, ValueInfo, Weight, WeightReader, byte_count, captured_names,
};

/// The size of a folded constant that is not exceeded unless the caller chooses another.
pub const FOLDED_BYTES_MAX: usize = 16 << 20;

/// What was folded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Nodes before and after.
    pub nodes: [usize; 2],
    /// Values that were computed.
    pub folded: usize,
    /// Nodes with constant inputs that were not computed, with the reason.
    pub left: Vec<(String, String)>,
}

/// Computes every node whose inputs are constants and whose outputs have at most `bytes_max` bytes each, as the reference
/// library does, and rounds the results to their types. Shapes are simplified first, because most constants are sizes.
///
/// # Errors
/// When a node of an older operator set has no newer form.
pub fn fold_constants(graph: &Graph, bytes_max: usize) -> Result<(Graph, Folded), LowerError> {
    let (mut folded, _) = simplify(graph)?;
    let mut facts = Folded { nodes: [graph.nodes.len(), 0], ..Folded::default() };
    // A size that was computed may tell the shapes of further values.
    loop {
        facts.left.clear();
        let is_output = |name: &String| folded.outputs.iter().any(|output| output.name == *name);
        let constants = constants(&folded, bytes_max, &mut facts);
        let constants: Vec<_> = constants.into_iter().filter(|(name, _)| !is_output(name)).collect();
        if constants.is_empty() {
            break;
        }
        facts.folded += constants.len();
        replace_by_constants(&mut folded, constants);
        folded = simplify(&folded)?.0;
    }
    facts.nodes[1] = folded.nodes.len();
    Ok((folded, facts))
}

/// Returns the values of the nodes that can be computed, in order.
fn constants(graph: &Graph, bytes_max: usize, facts: &mut Folded) -> Vec<(String, Tensor)> {
    let mut reader = WeightReader::new(graph);
    let mut known: HashMap<String, Tensor> = HashMap::new();
    let mut order = Vec::new();
    for node in graph.nodes.iter().filter(|node| can_fold(graph, node)) {
        let is_known = |name: &String| name.is_empty() || known.contains_key(name) || graph.weights.contains_key(name);
        if node.inputs.is_empty() || !node.inputs.iter().all(is_known) {
            continue;
        }
        let large = node.outputs.iter().find(|name| is_large(graph.values.get(*name), bytes_max));
        if let Some(name) = large {
            facts.left.push((node.name.clone(), format!("`{name}` may have more than {bytes_max} bytes")));
            continue;
        }
        let operands = node.inputs.iter().filter(|name| !name.is_empty());
        let operands: Result<Vec<(String, Tensor)>, String> = operands
            .map(|name| match known.get(name) {
                Some(tensor) => Ok((name.clone(), tensor.clone())),
                None => Ok((name.clone(), reader.tensor(name).map_err(|error| error.to_string())?)),
            })
            .collect();
        match operands.and_then(|operands| compute(graph, node, operands)) {
            Ok(outputs) => outputs.into_iter().for_each(|(name, tensor)| {
                known.insert(name.clone(), tensor.clone());
                order.push((name, tensor));
            }),
            Err(reason) => facts.left.push((node.name.clone(), reason)),
        }
    }
    order
}

fn can_fold(graph: &Graph, node: &Node) -> bool {
    node.domain.is_empty() && !is_random(node) && !has_subgraph(node) && captured_names(node, graph.opset).is_empty()
}

fn is_large(spec: Option<&TensorSpec>, bytes_max: usize) -> bool {
    let bytes = spec.and_then(|spec| byte_count(&spec.fixed_shape()?, spec.dtype));
    bytes.is_none_or(|bytes| bytes > bytes_max)
}

/// Computes one node.
fn compute(graph: &Graph, node: &Node, operands: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, String> {
    let outputs = node.outputs.iter().filter(|name| !name.is_empty());
    let outputs: Option<Vec<ValueInfo>> =
        outputs.map(|name| Some(ValueInfo { name: name.clone(), spec: graph.values.get(name)?.clone() })).collect();
    let part = Graph {
        name: graph.name.clone(),
        opset: graph.opset,
        outputs: outputs.ok_or("the shape of its output is not known")?,
        nodes: vec![node.clone()],
        weights: operands.into_iter().map(|(name, tensor)| (name, Weight::constant(tensor))).collect(),
        ..Graph::default()
    };
    let executor = Executor::load(&part, ReferenceOps).map_err(|error| error.to_string())?;
    let tensors = executor.run_host(&[]).map_err(|error| error.to_string())?;
    Ok(part.outputs.into_iter().map(|output| output.name).zip(tensors).collect())
}
