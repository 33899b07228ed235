//! CUDA: libtorch's half for it is opened when it is asked for, the driver is asked for names and memory.
//!
//! Nothing links to either, so that the plug-in loads on machines without.

use std::error::Error as _;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// What was opened; both stay open for good.
static OPENED: Mutex<bool> = Mutex::new(false);

/// Opens libtorch's half for CUDA, before the first tensor: libtorch looks once whether it is there.
///
/// # Errors
/// When it, or the device, is not there.
pub fn open(index: usize) -> Result<(), Error> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*opened {
        // SAFETY: the library's initialisers register its operators, which is what opening it is for.
        let library = unsafe { Library::open(Some("libtorch_cuda.so"), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Error::Unavailable {
                reason: format!("libtorch's half for CUDA cannot be loaded: {cause}"),
                remedy: "install the wheels of CUDA that this torch needs beside it, or set LD_LIBRARY_PATH".to_owned(),
            }
        })?;
        let _ = library.into_raw();
        *opened = true;
    }
    match usize::try_from(tch::Cuda::device_count()).unwrap_or(0) {
        0 => Err(Error::Unavailable {
            reason: "libtorch sees no CUDA device".to_owned(),
            remedy: "is its driver installed? `device: cpu` computes on the processor".to_owned(),
        }),
        count if index >= count => Err(Error::BadOption {
            option: "device".to_owned(),
            reason: format!("`cuda:{index}` is not there (CUDA devices: {count})"),
        }),
        _ => Ok(()),
    }
}

/// The device's name, as the driver has it.
pub fn name(index: usize) -> Option<String> {
    type DeviceOf = unsafe extern "C" fn(*mut i32, i32) -> i32;
    type NameOf = unsafe extern "C" fn(*mut c_char, i32, i32) -> i32;
    let driver = driver()?;
    let (mut device, mut name) = (0, [0; 128]);
    // SAFETY: the functions have these signatures (cuda.h), the driver is initialised, the places live as long as the
    // calls, and the name ends with a zero byte within its place.
    unsafe {
        let device_of = driver.get::<DeviceOf>(b"cuDeviceGet\0").ok()?;
        let name_of = driver.get::<NameOf>(b"cuDeviceGetName\0").ok()?;
        let found = device_of(&raw mut device, i32::try_from(index).ok()?) == 0
            && name_of(name.as_mut_ptr(), name.len() as i32, device) == 0;
        found.then(|| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}

/// Bytes of the current device's memory that are in use, by whomever.
pub fn memory_in_use() -> Option<u64> {
    type Memory = unsafe extern "C" fn(*mut usize, *mut usize) -> i32;
    let driver = driver()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the function has this signature (cuda.h), and the places live as long as the call.
    let asked = unsafe { driver.get::<Memory>(b"cuMemGetInfo_v2\0").ok()?(&raw mut free, &raw mut total) };
    (asked == 0).then(|| (total - free) as u64)
}

/// The driver, initialised.
fn driver() -> Option<Library> {
    type Init = unsafe extern "C" fn(u32) -> i32;
    // SAFETY: the driver's library may be opened any number of times, and `cuInit` called again.
    let driver = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) }.ok()?;
    // SAFETY: the function has this signature (cuda.h).
    let ready = unsafe { driver.get::<Init>(b"cuInit\0").ok()?(0) } == 0;
    ready.then_some(driver)
}
