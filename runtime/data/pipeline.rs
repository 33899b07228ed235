//! The description of a dataset that `build_dataloader` returns: a source and the transforms of every sample.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::class_list::ClassList;
use super::image_folder::ImageFolder;
use super::pixels::ImageSteps;
use super::synthetic::{SAMPLE_BYTES_MAX, Synthetic};
use super::{DataRoot, Dataset, Field};
use crate::tensor::{DType, TensorSpec};

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
        match &self.source {
            SampleSource::ImageFolder { images, classes } => {
                let steps = ImageSteps::new(&self.transforms, dtype)?;
                let folder = ImageFolder::open(&DataRoot::open(root)?, images, classes.as_deref(), steps)?;
                Ok(Arc::new(folder))
            }
            SampleSource::Synthetic { fields, samples, seed } => {
                if let Some(transform) = self.transforms.first() {
                    return Err(DataError::Transforms(format!("`{transform}` does not apply to synthetic samples")));
                }
                Ok(Arc::new(Synthetic::new(fields, *samples, *seed, dtype)?))
            }
        }
    }

    /// Whether the dataset can be there: looks at the root, its folder and its class list, not at its files.
    ///
    /// # Errors
    /// As [`Pipeline::open`], as far as that can be seen.
    pub fn check(&self, root: &Path) -> Result<(), DataError> {
        if let SampleSource::ImageFolder { images, classes } = &self.source {
            ImageSteps::new(&self.transforms, DType::F32)?;
            let root = DataRoot::open(root)?;
            root.resolve(images)?;
            classes.as_deref().map(|file| ClassList::read(&root, file)).transpose()?;
        }
        Ok(())
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

/// A dataset that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// No directory where the data should be.
    #[error("there is no data directory `{}` (hint: name one with --data DIR)", .path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing at a path of the data directory.
    #[error("there is no `{}` in the data directory `{}` (hint: name another with --data DIR)", .path.display(), .root.display())]
    Missing {
        /// The path, relative to the data directory.
        path: PathBuf,
        /// The data directory.
        root: PathBuf,
    },
    /// A path that leads out of the data directory.
    #[error("`{}` leaves the data directory `{}` by {how}", .path.display(), .root.display())]
    Escapes {
        /// The path, relative to the data directory.
        path: PathBuf,
        /// The data directory.
        root: PathBuf,
        /// By what.
        how: &'static str,
    },
    /// A file or folder that cannot be read.
    #[error("cannot read `{}`: {reason}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No samples.
    #[error("no samples in `{}` (looked for files in class folders)", .path.display())]
    Empty {
        /// The folder of the class folders.
        path: PathBuf,
    },
    /// Something else than a file in a class folder.
    #[error("`{}` is no file: a class folder holds samples only", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A class folder that the class list lacks.
    #[error("class folder `{folder}` is not in `{}` ({nearest})", .file.display())]
    UnknownClass {
        /// The folder.
        folder: String,
        /// The class list.
        file: PathBuf,
        /// The nearest line of the list.
        nearest: String,
    },
    /// A class list that names a folder twice.
    #[error("`{}` names `{class}` twice (lines {first} and {second})", .file.display())]
    ClassTwice {
        /// The folder.
        class: String,
        /// The class list.
        file: PathBuf,
        /// Its first line, from 1.
        first: usize,
        /// Its second line, from 1.
        second: usize,
    },
    /// Transforms that make no sample of a fixed shape.
    #[error("{0} (known: resize, center_crop, normalize, in this order; resize may be left out)")]
    Transforms(String),
    /// A field that takes more memory than a sample may.
    #[error("field `{field}` is `{spec}`: a sample takes at most {most} bytes", most = SAMPLE_BYTES_MAX)]
    LargeField {
        /// The field.
        field: String,
        /// Its shape and type.
        spec: TensorSpec,
    },
    /// Fields that take more memory together than a sample may.
    #[error("the {fields} fields of a sample take {bytes} bytes together, at most {most} are possible", most = SAMPLE_BYTES_MAX)]
    LargeSample {
        /// Number of fields.
        fields: usize,
        /// Bytes of all.
        bytes: usize,
    },
    /// A type that samples cannot be made as.
    #[error("samples are made as `f32` or `f16`, not `{0}`")]
    Type(DType),
    /// A field of a synthetic sample without a fixed shape.
    #[error("field `{field}` is `{spec}`: a synthetic sample needs every dimension fixed")]
    Shape {
        /// The field.
        field: String,
        /// Its shape and type.
        spec: TensorSpec,
    },
}
