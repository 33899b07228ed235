//! Questions and settings of a loaded model, as JSON: what scripts and plug-ins say to each other.

use std::ffi::{CStr, CString};
use std::ptr::null;

use serde_json::Value as Json;

use super::calls::{self, Handle, malformed};
use crate::engine::EngineError;

/// Asks a plug-in's session.
pub(super) fn ask(handle: &Handle, question: &str, argument: &Json) -> Result<Json, EngineError> {
    let refused =
        |reason| EngineError::Question { engine: Some(handle.library.name), question: question.to_owned(), reason };
    let Some(ask) = handle.library.table.ask else {
        return Err(refused("unknown (this engine answers none)".to_owned()));
    };
    let (name, value) = texts(question, argument)?;
    // The answer stays until the next call on the session only: it is copied before another can begin.
    let answer = handle.ask(|_, session| {
        let mut answer = null();
        // SAFETY: the session is loaded; the texts and the place of the answer live as long as the call.
        let status = unsafe { ask(session, name.as_ptr(), value.as_ptr(), &raw mut answer) };
        calls::result(handle.library, status)?;
        // SAFETY: after a success it is null, or a text.
        Ok((!answer.is_null()).then(|| unsafe { CStr::from_ptr(answer) }.to_owned()))
    });
    let answer = answer.map_err(|error| name_it(error, refused))?;
    let unanswered = |what: &str| malformed(handle.library, &format!("answered `{question}` with {what}"));
    let answer = answer.ok_or_else(|| unanswered("no text"))?;
    serde_json::from_slice(answer.to_bytes()).map_err(|error| unanswered(&format!("what is not JSON: {error}")))
}

/// Tunes a plug-in's session.
pub(super) fn tune(handle: &Handle, setting: &str, value: &Json) -> Result<(), EngineError> {
    let refused =
        |reason| EngineError::Setting { engine: Some(handle.library.name), setting: setting.to_owned(), reason };
    let Some(tune) = handle.library.table.tune else {
        return Err(refused("unknown (this engine takes none)".to_owned()));
    };
    let (name, value) = texts(setting, value)?;
    // SAFETY: the session is loaded; the texts live as long as the call.
    let tuned = handle.call(|_, session| unsafe { tune(session, name.as_ptr(), value.as_ptr()) });
    tuned.map_err(|error| name_it(error, refused))
}

fn texts(name: &str, value: &Json) -> Result<(CString, CString), EngineError> {
    let text = |text: String| CString::new(text).map_err(|_| EngineError::Failed(format!("`{name:?}` is no name")));
    Ok((text(name.to_owned())?, text(value.to_string())?))
}

/// What a plug-in says of a name or value is about the question or setting, not about an option of the load.
fn name_it(error: EngineError, refused: impl Fn(String) -> EngineError) -> EngineError {
    match error {
        EngineError::Option { reason, .. } => refused(reason),
        error => error,
    }
}
