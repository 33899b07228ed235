//! Lends the memory of sessions to the loader.

use flagperf_engine::{EngineError, HeapMemory, LentMemory};
use flagperf_script::Sessions;

/// Lends memory for a field: that of an input of a session, or else memory on the heap.
///
/// # Errors
/// When the allocation fails.
pub fn lend_field(
    sessions: &Sessions,
    field: &str,
    position: Option<usize>,
    bytes: usize,
) -> Result<Box<dyn LentMemory>, EngineError> {
    lend_input(sessions, field, position, bytes)
        .unwrap_or_else(|| HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>))
}

/// Lends memory for an input field, from the session that has an input of the field's name, or from the only session by
/// position. Returns `None` when no session has such an input.
fn lend_input(
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
