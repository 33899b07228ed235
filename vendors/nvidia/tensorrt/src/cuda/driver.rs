//! The functions of the CUDA driver that this plug-in uses (cuda.h).

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_NOW};

/// The status of a call; 0 is success.
pub type Status = i32;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = 2;

/// Defines a table of functions, each with its symbol name and the types of its arguments.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident: $name:literal($($argument:ty),*);)*) => {
        /// The functions of the driver.
        #[derive(Debug)]
        pub struct Driver {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Driver {
            /// # Safety
            /// The library must be the CUDA driver.
            unsafe fn read(library: &Library) -> Result<Driver, String> {
                let missing = |name: &str| format!("it has no function `{name}`");
                // SAFETY: the functions of these names have these signatures.
                unsafe {
                    Ok(Driver {
                        $($field: *library.get(concat!($name, "\0").as_bytes()).map_err(|_| missing($name))?,)*
                    })
                }
            }
        }
    };
}

functions! {
    /// Initializes the driver; the argument must be 0.
    init: "cuInit"(u32);
    /// Gets the highest CUDA version that the driver supports.
    driver_version: "cuDriverGetVersion"(*mut i32);
    /// Gets the number of GPUs.
    device_count: "cuDeviceGetCount"(*mut i32);
    /// Gets the GPU with a number.
    device: "cuDeviceGet"(*mut i32, i32);
    /// Gets a GPU's name.
    device_name: "cuDeviceGetName"(*mut c_char, i32, i32);
    /// Gets a numeric attribute of a GPU.
    device_attribute: "cuDeviceGetAttribute"(*mut i32, i32, i32);
    /// Retains a GPU's primary context.
    context_retain: "cuDevicePrimaryCtxRetain"(*mut *mut c_void, i32);
    /// Releases a GPU's primary context.
    context_release: "cuDevicePrimaryCtxRelease_v2"(i32);
    /// Makes a context current on the calling thread.
    context_enter: "cuCtxSetCurrent"(*mut c_void);
    /// Creates a stream, with flags.
    stream_create: "cuStreamCreate"(*mut *mut c_void, u32);
    /// Destroys a stream.
    stream_destroy: "cuStreamDestroy_v2"(*mut c_void);
    /// Waits for a stream.
    stream_wait: "cuStreamSynchronize"(*mut c_void);
    /// Allocates memory of the GPU.
    allocate: "cuMemAlloc_v2"(*mut u64, usize);
    /// Frees memory of the GPU.
    free: "cuMemFree_v2"(u64);
    /// Allocates pinned host memory, which the GPU reads directly, with flags.
    pin: "cuMemHostAlloc"(*mut *mut c_void, usize, u32);
    /// Frees pinned host memory.
    unpin: "cuMemFreeHost"(*mut c_void);
    /// Copies from the host, on a stream.
    upload: "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, *mut c_void);
    /// Copies to the host, on a stream.
    download: "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, *mut c_void);
    /// Gets the free and the total memory.
    memory: "cuMemGetInfo_v2"(*mut usize, *mut usize);
    /// Begins to record the work submitted to a stream instead of running it.
    capture_begin: "cuStreamBeginCapture_v2"(*mut c_void, i32);
    /// Ends the recording, and returns a graph.
    capture_end: "cuStreamEndCapture"(*mut c_void, *mut *mut c_void);
    /// Creates an executable graph, with flags.
    graph_instantiate: "cuGraphInstantiateWithFlags"(*mut *mut c_void, *mut c_void, u64);
    /// Launches an executable graph on a stream.
    graph_launch: "cuGraphLaunch"(*mut c_void, *mut c_void);
    /// Destroys an executable graph.
    graph_exec_destroy: "cuGraphExecDestroy"(*mut c_void);
    /// Destroys a graph.
    graph_destroy: "cuGraphDestroy"(*mut c_void);
    /// Gets the description of a status.
    error_text: "cuGetErrorString"(i32, *mut *const c_char);
}

impl Driver {
    /// Returns the driver, which is opened and initialized once per process.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is no driver, or no GPU that it supports.
    pub fn open() -> Result<&'static Driver, Error> {
        static OPENED: OnceLock<Result<Driver, Error>> = OnceLock::new();
        OPENED.get_or_init(|| open_driver().map_err(unavailable)).as_ref().map_err(Clone::clone)
    }

    /// Checks the status of a call.
    ///
    /// # Errors
    /// The driver's description of a status other than 0.
    pub fn check(&self, status: Status) -> Result<(), Error> {
        if status == 0 { Ok(()) } else { Err(Error::Failed(format!("CUDA: {}", self.status_text(status)))) }
    }

    /// Checks the status of an allocation of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when memory ran out, and otherwise those of [`Driver::check`].
    pub fn check_memory(&self, status: Status, bytes: usize) -> Result<(), Error> {
        if status == OUT_OF_MEMORY { Err(Error::OutOfMemory { bytes: bytes as u64 }) } else { self.check(status) }
    }

    fn status_text(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: the out-pointer is valid; the string is the driver's own and static.
        unsafe {
            match (self.error_text)(status, &raw mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => format!("error {status}"),
            }
        }
    }
}

fn open_driver() -> Result<Driver, String> {
    // SAFETY: the driver's initializers may run at any time.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) };
    let library = library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    // SAFETY: the library of this name is the CUDA driver.
    let driver = unsafe { Driver::read(&library) }?;
    let _ = library.into_raw();
    // SAFETY: the argument is 0, as required.
    match unsafe { (driver.init)(0) } {
        0 => Ok(driver),
        status => Err(driver.status_text(status)),
    }
}

fn unavailable(cause: String) -> Error {
    Error::Unavailable {
        reason: format!("the CUDA driver cannot be used: {cause}"),
        remedy: "check that there is a GPU with an installed driver (`device: none` builds an engine without a GPU)"
            .to_owned(),
    }
}
