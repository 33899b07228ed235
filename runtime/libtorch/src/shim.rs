//! Functions of libtorch that tch does not bind, from `shim.cpp`.

use std::ffi::c_void;
use std::ptr::NonNull;

use tch::Tensor;

unsafe extern "C" {
    fn flagperf_inference_begin() -> *mut c_void;
    fn flagperf_inference_end(mode: *mut c_void);
    fn flagperf_record(enabled: bool) -> bool;
    fn flagperf_prepare_devices(tf32: bool);
    fn flagperf_pinned(bytes: i64) -> *mut c_void;
}

/// The mode of this thread while a graph is loaded or runs. The mode before returns with the end of the value.
pub enum RunMode {
    /// PyTorch's inference mode.
    Inference(*mut c_void),
    /// Nothing is recorded for gradients until [`record`] is called. Contains whether it was before.
    Training(bool),
}

impl RunMode {
    /// Starts a mode. Nested modes must end in reverse order.
    pub fn begin(differentiates: bool) -> Self {
        if differentiates {
            RunMode::Training(record(false))
        } else {
            // SAFETY: the function has no arguments; the returned mode is ended once, on this thread.
            RunMode::Inference(unsafe { flagperf_inference_begin() })
        }
    }
}

impl Drop for RunMode {
    fn drop(&mut self) {
        match self {
            // SAFETY: the mode was started on this thread, because a pointer cannot be sent, and only ends here.
            RunMode::Inference(mode) => unsafe { flagperf_inference_end(*mode) },
            RunMode::Training(before) => drop(record(*before)),
        }
    }
}

/// Lets this thread record operators for gradients, or prevents it. Returns what was set before.
pub fn record(enabled: bool) -> bool {
    // SAFETY: the function sets a variable of this thread.
    unsafe { flagperf_record(enabled) }
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
