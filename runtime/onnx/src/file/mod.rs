//! ONNX files: written atomically, read without copying the weights.
//!
//! Knows nothing about operators.

mod attribute;
mod external;
mod functions;
mod initializer;
mod proto;
mod read;
mod role;
mod stream;
mod subgraph;
mod value_info;
mod write;

use std::path::PathBuf;

use crate::{DType, WeightError};

pub(crate) use attribute::subgraphs;
pub use external::data_files;
pub use read::read_onnx;
pub use subgraph::{Subgraph, captured_names};
pub use write::{WriteOptions, write_onnx, write_onnx_with};

/// The key and the value of the metadata entry that declares a file's weights random.
pub(crate) const RANDOM_WEIGHTS_ENTRY: (&str, &str) = ("flagperf.weights", "random");

/// Why an ONNX file could not be read or written.
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
    /// The file is not a complete ONNX model.
    #[error("`{path}` is not a complete ONNX model: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The calls of the file's own functions cannot be replaced by their nodes.
    #[error("the functions in `{path}`: {reason}", path = path.display())]
    Functions {
        /// The file.
        path: PathBuf,
        reason: String,
    },
    /// The file contains something that this crate cannot represent.
    #[error("`{path}` has {what}, which is not supported", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The unsupported content.
        what: String,
    },
    /// The data file that contains a weight cannot be opened.
    #[error("cannot open the data file `{data}` of weight `{weight}` in `{path}`: {source}", path = path.display(), data = data.display())]
    ExternalData {
        /// The ONNX file.
        path: PathBuf,
        /// The data file.
        data: PathBuf,
        weight: String,
        /// Why the data file cannot be opened.
        source: std::io::Error,
    },
    /// The file cannot be written. An existing file is left unchanged.
    #[error("cannot write the ONNX file `{path}`: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file that would be replaced contains weights of the graph.
    #[error("cannot write `{path}`: the graph reads its weights from this file (choose another name)", path = path.display())]
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

/// Returns ONNX's number for an element type (`TensorProto.DataType`).
pub(crate) fn onnx_code(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
    }
}

/// Returns the element type of a number of ONNX's `TensorProto.DataType`; `None` when this crate does not support it.
pub fn dtype_from_onnx(code: i64) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| i64::from(onnx_code(*dtype)) == code)
}

/// Returns the name of a number of ONNX's `TensorProto.DataType`, for messages about types that are not supported.
pub(crate) fn type_name(code: i64) -> String {
    const OTHERS: [(i64, &str); 14] = [
        (0, "undefined"),
        (8, "string"),
        (14, "complex64"),
        (15, "complex128"),
        (17, "float8e4m3fn"),
        (18, "float8e4m3fnuz"),
        (19, "float8e5m2"),
        (20, "float8e5m2fnuz"),
        (21, "uint4"),
        (22, "int4"),
        (23, "float4e2m1"),
        (24, "float8e8m0"),
        (25, "uint2"),
        (26, "int2"),
    ];
    let other = OTHERS.iter().find(|(other, _)| *other == code).map(|(_, name)| (*name).to_owned());
    let known = || dtype_from_onnx(code).map(|dtype| dtype.name().to_owned());
    other.or_else(known).unwrap_or_else(|| format!("number {code}"))
}
