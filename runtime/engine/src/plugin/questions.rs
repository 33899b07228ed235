//! Questions about a loaded model and changes of its settings: scripts and plug-ins exchange both as JSON.

use std::ffi::{CStr, CString};
use std::ptr::null;

use serde_json::Value as Json;

use super::calls::{self, SessionHandle, interface_error};
use crate::EngineError;

/// Passes a script's question to a plug-in's session and returns the answer.
pub(super) fn ask(handle: &SessionHandle, question: &str, argument: &Json) -> Result<Json, EngineError> {
    let refused =
        |reason| EngineError::Question { engine: Some(handle.library.name), question: question.to_owned(), reason };
    let Some(ask) = handle.library.table.ask else {
        return Err(refused("unknown (this engine supports no questions)".to_owned()));
    };
    let (name, value) = to_c_strings(question, argument)?;
    // The answer lives only until the next call on the session: copy it before another call can begin.
    let answer = handle.query(|_, session| {
        let mut answer = null();
        // SAFETY: the session is loaded; the texts and the location of the answer live as long as the call.
        let status = unsafe { ask(session, name.as_ptr(), value.as_ptr(), &raw mut answer) };
        calls::check_status(handle.library, status)?;
        // SAFETY: after a success it is null or a text.
        Ok((!answer.is_null()).then(|| unsafe { CStr::from_ptr(answer) }.to_owned()))
    });
    let answer = answer.map_err(|error| refused_name(error, refused))?;
    let answer =
        answer.ok_or_else(|| interface_error(handle.library, &format!("returned no answer to `{question}`")))?;
    serde_json::from_slice(answer.to_bytes()).map_err(|error| {
        interface_error(handle.library, &format!("returned an answer to `{question}` that is not JSON: {error}"))
    })
}

/// Changes a setting of a plug-in's session.
pub(super) fn tune(handle: &SessionHandle, setting: &str, value: &Json) -> Result<(), EngineError> {
    let refused =
        |reason| EngineError::Setting { engine: Some(handle.library.name), setting: setting.to_owned(), reason };
    let Some(tune) = handle.library.table.tune else {
        return Err(refused("unknown (this engine has no settings)".to_owned()));
    };
    let (name, value) = to_c_strings(setting, value)?;
    // SAFETY: the session is loaded; the texts live as long as the call.
    let tuned = handle.call(|_, session| unsafe { tune(session, name.as_ptr(), value.as_ptr()) });
    tuned.map_err(|error| refused_name(error, refused))
}

fn to_c_strings(name: &str, value: &Json) -> Result<(CString, CString), EngineError> {
    let text =
        |text: String| CString::new(text).map_err(|_| EngineError::Failed(format!("`{name:?}` is not a valid name")));
    Ok((text(name.to_owned())?, text(value.to_string())?))
}

/// Converts an option error into one about the question or setting: no option of the load is meant here.
fn refused_name(error: EngineError, refused: impl Fn(String) -> EngineError) -> EngineError {
    match error {
        EngineError::Option { reason, .. } => refused(reason),
        error => error,
    }
}
