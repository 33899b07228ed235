//! Weights from GGUF files, the format of llama.cpp. Quantised numbers are expanded to f32 when a tensor is read.
//!
//! A file is a header (metadata, and a description of each tensor) and the tensors' bytes. Every number of the header is
//! checked before it is used. Knows nothing about graphs.

mod blocks;
mod names;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use self::blocks::{BlockType, Expand};
use self::names::Projection;
use super::{MappedFile, TensorListing, WeightError};
use crate::{DType, Tensor, TensorSpec, byte_count};

const MAGIC: &[u8] = b"GGUF";

/// Limits of a header: that of a vocabulary of 256,000 tokens has about 15 MiB.
const HEADER_BYTES: usize = 64 << 20;
const TENSORS_MAX: u64 = 1 << 20;
const ENTRIES_MAX: u64 = 1 << 20;
const NAME_BYTES: usize = 1024;
/// The most dimensions of a tensor, which is ggml's own limit.
const RANK: u32 = 4;

/// Numbers of the types of metadata that are more than a number.
const TEXT: u32 = 8;
const LIST: u32 = 9;

/// Returns whether the first bytes of a file are those of a GGUF file.
pub(super) fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// An open GGUF file.
pub(super) struct GgufFile {
    file: MappedFile,
    tensors: HashMap<String, StoredTensor>,
}

/// A tensor in the file.
struct StoredTensor {
    /// In row-major order; the file has the dimensions in the opposite order.
    shape: Vec<usize>,
    /// The number of the element type, and the type if it is supported.
    kind: (u32, Option<&'static BlockType>),
    /// Its bytes in the file; empty if the type is not supported.
    range: Range<usize>,
    /// Rows of each head, if the rows are in another order than those of transformers.
    head: Option<usize>,
}

/// The metadata that the tensors depend on.
struct Metadata<'a> {
    architecture: &'a [u8],
    alignment: u64,
    query_heads: Option<u64>,
    key_heads: Option<u64>,
}

/// A value of the metadata.
enum Value<'a> {
    Integer(u64),
    Text(&'a [u8]),
    Other,
}

/// The description of a tensor.
struct Description<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

impl GgufFile {
    /// Reads the names, shapes and types of the tensors, and checks that each lies in the file apart from the others.
    ///
    /// # Errors
    /// When the file is truncated or has another version or byte order, or its header contradicts itself.
    pub(super) fn open(path: &Path, file: MappedFile) -> Result<Self, WeightError> {
        let malformed = |reason: String| WeightError::MalformedGguf { path: path.to_owned(), reason };
        let tensors = read_tensors(file.bytes()).map_err(malformed)?;
        Ok(GgufFile { file, tensors })
    }

    /// Returns the specification of every tensor. Quantised ones have the type f32.
    pub(super) fn list_tensors(&self) -> TensorListing {
        let spec = |StoredTensor { shape, kind, .. }: &StoredTensor| match kind.1 {
            Some(known) => Ok(TensorSpec::new(shape.iter().copied(), known.dtype)),
            None => Err(format!("{shape:?} {}", blocks::type_name(kind.0))),
        };
        self.tensors.iter().map(|(name, tensor)| (name.clone(), spec(tensor))).collect()
    }

    /// Returns one tensor. Its elements are copied if they are quantised, or their rows reordered.
    ///
    /// # Errors
    /// When the tensor is missing, has another shape than `shape` or an unsupported type, or there is not enough memory
    /// for a copy.
    pub(super) fn tensor(&self, path: &Path, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let malformed = |reason: &str| WeightError::MalformedGguf {
            path: path.to_owned(),
            reason: format!("tensor `{name}`: {reason}"),
        };
        let tensor = self.tensors.get(name).ok_or_else(|| malformed("it is missing"))?;
        let kind = tensor.kind.1.ok_or_else(|| malformed("its element type is not supported"))?;
        let bytes = byte_count(shape, kind.dtype).filter(|_| tensor.shape == shape);
        let bytes = bytes.ok_or_else(|| malformed("its shape is no longer that of the weight"))?;
        if bytes == 0 || kind.expand.is_none() && tensor.head.is_none() {
            return super::reader::tensor_from_range(name, shape, kind.dtype, &self.file, tensor.range.clone());
        }
        let out_of_memory = || WeightError::OutOfMemory {
            name: name.to_owned(),
            spec: TensorSpec::new(shape.iter().copied(), kind.dtype),
            bytes: bytes as u64,
        };
        let stored = &self.file.bytes()[tensor.range.clone()];
        let read = match kind.expand {
            Some(expand) => {
                let values = tensor.expand(stored, kind, expand, bytes / DType::F32.size());
                Tensor::from_vec(shape, values.ok_or_else(out_of_memory)?)
            }
            None => Tensor::from_bytes(shape, kind.dtype, &tensor.reorder(stored).ok_or_else(out_of_memory)?),
        };
        read.map_err(|error| malformed(&error.to_string()))
    }
}

impl StoredTensor {
    /// Returns the rows of the stored bytes in the order of transformers, or all bytes if they have that order.
    fn rows<'a>(&self, stored: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let count = self.head.map_or(1, |_| self.shape[0]);
        let (row, head) = (stored.len() / count, self.head);
        (0..count).map(move |index| &stored[head.map_or(index, |head| names::stored_row(index, head)) * row..][..row])
    }

    /// Returns the numbers of quantised blocks; `None` when there is not enough memory.
    fn expand(&self, stored: &[u8], kind: &BlockType, expand: Expand, count: usize) -> Option<Vec<f32>> {
        let mut values = Vec::new();
        values.try_reserve_exact(count).ok()?;
        values.resize(count, 0.0);
        let blocks = self.rows(stored).flat_map(|row| row.chunks_exact(kind.bytes));
        values.chunks_exact_mut(kind.elements).zip(blocks).for_each(|(values, block)| expand(block, values));
        Some(values)
    }

    fn reorder(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(stored.len()).ok()?;
        self.rows(stored).for_each(|row| bytes.extend_from_slice(row));
        Some(bytes)
    }
}

/// Reads the header of a file.
fn read_tensors(file: &[u8]) -> Result<HashMap<String, StoredTensor>, String> {
    let mut header = Header { bytes: &file[..file.len().min(HEADER_BYTES)], at: MAGIC.len() };
    check_version(header.u32()?)?;
    let (count, entries) = (header.u64()?, header.u64()?);
    for (what, count, most) in [("tensors", count, TENSORS_MAX), ("entries of metadata", entries, ENTRIES_MAX)] {
        if count > most {
            return Err(format!("it has {count} {what} by its header (at most {most})"));
        }
    }
    let metadata = header.metadata(entries)?;
    let described = (0..count).map(|_| header.description()).collect::<Result<Vec<_>, _>>()?;
    let start = (header.at as u64).next_multiple_of(metadata.alignment);
    let mut tensors = HashMap::new();
    for tensor in &described {
        let stored = tensor.place(file.len() as u64, start, &metadata).map_err(|reason| {
            let (name, shape, kind) = (tensor.name, &tensor.shape, blocks::type_name(tensor.kind));
            format!("tensor `{name}` ({shape:?} {kind}): {reason}")
        })?;
        let name = if metadata.architecture == names::LLAMA {
            names::transformers_name(tensor.name)
        } else {
            tensor.name.to_owned()
        };
        if tensors.insert(name.clone(), stored).is_some() {
            return Err(format!("it has several tensors `{name}`"));
        }
    }
    check_apart(&tensors)?;
    Ok(tensors)
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        2 | 3 => Ok(()),
        _ if matches!(version.swap_bytes(), 1..=3) => Err("it is big-endian (supported: little-endian)".to_owned()),
        _ => Err(format!("its version is {version} (supported: 2 and 3)")),
    }
}

/// Checks that no two tensors share bytes.
fn check_apart(tensors: &HashMap<String, StoredTensor>) -> Result<(), String> {
    let mut placed: Vec<(&Range<usize>, &String)> =
        tensors.iter().map(|(name, tensor)| (&tensor.range, name)).collect();
    placed.sort_by_key(|(range, name)| (range.start, range.end, *name));
    match placed.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
        Some(pair) => Err(format!("its tensors `{}` and `{}` overlap", pair[0].1, pair[1].1)),
        None => Ok(()),
    }
}

impl Description<'_> {
    /// Finds the tensor's bytes in a file of `length` bytes, whose tensors begin at `start`.
    fn place(&self, length: u64, start: u64, metadata: &Metadata<'_>) -> Result<StoredTensor, String> {
        let (offset, alignment) = (self.offset, metadata.alignment);
        if !offset.is_multiple_of(alignment) {
            return Err(format!("its offset {offset} is not a multiple of {alignment}, the alignment of the file"));
        }
        let kind = blocks::find_type(self.kind);
        let bytes = kind.map_or(Ok(0), |kind| self.byte_count(kind))?;
        let first = start.saturating_add(offset);
        let end = first.saturating_add(bytes);
        if end > length {
            return Err(format!(
                "its bytes {first}..{end} exceed the {length} bytes of the file: it is cut short, or the offset is wrong"
            ));
        }
        let head = kind.map_or(Ok(None), |kind| self.head(kind, metadata))?;
        let range = first as usize..end as usize;
        Ok(StoredTensor { shape: self.shape.clone(), kind: (self.kind, kind), range, head })
    }

    /// Returns the number of the tensor's bytes in the file.
    fn byte_count(&self, kind: &BlockType) -> Result<u64, String> {
        let row = self.shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(kind.elements) {
            return Err(format!("its rows of {row} elements are not whole blocks of {}", kind.elements));
        }
        let expanded = byte_count(&self.shape, kind.dtype).ok_or("its shape is too large")?;
        Ok((expanded / kind.dtype.size() / kind.elements) as u64 * kind.bytes as u64)
    }

    /// Returns the rows of each head, if the tensor's rows are reordered.
    fn head(&self, kind: &BlockType, metadata: &Metadata<'_>) -> Result<Option<usize>, String> {
        let projection = names::projection(self.name).filter(|_| metadata.architecture == names::LLAMA);
        let Some(projection) = projection else { return Ok(None) };
        let heads = match projection {
            Projection::Query => metadata.query_heads,
            Projection::Key => metadata.key_heads.or(metadata.query_heads),
        };
        let heads = heads.ok_or("the metadata has no number of heads (`llama.attention.head_count`)")?;
        let rows = self.shape.first().copied().unwrap_or(0);
        let size = usize::try_from(heads).ok().and_then(|heads| rows.checked_div(heads)).unwrap_or(0);
        if size < 2 || !size.is_multiple_of(2) || size as u64 * heads != rows as u64 {
            return Err(format!("its {rows} rows are not pairs in {heads} heads"));
        }
        match self.shape[1..].iter().product::<usize>().is_multiple_of(kind.elements) {
            true => Ok(Some(size)),
            false => Err("its blocks contain several rows".to_owned()),
        }
    }
}

/// Reads the header from the beginning to its end.
struct Header<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Header<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            let (at, length) = (self.at, self.bytes.len());
            let limit = if length == HEADER_BYTES { " or the limit" } else { "" };
            format!("its header needs {count} bytes at {at}, beyond the end of the file{limit} at {length}")
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(little_endian(self.take(4)?) as u32)
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(little_endian(self.take(8)?))
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let length = self.u64()?;
        self.take(length)
    }

    fn metadata(&mut self, entries: u64) -> Result<Metadata<'a>, String> {
        let mut metadata = Metadata { architecture: b"", alignment: 32, query_heads: None, key_heads: None };
        for _ in 0..entries {
            let key = self.text()?;
            let name = || String::from_utf8_lossy(&key[..key.len().min(NAME_BYTES)]);
            let kind = self.u32()?;
            let value = self.value(kind).map_err(|reason| format!("metadata `{}`: {reason}", name()))?;
            match (key, value) {
                (b"general.architecture", Value::Text(text)) => metadata.architecture = text,
                (b"general.alignment", Value::Integer(bytes)) if bytes.is_power_of_two() && bytes <= 1 << 31 => {
                    metadata.alignment = bytes;
                }
                (b"llama.attention.head_count", Value::Integer(heads)) => metadata.query_heads = Some(heads),
                (b"llama.attention.head_count_kv", Value::Integer(heads)) => metadata.key_heads = Some(heads),
                (b"split.count", Value::Integer(0 | 1)) => {}
                (b"split.count", Value::Integer(parts)) => {
                    return Err(format!("it is one of {parts} parts of a model (join them with `llama-gguf-split`)"));
                }
                (
                    b"general.architecture"
                    | b"general.alignment"
                    | b"llama.attention.head_count"
                    | b"llama.attention.head_count_kv"
                    | b"split.count",
                    _,
                ) => return Err(format!("metadata `{}` has an unsupported value", name())),
                _ => {}
            }
        }
        Ok(metadata)
    }

    fn value(&mut self, kind: u32) -> Result<Value<'a>, String> {
        match kind {
            TEXT => return Ok(Value::Text(self.text()?)),
            LIST => {
                let (kind, count) = (self.u32()?, self.u64()?);
                match kind {
                    TEXT => (0..count).try_for_each(|_| self.text().map(drop))?,
                    LIST => return Err("a list of lists is not supported".to_owned()),
                    kind => drop(self.take(count.saturating_mul(number_size(kind)?))?),
                }
                return Ok(Value::Other);
            }
            _ => {}
        }
        let bytes = self.take(number_size(kind)?)?;
        Ok(if is_integer(kind) { Value::Integer(little_endian(bytes)) } else { Value::Other })
    }

    fn description(&mut self) -> Result<Description<'a>, String> {
        let name = self.text()?;
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES);
        let name =
            name.ok_or_else(|| format!("the name of a tensor is not UTF-8 text of at most {NAME_BYTES} bytes"))?;
        let rank = self.u32()?;
        if rank > RANK {
            return Err(format!("tensor `{name}`: it has {rank} dimensions (at most {RANK})"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            let size = self.u64()?;
            shape.push(usize::try_from(size).map_err(|_| format!("tensor `{name}`: its size {size} is too large"))?);
        }
        shape.reverse();
        Ok(Description { name, shape, kind: self.u32()?, offset: self.u64()? })
    }
}

/// Returns the size of a number of the metadata.
fn number_size(kind: u32) -> Result<u64, String> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(format!("unknown type {kind} of a value")),
    }
}

fn is_integer(kind: u32) -> bool {
    matches!(kind, 0..=5 | 10 | 11)
}

/// Returns the number of up to eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
