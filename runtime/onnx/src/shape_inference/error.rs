//! Errors of shape inference.

/// Why the outputs of a node could not be inferred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// This crate does not know the operator.
    #[error("unknown operator `{0}`")]
    UnknownOperator(String),
    /// A required input is missing, or there are too many inputs.
    #[error("wrong number of inputs")]
    InputCount,
    /// An input has too few or too many dimensions.
    #[error("an input has the wrong number of dimensions")]
    Rank,
    /// The shapes of the inputs contradict each other.
    #[error("the shapes of the inputs are incompatible")]
    Shapes,
    /// A shape, an axis or an attribute has a value that the operator does not accept.
    #[error("an attribute or a shape input has an invalid value")]
    Value,
    /// The inputs have element types that the operator does not accept, or does not accept together.
    #[error("{0}")]
    Types(String),
    /// A mismatch, described in words.
    #[error("{0}")]
    Mismatch(String),
    /// An attribute has another type than the operator requires.
    #[error("attribute `{name}` must be {expected}")]
    Attribute {
        /// The attribute.
        name: String,
        /// The required type.
        expected: &'static str,
    },
    /// A required attribute is missing.
    #[error("attribute `{0}` is missing")]
    MissingAttribute(&'static str),
}
