//! Weights from PyTorch's own files (`torch.save(model.state_dict())`), read without executing their contents.
//!
//! Such a file is an archive of a pickle, which describes the tensors, and one entry for each storage, which holds the
//! elements of one or more tensors. Knows nothing about graphs.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

use ndarray::Dimension;
use zip::{CompressionMethod, ZipArchive};

use super::pickle::{PickleError, PickledTensor, read_state_dict};
use super::{MappedFile, TensorListing, UnsupportedTensor, WeightError, join_names};
use crate::{DType, Tensor, TensorSpec, byte_count};

/// The storage classes of the supported element types.
const STORAGES: [(&str, DType); 10] = [
    ("BFloat16Storage", DType::BF16),
    ("BoolStorage", DType::Bool),
    ("ByteStorage", DType::U8),
    ("CharStorage", DType::I8),
    ("DoubleStorage", DType::F64),
    ("FloatStorage", DType::F32),
    ("HalfStorage", DType::F16),
    ("IntStorage", DType::I32),
    ("LongStorage", DType::I64),
    ("ShortStorage", DType::I16),
];

/// Bytes of the fixed part of an entry in the directory of an archive (APPNOTE 4.3.12).
const DIRECTORY_HEADER: usize = 46;

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
    /// The storages by name.
    storages: HashMap<String, Entry>,
    pickle: Entry,
}

/// An entry of the archive.
#[derive(Clone, Debug)]
struct Entry {
    /// Its bytes in the file.
    range: Range<usize>,
    /// Its checksum; 0 if PyTorch was told not to compute any (`torch.serialization.set_crc32_options`).
    crc32: u32,
}

impl PthFile {
    /// Reads the names, shapes and types of the tensors, and checks that each lies in its storage. Elements are not
    /// read.
    ///
    /// # Errors
    /// When the file is truncated or has the old format, names functions other than those that construct tensors, or
    /// describes a tensor whose elements it does not have.
    pub(super) fn open(path: &Path, file: MappedFile) -> Result<Self, WeightError> {
        let malformed = |reason: String| WeightError::MalformedPth { path: path.to_owned(), reason };
        if is_legacy_pth(file.bytes()) {
            return Err(malformed(
                "it has the format of PyTorch before 1.6 (save it again with a newer `torch.save`)".to_owned(),
            ));
        }
        let (pickle, storages) = find_entries(file.bytes()).map_err(malformed)?;
        let tensors = read_state_dict(&file.bytes()[pickle.range.clone()]).map_err(|error| match error {
            PickleError::Malformed(reason) => malformed(reason),
            PickleError::Forbidden(callable) => WeightError::ForbiddenCall { path: path.to_owned(), callable },
        })?;
        for (name, tensor) in &tensors {
            let checked = check_tensor(tensor, storages.get(&*tensor.key));
            checked.map_err(|reason| malformed(format!("tensor `{name}`: {reason}")))?;
        }
        Ok(PthFile { file, tensors, storages, pickle })
    }

    /// Checks the checksums of the pickle and of every storage, which reads the whole file.
    ///
    /// # Errors
    /// When the bytes are not those that were written.
    pub(super) fn check_sums(&self, path: &Path) -> Result<(), WeightError> {
        let storages = self.storages.iter().map(|(key, entry)| (format!("storage `{key}`"), entry));
        let mut entries = storages.chain([("entry `data.pkl`".to_owned(), &self.pickle)]);
        let is_damaged =
            |entry: &Entry| entry.crc32 != 0 && crc32fast::hash(&self.file.bytes()[entry.range.clone()]) != entry.crc32;
        match entries.find(|(_, entry)| is_damaged(entry)) {
            Some((what, _)) => Err(WeightError::MalformedPth {
                path: path.to_owned(),
                reason: format!("its {what} does not have the checksum that was stored with it, so it is damaged"),
            }),
            None => Ok(()),
        }
    }

    /// Returns the specification of every tensor.
    pub(super) fn list_tensors(&self) -> TensorListing {
        let supported = join_names(STORAGES.iter().map(|(class, _)| *class));
        let spec = |tensor: &PickledTensor| match dtype(tensor) {
            Some(dtype) => Ok(TensorSpec::new(tensor.shape.iter().copied(), dtype)),
            None => Err(UnsupportedTensor {
                kind: tensor.storage.to_string(),
                shape: tensor.shape.clone(),
                supported: supported.clone(),
            }),
        };
        self.tensors.iter().map(|(name, tensor)| (name.clone(), spec(tensor))).collect()
    }

    /// Returns one tensor. Its elements are copied unless they are in row-major order in the file.
    ///
    /// # Errors
    /// When the tensor is missing or has another shape than `shape`, or there is not enough memory for a copy.
    pub(super) fn tensor(&self, path: &Path, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let malformed = |reason: &str| WeightError::MalformedPth {
            path: path.to_owned(),
            reason: format!("tensor `{name}`: {reason}"),
        };
        let tensor = self.tensors.get(name).ok_or_else(|| malformed("it is missing"))?;
        let dtype = dtype(tensor).ok_or_else(|| malformed("its element type is not supported"))?;
        let storage = self.storages.get(&*tensor.key).ok_or_else(|| malformed("its storage is missing"))?;
        let bytes = byte_count(shape, dtype).filter(|_| tensor.shape == shape);
        let bytes = bytes.ok_or_else(|| malformed("its shape is no longer that of the weight"))?;
        if bytes == 0 || is_row_major(tensor) {
            // An empty tensor may have any offset, also one beyond its storage.
            let start = if bytes == 0 { 0 } else { storage.range.start + tensor.offset * dtype.size() };
            let range = start..start + bytes;
            return super::reader::tensor_from_range(name, shape, dtype, &self.file, range);
        }
        let out_of_memory = || WeightError::OutOfMemory {
            name: name.to_owned(),
            spec: TensorSpec::new(shape.iter().copied(), dtype),
            bytes: bytes as u64,
        };
        let stored = &self.file.bytes()[storage.range.clone()];
        let bytes = gather(tensor, dtype.size(), stored, bytes).ok_or_else(out_of_memory)?;
        Tensor::from_bytes(shape, dtype, &bytes).map_err(|error| malformed(&error.to_string()))
    }
}

/// Checks that a tensor of a supported type lies in its storage, and that the storage has the declared length.
fn check_tensor(tensor: &PickledTensor, storage: Option<&Entry>) -> Result<(), String> {
    let Some(dtype) = dtype(tensor) else { return Ok(()) };
    let storage = storage.ok_or_else(|| format!("its storage `{}` is missing", tensor.key))?;
    if tensor.stored.checked_mul(dtype.size()) != Some(storage.range.len()) {
        let (key, bytes, stored) = (&tensor.key, storage.range.len(), tensor.stored);
        return Err(format!("its storage `{key}` has {bytes} bytes, which are not {stored} elements of `{dtype}`"));
    }
    if byte_count(&tensor.shape, dtype).is_none() {
        return Err(format!("its shape {:?} is too large", tensor.shape));
    }
    // Several elements may share a place: `expand` makes strides of 0.
    let is_inside = tensor.shape.contains(&0) || last_element(tensor).is_some_and(|last| last < tensor.stored);
    if is_inside { Ok(()) } else { Err("its elements exceed its storage".to_owned()) }
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

/// Copies the elements of a tensor, each of `size` bytes and `bytes` altogether, from its storage in row-major order;
/// `None` when there is not enough memory.
fn gather(tensor: &PickledTensor, size: usize, storage: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut gathered = Vec::new();
    gathered.try_reserve_exact(bytes).ok()?;
    for index in ndarray::indices(&tensor.shape[..]) {
        let steps = index.as_array_view();
        let place = tensor.offset + steps.iter().zip(&tensor.strides).map(|(i, stride)| i * stride).sum::<usize>();
        gathered.extend_from_slice(&storage[place * size..(place + 1) * size]);
    }
    Some(gathered)
}

/// Returns the pickle and every storage, by its name: the entries of the archive are `NAME/data.pkl`, `NAME/byteorder`
/// and `NAME/data/KEY`.
fn find_entries(file: &[u8]) -> Result<(Entry, HashMap<String, Entry>), String> {
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(|error| error.to_string())?;
    check_names(file, archive.central_directory_start() as usize)?;
    let (mut pickle, mut storages) = (None, HashMap::new());
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| error.to_string())?;
        let name = entry.name().map_err(|error| error.to_string())?.into_owned();
        let Some((_, name)) = name.split_once('/') else { continue };
        let key = name.strip_prefix("data/");
        if key.is_none() && !["data.pkl", "byteorder"].contains(&name) {
            continue;
        }
        if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
            return Err(format!("its entry `{name}` is compressed or encrypted, which `torch.save` does not do"));
        }
        let range = entry.data_start().and_then(|start| Some(start..start.checked_add(entry.size())?));
        let Some(range) = range.filter(|range| range.end <= file.len() as u64) else {
            return Err(format!("its entry `{name}` is longer than the file"));
        };
        let found = Entry { range: range.start as usize..range.end as usize, crc32: entry.crc32() };
        let other = match key {
            Some(key) => storages.insert(key.to_owned(), found),
            None if name == "data.pkl" => pickle.replace(found),
            None => check_byte_order(&file[found.range]).map(|()| None)?,
        };
        if other.is_some() {
            return Err(format!("it has several entries `{name}`"));
        }
    }
    Ok((pickle.ok_or("it has no entry `data.pkl`")?, storages))
}

/// Checks that the archive's directory, which starts at `start`, lists no name twice: the reader of archives would
/// silently use the last one.
fn check_names(file: &[u8], start: usize) -> Result<(), String> {
    let (mut names, mut rest) = (HashSet::new(), file.get(start..).unwrap_or_default());
    while let Some(header) = rest.strip_prefix(b"PK\x01\x02").and_then(|_| rest.first_chunk::<DIRECTORY_HEADER>()) {
        let length = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let (name, extra, comment) = (length(28), length(30), length(32));
        let bytes = rest.get(DIRECTORY_HEADER..DIRECTORY_HEADER + name).ok_or("its directory is truncated")?;
        if !names.insert(bytes) {
            return Err(format!("it has several entries `{}`", String::from_utf8_lossy(bytes)));
        }
        rest = rest.get(DIRECTORY_HEADER + name + extra + comment..).unwrap_or_default();
    }
    Ok(())
}

/// Checks that the tensors are little-endian, because their bytes are read without conversion.
fn check_byte_order(entry: &[u8]) -> Result<(), String> {
    let order = String::from_utf8_lossy(&entry[..entry.len().min(16)]).trim().to_owned();
    if order == "little" { Ok(()) } else { Err(format!("its byte order is `{order}`, not `little`")) }
}
