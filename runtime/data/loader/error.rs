//! The errors of a loader. Knows nothing about threads and slots.

use crate::data::SampleError;
use crate::engine::EngineError;
use crate::tensor::TensorError;

/// An error of a loader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A sample could not be read; the error contains its file.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Every batch is still held, so there is no memory for the next one.
    #[error("all {slots} batches of the loader are still held: there is no memory for the next one")]
    AllHeld {
        /// Number of batches that fit in the loader's memory.
        slots: usize,
    },
    /// The session could not lend memory.
    #[error("cannot allocate memory for batches: {0}")]
    Memory(EngineError),
    /// The lent memory cannot be used for tensors.
    #[error("cannot use the memory lent for batches: {0}")]
    Tensor(TensorError),
    /// The reader threads could not be started.
    #[error("cannot start {workers} threads to load data: {reason}")]
    Threads {
        /// Number of threads.
        workers: usize,
        /// Why they could not be started.
        reason: String,
    },
    /// The batch size is 0.
    #[error("the batch size is 0")]
    BatchSize,
}

impl LoadError {
    /// Returns what to do about the error; empty when the message already contains it.
    pub fn hint(&self) -> &'static str {
        match self {
            LoadError::Threads { .. } => "a smaller `num_workers` needs fewer threads; 0 needs none",
            LoadError::Memory(_) => "a smaller `batch_size` needs less memory",
            _ => "",
        }
    }
}
