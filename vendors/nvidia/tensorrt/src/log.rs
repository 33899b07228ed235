//! What TensorRT says: warnings and errors go to standard error, errors are kept for the message of what failed.

use std::sync::{Mutex, OnceLock, PoisonError};

use flagperf_plugin::Error;
use trtx::{LogHandler, Logger, Severity};

/// More errors than that are those of the first one.
const KEPT_MAX: usize = 32;

static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes every line that TensorRT says, on any thread.
struct Handler;

impl LogHandler for Handler {
    fn log(&self, severity: Severity, message: &str) {
        if severity > Severity::Warning {
            return;
        }
        eprintln!("{severity:?}: {message}");
        if severity < Severity::Warning {
            let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
            if errors.len() < KEPT_MAX {
                errors.push(message.to_owned());
            }
        }
    }
}

/// The logger of everything here: TensorRT has one a process.
///
/// # Errors
/// When it cannot be made.
pub fn logger() -> Result<&'static Logger, Error> {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    if LOGGER.get().is_none() {
        // A second one, of another thread, is dropped again.
        let _ = LOGGER.set(Logger::new(Handler).map_err(Error::failed)?);
    }
    LOGGER.get().ok_or_else(|| Error::failed("TensorRT's logger cannot be made"))
}

/// Does `work`; when it fails, the error is what TensorRT said meanwhile.
///
/// # Errors
/// Those of `work`, in TensorRT's words.
pub fn explained<T>(what: &str, work: impl FnOnce() -> trtx::Result<T>) -> Result<T, Error> {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    work().map_err(|error| {
        let said = std::mem::take(&mut *ERRORS.lock().unwrap_or_else(PoisonError::into_inner));
        let error = error.to_string();
        read(what, if said.is_empty() { std::slice::from_ref(&error) } else { &said })
    })
}

/// An error of its own where the words are those of one; else what failed, with the words.
fn read(what: &str, said: &[String]) -> Error {
    if let Some(bytes) = said.iter().find_map(|line| memory_asked_for(line)) {
        return Error::OutOfMemory { bytes };
    }
    if let Some((node, op)) = said.iter().find_map(|line| unknown_operator(line)) {
        return Error::UnknownOperator { op, node };
    }
    let said: Vec<&str> = said.iter().flat_map(|said| said.lines()).map(str::trim).filter(|l| !l.is_empty()).collect();
    Error::Failed(format!("{what}: {}", said.join(" ")))
}

/// The bytes that could not be had, when that is what a line is about.
fn memory_asked_for(line: &str) -> Option<u64> {
    let rest = line.split("amount of GPU memory (").nth(1)?;
    rest.split_once(" bytes")?.0.parse().ok()
}

/// Node and operator, when a line is about an operator that the parser lacks.
fn unknown_operator(line: &str) -> Option<(String, String)> {
    if !line.contains("Plugin not found") && !line.contains("UNSUPPORTED_NODE") {
        return None;
    }
    let (node, rest) = line.split_once("with name: ")?.1.split_once(" and operator: ")?;
    let op = rest.split([' ', '(']).next()?;
    Some((node.to_owned(), op.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_says_how_much_was_asked_for() {
        let said = "Requested amount of GPU memory (57662592 bytes) could not be allocated. There may not be enough free \
                    memory for allocation to succeed.";
        assert_eq!(read("it fails", &[said.to_owned()]), Error::OutOfMemory { bytes: 57_662_592 });
    }

    #[test]
    fn other_words_are_kept_on_one_line() {
        let said = ["first\n  second\n".to_owned(), "third".to_owned()];
        assert_eq!(read("it fails", &said).to_string(), "it fails: first second third");
    }
}
