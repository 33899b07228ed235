//! Lends the memory of sessions to the loader.

use flagperf_engine::{EngineError, LentMemory};
use flagperf_script::Sessions;

/// Lends memory for an input field, from the session that has an input of the field's name, or from the only session by
/// position. Returns `None` when no session has such an input.
pub fn lend_input(
    sessions: &Sessions,
    field: &str,
    position: Option<usize>,
    bytes: usize,
) -> Option<Result<Box<dyn LentMemory>, EngineError>> {
    let position = position?;
    for session in sessions.values() {
        let mut session = session.lock().ok()?;
        if let Some(index) = session.inputs().iter().position(|input| input.name == field) {
            return Some(session.lend(index, bytes));
        }
    }
    let mut only = if sessions.len() == 1 { sessions.values().next()?.lock().ok()? } else { return None };
    (position < only.inputs().len()).then(|| only.lend(position, bytes))
}
