//! Memory of the GPU, which stays with its session, and pinned memory of the host, which a GPU reads by itself.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use flagperf_plugin::{Error, LentMemory};

use crate::cuda::Gpu;

/// Readable by every context of the process.
const PORTABLE: u32 = 1;

/// Memory of a GPU.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// So many bytes; the GPU is entered.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when they cannot be had.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let (driver, mut address) = (gpu.driver(), 0);
        gpu.enter()?;
        // SAFETY: the place lives as long as the call. The driver takes no 0.
        driver.check_memory(unsafe { (driver.allocate)(&raw mut address, bytes.max(1)) }, bytes)?;
        Ok(DeviceBuffer { gpu: gpu.clone(), address, bytes })
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: had once, given back once; the driver waits for what is under way with it.
        let _ = unsafe { (self.gpu.driver().free)(self.address) };
    }
}

/// Buffers that are free. One that comes back is used again in the order of the session's stream, so that work under way
/// with it is done before.
#[derive(Debug)]
pub struct Pool {
    gpu: Arc<Gpu>,
    free: Mutex<Vec<DeviceBuffer>>,
}

impl Pool {
    /// An empty one.
    pub fn new(gpu: &Arc<Gpu>) -> Arc<Self> {
        Arc::new(Pool { gpu: gpu.clone(), free: Mutex::default() })
    }

    /// A buffer of exactly so many bytes: the one that came back last, else a new one.
    ///
    /// # Errors
    /// When there is not so much memory, even without the buffers of other sizes.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Pooled, Error> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = match free.iter().rposition(|buffer| buffer.bytes() == bytes) {
            Some(index) => free.remove(index),
            None => match DeviceBuffer::new(&self.gpu, bytes) {
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => {
                    free.clear();
                    DeviceBuffer::new(&self.gpu, bytes)?
                }
                made => made?,
            },
        };
        Ok(Pooled { buffer: Some(buffer), pool: self.clone() })
    }
}

/// A buffer that goes back to its pool when it is dropped, on any thread.
#[derive(Debug)]
pub struct Pooled {
    /// There until it is dropped.
    buffer: Option<DeviceBuffer>,
    pool: Arc<Pool>,
}

impl Pooled {
    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, DeviceBuffer::address)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, DeviceBuffer::bytes)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.buffer.take());
    }
}

/// Pinned memory of the host.
#[derive(Debug)]
pub struct PinnedBuffer {
    gpu: Arc<Gpu>,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: the memory is this buffer's alone.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// So many bytes of zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when they cannot be had.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let (driver, mut address) = (gpu.driver(), null_mut());
        gpu.enter()?;
        // SAFETY: the place lives as long as the call. The driver takes no 0.
        driver.check_memory(unsafe { (driver.pin)(&raw mut address, bytes.max(1), PORTABLE) }, bytes)?;
        // SAFETY: so many bytes were had just now.
        unsafe { address.cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer { gpu: gpu.clone(), address, bytes })
    }
}

impl LentMemory for PinnedBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are there, and nobody else has them.
        unsafe { slice::from_raw_parts_mut(self.address.cast(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: had once, given back once; the driver waits for what is under way with it.
        let _ = unsafe { (self.gpu.driver().unpin)(self.address) };
    }
}
