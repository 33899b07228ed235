//! Calls into a plug-in's session: one at a time, each with its error.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flagperf_onnx::ValueInfo;
use flagperf_plugin::abi::{
    FLAGPERF_BAD_OPTION, FLAGPERF_LACKS_PRECISION, FLAGPERF_OK, FLAGPERF_OUT_OF_MEMORY, FLAGPERF_UNAVAILABLE,
    FLAGPERF_UNKNOWN_OPERATOR, FlagperfLoad, FlagperfPlugin, FlagperfSession, FlagperfStatus, FlagperfValues,
};
use tempfile::TempDir;

use super::library::Library;
use crate::engine::{EngineError, Unavailable};
use crate::tensor::DType;

/// More inputs or outputs than a model has.
const VALUES_MAX: u32 = 4096;

/// A session of a plug-in; unloaded when the last of its tensors and buffers is gone.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) library: &'static Library,
    session: NonNull<FlagperfSession>,
    calls: Mutex<Calls>,
    /// The file that the host wrote for it.
    _folder: Option<TempDir>,
}

// SAFETY: a plug-in takes calls from any thread as long as they do not overlap; the mutex sees to that.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What the calls of a session have to know of each other.
#[derive(Debug, Default)]
struct Calls {
    /// Something was submitted and not waited for.
    under_way: bool,
}

impl Handle {
    /// Loads a model to compute in `asked`; `load` says the same to the plug-in.
    pub(super) fn load(
        library: &'static Library,
        load: &FlagperfLoad,
        asked: DType,
        folder: Option<TempDir>,
    ) -> Result<Self, EngineError> {
        let function = library.table.load.expect("the table was checked");
        let mut session = null_mut();
        // SAFETY: the struct, its texts and the place of the session live as long as the call.
        let status = unsafe { function(load, &raw mut session) };
        if status == FLAGPERF_LACKS_PRECISION {
            let has = message(library).unwrap_or_default();
            return Err(EngineError::Precision { engine: library.name, asked, has });
        }
        result(library, status)?;
        let session = NonNull::new(session).ok_or_else(|| malformed(library, "gave no session and no error"))?;
        Ok(Handle { library, session, calls: Mutex::default(), _folder: folder })
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that may fail.
    pub(super) fn call(
        &self,
        call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> FlagperfStatus,
    ) -> Result<(), EngineError> {
        let _calls = self.lock();
        result(self.library, call(&self.library.table, self.session.as_ptr()))
    }

    /// A call that cannot fail.
    pub(super) fn ask<T>(&self, call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> T) -> T {
        let _calls = self.lock();
        call(&self.library.table, self.session.as_ptr())
    }

    /// A call after which something is under way.
    pub(super) fn begin(
        &self,
        call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> FlagperfStatus,
    ) -> Result<(), EngineError> {
        let mut calls = self.lock();
        calls.under_way = true;
        result(self.library, call(&self.library.table, self.session.as_ptr()))
    }

    /// Whether something was submitted and not waited for.
    pub(super) fn is_under_way(&self) -> bool {
        self.lock().under_way
    }

    /// Waits for what is under way, if anything is.
    pub(super) fn finish(&self) -> Result<(), EngineError> {
        let mut calls = self.lock();
        if !std::mem::take(&mut calls.under_way) {
            return Ok(());
        }
        match self.library.table.sync {
            // SAFETY: the session is loaded, and no other call on it runs.
            Some(sync) => result(self.library, unsafe { sync(self.session.as_ptr()) }),
            None => Ok(()),
        }
    }

    /// Inputs or outputs, as the plug-in declares them.
    pub(super) fn values(&self, what: &str, values: FlagperfValues) -> Result<Vec<ValueInfo>, EngineError> {
        let function = values.expect("the table was checked");
        let mut count = 0;
        // SAFETY: the session is loaded; the place of the count lives as long as the call.
        let values = self.ask(|_, session| unsafe { function(session, &raw mut count) });
        if count > VALUES_MAX || (values.is_null() && count > 0) {
            return Err(malformed(self.library, &format!("declares {count} {what} at {values:p}")));
        }
        let each = (0..count as usize).map(|index| {
            // SAFETY: the plug-in says that so many are there, with texts that stay as long as the session.
            let (name, spec) = unsafe {
                let value = &*values.add(index);
                (text(value.name), text(value.spec))
            };
            let unnamed = || malformed(self.library, &format!("declares no name or no specification in its {what}"));
            let (name, spec) = (name.ok_or_else(unnamed)?, spec.ok_or_else(unnamed)?);
            let spec = spec.parse().map_err(|error| malformed(self.library, &format!("declares `{name}`: {error}")))?;
            Ok(ValueInfo { name, spec })
        });
        each.collect()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let unload = self.library.table.unload.expect("the table was checked");
        // SAFETY: loaded once, unloaded once; every tensor and buffer of the session holds this handle, so all are gone.
        unsafe { unload(self.session.as_ptr()) };
    }
}

/// A text of the plug-in, copied.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(super) unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A path for the plug-in; none has a zero byte.
pub(super) fn c_path(path: &Path) -> Result<CString, EngineError> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| EngineError::Failed(format!("`{}` has a zero byte in its name", path.display())))
}

/// A folder for the plug-in, which counts from where this process began.
pub(super) fn c_folder(folder: &str) -> Result<CString, EngineError> {
    let absolute = std::path::absolute(folder);
    c_path(&absolute.map_err(|error| EngineError::Failed(format!("`{folder}` cannot be found: {error}")))?)
}

/// An error about something that no plug-in may do.
pub(super) fn malformed(library: &Library, what: &str) -> EngineError {
    EngineError::Failed(format!("plug-in `{}` {what}", library.name))
}

/// What the plug-in said of its last failure.
fn message(library: &Library) -> Option<String> {
    let last_error = library.table.last_error.expect("the table was checked");
    // SAFETY: called on the thread of the call that failed; the text stays until the next one.
    unsafe { last_error().as_ref().and_then(|error| text(error.message)) }
}

/// What a status stands for, with the plug-in's own words.
pub(super) fn result(library: &Library, status: FlagperfStatus) -> Result<(), EngineError> {
    if status == FLAGPERF_OK {
        return Ok(());
    }
    let last_error = library.table.last_error.expect("the table was checked");
    // SAFETY: called on the thread of the call that failed; the texts stay until the next one.
    let (message, hint, option, op, node, bytes) = unsafe {
        match last_error().as_ref() {
            Some(e) => (text(e.message), text(e.hint), text(e.option), text(e.op), text(e.node), e.bytes),
            None => (None, None, None, None, None, 0),
        }
    };
    let engine = library.name;
    let message = message.unwrap_or_else(|| format!("status {status}, and no reason given"));
    Err(match (status, option, op) {
        (FLAGPERF_UNAVAILABLE, ..) => EngineError::Unavailable(Unavailable {
            reason: format!("plug-in `{engine}`: {message}"),
            remedy: hint.unwrap_or_default(),
        }),
        (FLAGPERF_OUT_OF_MEMORY, ..) => EngineError::OutOfMemory { bytes },
        (FLAGPERF_UNKNOWN_OPERATOR, _, Some(op)) => {
            EngineError::Operator { engine, op, node: node.unwrap_or_default() }
        }
        (FLAGPERF_BAD_OPTION, Some(option), _) => EngineError::Option { engine, option, reason: message },
        _ => match hint {
            Some(remedy) => {
                EngineError::Unavailable(Unavailable { reason: format!("plug-in `{engine}`: {message}"), remedy })
            }
            None => EngineError::Failed(format!("plug-in `{engine}`: {message}")),
        },
    })
}
