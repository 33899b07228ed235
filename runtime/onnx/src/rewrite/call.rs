//! What a node computes, without the names of its values.

use flagperf_core::hash::hash_bytes;

use crate::{Attribute, Node};

/// Describes the operator of a node and its attributes: nodes with the same description compute the same on the same inputs,
/// unless they draw random numbers. A tensor counts with its elements.
pub fn describe_call(node: &Node) -> String {
    let attributes = node.attributes.iter().map(|(name, value)| (name.as_str(), value));
    format!("{}.{} {:?}", node.domain, node.op, describe_attributes(attributes))
}

/// Describes attributes, whatever their order.
pub(super) fn describe_attributes<'a>(attributes: impl Iterator<Item = (&'a str, &'a Attribute)>) -> Vec<String> {
    let mut described: Vec<String> = attributes.map(|(name, value)| format!("{name}={}", describe(value))).collect();
    described.sort_unstable();
    described
}

fn describe(value: &Attribute) -> String {
    match value {
        Attribute::Tensor(tensor) => format!("{} {}", tensor.spec(), hash_bytes(tensor.bytes())),
        value => format!("{value:?}"),
    }
}

/// Returns whether a node of the standard domain may return other values for the same inputs.
pub fn is_random(node: &Node) -> bool {
    node.op.starts_with("Random") || matches!(node.op.as_str(), "Bernoulli" | "Multinomial" | "Dropout")
}

/// Returns whether a node has an attribute that is kept without being interpreted, such as a subgraph.
pub fn has_subgraph(node: &Node) -> bool {
    node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_)))
}
