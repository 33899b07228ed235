//! The shared library of OpenVINO: found, opened once a process, asked for its version.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use openvino_sys as sys;

use crate::engine::Unavailable;
use crate::engine::backend;

/// How to get it.
const REMEDY: &str = "`flagperf backend install openvino` gets it";
/// A function of its C interface that came last among those called here.
const NEWEST: &str = "ov_core_compile_model_props";

/// The opened library.
#[derive(Clone)]
pub(super) struct Library {
    /// Its version, as it says: `2026.4.1`.
    pub(super) version: String,
    /// Where it lies.
    path: PathBuf,
}

static OPENED: Mutex<Option<Library>> = Mutex::new(None);

/// Opens the library at `path`; without one, what `flagperf backend install` got, else the system's.
///
/// # Errors
/// When there is none, it is too old or not OpenVINO, or another one was opened before.
pub(super) fn open(path: Option<&Path>) -> Result<Library, Unavailable> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = opened.as_ref().filter(|library| path.is_none_or(|path| path == library.path)) {
        return Ok(library.clone());
    }
    let path = match path {
        Some(path) => path.to_owned(),
        None => backend::library(&["openvino"]).unwrap_or_else(|| "libopenvino_c.so".into()),
    };
    let build = build(&path)?;
    if let Some(other) = opened.as_ref().map(|library| library.path.display()) {
        let path = path.display();
        return Err(missing(format!("`{other}` was opened before `{path}`, and one process has one OpenVINO")));
    }
    sys::library::load_from(&path).map_err(missing)?;
    let version = build.split('-').next().unwrap_or(&build).to_owned();
    Ok(opened.insert(Library { version, path }).clone())
}

fn missing(reason: String) -> Unavailable {
    Unavailable { reason: reason.replace('\n', " "), remedy: REMEDY.to_owned() }
}

/// The build that the library at `path` says it is; it stays open, for it is opened again. A function that is not there
/// would end the process when it is called.
fn build(path: &Path) -> Result<String, Unavailable> {
    type Version = unsafe extern "C" fn(*mut sys::ov_version_t) -> sys::ov_status_e;
    type Free = unsafe extern "C" fn(*mut sys::ov_version_t);
    // SAFETY: opening runs the library's initialisers, which is what asking for OpenVINO means.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        missing(format!("`{}` cannot be opened: {why}", path.display()))
    })?;
    let strange = |_| missing(format!("`{}` is not OpenVINO's C library", path.display()));
    let mut version = sys::ov_version_t { buildNumber: ptr::null(), description: ptr::null() };
    // SAFETY: the functions of these names take a place for two texts, fill it, and free what they filled it with.
    let build = unsafe {
        let ask = library.get::<Version>(b"ov_get_openvino_version").map_err(strange)?;
        let free = library.get::<Free>(b"ov_version_free").map_err(strange)?;
        if ask(&mut version) != sys::ov_status_e::OK || version.buildNumber.is_null() {
            return Err(missing(format!("`{}` does not say its version", path.display())));
        }
        let build = CStr::from_ptr(version.buildNumber).to_string_lossy().into_owned();
        free(&mut version);
        build
    };
    // SAFETY: the function is looked for and not called.
    let whole = unsafe { library.get::<*const c_void>(NEWEST.as_bytes()).is_ok() };
    std::mem::forget(library);
    if whole {
        return Ok(build);
    }
    Err(missing(format!("`{}` is OpenVINO {build}, which is too old: it lacks `{NEWEST}`", path.display())))
}
