//! The memory of one batch: lent by a session, filled by the loader, read as tensors, then filled again.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{Batch, Dataset, Field, FieldRole, OpenLength};
use flagperf_core::engine_error::EngineError;
use flagperf_core::lent_memory::LentMemory;
use flagperf_core::tensor::{HostMemory, Tensor, TensorError, byte_count};

/// A function that borrows memory from a session: the given number of bytes for a field of a batch.
pub type MemoryLender<'a> = &'a mut dyn FnMut(&Field, usize) -> Result<Box<dyn LentMemory>, EngineError>;

/// Lent memory shared by the tensors that read it.
struct SlotBuffer {
    memory: Box<dyn LentMemory>,
    /// Number of bytes that the tensors of the current batch have.
    used: usize,
}

impl HostMemory for SlotBuffer {
    fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.used]
    }
}

/// Fields of a batch by name.
type Tensors = IndexMap<String, Tensor>;

/// Memory for `rows` samples, one buffer per field.
pub struct Slot {
    rows: usize,
    buffers: Vec<Arc<SlotBuffer>>,
}

impl Slot {
    /// Borrows the memory for `rows` samples with `lend`.
    ///
    /// # Errors
    /// When the session cannot lend the memory, or lends another number of bytes than requested.
    pub fn new(dataset: &dyn Dataset, rows: usize, lend: MemoryLender<'_>) -> Result<Self, EngineError> {
        let buffers = dataset.fields().iter().map(|field| {
            let bytes = batch_shape(field, rows)
                .and_then(|shape| byte_count(&shape, field.spec.dtype))
                .ok_or_else(|| EngineError::Failed(format!("field `{}` has no fixed size", field.name)))?;
            let memory = lend(field, bytes)?;
            let lent = memory.bytes().len();
            if lent == bytes {
                Ok(Arc::new(SlotBuffer { memory, used: bytes }))
            } else {
                Err(EngineError::Failed(format!("{lent} bytes lent for `{}`, {bytes} requested", field.name)))
            }
        });
        Ok(Slot { rows, buffers: buffers.collect::<Result<_, _>>()? })
    }

    /// Returns the memory of every row, one slice per field; `None` while a tensor of the slot is held.
    pub fn rows_mut(&mut self) -> Option<Vec<Vec<&mut [u8]>>> {
        let mut rows: Vec<Vec<&mut [u8]>> = (0..self.rows).map(|_| Vec::with_capacity(self.buffers.len())).collect();
        for buffer in &mut self.buffers {
            let buffer = Arc::get_mut(buffer)?;
            let bytes = buffer.memory.bytes_mut();
            buffer.used = bytes.len();
            let size = bytes.len() / self.rows;
            let mut rest = bytes;
            for row in &mut rows {
                let (first, after) = rest.split_at_mut(size);
                row.push(first);
                rest = after;
            }
        }
        Some(rows)
    }

    /// Shortens the fields of `open` to the longest sample of the batch, which is at least one element, and returns that
    /// length; `None` while a tensor of the slot is held, or when a field has no length.
    pub fn shorten(&mut self, fields: &[Field], open: &OpenLength) -> Option<usize> {
        let lengths: Vec<i64> = bytemuck::pod_collect_to_vec(self.buffers.get(open.lengths)?.bytes());
        let longest = usize::try_from(lengths.into_iter().max()?).unwrap_or(0).max(1);
        for &at in &open.fields {
            let max = *fields.get(at)?.spec.fixed_shape()?.first()?;
            let buffer = Arc::get_mut(self.buffers.get_mut(at)?)?;
            let bytes = buffer.memory.bytes_mut();
            let row = bytes.len() / self.rows;
            let kept = row / max * longest.min(max);
            let skipped = if open.keeps_end { row - kept } else { 0 };
            (0..self.rows).for_each(|at| bytes.copy_within(at * row + skipped..at * row + skipped + kept, at * kept));
            buffer.used = kept * self.rows;
        }
        Some(longest)
    }

    /// Copies the fields of another slot of the same dataset and number of rows; `None` while a tensor of this slot is held.
    pub fn copy_from(&mut self, other: &Slot) -> Option<()> {
        for (own, other) in self.buffers.iter_mut().zip(&other.buffers) {
            let own = Arc::get_mut(own)?;
            own.used = other.used;
            own.memory.bytes_mut()[..other.used].copy_from_slice(other.bytes());
        }
        Some(())
    }

    /// Returns the index of a field whose tensor is still held, if any.
    pub fn held_field(&mut self) -> Option<usize> {
        self.buffers.iter_mut().position(|buffer| Arc::get_mut(buffer).is_none())
    }

    /// Returns whether a tensor of `batch` uses the memory of this slot.
    pub fn owns(&self, batch: &Batch) -> bool {
        let tensors = batch.inputs.values().chain(batch.truth.values());
        let addresses: Vec<_> = self.buffers.iter().map(|buffer| buffer.bytes().as_ptr_range()).collect();
        tensors.into_iter().any(|tensor| addresses.iter().any(|range| range.contains(&tensor.bytes().as_ptr())))
    }

    /// Returns the first `rows` rows as tensors: the inputs and the truth. Fields that were shortened are shorter.
    ///
    /// # Errors
    /// When the lent memory is not aligned for its elements.
    pub fn tensors(&self, fields: &[Field], rows: usize) -> Result<(Tensors, Tensors), TensorError> {
        let (mut inputs, mut truth) = (IndexMap::new(), IndexMap::new());
        for (field, buffer) in fields.iter().zip(&self.buffers) {
            let mut shape = batch_shape(field, self.rows).ok_or(TensorError::TooLarge)?;
            let bytes = byte_count(&shape, field.spec.dtype).ok_or(TensorError::TooLarge)?;
            if let (true, [_, length, ..]) = (buffer.used < bytes, &mut shape[..]) {
                *length = *length * buffer.used / bytes;
            }
            let tensor = Tensor::from_memory(shape, field.spec.dtype, Arc::clone(buffer) as _, 0)?.first_rows(rows)?;
            match field.role {
                FieldRole::Input => inputs.insert(field.name.clone(), tensor),
                FieldRole::Truth => truth.insert(field.name.clone(), tensor),
            };
        }
        Ok((inputs, truth))
    }
}

/// Returns the shape of `field` in a batch of `rows`; `None` when the field has an open dimension.
fn batch_shape(field: &Field, rows: usize) -> Option<Vec<usize>> {
    let mut shape = field.spec.fixed_shape()?;
    shape.insert(0, rows);
    Some(shape)
}

/// The reason why a batch could not be recycled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecycleError {
    #[error("field `{field}` of batch {batch} is still held")]
    Held { batch: u64, field: String },
    #[error("batch {0} is not in use by this loader")]
    Unknown(u64),
}
