//! The functions of CUDA's driver that are used here (cuda.h).

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_NOW};

/// How a call ended; 0 is well.
pub type Status = i32;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = 2;

/// A table of functions, each with its name in the library and the types of its arguments.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident: $name:literal($($argument:ty),*);)*) => {
        /// The functions of the driver.
        #[derive(Debug)]
        pub struct Driver {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Driver {
            /// # Safety
            /// The library is CUDA's driver.
            unsafe fn read(library: &Library) -> Result<Driver, String> {
                let lacks = |name: &str| format!("it has no `{name}`");
                // SAFETY: by their names the functions have these arguments.
                unsafe {
                    Ok(Driver {
                        $($field: *library.get(concat!($name, "\0").as_bytes()).map_err(|_| lacks($name))?,)*
                    })
                }
            }
        }
    };
}

functions! {
    /// Begins; the argument is 0.
    begin: "cuInit"(u32);
    /// The CUDA version that it goes up to.
    driver_version: "cuDriverGetVersion"(*mut i32);
    /// How many GPUs there are.
    device_count: "cuDeviceGetCount"(*mut i32);
    /// The GPU of a number.
    device: "cuDeviceGet"(*mut i32, i32);
    /// Its name.
    device_name: "cuDeviceGetName"(*mut c_char, i32, i32);
    /// One of its numbers.
    device_attribute: "cuDeviceGetAttribute"(*mut i32, i32, i32);
    /// Its shared context, kept.
    context_retain: "cuDevicePrimaryCtxRetain"(*mut *mut c_void, i32);
    /// Its shared context, let go.
    context_release: "cuDevicePrimaryCtxRelease_v2"(i32);
    /// Makes a context the thread's.
    context_enter: "cuCtxSetCurrent"(*mut c_void);
    /// A stream, with flags.
    stream_create: "cuStreamCreate"(*mut *mut c_void, u32);
    /// Ends a stream.
    stream_destroy: "cuStreamDestroy_v2"(*mut c_void);
    /// Waits for a stream.
    stream_wait: "cuStreamSynchronize"(*mut c_void);
    /// Memory of the GPU.
    allocate: "cuMemAlloc_v2"(*mut u64, usize);
    /// Gives it back.
    free: "cuMemFree_v2"(u64);
    /// Memory of the host that the GPU reads by itself, with flags.
    pin: "cuMemHostAlloc"(*mut *mut c_void, usize, u32);
    /// Gives it back.
    unpin: "cuMemFreeHost"(*mut c_void);
    /// Copies from the host, on a stream.
    upload: "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, *mut c_void);
    /// Copies to the host, on a stream.
    download: "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, *mut c_void);
    /// Memory that is free, and all of it.
    memory: "cuMemGetInfo_v2"(*mut usize, *mut usize);
    /// Writes down what comes on a stream instead of doing it.
    capture_begin: "cuStreamBeginCapture_v2"(*mut c_void, i32);
    /// Ends that, with a graph.
    capture_end: "cuStreamEndCapture"(*mut c_void, *mut *mut c_void);
    /// A graph that can be launched, with flags.
    graph_instantiate: "cuGraphInstantiateWithFlags"(*mut *mut c_void, *mut c_void, u64);
    /// Launches one on a stream.
    graph_launch: "cuGraphLaunch"(*mut c_void, *mut c_void);
    /// Ends one that can be launched.
    graph_end: "cuGraphExecDestroy"(*mut c_void);
    /// Ends a graph.
    graph_destroy: "cuGraphDestroy"(*mut c_void);
    /// What a status means.
    error_text: "cuGetErrorString"(i32, *mut *const c_char);
}

impl Driver {
    /// The driver, opened and begun once a process.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is none, or no GPU that it takes.
    pub fn open() -> Result<&'static Driver, Error> {
        static OPENED: OnceLock<Result<Driver, Error>> = OnceLock::new();
        OPENED.get_or_init(|| opened().map_err(unavailable)).as_ref().map_err(Clone::clone)
    }

    /// What a status says.
    ///
    /// # Errors
    /// When it is not 0.
    pub fn check(&self, status: Status) -> Result<(), Error> {
        if status == 0 { Ok(()) } else { Err(Error::Failed(format!("CUDA: {}", self.text(status)))) }
    }

    /// The same for a call that asked for memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where that is it.
    pub fn check_memory(&self, status: Status, bytes: usize) -> Result<(), Error> {
        if status == OUT_OF_MEMORY { Err(Error::OutOfMemory { bytes: bytes as u64 }) } else { self.check(status) }
    }

    fn text(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: the place lives as long as the call; the text is the driver's, and stays.
        unsafe {
            match (self.error_text)(status, &raw mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => format!("error {status}"),
            }
        }
    }
}

fn opened() -> Result<Driver, String> {
    // SAFETY: the driver's initialisers are made for being run at any time.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) };
    let library = library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    // SAFETY: by its name the library is CUDA's driver.
    let driver = unsafe { Driver::read(&library) }?;
    let _ = library.into_raw();
    // SAFETY: the function takes 0.
    match unsafe { (driver.begin)(0) } {
        0 => Ok(driver),
        status => Err(driver.text(status)),
    }
}

fn unavailable(cause: String) -> Error {
    Error::Unavailable {
        reason: format!("CUDA's driver cannot be used: {cause}"),
        remedy: "is there a GPU, and its driver installed? `device: none` builds an engine without".to_owned(),
    }
}
