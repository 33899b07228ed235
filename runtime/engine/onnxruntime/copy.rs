//! Copies between the processor's memory and memory on a device that stays where it is, by CUDA's own runtime: the copies
//! of ONNX Runtime's C interface make new memory.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use ort::value::DynTensor;

use crate::engine::EngineError;

/// The runtime's names, newest first; the provider has opened one of them already.
const NAMES: [&str; 2] = ["libcudart.so.13", "libcudart.so.12"];
/// `cudaMemcpyHostToDevice`.
const TO_DEVICE: c_int = 1;
/// `cudaMemcpyDeviceToHost`.
const TO_HOST: c_int = 2;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// Fills a tensor on the device.
///
/// # Errors
/// When the runtime is not there or refuses.
pub(super) fn to_device(bytes: &[u8], there: &mut DynTensor) -> Result<(), EngineError> {
    check_size(bytes.len(), there)?;
    // SAFETY: the tensor has as many bytes, checked above, and both live through the call, which waits for the copy.
    let status = unsafe { memcpy()?(there.data_ptr_mut(), bytes.as_ptr().cast(), bytes.len(), TO_DEVICE) };
    checked(status)
}

/// Reads a tensor on the device.
///
/// # Errors
/// When the runtime is not there or refuses.
pub(super) fn to_host(there: &DynTensor, bytes: &mut [u8]) -> Result<(), EngineError> {
    check_size(bytes.len(), there)?;
    // SAFETY: the tensor has as many bytes, checked above, and both live through the call, which waits for the copy.
    let status = unsafe { memcpy()?(bytes.as_mut_ptr().cast(), there.data_ptr(), bytes.len(), TO_HOST) };
    checked(status)
}

fn check_size(bytes: usize, there: &DynTensor) -> Result<(), EngineError> {
    let has = there.data_type().byte_size(there.shape().num_elements());
    if has == Some(bytes) {
        return Ok(());
    }
    Err(EngineError::Failed(format!("{bytes} bytes for a tensor of {} on the device", has.unwrap_or(0))))
}

fn checked(status: c_int) -> Result<(), EngineError> {
    if status == 0 { Ok(()) } else { Err(EngineError::Failed(format!("cudaMemcpy: error {status}"))) }
}

fn memcpy() -> Result<Memcpy, EngineError> {
    static FOUND: OnceLock<Option<Memcpy>> = OnceLock::new();
    let find = || {
        // SAFETY: the provider has opened and initialised this library already.
        let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        // SAFETY: the function of this name has this type in every version of the runtime.
        let function = unsafe { library.get::<Memcpy>(b"cudaMemcpy") }.ok().map(|function| *function);
        std::mem::forget(library);
        function
    };
    let missing = || EngineError::Failed(format!("cannot open CUDA's runtime ({})", NAMES.join(", ")));
    FOUND.get_or_init(find).ok_or_else(missing)
}
