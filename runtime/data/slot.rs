//! The memory of one batch: lent by a session, written by the loader, read as tensors, written again.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{Batch, Dataset, Field, FieldRole};
use crate::engine::{EngineError, LentMemory};
use crate::tensor::{HostMemory, Tensor, TensorError, byte_count};

/// How a session lends memory: so many bytes for a field of a batch.
pub type Lend<'a> = &'a mut dyn FnMut(&Field, usize) -> Result<Box<dyn LentMemory>, EngineError>;

/// Lent memory that tensors share while they read it.
struct Buffer(Box<dyn LentMemory>);

impl HostMemory for Buffer {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Fields of a batch by name.
type Tensors = IndexMap<String, Tensor>;

/// Memory for `rows` samples, one buffer a field.
pub struct Slot {
    rows: usize,
    buffers: Vec<Arc<Buffer>>,
}

impl Slot {
    /// Borrows the memory of `rows` samples with `lend`.
    ///
    /// # Errors
    /// When the session has no more, or lends another amount.
    pub fn new(dataset: &dyn Dataset, rows: usize, lend: Lend<'_>) -> Result<Self, EngineError> {
        let buffers = dataset.fields().iter().map(|field| {
            let bytes = batch_shape(field, rows)
                .and_then(|shape| byte_count(&shape, field.spec.dtype))
                .ok_or_else(|| EngineError::Failed(format!("field `{}` has no fixed size", field.name)))?;
            let memory = lend(field, bytes)?;
            let lent = memory.bytes().len();
            if lent == bytes {
                Ok(Arc::new(Buffer(memory)))
            } else {
                Err(EngineError::Failed(format!("{lent} bytes lent for `{}`, {bytes} asked for", field.name)))
            }
        });
        Ok(Slot { rows, buffers: buffers.collect::<Result<_, _>>()? })
    }

    /// The memory of every row, a slice a field; `None` while a tensor of the slot is held.
    pub fn rows_mut(&mut self) -> Option<Vec<Vec<&mut [u8]>>> {
        let mut rows: Vec<Vec<&mut [u8]>> = (0..self.rows).map(|_| Vec::with_capacity(self.buffers.len())).collect();
        for buffer in &mut self.buffers {
            let bytes = Arc::get_mut(buffer)?.0.bytes_mut();
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

    /// Index of a field whose tensor is still held.
    pub fn held(&mut self) -> Option<usize> {
        self.buffers.iter_mut().position(|buffer| Arc::get_mut(buffer).is_none())
    }

    /// Whether a tensor of `batch` reads this memory.
    pub fn owns(&self, batch: &Batch) -> bool {
        let tensors = batch.inputs.values().chain(batch.truth.values());
        let addresses: Vec<_> = self.buffers.iter().map(|buffer| buffer.bytes().as_ptr_range()).collect();
        tensors.into_iter().any(|tensor| addresses.iter().any(|range| range.contains(&tensor.bytes().as_ptr())))
    }

    /// The first `rows` rows as tensors: inputs and truth.
    ///
    /// # Errors
    /// When the lent memory is not aligned for its elements.
    pub fn tensors(&self, fields: &[Field], rows: usize) -> Result<(Tensors, Tensors), TensorError> {
        let (mut inputs, mut truth) = (IndexMap::new(), IndexMap::new());
        for (field, buffer) in fields.iter().zip(&self.buffers) {
            let shape = batch_shape(field, self.rows).ok_or(TensorError::TooLarge)?;
            let tensor = Tensor::from_memory(shape, field.spec.dtype, Arc::clone(buffer) as _, 0)?.rows(rows)?;
            match field.role {
                FieldRole::Input => inputs.insert(field.name.clone(), tensor),
                FieldRole::Truth => truth.insert(field.name.clone(), tensor),
            };
        }
        Ok((inputs, truth))
    }
}

fn batch_shape(field: &Field, rows: usize) -> Option<Vec<usize>> {
    let mut shape = field.spec.fixed_shape()?;
    shape.insert(0, rows);
    Some(shape)
}

/// A batch that could not be taken back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecycleError {
    /// Somebody still reads it; its memory comes back when that ends.
    #[error("field `{field}` of batch {batch} is still held")]
    Held {
        /// Number of the batch in its pass.
        batch: u64,
        /// A field that is held.
        field: String,
    },
    /// It is not this loader's, or was taken back before.
    #[error("batch {0} is none that this loader handed out")]
    Unknown(u64),
}
