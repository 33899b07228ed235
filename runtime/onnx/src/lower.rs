//! Decomposes composite operators into operators of version 17, for engines that lack them.
//!
//! Knows no engine: the caller states what an engine lacks.

mod activation;
mod attention;
mod grid_sample;
mod local_norm;
mod loss;
mod node_list;
mod normalization;
mod quantized;
mod recurrent;
mod rewrite;
mod rotary;
mod tensor_scatter;

pub use node_list::NodeList;
pub(crate) use node_list::{float, int, required};

use crate::operator_set::{set_version, upgrade};
use crate::operators::needed_version;
use crate::{Attribute, Graph, Node, OPSET, check, find_operator};

pub(crate) use activation::{celu, hardmax, shrink, softsign, swiglu, swish, thresholded_relu};
pub(crate) use attention::attention;
pub(crate) use grid_sample::grid_sample;
pub(crate) use local_norm::{global_lp_pool, local_response, lp_normalization, lp_pool, mean_variance};
pub(crate) use loss::{negative_log_likelihood, softmax_cross_entropy};
pub(crate) use normalization::{
    gelu, group_normalization, instance_normalization, layer_normalization, rms_normalization,
};
pub(crate) use quantized::{
    conv_integer, dequantize_linear, dynamic_quantize_linear, matmul_integer, qlinear_conv, qlinear_matmul,
    quantize_linear,
};
pub(crate) use recurrent::{gru, lstm, rnn};
pub(crate) use rewrite::{Rewriting, rewrite};
pub(crate) use rotary::rotary_embedding;
pub(crate) use tensor_scatter::tensor_scatter;

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
    /// A node of an older operator set has no newer form.
    #[error("node `{node}` ({op}) cannot be converted to a newer operator set: {reason}")]
    Version {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What cannot be converted.
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
    let graph = &upgrade(graph)?;
    let lowered = rewrite(graph, decomposition, node_error)?;
    finish(lowered, graph.opset, opset_max)
}

/// Replaces each node for which `rule` returns a decomposition, and infers the shapes of the new values. Weights and the names
/// of outputs are kept.
///
/// # Errors
/// When a decomposition does not cover its node.
pub fn replace_nodes(graph: &Graph, rule: impl Fn(&Node) -> Option<Decomposition>) -> Result<Graph, LowerError> {
    let mut replaced = rewrite(graph, rule, node_error)?;
    check::infer_shapes(&mut replaced);
    Ok(replaced)
}

fn node_error(node: &Node, reason: String) -> LowerError {
    LowerError::Node { node: node.name.clone(), op: node.op.clone(), reason }
}

/// Returns the version of the operator set that the form of a node needs, or 0 if every version since [`OPSET`] has it.
fn form_version(node: &Node) -> i64 {
    let has = |names: &[&str]| names.iter().any(|name| node.attributes.contains_key(*name));
    let text = |name: &str| match node.attributes.get(name) {
        Some(Attribute::String(text)) => text.as_str(),
        _ => "",
    };
    match node.op.as_str() {
        "Pad" if text("mode") == "wrap" => 19,
        "Pad" if node.inputs.get(3).is_some_and(|axes| !axes.is_empty()) => 18,
        "Resize" if has(&["antialias", "axes", "keep_aspect_ratio_policy"]) => 18,
        "ScatterElements" | "ScatterND" if matches!(text("reduction"), "max" | "min") => 18,
        "AveragePool" if has(&["dilations"]) => 19,
        "GridSample" if matches!(text("mode"), "linear" | "cubic") => 20,
        _ => 0,
    }
}

/// Sets the version of the lowered graph and infers the shapes of the new values.
fn finish(mut lowered: Graph, opset: i64, opset_max: i64) -> Result<Graph, LowerError> {
    let version_of = |node: &Node| needed_version(&node.op).max(form_version(node));
    let newest = lowered.nodes.iter().max_by_key(|node| version_of(node));
    let needed = newest.map_or(0, version_of);
    if let Some(node) = newest.filter(|_| needed > opset_max) {
        return Err(LowerError::TooNew { node: node.name.clone(), op: node.op.clone(), needed, opset_max });
    }
    let version = if opset <= opset_max { opset } else { needed.max(OPSET).min(opset_max) };
    set_version(&mut lowered, version);
    check::infer_shapes(&mut lowered);
    Ok(lowered)
}
