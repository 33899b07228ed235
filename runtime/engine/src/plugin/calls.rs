//! Calls into a plug-in's session: one at a time, each followed by a check of its status.

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

use super::library::PluginLibrary;
use crate::{EngineError, Unavailable};
use flagperf_core::tensor::DType;

/// The largest accepted number of inputs or outputs; no model has as many.
const VALUES_MAX: u32 = 4096;

/// A loaded session of a plug-in. It is unloaded when the last of its tensors and buffers has been dropped.
#[derive(Debug)]
pub(super) struct SessionHandle {
    pub(super) library: &'static PluginLibrary,
    session: NonNull<FlagperfSession>,
    state: Mutex<CallState>,
    /// The folder of a model file that the host wrote for this session.
    _folder: Option<TempDir>,
}

// SAFETY: a plug-in accepts calls from any thread as long as they do not overlap; the mutex ensures that.
unsafe impl Send for SessionHandle {}
// SAFETY: as above.
unsafe impl Sync for SessionHandle {}

/// The state shared by the calls of one session.
#[derive(Debug, Default)]
struct CallState {
    /// Whether work was submitted since the last synchronisation.
    is_pending: bool,
}

impl SessionHandle {
    /// Loads a model. `precision` is the type to compute in, for messages; `load` contains it for the plug-in.
    pub(super) fn load(
        library: &'static PluginLibrary,
        load: &FlagperfLoad,
        precision: DType,
        folder: Option<TempDir>,
    ) -> Result<Self, EngineError> {
        let function = library.table.load.expect("the table was checked");
        let mut session = null_mut();
        // SAFETY: the struct, its texts and the location of the session live as long as the call.
        let status = unsafe { function(load, &raw mut session) };
        if status == FLAGPERF_LACKS_PRECISION {
            let supported = last_error_message(library).unwrap_or_default();
            return Err(EngineError::Precision {
                engine: library.name,
                requested: precision,
                first_tensor: None,
                supported,
            });
        }
        check_status(library, status)?;
        let session =
            NonNull::new(session).ok_or_else(|| interface_error(library, "returned neither a session nor an error"))?;
        Ok(SessionHandle { library, session, state: Mutex::default(), _folder: folder })
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that may fail.
    pub(super) fn call(
        &self,
        call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> FlagperfStatus,
    ) -> Result<(), EngineError> {
        let _state = self.lock();
        check_status(self.library, call(&self.library.table, self.session.as_ptr()))
    }

    /// Makes a call that cannot fail.
    pub(super) fn query<T>(&self, call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> T) -> T {
        let _state = self.lock();
        call(&self.library.table, self.session.as_ptr())
    }

    /// Makes a call that submits work, which is pending from then on.
    pub(super) fn submit(
        &self,
        call: impl FnOnce(&FlagperfPlugin, *mut FlagperfSession) -> FlagperfStatus,
    ) -> Result<(), EngineError> {
        let mut state = self.lock();
        state.is_pending = true;
        check_status(self.library, call(&self.library.table, self.session.as_ptr()))
    }

    /// Whether work was submitted since the last synchronisation.
    pub(super) fn is_pending(&self) -> bool {
        self.lock().is_pending
    }

    /// Waits for the pending work, if there is any.
    pub(super) fn synchronize(&self) -> Result<(), EngineError> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_pending) {
            return Ok(());
        }
        match self.library.table.sync {
            // SAFETY: the session is loaded, and no other call on it runs.
            Some(sync) => check_status(self.library, unsafe { sync(self.session.as_ptr()) }),
            None => Ok(()),
        }
    }

    /// Reads the inputs or outputs that the plug-in declares; `what` is "inputs" or "outputs", for messages.
    pub(super) fn declared_values(&self, what: &str, values: FlagperfValues) -> Result<Vec<ValueInfo>, EngineError> {
        let function = values.expect("the table was checked");
        let mut count = 0;
        // SAFETY: the session is loaded; the location of the count lives as long as the call.
        let values = self.query(|_, session| unsafe { function(session, &raw mut count) });
        if count > VALUES_MAX || (values.is_null() && count > 0) {
            let reason = format!("declares an invalid table of {what} (count {count}, address {values:p})");
            return Err(interface_error(self.library, &reason));
        }
        let each = (0..count as usize).map(|index| {
            // SAFETY: the plug-in declares `count` values, whose texts live until the session is tuned or unloaded.
            let (name, spec) = unsafe {
                let value = &*values.add(index);
                (copy_text(value.name), copy_text(value.spec))
            };
            let incomplete =
                || interface_error(self.library, &format!("declares {what} without a name or a specification"));
            let (name, spec) = (name.ok_or_else(incomplete)?, spec.ok_or_else(incomplete)?);
            let spec = spec.parse().map_err(|error| {
                interface_error(self.library, &format!("declares `{name}` with an invalid specification: {error}"))
            })?;
            Ok(ValueInfo { name, spec })
        });
        each.collect()
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        let unload = self.library.table.unload.expect("the table was checked");
        // SAFETY: loaded once, unloaded once; every tensor and buffer of the session holds this handle, so none is
        // left.
        unsafe { unload(self.session.as_ptr()) };
    }
}

/// Copies a text of the plug-in; `None` for null.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(super) unsafe fn copy_text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller guarantees it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Converts a path for the plug-in.
///
/// # Errors
/// When the path contains a zero byte.
pub(super) fn c_path(path: &Path) -> Result<CString, EngineError> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| EngineError::Failed(format!("`{}` contains a zero byte", path.display())))
}

/// Converts a folder for the plug-in. The plug-in receives an absolute path, resolved against the working directory.
pub(super) fn c_folder(folder: &str) -> Result<CString, EngineError> {
    let absolute = std::path::absolute(folder)
        .map_err(|error| EngineError::Failed(format!("`{folder}` cannot be made an absolute path: {error}")))?;
    c_path(&absolute)
}

/// Returns the error for a violation of the plug-in interface; `what` continues "plug-in `name`".
pub(super) fn interface_error(library: &PluginLibrary, what: &str) -> EngineError {
    EngineError::Failed(format!("plug-in `{}` {what}", library.name))
}

/// Returns the message of the plug-in's last failure on this thread.
fn last_error_message(library: &PluginLibrary) -> Option<String> {
    let last_error = library.table.last_error.expect("the table was checked");
    // SAFETY: called on the thread of the call that failed; the text lives until the next call on that thread.
    unsafe { last_error().as_ref().and_then(|error| copy_text(error.message)) }
}

/// Converts a status to a result, with the message that the plug-in gives for a failure.
pub(super) fn check_status(library: &PluginLibrary, status: FlagperfStatus) -> Result<(), EngineError> {
    if status == FLAGPERF_OK {
        return Ok(());
    }
    let last_error = library.table.last_error.expect("the table was checked");
    // SAFETY: called on the thread of the call that failed; the texts live until the next call on that thread.
    let (message, hint, option, op, node, bytes) = unsafe {
        match last_error().as_ref() {
            Some(error) => (
                copy_text(error.message),
                copy_text(error.hint),
                copy_text(error.option),
                copy_text(error.op),
                copy_text(error.node),
                error.bytes,
            ),
            None => (None, None, None, None, None, 0),
        }
    };
    let engine = library.name;
    let message = message.unwrap_or_else(|| format!("failed with status {status} and gave no reason"));
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
