//! Decomposes composite operators into operators of version 17, for engines that lack them.
//!
//! Knows no engine: the caller states what an engine lacks.

mod attention;
mod node_list;
mod normalization;
mod rotary;

use std::collections::HashMap;

pub use node_list::NodeList;

use crate::operator_set::set_version;
use crate::operators::needed_version;
use crate::{Graph, Node, OPSET, TensorSpec, check, find_operator};

pub(crate) use attention::attention;
pub(crate) use normalization::{gelu, group_normalization, layer_normalization, rms_normalization};
pub(crate) use rotary::rotary_embedding;

/// A decomposition: appends nodes that compute the outputs of a node.
pub type Decomposition = fn(&mut NodeList<'_>, &Node) -> Result<(), String>;

/// Why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// An operator is used in a way that the decomposition does not cover.
    #[error("node `{node}` ({op}) cannot be decomposed: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What is not covered.
        reason: String,
    },
    /// The graph needs a newer operator set than the engine supports, even without composite operators.
    #[error("node `{node}` ({op}) needs operator set {needed}, but the engine supports up to {opset_max}")]
    TooNew {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// The version that it needs.
        needed: i64,
        /// The newest version that the engine supports.
        opset_max: i64,
    },
}

/// Decomposes the composite operators that an engine lacks: those that are newer than `opset_max`, and those in
/// `lacking`. Weights and the names of outputs are kept. A graph without such operators is returned unchanged.
///
/// # Errors
/// When an operator is used in a way that the decomposition does not cover, such as an unknown number of heads, or the
/// graph still needs a newer operator set.
pub fn lower(graph: &Graph, opset_max: i64, lacking: &[&str]) -> Result<Graph, LowerError> {
    let is_lacking = |node: &Node| needed_version(&node.op) > opset_max || lacking.contains(&node.op.as_str());
    let decomposition = |node: &Node| {
        let operator = find_operator(&node.op).filter(|_| node.domain.is_empty() && is_lacking(node));
        operator.and_then(|operator| operator.decomposition)
    };
    if !graph.nodes.iter().any(|node| decomposition(node).is_some()) {
        return Ok(graph.clone());
    }
    finish(replace_nodes(graph, decomposition)?, graph.opset, opset_max)
}

/// Replaces each node for which `decomposition` returns one, and infers the shapes of the new values. Weights and the names
/// of outputs are kept.
///
/// # Errors
/// When a decomposition does not cover its node.
pub fn rewrite(graph: &Graph, decomposition: impl Fn(&Node) -> Option<Decomposition>) -> Result<Graph, LowerError> {
    let mut rewritten = replace_nodes(graph, decomposition)?;
    check::infer_shapes(&mut rewritten);
    Ok(rewritten)
}

fn replace_nodes(graph: &Graph, decomposition: impl Fn(&Node) -> Option<Decomposition>) -> Result<Graph, LowerError> {
    let (inferred, _) = check::infer_nodes(graph, check::start_inference(graph));
    let declared = graph.inputs.iter().map(|input| (input.name.clone(), input.spec.clone()));
    let weights = graph.weights.iter().map(|(name, weight)| (name.clone(), weight.spec.clone()));
    let stored = graph.values.iter().map(|(name, spec)| (name.clone(), spec.clone()));
    let specs: HashMap<String, TensorSpec> = stored.chain(inferred).chain(weights).chain(declared).collect();
    let mut lowered = Graph { nodes: Vec::new(), ..graph.clone() };
    for node in &graph.nodes {
        match decomposition(node) {
            None => lowered.nodes.push(node.clone()),
            Some(decompose) => {
                let failed = |reason| LowerError::Node { node: node.name.clone(), op: node.op.clone(), reason };
                decompose(&mut NodeList::new(&mut lowered, &specs, node), node).map_err(failed)?;
            }
        }
    }
    Ok(lowered)
}

/// Sets the version of the lowered graph and infers the shapes of the new values.
fn finish(mut lowered: Graph, opset: i64, opset_max: i64) -> Result<Graph, LowerError> {
    let newest = lowered.nodes.iter().max_by_key(|node| needed_version(&node.op));
    let needed = newest.map_or(0, |node| needed_version(&node.op));
    if let Some(node) = newest.filter(|_| needed > opset_max) {
        return Err(LowerError::TooNew { node: node.name.clone(), op: node.op.clone(), needed, opset_max });
    }
    let version = if opset <= opset_max { opset } else { needed.max(OPSET).min(opset_max) };
    set_version(&mut lowered, version);
    check::infer_shapes(&mut lowered);
    Ok(lowered)
}
