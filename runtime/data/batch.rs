//! What a dataset is, and what a batch of it holds.

use indexmap::IndexMap;

use crate::event::DatasetFacts;
use crate::tensor::{Tensor, TensorSpec};

/// Whether a forward function may see a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRole {
    /// Given to forward functions and evaluators.
    Input,
    /// Given to evaluators only.
    Truth,
}

/// A named part of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name: `images`, `labels`.
    pub name: String,
    /// Who may see it.
    pub role: FieldRole,
    /// Shape and type in one sample, every dimension fixed; a batch has one dimension more in front.
    pub spec: TensorSpec,
}

/// An opened dataset: samples by index, each read straight into the memory of its batch.
pub trait Dataset: Send + Sync {
    /// What it is, for the record.
    fn facts(&self) -> &DatasetFacts;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are none (a dataset that opens has at least one).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts of every sample, in the order of `read`'s memory.
    fn fields(&self) -> &[Field];

    /// A sample's name: its file, relative to the dataset.
    fn sample_name(&self, index: usize) -> String;

    /// Writes the fields of sample `index`, one slice a field, each exactly its field's size.
    ///
    /// # Errors
    /// When the sample cannot be read; names its file.
    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError>;
}

/// A sample that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sample}: {reason}")]
pub struct SampleError {
    /// The sample's name.
    pub sample: String,
    /// Why.
    pub reason: String,
}

/// Some samples, in memory that a session lent. Dropping every tensor of it, clones too, gives
/// the memory back to the loader.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Number of the batch in its pass, from 0.
    pub index: u64,
    /// Fields for forward functions by name, one row a sample; rows beyond the last sample are padding.
    pub inputs: IndexMap<String, Tensor>,
    /// Fields for evaluators by name.
    pub truth: IndexMap<String, Tensor>,
    /// The dataset's index of each sample, one a row that is no padding.
    pub tickets: Vec<u64>,
    /// Rows that could not be read (their memory is zero), with the reason.
    pub failed: Vec<(usize, SampleError)>,
    /// Rows, padding included.
    pub rows: usize,
}
