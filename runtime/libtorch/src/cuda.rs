//! CUDA: opens libtorch's CUDA library on demand, and reads device names and memory from the driver.
//!
//! Nothing links to either library, so that the plug-in also loads on machines without CUDA.

use std::error::Error as _;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, OnceLock, PoisonError};

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Whether libtorch's CUDA library has been opened; it is never closed.
static OPENED: Mutex<bool> = Mutex::new(false);

/// Opens libtorch's CUDA library and checks that the device exists. This must happen before the first tensor is
/// created, because libtorch looks for the library only once.
///
/// # Errors
/// When the library or the device is missing.
pub fn open(index: usize) -> Result<(), Error> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*opened {
        // SAFETY: the library's initializers register its operators, which is the purpose of opening it.
        let library = unsafe { Library::open(Some("libtorch_cuda.so"), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Error::Unavailable {
                reason: format!("libtorch's CUDA library cannot be loaded: {cause}"),
                remedy: "install the CUDA wheels that this torch needs next to it, or set LD_LIBRARY_PATH".to_owned(),
            }
        })?;
        let _ = library.into_raw();
        *opened = true;
    }
    match usize::try_from(tch::Cuda::device_count()).unwrap_or(0) {
        0 => Err(Error::Unavailable {
            reason: "libtorch finds no CUDA device".to_owned(),
            remedy: "check that the device's driver is installed, or set `device: cpu`".to_owned(),
        }),
        count if index >= count => Err(Error::BadOption {
            option: "device".to_owned(),
            reason: format!("`cuda:{index}` does not exist (CUDA devices: {count})"),
        }),
        _ => Ok(()),
    }
}

/// Returns the device's name as the driver reports it.
pub fn name(index: usize) -> Option<String> {
    type DeviceOf = unsafe extern "C" fn(*mut i32, i32) -> i32;
    type NameOf = unsafe extern "C" fn(*mut c_char, i32, i32) -> i32;
    let driver = driver()?;
    let (mut device, mut name) = (0, [0; 128]);
    // SAFETY: the functions have these signatures (cuda.h), the driver is initialized, the out-pointers are valid, and
    // the driver terminates the name with a NUL byte within the buffer.
    unsafe {
        let device_of = driver.get::<DeviceOf>(b"cuDeviceGet\0").ok()?;
        let name_of = driver.get::<NameOf>(b"cuDeviceGetName\0").ok()?;
        let found = device_of(&raw mut device, i32::try_from(index).ok()?) == 0
            && name_of(name.as_mut_ptr(), name.len() as i32, device) == 0;
        found.then(|| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}

/// Returns the bytes of the current device's memory in use by all processes.
pub fn memory_in_use() -> Option<u64> {
    type Memory = unsafe extern "C" fn(*mut usize, *mut usize) -> i32;
    let driver = driver()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the function has this signature (cuda.h), and the out-pointers are valid.
    let status = unsafe { driver.get::<Memory>(b"cuMemGetInfo_v2\0").ok()?(&raw mut free, &raw mut total) };
    (status == 0).then(|| (total - free) as u64)
}

/// Calls a function of the driver, which returns a `CUresult`.
///
/// # Errors
/// When the driver lacks it, and the driver's.
///
/// # Safety
/// `F` must be its signature (cuda.h), and `call` must keep what that demands.
pub unsafe fn driver_call<F: Copy>(name: &CStr, call: impl FnOnce(F) -> i32) -> Result<(), Error> {
    static DRIVER: OnceLock<Option<Library>> = OnceLock::new();
    let driver = DRIVER.get_or_init(driver).as_ref().ok_or_else(|| Error::failed("there is no CUDA driver"))?;
    // SAFETY: the caller promises the signature.
    let function = unsafe { driver.get::<F>(name.to_bytes_with_nul()) }.map_err(Error::failed)?;
    match call(*function) {
        0 => Ok(()),
        status => Err(Error::Failed(format!("{} failed with status {status}", name.to_string_lossy()))),
    }
}

/// Opens and initializes the driver; `None` when there is none.
fn driver() -> Option<Library> {
    type Init = unsafe extern "C" fn(u32) -> i32;
    // SAFETY: opening the driver's library and calling `cuInit` repeatedly is allowed.
    let driver = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) }.ok()?;
    // SAFETY: the function has this signature (cuda.h).
    let ready = unsafe { driver.get::<Init>(b"cuInit\0").ok()?(0) } == 0;
    ready.then_some(driver)
}
