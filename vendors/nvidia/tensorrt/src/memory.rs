//! GPU memory, which stays with its session, and pinned host memory, which a GPU reads directly.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use flagperf_plugin::{Error, LentMemory};

use crate::cuda::Gpu;

/// `CU_MEMHOSTALLOC_PORTABLE`: every context of the process can use the memory.
const PORTABLE: u32 = 1;

/// Memory of a GPU.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `bytes` bytes, and makes the GPU's context current.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocation fails.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let (driver, mut address) = (gpu.driver(), 0);
        gpu.enter()?;
        // SAFETY: the out-pointer is valid. The driver rejects a size of 0.
        driver.check_memory(unsafe { (driver.allocate)(&raw mut address, bytes.max(1)) }, bytes)?;
        Ok(DeviceBuffer { gpu: gpu.clone(), address, bytes })
    }

    /// The address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: allocated once, freed once; the driver waits for work that uses the memory.
        let _ = unsafe { (self.gpu.driver().free)(self.address) };
    }
}

/// The free buffers of a session. A returned buffer is only reused on the session's own stream, so pending work that
/// uses it finishes first.
#[derive(Debug)]
pub struct BufferPool {
    gpu: Arc<Gpu>,
    free: Mutex<Vec<DeviceBuffer>>,
}

impl BufferPool {
    /// Creates an empty pool.
    pub fn new(gpu: &Arc<Gpu>) -> Arc<Self> {
        Arc::new(BufferPool { gpu: gpu.clone(), free: Mutex::default() })
    }

    /// Returns a buffer of exactly `bytes` bytes: the most recently returned one, or a new one.
    ///
    /// # Errors
    /// When the allocation fails even after freeing the buffers of other sizes.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<PooledBuffer, Error> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = match free.iter().rposition(|buffer| buffer.bytes() == bytes) {
            Some(index) => free.remove(index),
            None => match DeviceBuffer::new(&self.gpu, bytes) {
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => {
                    free.clear();
                    DeviceBuffer::new(&self.gpu, bytes)?
                }
                result => result?,
            },
        };
        Ok(PooledBuffer { buffer: Some(buffer), pool: self.clone() })
    }
}

/// A buffer that returns to its pool when it is dropped, on any thread.
#[derive(Debug)]
pub struct PooledBuffer {
    /// `Some` until the value is dropped.
    buffer: Option<DeviceBuffer>,
    pool: Arc<BufferPool>,
}

impl PooledBuffer {
    /// The address on the GPU.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, DeviceBuffer::address)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, DeviceBuffer::bytes)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.buffer.take());
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct PinnedBuffer {
    gpu: Arc<Gpu>,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: the buffer owns its memory exclusively.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `bytes` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocation fails.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let (driver, mut address) = (gpu.driver(), null_mut());
        gpu.enter()?;
        // SAFETY: the out-pointer is valid. The driver rejects a size of 0.
        driver.check_memory(unsafe { (driver.pin)(&raw mut address, bytes.max(1), PORTABLE) }, bytes)?;
        // SAFETY: `bytes` bytes were just allocated.
        unsafe { address.cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer { gpu: gpu.clone(), address, bytes })
    }
}

impl LentMemory for PinnedBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the buffer owns `bytes` bytes at this address exclusively.
        unsafe { slice::from_raw_parts_mut(self.address.cast(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: allocated once, freed once; the driver waits for work that uses the memory.
        let _ = unsafe { (self.gpu.driver().unpin)(self.address) };
    }
}
