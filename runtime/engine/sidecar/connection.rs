//! The conversation with a sidecar: one question, one answer, and what went wrong in words.
//!
//! Knows no model.

use std::io;

use tempfile::TempDir;

use super::printable::{printable, printable_line};
use super::protocol::{Answer, Ask, Lacking, Told};
use crate::engine::{EngineError, Unavailable};
use crate::host::{Beside, Companion, Ending, Heard};
use crate::units::Seconds;

/// Characters of a line that is no answer which are shown.
const SHOWN: usize = 200;
/// Characters of a reason that are kept, and of the names in it.
const REASON: usize = 20_000;
const NAME: usize = 200;

/// How long an answer is awaited without sleeping. On a device of its own, a step that is shorter would be longer by what
/// it takes to wake up; on the processor, the core is needed.
const AWAKE_BESIDE_DEVICE: Seconds = Seconds(5e-3);
const AWAKE_ON_PROCESSOR: Seconds = Seconds(100e-6);

/// A running sidecar. Dropping it says goodbye.
#[derive(Debug)]
pub(super) struct Connection {
    companion: Companion,
    /// The command, for messages.
    command: String,
    text: Vec<u8>,
    awake: Seconds,
    /// Why nothing more can be asked.
    broken: Option<String>,
    /// What the sidecar reads lies here; gone after it.
    _folder: TempDir,
}

impl Connection {
    /// Starts the process; it has not said anything yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(program: &Beside, folder: TempDir) -> Result<Self, EngineError> {
        let words: Vec<_> = program.argv.iter().map(|word| word.to_string_lossy()).collect();
        let command = words.join(" ");
        let companion = Companion::start(program).map_err(|error| Unavailable {
            reason: error.to_string(),
            remedy: "`command` in vendor.yaml is looked up on PATH; with a slash it counts from the vendor's folder"
                .to_owned(),
        })?;
        Ok(Connection {
            companion,
            command,
            text: Vec::new(),
            awake: AWAKE_ON_PROCESSOR,
            broken: None,
            _folder: folder,
        })
    }

    /// From now on it computes on a device of its own, and leaves the processor to this one.
    pub(super) fn computes_on_device(&mut self) {
        self.awake = AWAKE_BESIDE_DEVICE;
    }

    /// Asks and waits for the answer, which is no error.
    ///
    /// # Errors
    /// What the sidecar says of its failure; that it ended, with its last lines; that it answered nonsense.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, EngineError> {
        if let Some(reason) = &self.broken {
            return Err(EngineError::Failed(reason.clone()));
        }
        // An answer that was there before its question belongs to no question.
        if !self.companion.unread().is_empty() {
            let shown = shown(self.companion.unread());
            let reason = format!("the sidecar `{}` wrote what nobody asked for: `{shown}`", self.command);
            return Err(self.breaks(reason));
        }
        self.text.clear();
        serde_json::to_writer(&mut self.text, ask).expect("a message is plain data");
        self.text.push(b'\n');
        let heard = match self.companion.tell(&self.text) {
            Ok(()) => self.companion.hear(self.awake),
            // It may have said why before it ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(self.ended(ask, "input", "")),
            Err(error) => Err(error),
        };
        let problem = match heard {
            Ok(Heard::Line(line)) => match serde_json::from_slice(line) {
                Ok(Answer::Error(told)) => return Err(refusal(told)),
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let shown = shown(line);
                    format!("wrote what is no answer: `{shown}` ({error}); only answers may be on its standard output")
                }
            },
            Ok(Heard::TooLong(line)) => format!("wrote a line longer than 16 MiB: `{}`", shown(line)),
            Ok(Heard::End(rest)) => {
                let rest = shown(rest);
                return Err(self.ended(ask, "output", &rest));
            }
            Err(error) => format!("cannot be heard: {error}"),
        };
        let reason = format!("the sidecar `{}`, asked to `{}`, {problem}", self.command, ask.name());
        Err(self.breaks(reason))
    }

    /// Asks for something that is answered by `done`.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub(super) fn order(&mut self, ask: &Ask) -> Result<(), EngineError> {
        match self.ask(ask)? {
            Answer::Done => Ok(()),
            other => Err(self.unfit(ask, &other)),
        }
    }

    /// An answer to another question: what follows could not be trusted.
    pub(super) fn unfit(&mut self, ask: &Ask, answer: &Answer) -> EngineError {
        let shown = printable(&serde_json::to_string(answer).unwrap_or_default(), SHOWN);
        let reason = format!("the sidecar `{}`, asked to `{}`, answered `{shown}`", self.command, ask.name());
        self.breaks(reason)
    }

    /// Peak resident memory of the process, in bytes.
    pub(super) fn memory_max(&self) -> Option<u64> {
        self.companion.memory_max()
    }

    /// Says goodbye and waits for the end; gives what was wrong with it, and the last lines.
    pub(super) fn close(&mut self) -> Option<String> {
        if self.broken.is_some() {
            return None;
        }
        self.broken = Some(format!("the sidecar `{}` has ended", self.command));
        self.say_goodbye();
        let ending = match (self.companion.end(), self.companion.was_killed()) {
            (Ending::Exited(0), _) => return None,
            (_, true) => "went on after `bye` and was killed".to_owned(),
            (ending, false) => format!("{ending} after `bye`"),
        };
        Some(self.with_last_lines(format!("the sidecar `{}` {ending}", self.command)))
    }

    fn say_goodbye(&mut self) {
        // It is on its way out, or out already.
        let _ = self.companion.tell(b"{\"ask\":\"bye\"}\n");
    }

    fn with_last_lines(&self, mut reason: String) -> String {
        let last = self.companion.last_stderr_lines();
        if !last.is_empty() {
            reason.push_str("; its last lines on standard error:\n  ");
            reason.push_str(&printable(&last.join("\n  "), REASON));
        }
        reason
    }

    /// How it ended, its `pipe` being closed: by itself, or killed because it went on; `rest` is half a line.
    fn ended(&mut self, ask: &Ask, pipe: &str, rest: &str) -> EngineError {
        let ending = match (self.companion.end(), self.companion.was_killed()) {
            (_, true) => format!("closed its standard {pipe} without ending, and was killed"),
            (ending, false) => format!("ended: {ending}"),
        };
        let mut reason = format!("the sidecar `{}`, asked to `{}`, {ending}", self.command, ask.name());
        if !rest.is_empty() {
            reason.push_str(&format!("; it left half a line: `{rest}`"));
        }
        let reason = self.with_last_lines(reason);
        self.breaks(reason)
    }

    fn breaks(&mut self, reason: String) -> EngineError {
        self.broken = Some(reason.clone());
        EngineError::Failed(reason)
    }
}

/// The error that a sidecar answered.
fn refusal(told: Told) -> EngineError {
    match told.operator {
        Some(Lacking { op, node }) => {
            let [op, node] = [op, node].map(|name| printable_line(&name, NAME));
            EngineError::Operator { engine: "sidecar", op, node }
        }
        None => EngineError::Failed(printable(&told.reason, REASON)),
    }
}

/// The beginning of what it wrote.
fn shown(line: &[u8]) -> String {
    printable(String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]).trim_end(), SHOWN)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.say_goodbye();
        self.companion.end();
    }
}
