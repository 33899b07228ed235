//! Functions of libtorch that tch does not bind, from `shim.cpp`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use tch::Tensor;

unsafe extern "C" {
    fn flagperf_inference_begin() -> *mut c_void;
    fn flagperf_inference_end(mode: *mut c_void);
    fn flagperf_prepare_devices(tf32: bool);
    fn flagperf_pinned(bytes: i64) -> *mut c_void;
}

/// PyTorch's inference mode, active on this thread while the value lives.
pub struct InferenceMode {
    mode: *mut c_void,
    /// Prevents sending the value to another thread: the mode belongs to the thread that started it.
    _not_send: PhantomData<*mut ()>,
}

impl InferenceMode {
    /// Starts inference mode. Nested modes must end in reverse order.
    pub fn begin() -> Self {
        // SAFETY: the function has no arguments; the returned mode is ended once, on this thread.
        InferenceMode { mode: unsafe { flagperf_inference_begin() }, _not_send: PhantomData }
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: the mode was started on this thread, because the value cannot be sent, and only ends here.
        unsafe { flagperf_inference_end(self.mode) };
    }
}

/// Lets devices compute products of fp32 in TF32 or prevents it, and makes cuDNN select the fastest algorithm for each
/// shape, in the whole process.
pub fn prepare_devices(tf32: bool) {
    // SAFETY: the function sets three global settings of libtorch.
    unsafe { flagperf_prepare_devices(tf32) };
}

/// Allocates zeros in pinned memory, which a device reads directly; `None` when the allocation fails. tch's own
/// function makes libtorch print a warning.
pub fn allocate_pinned(bytes: usize) -> Option<Tensor> {
    // SAFETY: the function returns a tensor that the caller owns, or null.
    let tensor = NonNull::new(unsafe { flagperf_pinned(bytes as i64) })?;
    // SAFETY: as above; nothing else owns the tensor.
    Some(unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) })
}
