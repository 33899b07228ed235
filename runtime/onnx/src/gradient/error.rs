//! Why a graph cannot be differentiated.

use crate::operators::{composite_operators, operators_with_derivative};
use crate::{LowerError, Node, TensorSpec};

/// Why a graph cannot be differentiated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GradientError {
    /// The graph has no value of this name.
    #[error("the graph has no value `{0}`")]
    UnknownValue(String),
    /// Only a loss of one floating-point element has a gradient.
    #[error("the loss `{loss}` is `{spec}`, not one floating-point number")]
    NotScalar {
        /// The value.
        loss: String,
        /// Its shape and type.
        spec: TensorSpec,
    },
    /// Nothing between the two changes with the value.
    #[error("the loss `{loss}` does not depend on `{value}`")]
    Independent {
        /// The loss.
        loss: String,
        /// The value.
        value: String,
    },
    /// The operator has neither a derivative nor a decomposition.
    #[error("node `{node}`: `{op}` has no derivative (operators with one: {known}; consisting of these: {composite})")]
    NoDerivative {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// The operators that have one.
        known: String,
        /// The operators that are decomposed first.
        composite: String,
    },
    /// The derivative does not cover this use of the operator.
    #[error("node `{node}` ({op}) cannot be differentiated: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What is not covered.
        reason: String,
    },
    /// An operator could not be decomposed or converted.
    #[error(transparent)]
    Lower(#[from] LowerError),
}

impl GradientError {
    pub(super) fn no_derivative(node: &Node) -> Self {
        let known = operators_with_derivative().collect::<Vec<_>>().join(", ");
        let composite = composite_operators().collect::<Vec<_>>().join(", ");
        GradientError::NoDerivative { node: node.name.clone(), op: node.op.clone(), known, composite }
    }
}
