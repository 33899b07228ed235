//! The errors of a loader. Knows nothing about threads and slots.

use crate::SampleError;
use flagperf_core::engine_error::EngineError;
use flagperf_core::tensor::TensorError;

/// An error of a loader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A sample could not be read; the error contains its file.
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error("all {slots} batches of the loader are still held: there is no memory for the next one")]
    AllHeld { slots: usize },
    #[error("{prefix}{0}", prefix = memory_prefix(.0))]
    Memory(EngineError),
    #[error("cannot use the memory lent for batches: {0}")]
    Tensor(TensorError),
    #[error("cannot start {workers} threads to load data: {reason}")]
    Threads { workers: usize, reason: String },
    #[error("the batch size is 0")]
    BatchSize,
}

impl LoadError {
    /// Returns what to do about the error; empty when the message already contains it.
    pub fn hint(&self) -> &'static str {
        match self {
            LoadError::Threads { .. } => "a smaller `num_workers` needs fewer threads; 0 needs none",
            LoadError::Memory(EngineError::OutOfMemory { .. }) => "a smaller `batch_size` needs less memory",
            _ => "",
        }
    }
}

/// Returns the purpose of the memory for an error about memory; every other error of an engine is complete by itself.
fn memory_prefix(error: &EngineError) -> &'static str {
    if matches!(error, EngineError::OutOfMemory { .. }) { "cannot allocate memory for batches: " } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_allocation_is_called_one() {
        let full = LoadError::Memory(EngineError::OutOfMemory { bytes: 1 << 20 });
        assert_eq!(full.to_string(), "cannot allocate memory for batches: out of memory: 1 MiB requested");
        let ended = LoadError::Memory(EngineError::Failed("the sidecar ended".to_owned()));
        assert_eq!((ended.to_string().as_str(), ended.hint()), ("the sidecar ended", ""));
    }
}
