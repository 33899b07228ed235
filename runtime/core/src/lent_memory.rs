//! Memory for inputs that a session lends to the loader.

use crate::engine_error::EngineError;
use crate::tensor::HostMemory;

/// Memory that a session lends to the loader, which fills it; it is then read as a tensor.
pub trait LentMemory: HostMemory {
    /// The writable bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Lent memory on the heap, aligned for every element type.
#[derive(Debug)]
pub struct HeapMemory {
    words: Vec<u64>,
    bytes: usize,
}

impl HeapMemory {
    /// Allocates `bytes` zero bytes.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] when the allocation fails.
    pub fn zeroed(bytes: usize) -> Result<Self, EngineError> {
        let count = bytes.div_ceil(size_of::<u64>());
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| EngineError::OutOfMemory { bytes: bytes as u64 })?;
        words.resize(count, 0);
        Ok(HeapMemory { words, bytes })
    }
}

impl HostMemory for HeapMemory {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

impl LentMemory for HeapMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}
