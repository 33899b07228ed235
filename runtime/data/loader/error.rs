//! What a loader could not do. Knows no thread and no slot.

use crate::data::SampleError;
use crate::engine::EngineError;
use crate::tensor::TensorError;

/// What a loader could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A sample that could not be read; names its file.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Every batch is still held, so there is no memory for the next.
    #[error("all {slots} batches of the loader are still held, none is left to read into")]
    AllHeld {
        /// Batches that fit in its memory.
        slots: usize,
    },
    /// Memory that the session did not lend.
    #[error("memory for batches: {0}")]
    Memory(EngineError),
    /// Lent memory that makes no tensor.
    #[error("memory for batches: {0}")]
    Tensor(TensorError),
    /// Threads that could not be started.
    #[error("{workers} threads that load data cannot be started: {reason}")]
    Threads {
        /// The threads.
        workers: usize,
        /// Why.
        reason: String,
    },
    /// No rows.
    #[error("the batch size is 0")]
    BatchSize,
}

impl LoadError {
    /// What to do about it; empty when the message says it.
    pub fn hint(&self) -> &'static str {
        match self {
            LoadError::Threads { .. } => "a smaller `num_workers` needs fewer threads; 0 needs none",
            LoadError::Memory(_) => "a smaller `batch_size` needs less memory",
            _ => "",
        }
    }
}
