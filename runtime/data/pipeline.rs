//! The description of a dataset that `build_dataloader` returns: the source of the samples and their transforms.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image_folder::ImageFolder;
use super::pixels::ImageTransforms;
use super::synthetic::{SAMPLE_BYTES_MAX, Synthetic, check_fields};
use super::{DataRoot, Dataset, Field};
use crate::tensor::{DType, TensorSpec};

/// The source of the samples and their transforms. This is only a description: nothing is read before
/// [`Pipeline::open`].
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Source of the samples.
    pub source: SampleSource,
    /// Transforms applied to every sample, in order.
    pub transforms: Vec<Transform>,
}

/// The source of the samples. Paths are relative to the data directory and must stay inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleSource {
    /// Images with one folder per class. Fields: `images` (input) and `labels` (truth, `i64`).
    ImageFolder {
        /// The folder that contains the class folders.
        images: PathBuf,
        /// A text file with the name of one class folder per line: the class of a folder is its line, from 0. Without
        /// this file, the class of a folder is its rank among the folders in byte order.
        classes: Option<PathBuf>,
    },
    /// Seeded random values in memory, for which accuracy is meaningless.
    Synthetic {
        /// The fields of a sample.
        fields: Vec<Field>,
        /// Number of samples.
        samples: usize,
        /// Seed of the values.
        seed: u64,
    },
}

/// A transform of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Scales the shorter side to `size` pixels with PIL's antialiased bilinear filter.
    Resize {
        /// Length of the shorter side in pixels.
        size: usize,
    },
    /// Crops the central `size` x `size` pixels.
    CenterCrop {
        /// Length of each side in pixels.
        size: usize,
    },
    /// Computes `(value / 255 - mean) / std` per channel (red, green, blue); the result is `3,H,W` of the input type.
    Normalize {
        /// Mean of each channel, in 0..1.
        mean: [f32; 3],
        /// Standard deviation of each channel, in 0..1.
        std: [f32; 3],
    },
}

impl Pipeline {
    /// Opens the dataset under `root`: lists its samples without reading them. Float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When the folder is missing or empty, the class list does not match, or the transforms are not supported.
    pub fn open(&self, root: &Path, dtype: DType) -> Result<Arc<dyn Dataset>, DataError> {
        match &self.source {
            SampleSource::ImageFolder { images, classes } => {
                let transforms = ImageTransforms::new(&self.transforms, dtype)?;
                let folder = ImageFolder::open(&DataRoot::open(root)?, images, classes.as_deref(), transforms)?;
                Ok(Arc::new(folder))
            }
            SampleSource::Synthetic { fields, samples, seed } => {
                self.check_synthetic()?;
                Ok(Arc::new(Synthetic::new(fields, *samples, *seed, dtype)?))
            }
        }
    }

    /// Checks that there are no transforms, which only images have.
    fn check_synthetic(&self) -> Result<(), DataError> {
        let refused = |transform| DataError::Transforms(format!("`{transform}` does not apply to synthetic samples"));
        self.transforms.first().map_or(Ok(()), |transform| Err(refused(transform)))
    }

    /// Checks the data directory, the class folders, the class list and the transforms, without listing the samples:
    /// there may be millions.
    ///
    /// # Errors
    /// Those errors of [`Pipeline::open`] that can be found this way.
    pub fn check(&self, root: &Path, dtype: DType) -> Result<(), DataError> {
        match &self.source {
            SampleSource::ImageFolder { images, classes } => {
                ImageTransforms::new(&self.transforms, dtype)?;
                ImageFolder::check(&DataRoot::open(root)?, images, classes.as_deref())
            }
            SampleSource::Synthetic { fields, samples, .. } => {
                self.check_synthetic()?;
                check_fields(fields, *samples, dtype).map(drop)
            }
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transform::Resize { size } => write!(f, "resize {size}, antialiased bilinear"),
            Transform::CenterCrop { size } => write!(f, "center_crop {size}"),
            Transform::Normalize { mean, std } => write!(f, "normalize mean {mean:?} std {std:?}"),
        }
    }
}

/// The reason why a dataset could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The data directory does not exist.
    #[error("there is no data directory `{}`", .path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing exists at a path in the data directory.
    #[error("there is no `{}` in the data directory `{}`", .path.display(), .root.display())]
    Missing {
        /// The path, relative to the data directory.
        path: PathBuf,
        /// The data directory.
        root: PathBuf,
    },
    /// A path that leads out of the data directory.
    #[error("`{}` is outside the data directory `{}`: {how}", .path.display(), .root.display())]
    Escapes {
        /// The path, relative to the data directory.
        path: PathBuf,
        /// The data directory.
        root: PathBuf,
        /// The part of the path that leads outside.
        how: &'static str,
    },
    /// A file or folder that cannot be read.
    #[error("cannot read `{}`: {reason}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why it cannot be read.
        reason: String,
    },
    /// There are no samples.
    #[error("no samples in `{}` (expected files in class folders)", .path.display())]
    Empty {
        /// The folder that contains the class folders.
        path: PathBuf,
    },
    /// An entry of a class folder is not a regular file.
    #[error("`{}` is not a regular file: a class folder may contain only samples", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A class folder is not in the class list.
    #[error("class folder `{folder}` is not in `{}` ({nearest})", .file.display())]
    UnknownClass {
        /// The folder.
        folder: String,
        /// The class list.
        file: PathBuf,
        /// Text about the nearest line of the list.
        nearest: String,
    },
    /// A class list contains a folder twice.
    #[error("`{}` lists `{class}` twice (lines {first} and {second})", .file.display())]
    DuplicateClass {
        /// The folder.
        class: String,
        /// The class list.
        file: PathBuf,
        /// Its first line, from 1.
        first: usize,
        /// Its second line, from 1.
        second: usize,
    },
    /// The transforms are not supported.
    #[error("{0} (supported: resize, center_crop, normalize in this order; resize is optional)")]
    Transforms(String),
    /// A field needs more memory than a sample may have.
    #[error("field `{field}` of `{spec}` is too large: a sample may have at most {max} bytes", max = SAMPLE_BYTES_MAX)]
    FieldTooLarge {
        /// The field.
        field: String,
        /// Its shape and type.
        spec: TensorSpec,
    },
    /// The fields together need more memory than a sample may have.
    #[error("the {fields} fields of a sample need {bytes} bytes in total (at most {max})", max = SAMPLE_BYTES_MAX)]
    SampleTooLarge {
        /// Number of fields.
        fields: usize,
        /// Bytes of all fields.
        bytes: usize,
    },
    /// Image samples cannot have this element type.
    #[error("image samples have the unsupported element type `{0}` (supported: `f32`, `f16`, `bf16`)")]
    UnsupportedType(DType),
    /// A field of a synthetic sample has an open dimension.
    #[error("field `{field}` of `{spec}` has an open dimension: a synthetic sample needs fixed dimensions")]
    OpenDimension {
        /// The field.
        field: String,
        /// Its shape and type.
        spec: TensorSpec,
    },
}

impl DataError {
    /// Returns what to do about the error; empty when the message suffices.
    pub fn hint(&self) -> &'static str {
        match self {
            DataError::NoDirectory { .. } => "set it with --data DIR",
            DataError::Missing { .. } => "set another one with --data DIR",
            _ => "",
        }
    }
}
