//! The reasons why a dataset cannot be opened. Knows nothing about samples.

use std::path::{Path, PathBuf};

use super::SAMPLE_BYTES_MAX;
use flagperf_core::tensor::{DType, TensorSpec};

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

    /// Returns whether the script that describes the dataset has to change, and not a file of the data directory.
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
