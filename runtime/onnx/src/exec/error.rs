//! What can go wrong while a graph is loaded or run.

use crate::{DType, TensorSpec, WeightError};

/// A graph that cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The executor has no such operator.
    #[error("node `{node}`: the executor lacks the operator `{op}`")]
    UnknownOperator {
        /// The node.
        node: String,
        /// Its operator, with the domain when that is not the standard one.
        op: String,
    },
    /// An operator failed, or is used in a way that is not supported.
    #[error("node `{node}` ({op}): {reason}")]
    Node {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What is wrong.
        reason: OpError,
    },
    /// A node reads a value, or the graph returns one, that nothing makes.
    #[error("`{reader}` reads the value `{value}`, which nothing before it makes")]
    UndefinedValue {
        /// The node, or the output of the graph.
        reader: String,
        /// The missing value.
        value: String,
    },
    /// A value has an element type that the tensor library does not compute in.
    #[error("{ops} does not compute in `{dtype}`, the type of `{value}`")]
    DType {
        /// The tensor library.
        ops: &'static str,
        /// The value or weight.
        value: String,
        /// Its type.
        dtype: DType,
    },
    /// The bytes of a weight could not be had.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// Too few or too many inputs were given.
    #[error("{given} inputs given, the graph takes {} (`{}`)", .expected.len(), .expected.join("`, `"))]
    InputCount {
        /// The names of the inputs.
        expected: Vec<String>,
        /// How many were given.
        given: usize,
    },
    /// An input has another shape or type than the graph declares.
    #[error("input `{name}` is `{expected}`, given was `{given}`")]
    Input {
        /// The input.
        name: String,
        /// What the graph declares.
        expected: TensorSpec,
        /// What was given.
        given: TensorSpec,
    },
    /// A named dimension has two sizes in the inputs of one run.
    #[error("input `{name}`: dimension `{dim}` is {given} here and {bound} in the inputs before")]
    Dimension {
        /// The input.
        name: String,
        /// The dimension.
        dim: String,
        /// Its size in the inputs before.
        bound: usize,
        /// Its size in this input.
        given: usize,
    },
}

/// An operation that a tensor library refuses or cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The operands do not fit each other or the operator.
    #[error("{0}")]
    Operands(String),
    /// The operator is known, this use of it is not.
    #[error("not supported: {0}")]
    Lacks(String),
    /// The tensor library reported an error.
    #[error("{0}")]
    Library(String),
}

impl OpError {
    /// Operands that do not fit.
    pub fn operands(text: impl Into<String>) -> Self {
        OpError::Operands(text.into())
    }

    /// A use of an operator that is not supported.
    pub fn lacks(text: impl Into<String>) -> Self {
        OpError::Lacks(text.into())
    }

    /// An error of the tensor library.
    pub fn library(error: impl std::fmt::Display) -> Self {
        OpError::Library(error.to_string())
    }
}
