//! Errors of building a graph.

use super::{NODES_MAX, WEIGHT_ELEMENTS_MAX};
use crate::{InferError, LowerError, TensorSpec};

/// Why a graph cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// An operator does not accept the shapes or types of its inputs.
    #[error("layer `{layer}` ({op} of {inputs}): {reason}")]
    Layer {
        layer: String,
        /// The operator.
        op: String,
        /// The specifications of its inputs.
        inputs: String,
        /// What the operator does not accept.
        reason: InferError,
    },
    /// A layer's arguments contradict each other or the layer's input.
    #[error("layer `{layer}`: {reason}")]
    Argument {
        layer: String,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// Two values have the same name.
    #[error("the name `{0}` is already used in this graph (every layer, input and output needs its own name)")]
    NameTaken(String),
    /// A value has an empty name.
    #[error("a layer, an input or an output has an empty name")]
    EmptyName,
    /// A value of one graph is used in another.
    #[error("layer `{layer}`: the value `{value}` belongs to another graph")]
    ForeignValue { layer: String, value: String },
    /// A layer uses the size of a dimension that no input has.
    #[error("no input of graph `{graph}` has a dimension `{name}`, so its size is unknown")]
    UnknownDimension {
        /// The dimension.
        name: String,
        graph: String,
    },
    /// A weight's shape is not fixed.
    #[error("weight `{name}` of `{spec}` has a dimension without a fixed size")]
    WeightNotFixed {
        /// The weight.
        name: String,
        /// Its specification.
        spec: TensorSpec,
    },
    /// A weight has too many elements.
    #[error("weight `{name}` of `{spec}` has too many elements (at most {most})", most = WEIGHT_ELEMENTS_MAX)]
    WeightTooLarge {
        /// The weight.
        name: String,
        /// Its specification.
        spec: TensorSpec,
    },
    /// The graph has too many nodes.
    #[error("graph `{0}` has too many nodes (at most {most})", most = NODES_MAX)]
    TooManyNodes(String),
    /// The graph has no value of a name.
    #[error("graph `{graph}` has no value `{name}`{reason}")]
    UnknownValue {
        name: String,
        graph: String,
        /// What is known about the value.
        reason: &'static str,
    },
    /// A node of a graph from a file has no form in the operator set to which layers are added.
    #[error("graph `{graph}`: {reason}")]
    Version {
        graph: String,
        /// The node, and why it cannot be converted.
        reason: LowerError,
    },
    /// The graph has no output.
    #[error("graph `{0}` has no output")]
    NoOutput(String),
}
