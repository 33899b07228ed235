//! GPUs, streams and graphs through the CUDA driver, which is opened at run time, so that the plug-in also loads
//! without it.
//!
//! Every call applies to the GPU whose context is current on the thread. A function that may run on a new thread calls
//! [`Gpu::enter`] first.

mod driver;
mod graph;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_plugin::Error;

pub use driver::Driver;
pub use graph::Graph;

use crate::engine_file;

/// Attributes of a GPU (cuda.h).
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;
/// `CU_STREAM_NON_BLOCKING`: the stream does not synchronize with the default stream.
const NON_BLOCKING: u32 = 1;

/// A GPU with its primary context, which all libraries in this process share.
#[derive(Debug)]
pub struct Gpu {
    /// The GPU's number.
    pub index: i32,
    /// The properties that decide which engines the GPU runs.
    pub description: engine_file::GpuDescription,
    driver: &'static Driver,
    context: *mut c_void,
}

// SAFETY: any number of threads may use a context, at the same time.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// When the driver or the GPU is missing, or the context cannot be created.
    pub fn open(index: i32) -> Result<Arc<Self>, Error> {
        let driver = Driver::open()?;
        let (mut device, mut count, mut version) = (0, 0, 0);
        let (mut major, mut minor, mut name) = (0, 0, [0; 256]);
        let mut context = null_mut();
        // SAFETY: the out-pointers are valid, and the length passed is that of the buffer for the name.
        unsafe {
            driver.check((driver.device_count)(&raw mut count))?;
            if index >= count {
                let reason = format!("`cuda:{index}` does not exist (GPUs: {count})");
                return Err(Error::BadOption { option: "device".to_owned(), reason });
            }
            driver.check((driver.device)(&raw mut device, index))?;
            driver.check((driver.driver_version)(&raw mut version))?;
            driver.check((driver.device_name)(name.as_mut_ptr(), name.len() as i32, device))?;
            driver.check((driver.device_attribute)(&raw mut major, CAPABILITY_MAJOR, device))?;
            driver.check((driver.device_attribute)(&raw mut minor, CAPABILITY_MINOR, device))?;
            driver.check((driver.context_retain)(&raw mut context, device))?;
        }
        // SAFETY: the driver terminates the name with a NUL byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let description = engine_file::GpuDescription {
            name,
            compute_capability: format!("{major}.{minor}"),
            driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        };
        let gpu = Gpu { index, description, driver, context };
        gpu.enter()?;
        Ok(Arc::new(gpu))
    }

    /// Makes the GPU's context current on the calling thread.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context is retained while `self` lives.
        self.driver.check(unsafe { (self.driver.context_enter)(self.context) })
    }

    /// The driver's functions.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Returns the bytes of the GPU's memory in use by all processes.
    pub fn memory_in_use(&self) -> Option<u64> {
        let (mut free, mut total) = (0, 0);
        self.enter().ok()?;
        // SAFETY: the out-pointers are valid.
        let status = unsafe { (self.driver.memory)(&raw mut free, &raw mut total) };
        self.driver.check(status).ok().map(|()| (total - free) as u64)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        let _ = unsafe { (self.driver.context_release)(self.index) };
    }
}

/// A CUDA stream.
#[derive(Debug)]
pub struct Stream {
    gpu: Arc<Gpu>,
    raw: *mut c_void,
}

// SAFETY: a stream may be used from any thread that has entered its GPU.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        let mut raw = null_mut();
        gpu.enter()?;
        // SAFETY: the out-pointer is valid.
        gpu.driver.check(unsafe { (gpu.driver.stream_create)(&raw mut raw, NON_BLOCKING) })?;
        Ok(Stream { gpu: gpu.clone(), raw })
    }

    /// The raw CUDA stream.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// The stream's GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Waits until all work on the stream has finished.
    ///
    /// # Errors
    /// When work on the stream failed.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the stream is alive.
        self.gpu.driver.check(unsafe { (self.gpu.driver.stream_wait)(self.raw) })
    }

    /// Starts copying `from` to the GPU.
    ///
    /// # Safety
    /// `from` must not change until the stream has been waited for, and `to` must have room for it.
    ///
    /// # Errors
    /// The driver's errors.
    pub unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let driver = self.gpu.driver;
        // SAFETY: guaranteed by the caller.
        driver.check(unsafe { (driver.upload)(to, from.as_ptr().cast(), from.len(), self.raw) })
    }

    /// Copies from the GPU to `to`, and waits for the copy.
    ///
    /// # Safety
    /// The memory at `from` must have at least the size of `to`.
    ///
    /// # Errors
    /// When the copy, or earlier work on the stream, failed.
    pub unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        if !to.is_empty() {
            let driver = self.gpu.driver;
            // SAFETY: guaranteed by the caller; `to` is not used until the copy has finished.
            driver.check(unsafe { (driver.download)(to.as_mut_ptr().cast(), from, to.len(), self.raw) })?;
        }
        self.wait()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: created once, destroyed once; the driver finishes pending work first.
        let _ = unsafe { (self.gpu.driver.stream_destroy)(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{DeviceBuffer, PinnedBuffer};
    use flagperf_plugin::LentMemory;

    fn gpu() -> Arc<Gpu> {
        Gpu::open(0).unwrap()
    }

    #[test]
    fn a_missing_driver_is_reported() {
        match Gpu::open(0) {
            Ok(gpu) => assert!(!gpu.description.name.is_empty()),
            Err(Error::Unavailable { reason, remedy }) => {
                assert!(reason.contains("driver") && remedy.contains("device: none"), "{reason}; {remedy}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn pinned_memory_survives_the_round_trip_to_the_gpu() {
        let gpu = gpu();
        let stream = Stream::new(&gpu).unwrap();
        let mut pinned = PinnedBuffer::new(&gpu, 1000).unwrap();
        for (index, byte) in pinned.bytes_mut().iter_mut().enumerate() {
            *byte = index as u8;
        }
        let device = DeviceBuffer::new(&gpu, 1000).unwrap();
        let mut back = vec![0; 1000];
        // SAFETY: all buffers have the same size, and live until the stream has been waited for.
        unsafe {
            stream.upload(device.address(), pinned.bytes_mut()).unwrap();
            stream.download(&mut back, device.address()).unwrap();
        }
        assert_eq!(back, pinned.bytes_mut());
        assert!(gpu.memory_in_use().unwrap() > 0);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_graph_repeats_the_captured_work() {
        let gpu = gpu();
        let stream = Stream::new(&gpu).unwrap();
        let device = DeviceBuffer::new(&gpu, 64).unwrap();
        let mut pinned = PinnedBuffer::new(&gpu, 64).unwrap();
        let from: *mut [u8] = pinned.bytes_mut();
        // SAFETY: both buffers have the same size and outlive the graph; no copy runs while the memory is written
        // below.
        let graph = Graph::capture(&stream, || unsafe { stream.upload(device.address(), &*from) }).unwrap();
        let mut back = vec![0; 64];
        for value in [3, 9] {
            pinned.bytes_mut().fill(value);
            graph.launch(&stream).unwrap();
            // SAFETY: as above.
            unsafe { stream.download(&mut back, device.address()).unwrap() };
            assert_eq!(back, [value; 64]);
        }
        let failed = Graph::capture(&stream, || Err(Error::failed("on purpose"))).unwrap_err();
        assert_eq!(failed.to_string(), "on purpose");
        graph.launch(&stream).unwrap();
        stream.wait().unwrap();
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_failed_allocation_reports_its_size() {
        let gpu = gpu();
        assert_eq!(DeviceBuffer::new(&gpu, 1 << 50).unwrap_err(), Error::OutOfMemory { bytes: 1 << 50 });
        drop(DeviceBuffer::new(&gpu, 0).unwrap());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn the_error_for_a_missing_gpu_contains_its_number() {
        let error = Gpu::open(99).unwrap_err().to_string();
        assert!(error.starts_with("option `device`: `cuda:99` does not exist (GPUs: "), "{error}");
    }
}
