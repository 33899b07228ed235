//! Reads the safetensors format.
//!
//! Knows nothing about graphs.

use std::path::Path;

use safetensors::tensor::{TensorInfo, TensorView};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::Value;

use flagperf_core::file_kind;

use super::{MappedFile, TensorListing, UnsupportedTensor, WeightError, join_names};
use crate::{DType, TensorSpec};

/// The usual extensions of PyTorch's own files.
const PTH_EXTENSIONS: [&str; 4] = ["pth", "pt", "ckpt", "bin"];

/// The longest header in bytes. The header of 100,000 tensors has about 12 MiB.
const HEADER_BYTES: u64 = 32 << 20;

/// The supported element types.
const SUPPORTED: [(Dtype, DType); 13] = [
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::I16, DType::I16),
    (Dtype::I8, DType::I8),
    (Dtype::U64, DType::U64),
    (Dtype::U32, DType::U32),
    (Dtype::U16, DType::U16),
    (Dtype::U8, DType::U8),
    (Dtype::BOOL, DType::Bool),
];

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
        error => find_wrong_tensor(file.bytes()).unwrap_or_else(|| error.to_string()),
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
    let supported = join_names(SUPPORTED.iter().map(|(name, _)| *name));
    let spec = |view: &TensorView<'_>| match dtype(view.dtype()) {
        Some(dtype) => Ok(TensorSpec::new(view.shape().iter().copied(), dtype)),
        None => Err(UnsupportedTensor {
            kind: view.dtype().to_string(),
            shape: view.shape().to_vec(),
            supported: supported.clone(),
        }),
    };
    Ok(parse(path, file)?.tensors().into_iter().map(|(name, view)| (name, spec(&view))).collect())
}

/// Converts an element type of safetensors; `None` when this crate does not support it.
pub(super) fn dtype(dtype: Dtype) -> Option<DType> {
    SUPPORTED.iter().find(|(own, _)| *own == dtype).map(|(_, dtype)| *dtype)
}

/// Returns what is wrong with the first tensor that the header describes wrongly, if there is one. The errors of the
/// crate `safetensors` name no tensor.
fn find_wrong_tensor(file: &[u8]) -> Option<String> {
    let (length, rest) = file.split_first_chunk()?;
    let (header, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).ok()?;
    header.into_iter().filter(|(name, _)| name != "__metadata__").find_map(|(name, entry)| {
        let wrong = match serde_json::from_value::<TensorInfo>(entry) {
            Ok(info) => describe_wrong_place(&info, data.len())?,
            Err(error) => error.to_string(),
        };
        Some(format!("tensor `{name}`: {wrong}"))
    })
}

/// Returns why a tensor cannot have its place in `available` bytes of data, if it cannot.
fn describe_wrong_place(info: &TensorInfo, available: usize) -> Option<String> {
    let (shape, kind, (start, end)) = (&info.shape, info.dtype, info.data_offsets);
    let bits = shape.iter().try_fold(kind.bitsize(), |bits, size| bits.checked_mul(*size));
    let Some(bytes) = bits.filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8) else {
        return Some(format!("its shape {shape:?} of {kind} is too large, or not whole bytes"));
    };
    if end.checked_sub(start) != Some(bytes) {
        return Some(format!("its shape {shape:?} of {kind} takes {bytes} bytes, but its offsets are {start}..{end}"));
    }
    (end > available).then(|| {
        format!("its bytes {start}..{end} exceed the {available} bytes after the header: the file is cut short")
    })
}
