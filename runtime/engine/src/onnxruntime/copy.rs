//! Copies between host memory and existing device memory, through the CUDA runtime: the copy functions of ONNX
//! Runtime's C interface always allocate new memory.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use ort::value::DynTensor;

use crate::EngineError;

/// The file names of the CUDA runtime, newest first; the provider has already opened one of them.
const NAMES: [&str; 2] = ["libcudart.so.13", "libcudart.so.12"];
/// `cudaMemcpyHostToDevice`.
const TO_DEVICE: c_int = 1;
/// `cudaMemcpyDeviceToHost`.
const TO_HOST: c_int = 2;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// Copies `bytes` to a tensor on the device.
///
/// # Errors
/// When the sizes differ, the CUDA runtime is missing, or the copy fails.
pub(super) fn to_device(bytes: &[u8], tensor: &mut DynTensor) -> Result<(), EngineError> {
    check_size(bytes.len(), tensor)?;
    // SAFETY: both sides have the same number of bytes, as checked above, and outlive the call, which waits for the
    // copy.
    let status = unsafe { memcpy()?(tensor.data_ptr_mut(), bytes.as_ptr().cast(), bytes.len(), TO_DEVICE) };
    check_status(status)
}

/// Copies a tensor on the device to `bytes`.
///
/// # Errors
/// When the sizes differ, the CUDA runtime is missing, or the copy fails.
pub(super) fn to_host(tensor: &DynTensor, bytes: &mut [u8]) -> Result<(), EngineError> {
    check_size(bytes.len(), tensor)?;
    // SAFETY: both sides have the same number of bytes, as checked above, and outlive the call, which waits for the
    // copy.
    let status = unsafe { memcpy()?(bytes.as_mut_ptr().cast(), tensor.data_ptr(), bytes.len(), TO_HOST) };
    check_status(status)
}

fn check_size(bytes: usize, tensor: &DynTensor) -> Result<(), EngineError> {
    let size = tensor.data_type().byte_size(tensor.shape().num_elements());
    if size == Some(bytes) {
        return Ok(());
    }
    let size = size.unwrap_or(0);
    Err(EngineError::Failed(format!("cannot copy {bytes} bytes to or from a device tensor of {size} bytes")))
}

fn check_status(status: c_int) -> Result<(), EngineError> {
    if status == 0 { Ok(()) } else { Err(EngineError::Failed(format!("cudaMemcpy: error {status}"))) }
}

fn memcpy() -> Result<Memcpy, EngineError> {
    static FOUND: OnceLock<Option<Memcpy>> = OnceLock::new();
    let find = || {
        // SAFETY: the provider has already opened and initialized this library.
        let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        // SAFETY: the function of this name has this type in every version of the runtime.
        let function = unsafe { library.get::<Memcpy>(b"cudaMemcpy") }.ok().map(|function| *function);
        std::mem::forget(library);
        function
    };
    let missing = || EngineError::Failed(format!("cannot open the CUDA runtime (tried: {})", NAMES.join(", ")));
    FOUND.get_or_init(find).ok_or_else(missing)
}
