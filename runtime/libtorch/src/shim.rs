//! What tch lacks of libtorch, from `shim.cpp`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use tch::Tensor;

unsafe extern "C" {
    fn flagperf_inference_begin() -> *mut c_void;
    fn flagperf_inference_end(mode: *mut c_void);
    fn flagperf_prepare_devices();
    fn flagperf_pinned(bytes: i64) -> *mut c_void;
}

/// PyTorch's inference mode, on this thread, as long as this lives.
pub struct InferenceMode {
    mode: *mut c_void,
    /// It is of the thread that began it.
    _here: PhantomData<*mut ()>,
}

impl InferenceMode {
    /// Begins it; modes end in the reverse order.
    pub fn begin() -> Self {
        // SAFETY: the function takes nothing; what it gives is ended once, on this thread.
        InferenceMode { mode: unsafe { flagperf_inference_begin() }, _here: PhantomData }
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: begun on this thread, since it cannot be sent, and ended here only.
        unsafe { flagperf_inference_end(self.mode) };
    }
}

/// Keeps devices from computing f32 in TF32, and has the fastest of cuDNN's algorithms found for each shape, from now on
/// and in this whole process.
pub fn prepare_devices() {
    // SAFETY: sets three switches of libtorch's.
    unsafe { flagperf_prepare_devices() };
}

/// Zeros in memory that a device reads by itself; tch's own way makes libtorch warn.
pub fn pinned(bytes: usize) -> Option<Tensor> {
    // SAFETY: the function gives a tensor that is the caller's, or null.
    let tensor = NonNull::new(unsafe { flagperf_pinned(bytes as i64) })?;
    // SAFETY: as above; nobody else has it.
    Some(unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) })
}
