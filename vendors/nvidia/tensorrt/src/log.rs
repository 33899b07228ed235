//! TensorRT's log: warnings and errors are printed to standard error, and errors are kept for the message of the failed
//! call.

use std::sync::{Mutex, OnceLock, PoisonError};

use flagperf_plugin::Error;
use trtx::{LogHandler, Logger, Severity};

/// The number of errors kept for one call; further ones are consequences of the first.
const ERRORS_MAX: usize = 32;

static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Receives TensorRT's log messages from any thread.
struct Handler;

impl LogHandler for Handler {
    fn log(&self, severity: Severity, message: &str) {
        if severity > Severity::Warning {
            return;
        }
        eprintln!("{severity:?}: {message}");
        if severity < Severity::Warning {
            let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
            if errors.len() < ERRORS_MAX {
                errors.push(message.to_owned());
            }
        }
    }
}

/// Returns the process's only logger.
///
/// # Errors
/// When the logger cannot be created.
pub fn logger() -> trtx::Result<&'static Logger> {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    if LOGGER.get().is_none() {
        // A second logger, created by another thread at the same time, is dropped again.
        let _ = LOGGER.set(Logger::new(Handler)?);
    }
    LOGGER.get().ok_or_else(|| trtx::Error::Runtime("the logger cannot be created".to_owned()))
}

/// Runs `work`; `what` describes its failure.
///
/// # Errors
/// Those of `work`, with the messages that TensorRT logged during the call.
pub fn with_logged_errors<T>(what: &str, work: impl FnOnce() -> trtx::Result<T>) -> Result<T, Error> {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    work().map_err(|error| {
        let messages = std::mem::take(&mut *ERRORS.lock().unwrap_or_else(PoisonError::into_inner));
        let error = error.to_string();
        classify_error(what, if messages.is_empty() { std::slice::from_ref(&error) } else { &messages })
    })
}

/// Recognizes failed allocations and unsupported operators in the messages; any other error contains the messages.
fn classify_error(what: &str, messages: &[String]) -> Error {
    if let Some(bytes) = messages.iter().find_map(|line| requested_bytes(line)) {
        return Error::OutOfMemory { bytes };
    }
    if let Some((node, op)) = unknown_operator(&messages.join("\n")) {
        return Error::UnknownOperator { op, node };
    }
    let lines = messages.iter().flat_map(|message| message.lines()).map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    Error::Failed(format!("{what}: {}", lines.join(" ")))
}

/// Returns the size of the failed allocation that a message reports.
fn requested_bytes(line: &str) -> Option<u64> {
    let rest = line.split("amount of GPU memory (").nth(1)?;
    rest.split_once(" bytes")?.0.parse().ok()
}

/// Returns the node and the operator when the message reports an unsupported operator. The parser looks for plug-ins
/// last, so the message then contains "Plugin not found".
///
/// The message contains `While parsing node number 7 [Gelu -> "y"]:`, then `Node name: mlp.act`, then the error.
fn unknown_operator(message: &str) -> Option<(String, String)> {
    if !message.contains("Plugin not found") {
        return None;
    }
    let (op, rest) = message.split_once("While parsing node number ")?.1.split_once('[')?.1.split_once(" -> ")?;
    let output = rest.split(['"', ']']).find(|part| !part.is_empty());
    let node = rest.split_once("Node name: ").map(|(_, name)| name.lines().next().unwrap_or_default().trim());
    Some((node.filter(|name| !name.is_empty()).or(output)?.to_owned(), op.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_errors_contain_the_requested_size() {
        let message = "Requested amount of GPU memory (57662592 bytes) could not be allocated. There may not be enough \
                       free memory for allocation to succeed.";
        let error = classify_error("it fails", &[message.to_owned()]);
        assert_eq!(error, Error::OutOfMemory { bytes: 57_662_592 });
    }

    #[test]
    fn an_unsupported_operator_is_reported_with_its_node_or_output() {
        let lines = |name: &str| {
            let lines = [
                "ModelImporter.cpp:140: While parsing node number 0 [Wobble -> \"y\"]:",
                &format!("ModelImporter.cpp:142: --- Begin node ---\nNode name: {name}\n"),
                "ModelImporter.cpp:143: --- End node ---",
                "ERROR: onnxOpCheckers.cpp:998 In function checkFallbackPluginImporter:\n[6] creator && \"Plugin not found\"",
            ];
            classify_error("it fails", &lines.map(str::to_owned))
        };
        let unknown = |node: &str| Error::UnknownOperator { op: "Wobble".to_owned(), node: node.to_owned() };
        assert_eq!((lines("fc"), lines("")), (unknown("fc"), unknown("y")));
        let other = "While parsing node number 0 [Add -> \"y\"]: shapes differ".to_owned();
        assert!(matches!(classify_error("it fails", &[other]), Error::Failed(_)));
    }

    #[test]
    fn other_messages_are_joined_into_one_line() {
        let messages = ["first\n  second\n".to_owned(), "third".to_owned()];
        assert_eq!(classify_error("it fails", &messages).to_string(), "it fails: first second third");
    }
}
