//! Reads the safetensors format.
//!
//! Knows nothing about graphs.

use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use flagperf_core::file_kind;

use super::{MappedFile, TensorListing, WeightError};
use crate::{DType, TensorSpec};

/// The usual extensions of PyTorch's own files.
const PTH_EXTENSIONS: [&str; 4] = ["pth", "pt", "ckpt", "bin"];

/// The longest header in bytes. The header of 100,000 tensors has about 12 MiB.
const HEADER_BYTES: u64 = 32 << 20;

pub(super) fn open(path: &Path) -> Result<MappedFile, WeightError> {
    MappedFile::open(path).map_err(|source| WeightError::Open { path: path.to_owned(), source })
}

pub(super) fn parse<'a>(path: &Path, file: &'a MappedFile) -> Result<SafeTensors<'a>, WeightError> {
    if PTH_EXTENSIONS.iter().any(|own| path.extension().is_some_and(|extension| extension == *own)) {
        let neither = || "it begins neither as an archive of PyTorch nor as a safetensors file".to_owned();
        let reason = file_kind::reason_for(file.bytes(), neither);
        if !begins_as_safetensors(file.bytes()) {
            return Err(WeightError::MalformedPth { path: path.to_owned(), reason });
        }
    }
    if !begins_as_safetensors(file.bytes())
        && let Some(kind) = file_kind::recognise(file.bytes())
    {
        return Err(WeightError::Malformed { path: path.to_owned(), reason: kind.to_string() });
    }
    let reason = |error: SafeTensorError| match error {
        SafeTensorError::InvalidOffset(name) => {
            format!("tensor `{name}` does not begin where the one before it ends: one of the two has wrong offsets")
        }
        error => error.to_string(),
    };
    let malformed = |reason: String| WeightError::Malformed { path: path.to_owned(), reason };
    match file.bytes().first_chunk().map(|length| u64::from_le_bytes(*length)) {
        Some(length) if length > HEADER_BYTES => {
            Err(malformed(format!("its header has a length of {length} bytes (at most {HEADER_BYTES})")))
        }
        _ => SafeTensors::deserialize(file.bytes()).map_err(|error| malformed(reason(error))),
    }
}

/// Returns whether a file begins with the length of a header and the `{` of the header.
fn begins_as_safetensors(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    length.is_some_and(|length| length <= HEADER_BYTES) && bytes.get(8) == Some(&b'{')
}

/// Returns the tensors of a safetensors file.
pub(super) fn list_tensors(path: &Path, file: &MappedFile) -> Result<TensorListing, WeightError> {
    let spec = |view: &TensorView<'_>| match dtype(view.dtype()) {
        Some(dtype) => Ok(TensorSpec::new(view.shape().iter().copied(), dtype)),
        None => Err(format!("{:?} {:?}", view.shape(), view.dtype())),
    };
    Ok(parse(path, file)?.tensors().into_iter().map(|(name, view)| (name, spec(&view))).collect())
}

/// Converts an element type of safetensors; `None` when this crate does not support it.
pub(super) fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::I64 => Some(DType::I64),
        Dtype::I32 => Some(DType::I32),
        Dtype::I16 => Some(DType::I16),
        Dtype::I8 => Some(DType::I8),
        Dtype::U64 => Some(DType::U64),
        Dtype::U32 => Some(DType::U32),
        Dtype::U16 => Some(DType::U16),
        Dtype::U8 => Some(DType::U8),
        Dtype::BOOL => Some(DType::Bool),
        _ => None,
    }
}
