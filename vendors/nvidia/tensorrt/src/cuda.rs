//! CUDA's driver: a GPU with its own context, streams, graphs. Opened at run time, so that the plug-in loads without.
//!
//! Every call is for the GPU whose context is the thread's own: whoever calls from a thread that may be new enters first.

mod driver;
mod graph;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_plugin::Error;

pub use driver::Driver;
pub use graph::Graph;

use crate::kept;

/// Attributes of a GPU (cuda.h).
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;
/// A stream that does not wait for the process's first one.
const NON_BLOCKING: u32 = 1;

/// A GPU; its context is the one that all libraries in this process share.
#[derive(Debug)]
pub struct Gpu {
    /// Its number.
    pub index: i32,
    /// What it is.
    pub facts: kept::Gpu,
    driver: &'static Driver,
    context: *mut c_void,
}

// SAFETY: a context may be entered by any thread, and by several at once.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// The GPU of a number.
    ///
    /// # Errors
    /// When there is no driver, no such GPU, or its context cannot be had.
    pub fn open(index: i32) -> Result<Arc<Self>, Error> {
        let driver = Driver::open()?;
        let (mut device, mut count, mut version) = (0, 0, 0);
        let (mut major, mut minor, mut name) = (0, 0, [0; 256]);
        let mut context = null_mut();
        // SAFETY: the places live as long as the calls; the name has room for as much as is said.
        unsafe {
            driver.check((driver.device_count)(&raw mut count))?;
            if index >= count {
                let reason = format!("`cuda:{index}` is not there (GPUs: {count})");
                return Err(Error::BadOption { option: "device".to_owned(), reason });
            }
            driver.check((driver.device)(&raw mut device, index))?;
            driver.check((driver.driver_version)(&raw mut version))?;
            driver.check((driver.device_name)(name.as_mut_ptr(), name.len() as i32, device))?;
            driver.check((driver.device_attribute)(&raw mut major, CAPABILITY_MAJOR, device))?;
            driver.check((driver.device_attribute)(&raw mut minor, CAPABILITY_MINOR, device))?;
            driver.check((driver.context_retain)(&raw mut context, device))?;
        }
        // SAFETY: the driver ends the name with a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let facts = kept::Gpu {
            name,
            compute_capability: format!("{major}.{minor}"),
            driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        };
        let gpu = Gpu { index, facts, driver, context };
        gpu.enter()?;
        Ok(Arc::new(gpu))
    }

    /// Makes its context the calling thread's.
    ///
    /// # Errors
    /// When the driver says so.
    pub fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context is retained as long as this lives.
        self.driver.check(unsafe { (self.driver.context_enter)(self.context) })
    }

    /// The driver's functions, on this GPU.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Bytes of its memory that are in use, by whomever.
    pub fn memory_in_use(&self) -> Option<u64> {
        let (mut free, mut total) = (0, 0);
        self.enter().ok()?;
        // SAFETY: the places live as long as the call.
        let asked = unsafe { (self.driver.memory)(&raw mut free, &raw mut total) };
        self.driver.check(asked).ok().map(|()| (total - free) as u64)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        let _ = unsafe { (self.driver.context_release)(self.index) };
    }
}

/// An order of work on a GPU.
#[derive(Debug)]
pub struct Stream {
    gpu: Arc<Gpu>,
    raw: *mut c_void,
}

// SAFETY: a stream may be used from any thread that has entered its GPU.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream of its own.
    ///
    /// # Errors
    /// When the driver says so.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        let mut raw = null_mut();
        gpu.enter()?;
        // SAFETY: the place lives as long as the call.
        gpu.driver.check(unsafe { (gpu.driver.stream_create)(&raw mut raw, NON_BLOCKING) })?;
        Ok(Stream { gpu: gpu.clone(), raw })
    }

    /// As CUDA has it.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Waits until everything on it is done.
    ///
    /// # Errors
    /// When something on it failed.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the stream lives.
        self.gpu.driver.check(unsafe { (self.gpu.driver.stream_wait)(self.raw) })
    }

    /// Copies from the host's memory.
    ///
    /// # Safety
    /// `from` stays as it is until the stream has been waited for; there is room for it at `to`.
    ///
    /// # Errors
    /// When the driver says so.
    pub unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let driver = self.gpu.driver;
        // SAFETY: by the caller.
        driver.check(unsafe { (driver.upload)(to, from.as_ptr().cast(), from.len(), self.raw) })
    }

    /// Copies to the host's memory, and waits for it.
    ///
    /// # Safety
    /// As many bytes lie at `from`.
    ///
    /// # Errors
    /// When the copy, or something before it, failed.
    pub unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        if !to.is_empty() {
            let driver = self.gpu.driver;
            // SAFETY: by the caller; the place is not used until the copy is done.
            driver.check(unsafe { (driver.download)(to.as_mut_ptr().cast(), from, to.len(), self.raw) })?;
        }
        self.wait()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: made once, destroyed once; work on it is finished first by the driver.
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
    fn without_a_driver_it_is_said_what_is_missing() {
        match Gpu::open(0) {
            Ok(gpu) => assert!(!gpu.facts.name.is_empty()),
            Err(Error::Unavailable { reason, remedy }) => {
                assert!(reason.contains("driver") && remedy.contains("device: none"), "{reason}; {remedy}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn bytes_go_to_the_gpu_and_back_from_pinned_memory() {
        let gpu = gpu();
        let stream = Stream::new(&gpu).unwrap();
        let mut pinned = PinnedBuffer::new(&gpu, 1000).unwrap();
        for (index, byte) in pinned.bytes_mut().iter_mut().enumerate() {
            *byte = index as u8;
        }
        let device = DeviceBuffer::new(&gpu, 1000).unwrap();
        let mut back = vec![0; 1000];
        // SAFETY: both buffers live until the stream was waited for, and have room.
        unsafe {
            stream.upload(device.address(), pinned.bytes_mut()).unwrap();
            stream.download(&mut back, device.address()).unwrap();
        }
        assert_eq!(back, pinned.bytes_mut());
        assert!(gpu.memory_in_use().unwrap() > 0);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_graph_does_again_what_was_captured() {
        let gpu = gpu();
        let stream = Stream::new(&gpu).unwrap();
        let device = DeviceBuffer::new(&gpu, 64).unwrap();
        let mut pinned = PinnedBuffer::new(&gpu, 64).unwrap();
        let from: *mut [u8] = pinned.bytes_mut();
        // SAFETY: both buffers live until the end, and are as long; nothing reads while it is written below.
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
    fn memory_that_cannot_be_had_says_how_much_it_was() {
        let gpu = gpu();
        assert_eq!(DeviceBuffer::new(&gpu, 1 << 50).unwrap_err(), Error::OutOfMemory { bytes: 1 << 50 });
        drop(DeviceBuffer::new(&gpu, 0).unwrap());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_that_is_not_there_is_named() {
        let error = Gpu::open(99).unwrap_err().to_string();
        assert!(error.starts_with("option `device`: `cuda:99` is not there (GPUs: "), "{error}");
    }
}
