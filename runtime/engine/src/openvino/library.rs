//! Finds the shared library of OpenVINO, opens it once per process, and reads its version.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use openvino_sys as sys;

use crate::Unavailable;
use crate::backend;
use crate::library_file::check_library_option;

/// How to install the library.
const REMEDY: &str = "run `flagperf backend install openvino`";
/// What to do about a library that the option `library_path` names.
const CHOSEN_REMEDY: &str = "`library_path` must name OpenVINO's C library; null is the installed one";
/// The function called here that was added to the C interface last.
const NEWEST: &str = "ov_core_compile_model_props";

/// The opened library.
#[derive(Clone)]
pub(super) struct OpenVinoLibrary {
    /// The version that the library reports: `2026.4.1`.
    pub(super) version: String,
    /// The path that it was opened from.
    path: PathBuf,
}

static OPENED: Mutex<Option<OpenVinoLibrary>> = Mutex::new(None);

/// Opens the library at `path`. Without a path, opens the library that `flagperf backend install` installed, or else
/// the system's.
///
/// # Errors
/// When the library is missing, too old or not OpenVINO, or another one was opened before.
pub(super) fn open(path: Option<&Path>) -> Result<OpenVinoLibrary, Unavailable> {
    let remedy = if path.is_some() { CHOSEN_REMEDY } else { REMEDY };
    let unavailable = |reason: String| Unavailable { reason: reason.replace('\n', " "), remedy: remedy.to_owned() };
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = opened.as_ref().filter(|library| path.is_none_or(|path| path == library.path)) {
        return Ok(library.clone());
    }
    let path = match path {
        Some(path) => path.to_owned(),
        None => backend::installed_library(&["openvino"]).unwrap_or_else(|| "libopenvino_c.so".into()),
    };
    check_library_option(&path).map_err(|fault| fault.into_unavailable(remedy))?;
    let build = read_build(&path).map_err(unavailable)?;
    if let Some(other) = opened.as_ref().map(|library| library.path.display()) {
        let path = path.display();
        let reason = format!("`{other}` was opened before `{path}`, and a process can open only one OpenVINO");
        return Err(unavailable(reason));
    }
    sys::library::load_from(&path).map_err(unavailable)?;
    let version = build.split('-').next().unwrap_or(&build).to_owned();
    Ok(opened.insert(OpenVinoLibrary { version, path }).clone())
}

/// Reads the build of the library at `path`, checks that it is recent enough, and leaves it open, because it is opened
/// again. Calling a missing function later would end the process.
fn read_build(path: &Path) -> Result<String, String> {
    type Version = unsafe extern "C" fn(*mut sys::ov_version_t) -> sys::ov_status_e;
    type Free = unsafe extern "C" fn(*mut sys::ov_version_t);
    tracing::debug!(path = %path.display(), "opening a library");
    // SAFETY: opening the library runs its initializers, which the user requested by selecting OpenVINO.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("`{}` cannot be opened: {why}", path.display())
    })?;
    let not_openvino = |_| format!("`{}` is not OpenVINO's C library", path.display());
    let mut version = sys::ov_version_t { buildNumber: ptr::null(), description: ptr::null() };
    // SAFETY: by their names, the functions fill and free a structure of two strings.
    let build = unsafe {
        let get = library.get::<Version>(b"ov_get_openvino_version").map_err(not_openvino)?;
        let free = library.get::<Free>(b"ov_version_free").map_err(not_openvino)?;
        if get(&mut version) != sys::ov_status_e::OK || version.buildNumber.is_null() {
            return Err(format!("`{}` does not report its version", path.display()));
        }
        let build = CStr::from_ptr(version.buildNumber).to_string_lossy().into_owned();
        free(&mut version);
        build
    };
    // SAFETY: the function is looked up and not called.
    let is_recent = unsafe { library.get::<*const c_void>(NEWEST.as_bytes()).is_ok() };
    std::mem::forget(library);
    if is_recent {
        return Ok(build);
    }
    Err(format!("`{}` is OpenVINO {build}, which is too old: it lacks `{NEWEST}`", path.display()))
}
