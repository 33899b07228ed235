//! Updates of parameters by an optimizer, through `update.cpp`.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use crate::shim::{address, check};
use crate::tensor::TorchTensor;
use flagperf_onnx_exec::{OpError, Update};

unsafe extern "C" {
    fn flagperf_update(
        name: *const c_char,
        length: usize,
        settings: *const f64,
        numbers: *const *const c_void,
        changes: *const c_void,
        tensors: *const *const c_void,
        count: usize,
        memory: usize,
    ) -> *const c_char;
}

/// Updates parameters in place.
pub fn update(update: &Update<'_, TorchTensor>) -> Result<(), OpError> {
    let (name, settings) = update.rule.settings();
    let numbers = [update.learning_rate, update.mean_correction, update.square_correction, update.number].map(address);
    let tensors: Vec<*const c_void> =
        update.parameters.iter().chain(update.gradients).chain(update.memory).map(address).collect();
    let (count, memory) = (update.parameters.len(), update.rule.memory_count());
    let changes = update.changes.map_or(null(), address);
    let (text, settings, numbers, tensors) =
        (name.as_ptr().cast(), settings.as_ptr(), numbers.as_ptr(), tensors.as_ptr());
    // SAFETY: everything lives until the call returns, and the executor checked that there are `2 + memory` lists of `count`
    // tensors.
    unsafe { check(flagperf_update(text, name.len(), settings, numbers, changes, tensors, count, memory)) }
}
