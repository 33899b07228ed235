//! Decoders of images in a vendor's shared library: `flagperf_decoder.h` of flagperf-plugin.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_core::hash::hash_file;
use flagperf_core::image_decoder::{
    AxisWeights, DecoderLibrary, DecoderOptions, EncodedImage, ImageDecoder, ImageStatus,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::library_file::check_library;
use crate::printable::{NAME_BYTES_MAX, printable_line};
use crate::{EngineError, Unavailable};

/// The version of the interface.
const VERSION: u32 = 1;
/// Bytes that are kept of a reason.
const REASON_BYTES_MAX: usize = 2000;

#[repr(C)]
struct CAxis {
    first: *const u32,
    weights: *const i32,
    taps: u32,
}

#[repr(C)]
struct CImage {
    file: *const u8,
    bytes: u64,
    width: u32,
    height: u32,
    columns: CAxis,
    rows: CAxis,
    out: *mut c_void,
    status: i32,
}

#[repr(C)]
struct COptions {
    device: *const c_char,
    width: u32,
    height: u32,
    value_bytes: u32,
    values: *const u8,
}

type Reason = *const c_char;

/// The functions of a library.
struct Functions {
    open: unsafe extern "C" fn(*const COptions, *mut *mut c_void) -> Reason,
    describe: unsafe extern "C" fn(*const c_void) -> *const c_char,
    decode: unsafe extern "C" fn(*mut c_void, *mut CImage, u32) -> Reason,
    close: unsafe extern "C" fn(*mut c_void),
}

/// A library of a vendor with decoders for a device. It is never closed, as that of an engine.
struct OpenLibrary {
    name: String,
    device: CString,
    path: PathBuf,
    functions: Arc<Functions>,
}

/// Opens a vendor's library of decoders, which is `name` in the configuration, for a device such as `cuda:0`.
///
/// # Errors
/// When the file is not a library of decoders that this program can use.
pub fn open_decoders(name: &str, path: &Path, device: &str) -> Result<Arc<dyn DecoderLibrary>, Unavailable> {
    let remedy = "build it with `flagperf decoder build`";
    let refused = |reason: String| Unavailable { reason, remedy: remedy.to_owned() };
    let shown = path.display();
    check_library(path).map_err(|fault| fault.into_unavailable(remedy))?;
    // SAFETY: the library's initialisers run; the configuration names it, and this process exists to run it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| refused(format!("the decoder `{shown}` cannot be loaded: {error}")))?;
    let missing = |symbol: &str| refused(format!("the decoder `{shown}` has no function `{symbol}`"));
    macro_rules! function {
        ($symbol:literal) => {
            // SAFETY: the symbol's name identifies the function that the interface describes.
            *unsafe { library.get($symbol) }.map_err(|_| missing($symbol))?
        };
    }
    let version: unsafe extern "C" fn() -> u32 = function!("flagperf_decoder_version");
    // SAFETY: the function has no arguments.
    let theirs = unsafe { version() };
    if theirs != VERSION {
        let reason = format!("the decoder `{shown}` uses interface version `{theirs}`, but this program `{VERSION}`");
        return Err(refused(reason));
    }
    let functions = Functions {
        open: function!("flagperf_decoder_open"),
        describe: function!("flagperf_decoder_describe"),
        decode: function!("flagperf_decoder_decode"),
        close: function!("flagperf_decoder_close"),
    };
    let _ = library.into_raw();
    let device = CString::new(device).map_err(|_| refused("the name of the device has a zero byte".to_owned()))?;
    Ok(Arc::new(OpenLibrary { name: name.to_owned(), device, path: path.to_owned(), functions: Arc::new(functions) }))
}

impl OpenLibrary {
    /// Returns the error for a reason that a function of the library returned, if it is one.
    ///
    /// # Safety
    /// The reason is null, or text of the library that is valid until its next call.
    unsafe fn check(name: &str, reason: Reason) -> Result<(), EngineError> {
        if reason.is_null() {
            return Ok(());
        }
        // SAFETY: as required of the caller.
        let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
        Err(EngineError::Failed(format!("decoder `{name}`: {}", printable_line(&reason, REASON_BYTES_MAX))))
    }
}

impl DecoderLibrary for OpenLibrary {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, options: &DecoderOptions) -> Result<Box<dyn ImageDecoder>, EngineError> {
        let given = COptions {
            device: self.device.as_ptr(),
            width: options.size.0 as u32,
            height: options.size.1 as u32,
            value_bytes: options.value_bytes as u32,
            values: options.values.as_ptr(),
        };
        let mut decoder = null_mut();
        // SAFETY: the options are valid during the call; the library copies what it keeps.
        unsafe { Self::check(&self.name, (self.functions.open)(&raw const given, &raw mut decoder))? };
        Ok(Box::new(OpenDecoder { name: self.name.clone(), decoder, functions: self.functions.clone() }))
    }

    fn sha256(&self) -> Option<String> {
        hash_file(&self.path).ok()
    }
}

/// A decoder.
struct OpenDecoder {
    name: String,
    decoder: *mut c_void,
    functions: Arc<Functions>,
}

// SAFETY: the interface allows each decoder to be used by one thread at a time, whichever it is.
unsafe impl Send for OpenDecoder {}

impl ImageDecoder for OpenDecoder {
    fn description(&self) -> String {
        // SAFETY: the decoder is open; its description is valid as long as it is.
        let text = unsafe { (self.functions.describe)(self.decoder) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: as above.
        printable_line(&unsafe { CStr::from_ptr(text) }.to_string_lossy(), NAME_BYTES_MAX)
    }

    fn decode(&mut self, images: &mut [EncodedImage<'_>]) -> Result<(), EngineError> {
        let axis = |weights: &AxisWeights| CAxis {
            first: weights.first.as_ptr(),
            weights: weights.values.as_ptr(),
            taps: weights.taps as u32,
        };
        let given = |image: &mut EncodedImage<'_>| CImage {
            file: image.file.as_ptr(),
            bytes: image.file.len() as u64,
            width: image.size.0 as u32,
            height: image.size.1 as u32,
            columns: axis(image.columns),
            rows: axis(image.rows),
            out: image.out.as_mut_ptr().cast(),
            status: -1,
        };
        let mut all: Vec<CImage> = images.iter_mut().map(given).collect();
        // SAFETY: every pointer is valid during the call, and `out` has room for the values of an image.
        let reason = unsafe { (self.functions.decode)(self.decoder, all.as_mut_ptr(), all.len() as u32) };
        // SAFETY: the reason is the library's.
        unsafe { OpenLibrary::check(&self.name, reason)? };
        for (image, done) in images.iter_mut().zip(&all) {
            image.status = match done.status {
                0 => ImageStatus::Decoded,
                1 => ImageStatus::Unsupported,
                2 => ImageStatus::Damaged,
                other => {
                    let reason = format!("decoder `{}` set the unknown status {other} of an image", self.name);
                    return Err(EngineError::Failed(reason));
                }
            };
        }
        Ok(())
    }
}

impl Drop for OpenDecoder {
    fn drop(&mut self) {
        // SAFETY: the decoder is open, and nothing uses it any more.
        unsafe { (self.functions.close)(self.decoder) };
    }
}
