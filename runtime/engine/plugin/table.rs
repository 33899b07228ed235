//! The table that a plug-in exports, read with care: no field is touched before the version says that it is there.

use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use flagperf_plugin::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_ONNX, FlagperfPlugin,
    FlagperfUnload,
};

/// The table as it was first published: up to `unload`. What was appended later may be missing.
const SIZE_MIN: usize = offset_of!(FlagperfPlugin, unload) + size_of::<FlagperfUnload>();

/// What is wrong with a table.
pub(super) enum Problem {
    /// It is of this version of the interface.
    Version(u32),
    /// It breaks the interface.
    Malformed(String),
}

/// The table, with what it lacks named.
///
/// # Safety
/// `table` is null or what a plug-in's entry gave.
pub(super) unsafe fn read(table: *const FlagperfPlugin) -> Result<FlagperfPlugin, Problem> {
    let malformed = |what: &str| Err(Problem::Malformed(what.to_owned()));
    if table.is_null() || !table.is_aligned() {
        return malformed("it has no table");
    }
    // SAFETY: the first two fields are those of every version.
    let (version, size) = unsafe { ((*table).abi_version, (*table).struct_size as usize) };
    if version != FLAGPERF_ABI_VERSION {
        return Err(Problem::Version(version));
    }
    if size < SIZE_MIN {
        return malformed(&format!("its table has {size} bytes, version {version} has at least {SIZE_MIN}"));
    }
    let mut copy = MaybeUninit::<FlagperfPlugin>::zeroed();
    // SAFETY: the plug-in says that so many bytes are there; where it has fewer functions than this program knows, the
    // rest are null, and every field may be zero.
    let table = unsafe {
        ptr::copy_nonoverlapping(table.cast(), copy.as_mut_ptr().cast::<u8>(), size.min(size_of::<FlagperfPlugin>()));
        copy.assume_init()
    };
    let required = [
        ("last_error", table.last_error.is_some()),
        ("load", table.load.is_some()),
        ("inputs", table.inputs.is_some()),
        ("outputs", table.outputs.is_some()),
        ("submit", table.submit.is_some()),
        ("unload", table.unload.is_some()),
        ("give_back", table.give_back.is_some() || table.lend.is_none()),
    ];
    if let Some((name, _)) = required.iter().find(|(_, there)| !there) {
        return malformed(&format!("its function `{name}` is null"));
    }
    if table.roles & (FLAGPERF_FRAMEWORK | FLAGPERF_COMPILER) == 0 {
        return malformed("it can be neither framework nor compiler");
    }
    if table.roles & FLAGPERF_FRAMEWORK != 0 && table.artifacts & FLAGPERF_ONNX == 0 {
        return malformed("it is a framework and takes no ONNX file");
    }
    if table.artifacts & (FLAGPERF_ONNX | FLAGPERF_COMPILED) == 0 {
        return malformed("it takes no kind of file");
    }
    Ok(table)
}

/// A text that is not empty.
///
/// # Safety
/// `text` is null or ends with a zero byte, and stays.
pub(super) unsafe fn read_text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().ok().filter(|text| !text.is_empty())
}
