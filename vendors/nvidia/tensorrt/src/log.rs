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
pub fn logger() -> trtx::Result<&'static Logger> {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    if LOGGER.get().is_none() {
        // A second one, of another thread, is dropped again.
        let _ = LOGGER.set(Logger::new(Handler)?);
    }
    LOGGER.get().ok_or_else(|| trtx::Error::Runtime("the logger cannot be made".to_owned()))
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
    if let Some((node, op)) = unknown_operator(&said.join("\n")) {
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

/// Node and operator, when the words are about an operator that the parser lacks: it looks for one last in plug-ins.
///
/// `While parsing node number 7 [Gelu -> "y"]:`, then `Node name: mlp.act`, then what the matter is.
fn unknown_operator(said: &str) -> Option<(String, String)> {
    if !said.contains("Plugin not found") {
        return None;
    }
    let (op, rest) = said.split_once("While parsing node number ")?.1.split_once('[')?.1.split_once(" -> ")?;
    let output = rest.split(['"', ']']).find(|part| !part.is_empty());
    let node = rest.split_once("Node name: ").map(|(_, name)| name.lines().next().unwrap_or_default().trim());
    Some((node.filter(|name| !name.is_empty()).or(output)?.to_owned(), op.to_owned()))
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
    fn an_operator_that_is_lacking_is_named_with_its_node_or_output() {
        let lines = |name: &str| {
            let lines = [
                "ModelImporter.cpp:140: While parsing node number 0 [Wobble -> \"y\"]:",
                &format!("ModelImporter.cpp:142: --- Begin node ---\nNode name: {name}\n"),
                "ModelImporter.cpp:143: --- End node ---",
                "ERROR: onnxOpCheckers.cpp:998 In function checkFallbackPluginImporter:\n[6] creator && \"Plugin not found\"",
            ];
            read("it fails", &lines.map(str::to_owned))
        };
        let unknown = |node: &str| Error::UnknownOperator { op: "Wobble".to_owned(), node: node.to_owned() };
        assert_eq!((lines("fc"), lines("")), (unknown("fc"), unknown("y")));
        let other = "While parsing node number 0 [Add -> \"y\"]: shapes differ".to_owned();
        assert!(matches!(read("it fails", &[other]), Error::Failed(_)));
    }

    #[test]
    fn other_words_are_kept_on_one_line() {
        let said = ["first\n  second\n".to_owned(), "third".to_owned()];
        assert_eq!(read("it fails", &said).to_string(), "it fails: first second third");
    }
}
