//! Functions of libtorch that tch does not bind, from `shim.cpp`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use flagperf_onnx_exec::OpError;
use tch::{TchError, Tensor};

use crate::tensor::TorchTensor;

unsafe extern "C" {
    fn flagperf_inference_begin() -> *mut c_void;
    fn flagperf_inference_end(mode: *mut c_void);
    fn flagperf_record(enabled: bool) -> bool;
    fn flagperf_prepare_devices(tf32: bool);
    fn flagperf_keep_freed_memory();
    fn flagperf_pinned(bytes: i64) -> *mut c_void;
    fn flagperf_last_error() -> *const c_char;
    fn flagperf_norm(tensors: *const *const c_void, count: usize) -> *mut c_void;
    fn flagperf_copy_all(to: *const *const c_void, from: *const *const c_void, count: usize) -> *const c_char;
    fn flagperf_add_scaled(a: *const c_void, b: *const c_void, factor: f64) -> *mut c_void;
    fn flagperf_rotate(x: *const c_void, cos: *const c_void, sin: *const c_void, interleaved: bool) -> *mut c_void;
    fn flagperf_multiply_add(a: *const c_void, b: *const c_void, c: *const c_void, factor: f64) -> *mut c_void;
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

/// Makes the C library keep the memory that tensors on the processor free, for the next ones.
pub fn keep_freed_memory() {
    // SAFETY: the call changes settings of the allocator, which may change at any time.
    unsafe { flagperf_keep_freed_memory() }
}

/// Allocates zeros in pinned memory, which a device reads directly; `None` when the allocation fails. tch's own
/// function makes libtorch print a warning.
pub fn allocate_pinned(bytes: usize) -> Option<Tensor> {
    // SAFETY: the function returns a tensor that the caller owns, or null.
    unsafe { owned(flagperf_pinned(bytes as i64)) }.ok()
}

/// Returns the root of the sum of the squares of all elements of tensors.
pub fn norm(tensors: &[TorchTensor]) -> Result<Tensor, TchError> {
    let tensors: Vec<*const c_void> = tensors.iter().map(address).collect();
    // SAFETY: the function reads the tensors, and returns one that the caller owns, or null.
    unsafe { owned(flagperf_norm(tensors.as_ptr(), tensors.len())) }
}

/// Copies the elements of each tensor of `from` to the one at its place in `to`.
pub fn copy_all(to: &[&TorchTensor], from: &[&TorchTensor]) -> Result<(), OpError> {
    assert_eq!(to.len(), from.len(), "each tensor has a target");
    if to.is_empty() {
        return Ok(());
    }
    let [to, from] = [to, from].map(|tensors| tensors.iter().map(|tensor| address(tensor)).collect::<Vec<_>>());
    // SAFETY: all tensors live until the call returns, and both lists have the same length.
    unsafe { check(flagperf_copy_all(to.as_ptr(), from.as_ptr(), to.len())) }
}

/// Returns the address of a tensor for a function of the shims.
pub fn address(tensor: &TorchTensor) -> *const c_void {
    tensor.0.as_ptr().cast()
}

/// Converts the result of a function that returns null or the reason of its failure.
///
/// # Safety
/// The reason must be a text that is valid until the next call on this thread.
pub unsafe fn check(reason: *const c_char) -> Result<(), OpError> {
    if reason.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees it.
    Err(OpError::library(unsafe { CStr::from_ptr(reason) }.to_string_lossy()))
}

/// Returns `a + b · factor`.
pub fn add_scaled(a: &Tensor, b: &Tensor, factor: f64) -> Result<Tensor, TchError> {
    // SAFETY: the function reads two tensors, and returns one that the caller owns, or null.
    unsafe { owned(flagperf_add_scaled(a.as_ptr().cast(), b.as_ptr().cast(), factor)) }
}

/// Returns `a + factor · b · c`.
pub fn multiply_add(a: &Tensor, b: &Tensor, c: &Tensor, factor: f64) -> Result<Tensor, TchError> {
    // SAFETY: the function reads three tensors, and returns one that the caller owns, or null.
    unsafe { owned(flagperf_multiply_add(a.as_ptr().cast(), b.as_ptr().cast(), c.as_ptr().cast(), factor)) }
}

/// Returns `x` with pairs of elements of its last dimension rotated by the angles with these cosines and sines.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor, TchError> {
    // SAFETY: the function reads three tensors, and returns one that the caller owns, or null.
    unsafe { owned(flagperf_rotate(x.as_ptr().cast(), cos.as_ptr().cast(), sin.as_ptr().cast(), interleaved)) }
}

/// Returns the tensor that a function of the shim returned; for null, its error.
///
/// # Safety
/// The pointer must be the result of the last call of such a function on this thread.
unsafe fn owned(tensor: *mut c_void) -> Result<Tensor, TchError> {
    match NonNull::new(tensor) {
        // SAFETY: nothing else owns the tensor.
        Some(tensor) => Ok(unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) }),
        None => {
            // SAFETY: the text stays valid until the next call on this thread.
            let reason = unsafe { CStr::from_ptr(flagperf_last_error()) };
            Err(TchError::Torch(reason.to_string_lossy().into_owned()))
        }
    }
}
