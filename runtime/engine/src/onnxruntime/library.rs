//! Finds the shared library of ONNX Runtime, opens it once per process, and reads its version.

use std::error::Error;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;

use crate::backend;
use crate::library_file::check_library_option;
use crate::{EngineError, Unavailable};

/// How to install the library.
const REMEDY: &str = "run `flagperf backend install onnxruntime` (for CUDA: `onnxruntime-gpu`)";
/// What to do about a library that the option `library_path` names.
const CHOSEN_REMEDY: &str = "`library_path` must name ONNX Runtime's library; null is the installed one";

/// The opened library.
#[derive(Clone)]
pub(super) struct OrtLibrary {
    /// The environment that sessions are created in.
    pub(super) environment: Environment,
    /// The version that the library reports.
    pub(super) version: String,
    /// The path that it was opened from.
    pub(super) path: PathBuf,
}

static OPENED: Mutex<Option<OrtLibrary>> = Mutex::new(None);

/// Opens the library at `path`. Without a path, opens the library that `flagperf backend install` installed, or else
/// the system's.
///
/// # Errors
/// When the library is missing, too old or not ONNX Runtime, or another one was opened before.
pub(super) fn open(path: Option<&Path>) -> Result<OrtLibrary, Unavailable> {
    let remedy = if path.is_some() { CHOSEN_REMEDY } else { REMEDY };
    let unavailable = |reason: String| Unavailable { reason: reason.replace('\n', " "), remedy: remedy.to_owned() };
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = opened.as_ref() {
        return match path {
            Some(path) if path != library.path => Err(unavailable(format!(
                "`{}` was opened before `{}`, and a process can open only one ONNX Runtime",
                library.path.display(),
                path.display()
            ))),
            _ => Ok(library.clone()),
        };
    }
    let path = match path {
        Some(path) => path.to_owned(),
        None => backend::installed_library(&["onnxruntime-gpu", "onnxruntime"])
            .unwrap_or_else(|| "libonnxruntime.so".into()),
    };
    check_library_option(&path).map_err(|fault| fault.into_unavailable(remedy))?;
    let version = read_version(&path).map_err(unavailable)?;
    let library = ort::init_from(&path)
        .map_err(|error| unavailable(error.to_string()))
        .and_then(|builder| builder.with_name("flagperf").build().map_err(|error| unavailable(error.to_string())))
        .map(|environment| OrtLibrary { environment, version, path })?;
    Ok(opened.insert(library).clone())
}

/// Has ONNX Runtime register the library of a provider, once per process.
///
/// # Errors
/// When the library cannot be opened or is not the library of a provider.
pub(super) fn register_provider(environment: &Environment, path: &Path) -> Result<(), EngineError> {
    static REGISTERED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.iter().any(|other| other == path) {
        return Ok(());
    }
    environment.register_ep_library(path.to_string_lossy(), path).map_err(|error| {
        let (path, why) = (path.display(), error.message().replace('\n', " "));
        EngineError::Failed(format!("option `provider_library`: ONNX Runtime cannot register `{path}`: {why}"))
    })?;
    registered.push(path.to_owned());
    Ok(())
}

/// Reads the version of the library at `path`, and leaves it open, because `ort` opens it next.
fn read_version(path: &Path) -> Result<String, String> {
    type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    tracing::debug!(path = %path.display(), "opening a library");
    // SAFETY: opening the library runs its initializers, which the user requested by selecting ONNX Runtime.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("`{}` cannot be opened: {why}", path.display())
    })?;
    // SAFETY: the function of this name has no arguments, and returns a table that lives as long as the library.
    let base = unsafe { library.get::<GetApiBase>(b"OrtGetApiBase").map(|get| get()) };
    let base = base.map_err(|_| format!("`{}` is not ONNX Runtime", path.display()))?;
    // SAFETY: the library owns the table and its NUL-terminated string, and both live while the library is open.
    let text = unsafe { CStr::from_ptr(((*base).GetVersionString)()) };
    let version = text.to_string_lossy().into_owned();
    std::mem::forget(library);
    Ok(version)
}
