//! Why shapes and types could not be inferred.

/// Why the outputs of a node could not be inferred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The operator is not one that this crate knows.
    #[error("unknown operator `{0}`")]
    UnknownOperator(String),
    /// A required input is left out, or there are too many.
    #[error("wrong number of inputs")]
    InputCount,
    /// An input has too few or too many dimensions.
    #[error("an input has the wrong number of dimensions")]
    Rank,
    /// Shapes do not fit each other.
    #[error("the shapes do not fit each other")]
    Shapes,
    /// A shape, an axis or an attribute has a value that the operator does not take.
    #[error("an attribute or a shape input has a bad value")]
    Value,
    /// What exactly does not fit.
    #[error("{0}")]
    Mismatch(String),
    /// An attribute is of another kind than the operator's.
    #[error("attribute `{name}` must be {expected}")]
    Attribute {
        /// The attribute.
        name: String,
        /// The kind it must be.
        expected: &'static str,
    },
    /// A required attribute is missing.
    #[error("attribute `{0}` is missing")]
    MissingAttribute(&'static str),
}
