//! Why a model cannot be trained.

use crate::{GradientError, LowerError};

/// Why a model cannot be trained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainingError {
    /// The gradient of the loss cannot be computed.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// An older node has no form in the present operator set.
    #[error(transparent)]
    Version(#[from] LowerError),
    /// A layer has another meaning in training, which is not covered.
    #[error("node `{node}` ({op}) cannot be trained: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What is not covered.
        reason: String,
    },
    /// The model has no parameter that the loss depends on.
    #[error("the loss `{0}` depends on no parameter")]
    NoParameter(String),
    /// The shape of an input is not known after the sizes were given.
    #[error("input `{input}` is `{spec}`: a training step needs every size")]
    UnknownSize {
        /// The input.
        input: String,
        /// Its shape and type.
        spec: crate::TensorSpec,
    },
}

impl TrainingError {
    /// Returns the name of the node that cannot be trained.
    pub fn node(&self) -> Option<&str> {
        match self {
            TrainingError::Gradient(GradientError::NoDerivative { node, .. } | GradientError::Node { node, .. })
            | TrainingError::Node { node, .. } => Some(node),
            _ => None,
        }
    }
}
