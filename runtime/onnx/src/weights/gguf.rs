//! Weights from GGUF files, the format of llama.cpp. Quantised numbers are expanded to f32 when a tensor is read.
//!
//! A file is a header (metadata, and a description of each tensor) and the tensors' bytes. Every number of the header is
//! checked before it is used. Knows nothing about graphs.

mod blocks;
mod header;
mod names;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use self::blocks::{BlockType, Expand};
use self::header::{Configuration, Description, Metadata, read_metadata};
use self::names::Projection;
use super::{MappedFile, TensorListing, UnsupportedTensor, WeightError, join_names};
use crate::{DType, Tensor, TensorSpec, byte_count};

const MAGIC: &[u8] = b"GGUF";

/// Returns whether the first bytes of a file are those of a GGUF file.
pub(super) fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the metadata that says how the model computes.
///
/// # Errors
/// When the file is truncated or its header contradicts itself.
pub(super) fn read_configuration(path: &Path, file: &[u8]) -> Result<Configuration, WeightError> {
    match read_metadata(file) {
        Ok((_, _, metadata)) => Ok(metadata.configuration),
        Err(reason) => Err(WeightError::MalformedGguf { path: path.to_owned(), reason }),
    }
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
        let supported = join_names(blocks::supported_names());
        let spec = |StoredTensor { shape, kind, .. }: &StoredTensor| match kind.1 {
            Some(known) => Ok(TensorSpec::new(shape.iter().copied(), known.dtype)),
            None => Err(UnsupportedTensor {
                kind: blocks::type_name(kind.0),
                shape: shape.clone(),
                supported: supported.clone(),
            }),
        };
        self.tensors.iter().map(|(name, tensor)| (name.clone(), spec(tensor))).collect()
    }

    /// Returns one tensor. Its elements are copied if they are quantised, or their rows reordered.
    ///
    /// # Errors
    /// When the tensor is missing, has another shape than `shape` or an unsupported type, when quantised numbers expand to
    /// NaN or infinity, or when there is not enough memory for a copy.
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
        let read = read.map_err(|error| malformed(&error.to_string()))?;
        if kind.expand.is_some() {
            super::reader::check_finite(path, name, &read)?;
        }
        Ok(read)
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
    let (mut header, count, metadata) = read_metadata(file)?;
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
            Projection::Query => metadata.heads("num_attention_heads"),
            Projection::Key => metadata.heads("num_key_value_heads").or(metadata.heads("num_attention_heads")),
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

#[cfg(test)]
mod tests;
