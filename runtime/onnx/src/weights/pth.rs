//! Weights from PyTorch's own files (`torch.save(model.state_dict())`), read without executing their contents.
//!
//! Such a file is an archive of a pickle, which describes the tensors, and one entry for each storage, which holds the
//! elements of one or more tensors. Knows nothing about graphs.

use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read};
use std::ops::Range;
use std::path::Path;

use ndarray::Dimension;
use zip::{CompressionMethod, ZipArchive};

use super::pickle::{PickleError, PickledTensor, read_state_dict};
use super::{MappedFile, TensorListing, WeightError};
use crate::{DType, Tensor, TensorSpec, byte_count};

/// The storage classes of the supported element types.
const STORAGES: [(&str, DType); 9] = [
    ("BFloat16Storage", DType::BF16),
    ("BoolStorage", DType::Bool),
    ("ByteStorage", DType::U8),
    ("CharStorage", DType::I8),
    ("DoubleStorage", DType::F64),
    ("FloatStorage", DType::F32),
    ("HalfStorage", DType::F16),
    ("IntStorage", DType::I32),
    ("LongStorage", DType::I64),
];

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Returns whether the first bytes of a file are those of a PyTorch file: a zip archive, or the pickle of PyTorch
/// before 1.6.
pub(super) fn is_pth(bytes: &[u8]) -> bool {
    // A safetensors file begins with the length of its header, whose upper half is zero.
    let archive = bytes.starts_with(b"PK\x03\x04") && bytes.get(4..8).is_some_and(|more| more != [0; 4]);
    archive || is_legacy_pth(bytes)
}

fn is_legacy_pth(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x80, 2, 0x8a, 0x0a, 0x6c])
}

/// An open PyTorch file.
pub(super) struct PthFile {
    file: MappedFile,
    tensors: HashMap<String, PickledTensor>,
    /// The bytes of each storage in the file.
    storages: HashMap<String, Range<usize>>,
}

impl PthFile {
    /// Reads the names, shapes and types of the tensors, but not their elements.
    ///
    /// # Errors
    /// When the file is truncated or has the old format, or names functions other than those that construct tensors.
    pub(super) fn open(path: &Path, file: MappedFile) -> Result<Self, WeightError> {
        let malformed = |reason: String| WeightError::MalformedPth { path: path.to_owned(), reason };
        if is_legacy_pth(file.bytes()) {
            return Err(malformed(
                "it has the format of PyTorch before 1.6 (save it again with a newer `torch.save`)".to_owned(),
            ));
        }
        let mut archive = ZipArchive::new(Cursor::new(file.bytes())).map_err(|error| malformed(error.to_string()))?;
        let (pickle, storages) = find_entries(&mut archive, file.bytes().len() as u64).map_err(malformed)?;
        let entry = archive.by_index(pickle).map_err(|error| malformed(error.to_string()))?;
        let tensors = read_state_dict(BufReader::new(entry)).map_err(|error| match error {
            PickleError::Malformed(reason) => malformed(reason),
            PickleError::Forbidden(callable) => WeightError::ForbiddenCall { path: path.to_owned(), callable },
        })?;
        drop(archive);
        Ok(PthFile { file, tensors, storages })
    }

    /// Returns the specification of every tensor.
    pub(super) fn list_tensors(&self) -> TensorListing {
        let spec = |tensor: &PickledTensor| match dtype(tensor) {
            Some(dtype) => Ok(TensorSpec::new(tensor.shape.iter().copied(), dtype)),
            None => Err(format!("{:?} {}", tensor.shape, tensor.storage)),
        };
        self.tensors.iter().map(|(name, tensor)| (name.clone(), spec(tensor))).collect()
    }

    /// Returns one tensor. Its elements are copied unless they are in row-major order in the file.
    ///
    /// # Errors
    /// When the tensor is missing or exceeds its storage.
    pub(super) fn tensor(&self, path: &Path, name: &str) -> Result<Tensor, WeightError> {
        let malformed = |reason: &str| WeightError::MalformedPth {
            path: path.to_owned(),
            reason: format!("tensor `{name}`: {reason}"),
        };
        let tensor = self.tensors.get(name).ok_or_else(|| malformed("it is missing"))?;
        let dtype = dtype(tensor).ok_or_else(|| malformed("its element type is not supported"))?;
        let storage = self.storages.get(&*tensor.key).ok_or_else(|| malformed("its storage is missing"))?;
        let stored = storage.len() / dtype.size();
        let is_inside = last_element(tensor).is_some_and(|last| last < stored);
        let count = byte_count(&tensor.shape, dtype).map(|bytes| bytes / dtype.size());
        let Some(count) = count.filter(|count| *count == 0 || is_inside && *count <= stored) else {
            return Err(malformed("its elements exceed its storage"));
        };
        let start = storage.start + tensor.offset * dtype.size();
        if count == 0 || is_row_major(tensor) {
            let range = if count == 0 { 0..0 } else { start..start + count * dtype.size() };
            return super::reader::tensor_from_range(name, &tensor.shape, dtype, &self.file, range);
        }
        let bytes = gather(tensor, dtype.size(), &self.file.bytes()[storage.clone()], count);
        Tensor::from_bytes(&tensor.shape[..], dtype, &bytes).map_err(|error| malformed(&error.to_string()))
    }
}

fn dtype(tensor: &PickledTensor) -> Option<DType> {
    STORAGES.iter().find(|(class, _)| *class == &*tensor.storage).map(|(_, dtype)| *dtype)
}

/// Returns the place in the storage of the tensor's last element; `None` if it does not fit in a `usize`.
fn last_element(tensor: &PickledTensor) -> Option<usize> {
    let mut dims = tensor.shape.iter().zip(&tensor.strides);
    dims.try_fold(tensor.offset, |last, (size, stride)| last.checked_add(size.saturating_sub(1).checked_mul(*stride)?))
}

fn is_row_major(tensor: &PickledTensor) -> bool {
    let mut expected = 1;
    tensor.shape.iter().zip(&tensor.strides).rev().all(|(size, stride)| {
        let matches = *size == 1 || *stride == expected;
        expected *= size;
        matches
    })
}

/// Copies the elements of a tensor, each of `size` bytes, from its storage in row-major order.
fn gather(tensor: &PickledTensor, size: usize, storage: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * size);
    for index in ndarray::indices(&tensor.shape[..]) {
        let steps = index.as_array_view();
        let place = tensor.offset + steps.iter().zip(&tensor.strides).map(|(i, stride)| i * stride).sum::<usize>();
        bytes.extend_from_slice(&storage[place * size..(place + 1) * size]);
    }
    bytes
}

/// Returns the index of the pickle and the bytes of every storage, by its name: the entries of the archive are
/// `NAME/data.pkl`, `NAME/byteorder` and `NAME/data/KEY`.
fn find_entries(archive: &mut Archive, length: u64) -> Result<(usize, HashMap<String, Range<usize>>), String> {
    let (mut pickle, mut storages) = (None, HashMap::new());
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| error.to_string())?;
        let name = entry.name().map_err(|error| error.to_string())?.into_owned();
        let Some((_, name)) = name.split_once('/') else { continue };
        match name {
            "data.pkl" => pickle = Some(index),
            "byteorder" => check_byte_order(&mut entry)?,
            _ => {
                let Some(key) = name.strip_prefix("data/") else { continue };
                if entry.compression() != CompressionMethod::Stored {
                    return Err(format!("its storage `{key}` is compressed, which `torch.save` does not do"));
                }
                let range = entry.data_start().and_then(|start| Some(start..start.checked_add(entry.size())?));
                let Some(range) = range.filter(|range| range.end <= length) else {
                    return Err(format!("its storage `{key}` is longer than the file"));
                };
                storages.insert(key.to_owned(), range.start as usize..range.end as usize);
            }
        }
    }
    Ok((pickle.ok_or("it has no entry `data.pkl`")?, storages))
}

/// Checks that the tensors are little-endian, because their bytes are read without conversion.
fn check_byte_order(entry: &mut impl Read) -> Result<(), String> {
    let mut order = String::new();
    entry.take(16).read_to_string(&mut order).map_err(|error| error.to_string())?;
    if order.trim() == "little" { Ok(()) } else { Err(format!("its byte order is `{}`, not `little`", order.trim())) }
}
