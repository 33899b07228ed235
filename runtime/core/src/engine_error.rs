//! The errors of engines.

use crate::tensor::{DType, TensorSpec};

/// Why an engine cannot be used on this machine, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// The reason, which is usually a missing library or device.
    pub reason: String,
    pub remedy: String,
}

/// An engine's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine does not accept this kind of artifact.
    #[error("engine `{engine}` accepts {accepts}, not {given}")]
    Artifact {
        engine: &'static str,
        /// The artifacts that the engine accepts.
        accepts: &'static str,
        /// The artifact that it was given.
        given: String,
    },
    /// The engine does not compute in this type.
    #[error("engine `{engine}` does not compute in `{requested}`{} (supported: {supported})", type_of(.first_tensor.as_deref()))]
    Precision {
        engine: &'static str,
        requested: DType,
        /// The first weight or input of the model that has the type; `None` if the case asks for it.
        first_tensor: Option<String>,
        /// The supported types.
        supported: String,
    },
    /// The engine does not support an operator of the model.
    #[error("engine `{engine}` does not support operator `{op}` (node `{node}`)")]
    Operator {
        engine: &'static str,
        /// The operator.
        op: String,
        node: String,
    },
    /// An unknown option, or an invalid value.
    #[error("engine `{engine}`: option `{option}`: {reason}")]
    Option { engine: &'static str, option: String, reason: String },
    /// A value of the case for which the engine is unsuitable.
    #[error("engine `{engine}`: `{key}`: {reason}")]
    CaseKey { engine: &'static str, key: &'static str, reason: String },
    /// An unknown question, or an invalid argument.
    #[error("{}question `{question}`: {reason}", engine_prefix(*.engine))]
    Question {
        /// The engine; `None` when the default implementation of the trait rejects the question.
        engine: Option<&'static str>,
        question: String,
        reason: String,
    },
    /// An unknown setting, or an invalid value.
    #[error("{}setting `{setting}`: {reason}", engine_prefix(*.engine))]
    Setting {
        /// The engine; `None` when the default implementation of the trait rejects the setting.
        engine: Option<&'static str>,
        setting: String,
        reason: String,
    },
    /// The wrong number of inputs.
    #[error("the model expects {expected} input{}, got {given}", if *expected == 1 { "" } else { "s" })]
    InputCount {
        /// The number of inputs of the model.
        expected: usize,
        /// The number of inputs given.
        given: usize,
    },
    /// An input of the wrong shape or type.
    #[error("input `{name}` is `{given}`, but the model expects `{expected}`")]
    Input {
        /// The input.
        name: String,
        /// The shape and type that the model expects.
        expected: TensorSpec,
        /// The shape and type that were given.
        given: TensorSpec,
    },
    /// A failed allocation.
    #[error("out of memory: {} MiB requested", bytes.div_ceil(1 << 20))]
    OutOfMemory {
        /// The number of bytes requested.
        bytes: u64,
    },
    /// Something is missing on this machine.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A failure of the model file or of the library behind the engine.
    #[error("{0}")]
    Failed(String),
}

fn engine_prefix(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("engine `{name}`: "))
}

fn type_of(tensor: Option<&str>) -> String {
    tensor.map_or_else(String::new, |tensor| format!(", the type of {tensor}"))
}

impl EngineError {
    /// Names the first weight or input that has the unsupported type.
    pub fn with_first_tensor(self, first_tensor: Option<String>) -> Self {
        match self {
            EngineError::Precision { engine, requested, supported, .. } => {
                EngineError::Precision { engine, requested, first_tensor, supported }
            }
            other => other,
        }
    }

    /// Returns what to do about the error; empty when the message already contains it.
    pub fn hint(&self) -> &str {
        match self {
            EngineError::Unavailable(missing) => &missing.remedy,
            EngineError::OutOfMemory { .. } => "reduce `batch_size`",
            EngineError::Operator { op, .. } if op.contains(['.', '/']) => {
                "docs/write-an-operator.md says which engines run operators of vendors"
            }
            _ => "",
        }
    }

    /// Formats the error of a batch of `rows` rows; the message contains that number when memory ran out.
    pub fn with_batch_size(&self, rows: usize) -> String {
        match self {
            EngineError::OutOfMemory { .. } => format!("{self} at batch size {rows}"),
            _ => self.to_string(),
        }
    }
}
