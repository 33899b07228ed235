//! The largest graph that is read, and the longest path that is passed to an engine. Engines traverse graphs recursively, and a
//! stack overflow ends the process without a message; nothing here does.
//!
//! Knows nothing about engines: the limits are far above the size of any model and below what every tested engine
//! handled.

use std::collections::HashMap;

use crate::file::subgraphs;
use crate::{Attribute, Graph, Node, TensorSpec, Weight, byte_count, check};

/// Nodes on one path, each of which reads an output of the one before. A language model of 100 layers has about 5,000.
const PATH_NODES_MAX: usize = 10_000;
/// Inputs or outputs of one node.
const VALUES_MAX: usize = 4_096;
/// Nesting depth of subgraphs (`If`, `Loop`, `Scan`).
pub(crate) const NESTING_MAX: usize = 16;
/// Bytes of one value of known size: more than the memory of any device or machine.
const BYTES_MAX: usize = 1 << 40;

/// Elements of a constant that `ConstantOfShape` makes: engines make it in memory before they run, some several times.
pub const CONSTANT_ELEMENTS_MAX: usize = 1 << 28;

/// Why a graph is not passed to any engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A path through the graph is too long.
    #[error("the path to node `{node}` has {count} nodes (at most {PATH_NODES_MAX} are supported)")]
    PathTooLong {
        /// The node at the end of the longest path.
        node: String,
        /// Number of nodes on the path.
        count: usize,
    },
    /// A node has too many inputs or outputs.
    #[error("node `{node}` ({op}) has {count} {what} (at most {VALUES_MAX} are supported)")]
    TooManyValues {
        node: String,
        /// Its operator.
        op: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// Number of inputs or outputs.
        count: usize,
    },
    /// Subgraphs are nested too deeply.
    #[error("node `{node}` ({op}) nests subgraphs too deeply (at most {NESTING_MAX} levels are supported)")]
    NestedTooDeep {
        /// The outermost node.
        node: String,
        /// Its operator.
        op: String,
    },
    /// A value is larger than any memory.
    #[error("the value `{value}` of `{spec}` needs {} GiB (at most {} GiB are supported)", .bytes.div_ceil(1 << 30), BYTES_MAX >> 30)]
    ValueTooLarge {
        value: String,
        /// Its shape and type.
        spec: TensorSpec,
        /// Bytes that it needs.
        bytes: usize,
    },
    /// A `ConstantOfShape` makes a constant that is too large.
    #[error(
        "node `{node}` (ConstantOfShape) makes a constant of `{spec}` (at most {CONSTANT_ELEMENTS_MAX} elements are supported)"
    )]
    ConstantTooLarge {
        node: String,
        /// The shape and type of the constant.
        spec: TensorSpec,
    },
    /// The step of a slice is zero, so the slice would never end.
    #[error("node `{node}` (Slice): a slice step is 0")]
    ZeroSliceStep { node: String },
}

/// Checks that a graph can be processed: the values and subgraphs of its nodes, and the sizes of its values.
///
/// # Errors
/// The first node or value that exceeds a limit.
pub fn check_limits(graph: &Graph) -> Result<(), LimitError> {
    graph.nodes.iter().try_for_each(|node| {
        check_values(node)?;
        check_nesting(node)?;
        if has_zero_step(graph, node) { Err(LimitError::ZeroSliceStep { node: node.name.clone() }) } else { Ok(()) }
    })?;
    check_sizes(graph)
}

/// Checks that an engine that follows the paths of a graph recursively does not overflow its stack.
///
/// # Errors
/// When a path is too long.
pub fn check_paths(graph: &Graph) -> Result<(), LimitError> {
    match longest_path(graph).filter(|(_, count)| *count > PATH_NODES_MAX) {
        Some((node, count)) => Err(LimitError::PathTooLong { node: node.name.clone(), count }),
        None => Ok(()),
    }
}

/// Checks the declared sizes of inputs and weights, and the sizes inferred from them.
fn check_sizes(graph: &Graph) -> Result<(), LimitError> {
    let (inferred, _) = check::infer_nodes(graph, check::start_inference(graph));
    let fills = graph.nodes.iter().filter(|node| node.op == "ConstantOfShape");
    let fills: HashMap<&str, &Node> = fills.filter_map(|node| Some((node.outputs.first()?.as_str(), node))).collect();
    for (value, spec) in &inferred {
        let (Some(node), Some(shape)) = (fills.get(value.as_str()), spec.fixed_shape()) else { continue };
        let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if elements.is_none_or(|elements| elements > CONSTANT_ELEMENTS_MAX) {
            return Err(LimitError::ConstantTooLarge { node: node.name.clone(), spec: spec.clone() });
        }
    }
    let inputs = graph.inputs.iter().map(|input| (&input.name, &input.spec));
    let weights = graph.weights.iter().map(|(name, weight)| (name, &weight.spec));
    let inferred = inferred.iter().map(|(name, spec)| (name, spec));
    for (value, spec) in inputs.chain(weights).chain(inferred) {
        let Some(shape) = spec.fixed_shape() else { continue };
        let bytes = byte_count(&shape, spec.dtype).unwrap_or(usize::MAX);
        if bytes > BYTES_MAX {
            return Err(LimitError::ValueTooLarge { value: value.clone(), spec: spec.clone(), bytes });
        }
    }
    Ok(())
}

fn check_values(node: &Node) -> Result<(), LimitError> {
    let (name, op) = (&node.name, &node.op);
    for (what, count) in [("inputs", node.inputs.len()), ("outputs", node.outputs.len())] {
        if count > VALUES_MAX {
            return Err(LimitError::TooManyValues { node: name.clone(), op: op.clone(), what, count });
        }
    }
    Ok(())
}

/// Checks the nesting depth of a node's subgraphs. They are stored encoded, so they are decoded level by level, and no
/// deeper than the limit.
fn check_nesting(node: &Node) -> Result<(), LimitError> {
    let encoded = |value: &Attribute| if let Attribute::Encoded(bytes) = value { Some(bytes.clone()) } else { None };
    let mut level: Vec<Vec<u8>> = node.attributes.values().filter_map(encoded).collect();
    for _ in 0..=NESTING_MAX {
        level = level.iter().flat_map(|attribute| subgraphs(attribute)).collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(LimitError::NestedTooDeep { node: node.name.clone(), op: node.op.clone() })
}

/// Returns whether a slice has a constant step of zero. Other steps are known only when the model runs.
fn has_zero_step(graph: &Graph, node: &Node) -> bool {
    let steps = node.inputs.get(4).filter(|_| node.op == "Slice").and_then(|steps| graph.weights.get(steps));
    steps.and_then(Weight::tensor).is_some_and(|steps| steps.to_f64().contains(&0.0))
}

/// Returns the last node of the longest path through the graph and the number of nodes on that path.
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
