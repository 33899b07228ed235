//! What a graph may be at most for an engine to take it: engines walk graphs by recursion, and a stack that overflows
//! ends the process without a word.
//!
//! Knows no engine: the limits are far above any model's and below what every engine was seen to take.

use std::collections::HashMap;

use crate::file::subgraphs;
use crate::{Attribute, Graph, Node, Source, TensorSpec, byte_count, check};

/// Nodes of which each reads what the one before it makes. A language model of 100 layers has about 5,000.
const NODES_IN_A_ROW_MAX: usize = 10_000;
/// Inputs, or outputs, of one node.
const VALUES_MAX: usize = 4_096;
/// Subgraphs, each inside the one before (`If`, `Loop`, `Scan`).
const NESTED_MAX: usize = 16;
/// Bytes of one value whose size is known: more than any device or machine has.
const BYTES_MAX: usize = 1 << 40;

/// Elements of a value that `ConstantOfShape` makes: engines make it in memory, some several times, before they run.
pub(crate) const CONSTANT_ELEMENTS_MAX: usize = 1 << 28;

/// A graph that no engine is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A path through the graph is too long.
    #[error("{count} nodes in a row lead to node `{node}`, at most {NODES_IN_A_ROW_MAX} are supported")]
    NodesInARow {
        /// The node at the end of the longest path.
        node: String,
        /// The nodes on the path.
        count: usize,
    },
    /// A node has too many inputs or outputs.
    #[error("node `{node}` ({op}) has {count} {what}, at most {VALUES_MAX} are supported")]
    Values {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many it has.
        count: usize,
    },
    /// Subgraphs are nested too deeply.
    #[error("node `{node}` ({op}) has subgraphs nested more than {NESTED_MAX} deep, which is not supported")]
    Nested {
        /// The outermost node.
        node: String,
        /// Its operator.
        op: String,
    },
    /// A value is larger than any memory.
    #[error("the value `{value}` (`{spec}`) needs {} GiB, at most {} GiB are supported", .bytes.div_ceil(1 << 30), BYTES_MAX >> 30)]
    Bytes {
        /// The value.
        value: String,
        /// Its shape and type.
        spec: TensorSpec,
        /// What it needs.
        bytes: usize,
    },
    /// A constant that would be made of one number is too large.
    #[error(
        "node `{node}` (ConstantOfShape) makes a constant of `{spec}`, at most {CONSTANT_ELEMENTS_MAX} elements are supported"
    )]
    Constant {
        /// The node.
        node: String,
        /// What it makes.
        spec: TensorSpec,
    },
    /// A slice that would never end.
    #[error("node `{node}` (Slice): a step is 0")]
    SliceStep {
        /// The node.
        node: String,
    },
}

/// Checks that engines can take a graph without overflowing their stacks.
///
/// # Errors
/// The first node that is too much.
pub fn check_limits(graph: &Graph) -> Result<(), LimitError> {
    graph.nodes.iter().try_for_each(|node| {
        check_values(node)?;
        check_nesting(node)?;
        if has_step_of_zero(graph, node) { Err(LimitError::SliceStep { node: node.name.clone() }) } else { Ok(()) }
    })?;
    if let Some((node, count)) = longest_path(graph).filter(|(_, count)| *count > NODES_IN_A_ROW_MAX) {
        return Err(LimitError::NodesInARow { node: node.name.clone(), count });
    }
    check_sizes(graph)
}

/// Inputs and weights as they are declared, and what follows from them.
fn check_sizes(graph: &Graph) -> Result<(), LimitError> {
    let (made, _) = check::run(graph, check::begin(graph));
    let filled = graph.nodes.iter().filter(|node| node.op == "ConstantOfShape");
    let filled: HashMap<&str, &Node> = filled.filter_map(|node| Some((node.outputs.first()?.as_str(), node))).collect();
    for (value, spec) in &made {
        let (Some(node), Some(shape)) = (filled.get(value.as_str()), spec.fixed_shape()) else { continue };
        let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if elements.is_none_or(|elements| elements > CONSTANT_ELEMENTS_MAX) {
            return Err(LimitError::Constant { node: node.name.clone(), spec: spec.clone() });
        }
    }
    let inputs = graph.inputs.iter().map(|input| (&input.name, &input.spec));
    let weights = graph.weights.iter().map(|(name, weight)| (name, &weight.spec));
    let made = made.iter().map(|(name, spec)| (name, spec));
    for (value, spec) in inputs.chain(weights).chain(made) {
        let Some(shape) = spec.fixed_shape() else { continue };
        let bytes = byte_count(&shape, spec.dtype).unwrap_or(usize::MAX);
        if bytes > BYTES_MAX {
            return Err(LimitError::Bytes { value: value.clone(), spec: spec.clone(), bytes });
        }
    }
    Ok(())
}

fn check_values(node: &Node) -> Result<(), LimitError> {
    let (name, op) = (&node.name, &node.op);
    for (what, count) in [("inputs", node.inputs.len()), ("outputs", node.outputs.len())] {
        if count > VALUES_MAX {
            return Err(LimitError::Values { node: name.clone(), op: op.clone(), what, count });
        }
    }
    Ok(())
}

/// Subgraphs stay encoded, so they are opened level by level, and no further than the limit.
fn check_nesting(node: &Node) -> Result<(), LimitError> {
    let encoded = |value: &Attribute| if let Attribute::Encoded(bytes) = value { Some(bytes.clone()) } else { None };
    let mut level: Vec<Vec<u8>> = node.attributes.values().filter_map(encoded).collect();
    for _ in 0..=NESTED_MAX {
        level = level.iter().flat_map(|attribute| subgraphs(attribute)).collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(LimitError::Nested { node: node.name.clone(), op: node.op.clone() })
}

/// Whether a constant step of a slice is zero; other steps are known when the model runs.
fn has_step_of_zero(graph: &Graph, node: &Node) -> bool {
    let steps = node.inputs.get(4).filter(|_| node.op == "Slice").and_then(|steps| graph.weights.get(steps));
    matches!(steps.map(|weight| &weight.source), Some(Source::Value(steps)) if steps.to_f64().contains(&0.0))
}

/// The end of the longest path through the graph, and the nodes on it.
fn longest_path(graph: &Graph) -> Option<(&Node, usize)> {
    let mut paths: HashMap<&str, usize> = HashMap::new();
    let mut longest = None;
    for node in &graph.nodes {
        let before = node.inputs.iter().filter_map(|input| paths.get(input.as_str())).max();
        let path = before.copied().unwrap_or(0) + 1;
        paths.extend(node.outputs.iter().map(|output| (output.as_str(), path)));
        if longest.is_none_or(|(_, longest)| path > longest) {
            longest = Some((node, path));
        }
    }
    longest
}
