//! The table of a plug-in in Rust.

use std::ffi::CString;
use std::ptr::null;
use std::sync::OnceLock;

use crate::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_ONNX, FlagperfPlugin,
};
use crate::failure::{ask, c_string, last_error};
use crate::{Engine, shims};

/// The table and the texts that it points to; made at the first call.
pub struct Table(OnceLock<(FlagperfPlugin, [CString; 3])>);

impl Table {
    /// A table that is not made yet.
    #[expect(clippy::new_without_default, reason = "made by `export!` only, in a static")]
    pub const fn new() -> Self {
        Table(OnceLock::new())
    }

    /// The table of `E`; null when it cannot be made.
    pub fn of<E: Engine>(&'static self) -> *const FlagperfPlugin {
        ask(null(), || &raw const self.0.get_or_init(table::<E>).0)
    }
}

fn table<E: Engine>() -> (FlagperfPlugin, [CString; 3]) {
    let about = E::ABOUT;
    let texts = [about.name, about.version, about.about].map(c_string);
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    let table = FlagperfPlugin {
        abi_version: FLAGPERF_ABI_VERSION,
        struct_size: size_of::<FlagperfPlugin>() as u32,
        name: texts[0].as_ptr(),
        version: texts[1].as_ptr(),
        about: texts[2].as_ptr(),
        roles: bit(about.framework, FLAGPERF_FRAMEWORK) | bit(about.compiler, FLAGPERF_COMPILER),
        artifacts: bit(about.onnx, FLAGPERF_ONNX) | bit(about.compiled, FLAGPERF_COMPILED),
        precisions: about.precisions.iter().fold(0, |bits, precision| bits | precision.bit()),
        opset_max: about.opset_max,
        last_error: Some(last_error),
        check: Some(shims::check::<E>),
        load: Some(shims::load::<E>),
        inputs: Some(shims::inputs::<E::Session>),
        outputs: Some(shims::outputs::<E::Session>),
        lend: Some(shims::lend::<E::Session>),
        give_back: Some(shims::give_back),
        submit: Some(shims::submit::<E::Session>),
        sync: Some(shims::sync::<E::Session>),
        copy_to_host: Some(shims::copy_to_host::<E::Session>),
        device_memory: Some(shims::device_memory::<E::Session>),
        device: Some(shims::device::<E::Session>),
        threads: Some(shims::threads::<E::Session>),
        unload: Some(shims::unload::<E::Session>),
    };
    (table, texts)
}
