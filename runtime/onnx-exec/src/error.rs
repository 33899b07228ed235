//! Errors of loading and running a graph.

use flagperf_onnx::{DType, LowerError, TensorError, TensorSpec, WeightError};

/// Why a graph cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The executor does not support the operator.
    #[error("node `{node}`: the executor does not support the operator `{op}`")]
    UnknownOperator {
        /// The node.
        node: String,
        /// Its operator, preceded by the domain unless that is the standard domain.
        op: String,
    },
    /// The graph was written for a version of the standard operator set that the executor does not know.
    #[error(
        "the graph needs version {version} of the operator set `ai.onnx`, but the executor knows versions up to {newest}"
    )]
    OperatorSet {
        /// The version of the graph.
        version: i64,
        /// The newest version that the executor knows.
        newest: i64,
    },
    /// A node cannot be decomposed, or converted to the newer form of its operator.
    #[error(transparent)]
    Lower(#[from] LowerError),
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
    /// A constant cannot be uploaded to the tensor library.
    #[error("cannot upload a constant: {0}")]
    UploadWeight(OpError),
    /// An input or a weight cannot be uploaded, or an output cannot be downloaded.
    #[error("{kind} `{name}`: {reason}")]
    Transfer {
        /// `input`, `output` or `weight`.
        kind: &'static str,
        /// The input, output or weight.
        name: String,
        /// What is wrong.
        reason: OpError,
    },
    /// A node reads, or the graph returns, a value that is not defined.
    #[error("`{reader}` reads the value `{value}`, which no earlier node defines")]
    UndefinedValue {
        /// The node, or the output of the graph.
        reader: String,
        /// The undefined value.
        value: String,
    },
    /// A value has an element type that the tensor library does not support.
    #[error("`{value}` has the element type `{dtype}`, which {ops} does not support")]
    UnsupportedDType {
        /// The tensor library.
        ops: &'static str,
        /// The value or weight.
        value: String,
        /// Its type.
        dtype: DType,
    },
    /// A weight cannot be read.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The number of inputs is wrong.
    #[error("wrong number of inputs: {actual} (the graph has {}: `{}`)", .expected.len(), .expected.join("`, `"))]
    InputCount {
        /// The names of the graph's inputs.
        expected: Vec<String>,
        /// Number of inputs passed.
        actual: usize,
    },
    /// An input has another shape or type than the graph declares.
    #[error("input `{name}` must be `{expected}`, not `{actual}`")]
    InputMismatch {
        /// The input.
        name: String,
        /// The specification that the graph declares.
        expected: TensorSpec,
        /// The specification of the input passed.
        actual: TensorSpec,
    },
    /// A named dimension has two sizes in the inputs of one run.
    #[error("input `{name}`: dimension `{dim}` is {actual}, but {bound} in an earlier input")]
    InconsistentDimension {
        /// The input.
        name: String,
        /// The dimension.
        dim: String,
        /// Its size in the earlier inputs.
        bound: usize,
        /// Its size in this input.
        actual: usize,
    },
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The operands are incompatible with each other or with the operator.
    #[error("{0}")]
    InvalidOperands(String),
    /// The operator is supported, but not this use of it.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The tensor library reported an error.
    #[error("{0}")]
    Library(String),
}

impl OpError {
    /// Returns an error about incompatible operands.
    pub fn invalid_operands(text: impl Into<String>) -> Self {
        OpError::InvalidOperands(text.into())
    }

    /// Returns an error about an unsupported use of an operator.
    pub fn unsupported(text: impl Into<String>) -> Self {
        OpError::Unsupported(text.into())
    }

    /// Returns an error reported by the tensor library.
    pub fn library(error: impl std::fmt::Display) -> Self {
        OpError::Library(error.to_string())
    }
}

impl From<TensorError> for OpError {
    fn from(error: TensorError) -> Self {
        OpError::library(error)
    }
}
