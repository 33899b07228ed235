//! The dataset trait, and the batches that are made from a dataset.

use indexmap::IndexMap;

use super::batch_decoder::{BatchDecoder, EncodedFile};
use super::mixing::Mixing;
use super::pixels::ImageTransforms;
use super::random::Epoch;
use flagperf_core::event::DatasetFacts;
use flagperf_core::tensor::{Tensor, TensorSpec};

/// Which script functions may see a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRole {
    /// Passed to forward functions.
    Input,
    /// Passed to evaluators only.
    Truth,
}

/// A named part of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, such as `images` or `labels`.
    pub name: String,
    /// Which script functions may see the field.
    pub role: FieldRole,
    /// Shape and type in one sample, every dimension fixed; in a batch, one dimension is added in front.
    pub spec: TensorSpec,
}

/// Fields that are only as long as the longest sample of their batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLength {
    /// Indices of the fields; the first dimension of their spec is the largest length.
    pub fields: Vec<usize>,
    /// Index of the `i64` field with the length of each sample.
    pub lengths: usize,
    /// Whether the last elements of each sample are kept; otherwise the first ones.
    pub keeps_end: bool,
}

/// An opened dataset: samples by index, each read directly into the memory of its batch.
pub trait Dataset: Send + Sync {
    /// Returns the description of the dataset for the record.
    fn facts(&self) -> &DatasetFacts;

    /// Returns the number of samples.
    fn len(&self) -> usize {
        self.facts().samples as usize
    }

    /// Returns whether there are no samples; a dataset that was opened has at least one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the fields of every sample, in the order of the slices that `read` expects.
    fn fields(&self) -> &[Field];

    /// Returns the fields that are only as long as the longest sample of their batch; `None` when all batches have one
    /// shape. `read` always fills the largest length.
    fn open_length(&self) -> Option<OpenLength> {
        None
    }

    /// Returns the name of a sample: its file, relative to the dataset.
    fn sample_name(&self, index: usize) -> String;

    /// Reads the sample `index` into `fields`: one slice per field, each exactly as long as its field.
    ///
    /// # Errors
    /// When the sample cannot be read; the error contains its file.
    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError>;

    /// Reads the sample `index` as [`Dataset::read`] does, with the random transforms of an epoch of a training.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    fn read_in_epoch(&self, index: usize, _epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read(index, fields)
    }

    /// Returns what decodes the images of whole batches, which are the first field, and the transforms whose values it writes;
    /// `None` if `read` decodes them.
    fn batch_decoder(&self) -> Option<(&BatchDecoder, &ImageTransforms)> {
        None
    }

    /// Reads the file of the image of the sample `index` for the batch decoder, and the other fields as [`Dataset::read`] does;
    /// `None` if only `read` can decode it.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    fn read_encoded(&self, _index: usize, _fields: &mut [&mut [u8]]) -> Result<Option<EncodedFile>, SampleError> {
        Ok(None)
    }

    /// Returns how the samples of a batch are mixed in a training; `None` if they are not.
    fn mixing(&self) -> Option<&Mixing> {
        None
    }
}

/// A sample that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sample}: {reason}")]
pub struct SampleError {
    pub sample: String,
    pub reason: String,
}

impl Batch {
    /// Returns whether the inputs of both batches have the same memory.
    pub fn is_same_memory(&self, other: &Batch) -> bool {
        let address = |batch: &Batch| batch.inputs.values().map(|tensor| tensor.bytes().as_ptr()).collect::<Vec<_>>();
        address(self) == address(other)
    }
}

/// A batch of samples in memory lent by a session. When all its tensors and their clones are dropped, the loader can
/// reuse the memory.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Number of the batch in the dataset, from 0; the order of a pass may be another one.
    pub index: u64,
    /// Fields for forward functions by name, one row per sample; rows after the last sample are padding.
    pub inputs: IndexMap<String, Tensor>,
    /// Fields for evaluators by name.
    pub truth: IndexMap<String, Tensor>,
    /// The index of each sample in the dataset, one for each row that is not padding.
    pub sample_indices: Vec<u64>,
    /// Rows whose samples could not be read, with the errors; their memory is zeroed.
    pub failed: Vec<(usize, SampleError)>,
    /// Number of rows, including padding.
    pub rows: usize,
}
