//! The description of a dataset that `build_dataloader` returns: a source and the transforms of every sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Dataset, Field};
use crate::tensor::DType;

/// Where samples come from and what is done to each. Pure data: nothing is read until [`Pipeline::open`].
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Where samples come from.
    pub source: SampleSource,
    /// What is done to each, in order.
    pub transforms: Vec<Transform>,
}

/// Where samples come from. Paths are relative to the data directory and stay inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleSource {
    /// Images in one folder a class. Fields: `images` (input) and `labels` (truth, `i64`).
    ImageFolder {
        /// The folder that holds the class folders.
        images: PathBuf,
        /// A text file with one class folder a line: a folder's class is its line, from 0. Without it, a folder's
        /// class is its rank among the folders in byte order.
        classes: Option<PathBuf>,
    },
    /// Seeded random values, in memory: no accuracy means anything on them.
    Synthetic {
        /// The fields of a sample.
        fields: Vec<Field>,
        /// Number of samples.
        samples: usize,
        /// Seed of the values.
        seed: u64,
    },
}

/// What is done to a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Scales the shorter side to `size` pixels, antialiased bilinear as PIL does it.
    Resize {
        /// Pixels of the shorter side.
        size: usize,
    },
    /// Cuts the middle `size` x `size` pixels.
    CenterCrop {
        /// Pixels of each side.
        size: usize,
    },
    /// `(value / 255 - mean) / std`, a channel each (red, green, blue); makes `3,H,W` of the input type.
    Normalize {
        /// Mean of each channel, in 0..1.
        mean: [f32; 3],
        /// Standard deviation of each channel, in 0..1.
        std: [f32; 3],
    },
}

impl Pipeline {
    /// Opens the dataset under `root`: looks for its samples, reads none. Float inputs are made as `dtype`.
    ///
    /// # Errors
    /// When the folder is missing, empty, or its class list does not fit.
    pub fn open(&self, root: &Path, dtype: DType) -> Result<Arc<dyn Dataset>, DataError> {
        let _ = (root, dtype);
        Err(DataError::NotYet)
    }
}

/// A dataset that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// To be replaced.
    #[error("not yet")]
    NotYet,
}
