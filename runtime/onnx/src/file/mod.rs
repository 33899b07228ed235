//! ONNX files: written atomically, read without copying the weights.
//!
//! Knows no operator.

mod attribute;
mod external;
mod initializer;
mod proto;
mod read;
mod stream;
mod write;

use std::path::PathBuf;

use crate::{DType, WeightError};

pub(crate) use attribute::subgraphs;
pub use external::data_files;
pub use read::read_onnx;
pub use write::{WriteOptions, write_onnx, write_onnx_with};

/// The key in a model's metadata under which a file says what its weights are, and the value for random ones.
pub(crate) const WEIGHTS: (&str, &str) = ("flagperf.weights", "random");

/// An ONNX file that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file cannot be opened.
    #[error("cannot open the ONNX file `{path}`: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a whole ONNX model.
    #[error("`{path}` is not a complete ONNX model: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file uses something that this crate cannot represent.
    #[error("`{path}` has {what}, which is not supported", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it uses.
        what: String,
    },
    /// A weight lies in a data file that is not there.
    #[error("`{path}` keeps weight `{weight}` in `{data}`: {source}", path = path.display(), data = data.display())]
    ExternalData {
        /// The ONNX file.
        path: PathBuf,
        /// The data file.
        data: PathBuf,
        /// The weight.
        weight: String,
        /// Why it cannot be opened.
        source: std::io::Error,
    },
    /// The file cannot be written; what was there before is untouched.
    #[error("cannot write the ONNX file `{path}`: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The graph's weights lie in the file that would be replaced.
    #[error("cannot write `{path}`: the graph's weights lie in that very file (write to another name)", path = path.display())]
    Overwrite {
        /// The file.
        path: PathBuf,
    },
    /// A weight cannot be read while the file is written.
    #[error("cannot write the ONNX file `{path}`: {source}", path = path.display())]
    Weight {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WeightError,
    },
}

/// ONNX's number for an element type (`TensorProto.DataType`).
pub(crate) fn code_of(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::BF16 => 16,
    }
}

/// The element type that ONNX's number stands for.
pub(crate) fn dtype_of(code: i64) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| i64::from(code_of(*dtype)) == code)
}
