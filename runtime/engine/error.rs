//! What an engine could not do, and why one cannot be used.

use crate::tensor::{DType, TensorSpec};

/// Why an engine cannot be used on this machine, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// What is missing.
    pub reason: String,
    /// How to get it.
    pub remedy: String,
}

/// What an engine could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It does not take this kind of artifact.
    #[error("engine `{engine}` takes {takes}, not {given}")]
    Artifact {
        /// The engine.
        engine: &'static str,
        /// What it takes.
        takes: &'static str,
        /// What it was given.
        given: String,
    },
    /// It does not compute in this type.
    #[error("engine `{engine}` does not compute in `{asked}` (it has: {has})")]
    Precision {
        /// The engine.
        engine: &'static str,
        /// The type asked for.
        asked: DType,
        /// The types it has.
        has: String,
    },
    /// An operator that it lacks.
    #[error("engine `{engine}` lacks operator `{op}` (node `{node}`)")]
    Operator {
        /// The engine.
        engine: &'static str,
        /// The operator.
        op: String,
        /// The node.
        node: String,
    },
    /// An option that it does not know, or a value it does not take.
    #[error("engine `{engine}`: option `{option}`: {reason}")]
    Option {
        /// The engine.
        engine: &'static str,
        /// The option.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A question that it does not answer, or an argument that it does not take with it.
    #[error("{}question `{question}`: {reason}", of_engine(*.engine))]
    Question {
        /// The engine, where it has a name of its own.
        engine: Option<&'static str>,
        /// The question.
        question: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that it does not have, or a value that it does not take.
    #[error("{}setting `{setting}`: {reason}", of_engine(*.engine))]
    Setting {
        /// The engine, where it has a name of its own.
        engine: Option<&'static str>,
        /// The setting.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not as many inputs as the model has.
    #[error("the model takes {takes} inputs, {given} were given")]
    InputCount {
        /// Inputs of the model.
        takes: usize,
        /// Inputs given.
        given: usize,
    },
    /// An input of another shape or type.
    #[error("input `{name}` is `{given}`, the model takes `{takes}`")]
    Input {
        /// The input.
        name: String,
        /// What the model takes.
        takes: TensorSpec,
        /// What it was given.
        given: TensorSpec,
    },
    /// Memory that could not be had.
    #[error("out of memory: {} MiB asked for", bytes.div_ceil(1 << 20))]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Something is missing on this machine.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The model file or the library behind the engine.
    #[error("{0}")]
    Failed(String),
}

fn of_engine(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("engine `{name}`: "))
}

impl EngineError {
    /// What to do about it; empty when the message says it.
    pub fn hint(&self) -> &str {
        match self {
            EngineError::Unavailable(missing) => &missing.remedy,
            EngineError::OutOfMemory { .. } => "a smaller `batch_size` needs less",
            _ => "",
        }
    }

    /// What happened with batches of so many rows: they are part of it when memory lacks.
    pub fn at_batch(&self, rows: usize) -> String {
        match self {
            EngineError::OutOfMemory { .. } => format!("{self}, at batch size {rows}"),
            _ => self.to_string(),
        }
    }
}
