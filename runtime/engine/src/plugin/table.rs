//! Reads the table that a plug-in exports. No field is read before the version and the size confirm that it exists.

use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use flagperf_plugin::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_ONNX, FlagperfPlugin,
    FlagperfUnload,
};

/// Size of the table as it was first published, up to `unload`. Fields that were appended later may be missing.
const SIZE_MIN: usize = offset_of!(FlagperfPlugin, unload) + size_of::<FlagperfUnload>();

/// Why a table cannot be used.
pub(super) enum TableError {
    /// The plug-in was built for this other version of the interface.
    Version(u32),
    /// The table breaks the interface; the text describes how.
    Malformed(String),
}

/// Copies and checks a plug-in's table.
///
/// # Safety
/// `table` is null or was returned by a plug-in's entry function.
pub(super) unsafe fn read_table(table: *const FlagperfPlugin) -> Result<FlagperfPlugin, TableError> {
    let malformed = |what: &str| Err(TableError::Malformed(what.to_owned()));
    if table.is_null() || !table.is_aligned() {
        return malformed("its table is null or misaligned");
    }
    // SAFETY: every version of the table begins with these two fields.
    let (version, size) = unsafe { ((*table).abi_version, (*table).struct_size as usize) };
    if version != FLAGPERF_ABI_VERSION {
        return Err(TableError::Version(version));
    }
    if size < SIZE_MIN {
        return malformed(&format!("its table has {size} bytes, but version {version} has at least {SIZE_MIN}"));
    }
    let mut copy = MaybeUninit::<FlagperfPlugin>::zeroed();
    // SAFETY: the plug-in declares that `size` bytes are readable. Fields beyond them stay zero, and every field may be
    // zero: a function is then null.
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
    if let Some((name, _)) = required.iter().find(|(_, is_there)| !is_there) {
        return malformed(&format!("its function `{name}` is null"));
    }
    if table.roles & (FLAGPERF_FRAMEWORK | FLAGPERF_COMPILER) == 0 {
        return malformed("it is neither a framework nor a compiler");
    }
    if table.roles & FLAGPERF_FRAMEWORK != 0 && table.artifacts & FLAGPERF_ONNX == 0 {
        return malformed("it is a framework but does not accept ONNX files");
    }
    if table.artifacts & (FLAGPERF_ONNX | FLAGPERF_COMPILED) == 0 {
        return malformed("it accepts no kind of file");
    }
    Ok(table)
}

/// Reads a text of the table; `None` if it is null, empty or not UTF-8.
///
/// # Safety
/// `text` is null, or ends with a zero byte and is static.
pub(super) unsafe fn read_text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(text) }.to_str().ok().filter(|text| !text.is_empty())
}
