//! The reasons why a dataset cannot be opened. Knows nothing about samples.

use std::path::{Path, PathBuf};

use super::SAMPLE_BYTES_MAX;
use flagperf_core::tensor::{DType, TensorSpec};

/// The reason why a dataset could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    #[error("there is no data directory `{}`", .path.display())]
    NoDirectory { path: PathBuf },
    #[error("there is no `{}` in the data directory `{}`", .path.display(), .root.display())]
    Missing {
        /// The path, relative to the data directory.
        path: PathBuf,
        root: PathBuf,
    },
    #[error("`{}` is outside the data directory `{}`: {how}", .path.display(), .root.display())]
    Escapes {
        /// The path, relative to the data directory.
        path: PathBuf,
        root: PathBuf,
        how: &'static str,
    },
    #[error("cannot read `{}`: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("`{}`: {reason}", .path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("field `{field}` of `{spec}` cannot have values from {min} to below {max}")]
    Range { field: String, spec: TensorSpec, min: String, max: String },
    #[error("no samples in `{}` (expected files in class folders)", .path.display())]
    Empty { path: PathBuf },
    #[error("`{}` is not a regular file: a class folder may contain only samples", .path.display())]
    NotAFile { path: PathBuf },
    #[error("class folder `{folder}` is not in `{}` ({nearest})", .file.display())]
    UnknownClass {
        folder: String,
        file: PathBuf,
        /// Text about the nearest line of the list.
        nearest: String,
    },
    #[error("`{}` lists `{class}` twice (lines {first} and {second})", .file.display())]
    DuplicateClass {
        class: String,
        file: PathBuf,
        /// Its first line, from 1.
        first: usize,
        /// Its second line, from 1.
        second: usize,
    },
    #[error(
        "{0} (first resize, resize_to, center_crop, crop, pad, letterbox, flip in any order; then scale, normalize, to; in a training, random transforms of pixels are among the first, then follow random_erasing, mixup, cutmix)"
    )]
    Transforms(String),
    #[error("field `{field}` of `{spec}` is too large: a sample may have at most {max} bytes", max = SAMPLE_BYTES_MAX)]
    FieldTooLarge { field: String, spec: TensorSpec },
    #[error("the {fields} fields of a sample need {bytes} bytes in total (at most {max})", max = SAMPLE_BYTES_MAX)]
    SampleTooLarge { fields: usize, bytes: usize },
    #[error(
        "image samples have the unsupported element type `{0}` (supported: `f32`, `f16`, `bf16`, `f64`, `u8`, `i32`, `i64`)"
    )]
    UnsupportedType(DType),
    #[error("field `{field}` of `{spec}` has an open dimension: a synthetic sample needs fixed dimensions")]
    OpenDimension { field: String, spec: TensorSpec },
}

impl DataError {
    /// Creates the error of a file that cannot be read.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        DataError::Unreadable { path: path.to_owned(), reason: error.to_string() }
    }

    /// Returns what to do about the error; empty when the message suffices.
    pub fn hint(&self) -> &'static str {
        match self {
            DataError::NoDirectory { .. } => {
                "`run` and `plan` take the folder with datasets and weights from --data, from `CASES` in host.yaml, or from `default_data`"
            }
            DataError::Missing { .. } => "put the file there, or name another data directory with --data DIR",
            DataError::Empty { .. } => {
                "put the images of each class into a folder of their own, such as `val/cat/1.jpg`"
            }
            _ => "",
        }
    }

    /// Returns whether the mistake is in the script that describes the dataset, not in a file of the data directory.
    pub const fn is_mistake(&self) -> bool {
        matches!(
            self,
            DataError::Escapes { .. }
                | DataError::Range { .. }
                | DataError::Transforms(_)
                | DataError::FieldTooLarge { .. }
                | DataError::SampleTooLarge { .. }
                | DataError::UnsupportedType(_)
                | DataError::OpenDimension { .. }
        )
    }
}
