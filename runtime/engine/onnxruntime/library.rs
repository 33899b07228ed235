//! The shared library of ONNX Runtime: found, opened once a process, asked for its version.

use std::error::Error;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;

use crate::engine::Unavailable;
use crate::engine::backend;

/// How to get it.
const REMEDY: &str = "`flagperf backend install onnxruntime` gets it (for CUDA: `onnxruntime-gpu`)";

/// The opened library.
#[derive(Clone)]
pub(super) struct Library {
    /// What sessions are made in.
    pub(super) environment: Environment,
    /// Its version, as it says.
    pub(super) version: String,
    /// Where it lies.
    pub(super) path: PathBuf,
}

static OPENED: Mutex<Option<Library>> = Mutex::new(None);

/// Opens the library at `path`; without one, what `flagperf backend install` got, else the system's.
///
/// # Errors
/// When there is none, it is too old or not ONNX Runtime, or another one was opened before.
pub(super) fn open(path: Option<&Path>) -> Result<Library, Unavailable> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = opened.as_ref() {
        return match path {
            Some(path) if path != library.path => Err(missing(format!(
                "`{}` was opened before `{}`, and one process has one ONNX Runtime",
                library.path.display(),
                path.display()
            ))),
            _ => Ok(library.clone()),
        };
    }
    let path = match path {
        Some(path) => path.to_owned(),
        None => backend::library(&["onnxruntime-gpu", "onnxruntime"]).unwrap_or_else(|| "libonnxruntime.so".into()),
    };
    let version = version(&path)?;
    let library = ort::init_from(&path)
        .map_err(|error| missing(error.to_string()))
        .and_then(|builder| builder.with_name("flagperf").build().map_err(|error| missing(error.to_string())))
        .map(|environment| Library { environment, version, path })?;
    Ok(opened.insert(library).clone())
}

fn missing(reason: String) -> Unavailable {
    Unavailable { reason: reason.replace('\n', " "), remedy: REMEDY.to_owned() }
}

/// The version that the library at `path` says it has; it stays open, for ort opens it next.
fn version(path: &Path) -> Result<String, Unavailable> {
    type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    // SAFETY: opening runs the library's initialisers, which is what asking for ONNX Runtime means.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        missing(format!("`{}` cannot be opened: {why}", path.display()))
    })?;
    // SAFETY: the function of this name takes nothing and gives a table that lives as long as the library.
    let base = unsafe { library.get::<GetApiBase>(b"OrtGetApiBase").map(|get| get()) };
    let base = base.map_err(|_| missing(format!("`{}` is not ONNX Runtime", path.display())))?;
    // SAFETY: the table is the library's own, its text ends with a zero, and both live while the library is open.
    let text = unsafe { CStr::from_ptr(((*base).GetVersionString)()) };
    let version = text.to_string_lossy().into_owned();
    std::mem::forget(library);
    Ok(version)
}
