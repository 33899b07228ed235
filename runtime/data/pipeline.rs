//! The description of a dataset that `build_dataloader` returns: the source of the samples and their transforms.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arrays::{ArrayField, Arrays};
use super::image_folder::ImageFolder;
use super::image_masks::{ImageMaskOptions, ImageMasks};
use super::pixels::ImageTransforms;
use super::prompts::{PromptOptions, Prompts};
use super::synthetic::{SAMPLE_BYTES_MAX, Synthetic, SyntheticField, check_fields};
use super::tokens::{TokenStream, TokenStreamOptions};
use super::{DataRoot, Dataset, Transform};
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
        fields: Vec<SyntheticField>,
        /// Number of samples.
        samples: usize,
        /// Seed of the values.
        seed: u64,
    },
    /// A stream of tokens, cut into samples.
    Tokens(TokenStreamOptions),
    /// Tokenized prompts.
    Prompts(PromptOptions),
    /// Arrays in files, one per field.
    Arrays(Vec<ArrayField>),
    /// A folder of images and a folder of masks.
    ImageMasks(ImageMaskOptions),
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
            SampleSource::ImageMasks(options) => {
                let transforms = ImageTransforms::new(&self.transforms, dtype)?;
                Ok(Arc::new(ImageMasks::open(&DataRoot::open(root)?, options, transforms)?))
            }
            SampleSource::Synthetic { fields, samples, seed } => {
                self.check_no_transforms("synthetic samples")?;
                Ok(Arc::new(Synthetic::new(fields, *samples, *seed, dtype)?))
            }
            SampleSource::Tokens(options) => {
                self.check_no_transforms("tokens")?;
                Ok(Arc::new(TokenStream::open(&DataRoot::open(root)?, options)?))
            }
            SampleSource::Prompts(options) => {
                self.check_no_transforms("prompts")?;
                Ok(Arc::new(Prompts::open(&DataRoot::open(root)?, options)?))
            }
            SampleSource::Arrays(fields) => {
                self.check_no_transforms("arrays")?;
                Ok(Arc::new(Arrays::open(&DataRoot::open(root)?, fields, dtype)?))
            }
        }
    }

    /// Checks that there are no transforms, which only images have.
    fn check_no_transforms(&self, samples: &str) -> Result<(), DataError> {
        let refused = |transform| DataError::Transforms(format!("`{transform}` does not apply to {samples}"));
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
                self.check_no_transforms("synthetic samples")?;
                check_fields(fields, *samples, dtype).map(drop)
            }
            // Opening these reads only headers, the positions of lines, and the tokenizer.
            _ => self.open(root, dtype).map(drop),
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
    /// The content of a file is not what it should be.
    #[error("`{}`: {reason}", .path.display())]
    Invalid {
        /// The file as the pipeline has it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A range of random values that is empty or does not fit their type.
    #[error("field `{field}` of `{spec}` cannot have values from {min} to below {max}")]
    Range {
        /// The field.
        field: String,
        /// Its shape and type.
        spec: TensorSpec,
        /// The smallest value.
        min: String,
        /// The end of the values.
        max: String,
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
    #[error(
        "{0} (first resize, resize_to, center_crop, crop, pad, letterbox, flip in any order; then scale, normalize, to)"
    )]
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
    #[error(
        "image samples have the unsupported element type `{0}` (supported: `f32`, `f16`, `bf16`, `f64`, `u8`, `i32`, `i64`)"
    )]
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
