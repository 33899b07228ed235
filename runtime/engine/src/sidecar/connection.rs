//! The connection to a sidecar: it sends a request, waits for the reply, and describes every failure.
//!
//! Does not depend on a model.

use std::fs::File;
use std::io;

use tempfile::TempDir;

use super::protocol::{ErrorReply, MissingOperator, Reply, Request};
use crate::printable::{printable, printable_line};
use crate::{EngineError, Unavailable};
use flagperf_core::units::Seconds;
use flagperf_host::{CompanionCommand, CompanionOutput, CompanionProcess, Ending};

/// Characters shown of a line that is not a reply.
const EXCERPT_CHARS_MAX: usize = 200;
/// Characters kept of a failure's reason, and of each name in it.
const REASON_CHARS_MAX: usize = 20_000;
const NAME_CHARS_MAX: usize = 200;

/// How long to poll for a reply before sleeping. When the sidecar computes on a device of its own, polling avoids
/// adding the time of a wake-up to each short step; on the processor, the sidecar needs the core.
const BUSY_WAIT_FOR_DEVICE: Seconds = Seconds(5e-3);
const BUSY_WAIT_ON_PROCESSOR: Seconds = Seconds(100e-6);

/// A running sidecar. Dropping the connection sends `bye`.
#[derive(Debug)]
pub(super) struct Connection {
    companion: CompanionProcess,
    /// The command, for messages.
    command: String,
    /// The request, as it is sent.
    line: Vec<u8>,
    busy_wait: Seconds,
    /// Whether the process that was started mapped the first buffer itself.
    maps_buffers: Option<bool>,
    /// The first fatal failure; every later request fails with the same reason.
    failure: Option<String>,
    /// Files for the sidecar; deleted after the sidecar has ended.
    _folder: TempDir,
}

impl Connection {
    /// Starts the process and does not wait for it.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn start(command: &CompanionCommand, folder: TempDir) -> Result<Self, EngineError> {
        let words: Vec<_> = command.argv.iter().map(|word| word.to_string_lossy()).collect();
        let shown_command = words.join(" ");
        let companion = CompanionProcess::start(command).map_err(|error| Unavailable {
            reason: error.to_string(),
            remedy:
                "the program of `command` in vendor.yaml is looked up on PATH; a path with a slash is relative to the \
                     vendor's folder"
                    .to_owned(),
        })?;
        Ok(Connection {
            companion,
            command: shown_command,
            line: Vec::new(),
            busy_wait: BUSY_WAIT_ON_PROCESSOR,
            maps_buffers: None,
            failure: None,
            _folder: folder,
        })
    }

    /// Polls longer for replies from now on, because the sidecar computes on a device and leaves the processor idle.
    pub(super) fn poll_for_device(&mut self) {
        self.busy_wait = BUSY_WAIT_FOR_DEVICE;
    }

    /// Sends a request and waits for a reply other than an error reply, as long as the phase may take.
    ///
    /// # Errors
    /// When the sidecar sends an error reply; when it ends, with its last lines on standard error; when it writes
    /// something that is not a reply.
    pub(super) fn request(&mut self, request: &Request) -> Result<Reply, EngineError> {
        self.request_within(request, None)
    }

    /// Sends a request and waits for a reply other than an error reply, at most for `limit`.
    ///
    /// # Errors
    /// As [`Connection::request`], and when the limit is over.
    pub(super) fn request_within(&mut self, request: &Request, limit: Option<Seconds>) -> Result<Reply, EngineError> {
        self.send(request)?;
        self.read_reply(request, limit)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the sidecar has ended or wrote a line that no request asked for.
    pub(super) fn send(&mut self, request: &Request) -> Result<(), EngineError> {
        if let Some(reason) = &self.failure {
            return Err(EngineError::Failed(reason.clone()));
        }
        // A line that was there before the request cannot be its reply.
        if !self.companion.unread().is_empty() {
            let excerpt = excerpt(self.companion.unread());
            let reason = format!("the sidecar `{}` wrote a line that no request asked for: `{excerpt}`", self.command);
            return Err(self.fail(reason));
        }
        self.line.clear();
        serde_json::to_writer(&mut self.line, request).expect("a request is plain data");
        self.line.push(b'\n');
        match self.companion.write_line(&self.line) {
            Ok(()) => Ok(()),
            // It may have written the cause to standard error before it ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.end_error(request, "input", "")),
            Err(error) => Err(self.reply_error(request, &format!("cannot be written to: {error}"))),
        }
    }

    /// Waits for a reply other than an error reply to the request that was sent last, at most for `limit`.
    ///
    /// # Errors
    /// As [`Connection::request_within`].
    pub(super) fn read_reply(&mut self, request: &Request, limit: Option<Seconds>) -> Result<Reply, EngineError> {
        let problem = match self.companion.read_line(self.busy_wait, limit) {
            Ok(CompanionOutput::Line(line)) => match serde_json::from_slice(line) {
                Ok(Reply::Error(reply)) => return Err(to_engine_error(&reply)),
                Ok(reply) => return Ok(reply),
                Err(error) => describe_invalid_line(line, &error),
            },
            Ok(CompanionOutput::TooLong(line)) => format!("wrote a line longer than 16 MiB: `{}`", excerpt(line)),
            Ok(CompanionOutput::End(rest)) => {
                let rest = excerpt(rest);
                return Err(self.end_error(request, "output", &rest));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                format!("has not replied within {} s", limit.unwrap_or_default().0)
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        Err(self.reply_error(request, &problem))
    }

    /// Returns the error for a reply that is wrong, after which the connection fails.
    pub(super) fn reply_error(&mut self, request: &Request, problem: &str) -> EngineError {
        self.fail(format!("the sidecar `{}`, on request `{}`, {problem}", self.command, request.name()))
    }

    /// Sends a request whose reply is `done`.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub(super) fn request_done(&mut self, request: &Request) -> Result<(), EngineError> {
        match self.request(request)? {
            Reply::Done => Ok(()),
            other => Err(self.unexpected_reply(request, &other)),
        }
    }

    /// Has the sidecar map a file.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub(super) fn lend(&mut self, buffer: u32, file: &File, bytes: u64) -> Result<(), EngineError> {
        let not_shared =
            |error: io::Error| EngineError::Failed(format!("memory cannot be shared with the sidecar: {error}"));
        let path = self.companion.share_file(file).map_err(not_shared)?;
        self.request_done(&Request::Lend { buffer, file: path, bytes })?;
        if self.maps_buffers.is_none() {
            self.maps_buffers = self.companion.maps(file);
        }
        self.companion.unshare_file().map_err(not_shared)
    }

    /// Returns whether the process that was started maps the buffers itself; `None` before the first one.
    pub(super) fn maps_buffers(&self) -> Option<bool> {
        self.maps_buffers
    }

    /// Returns the error for a reply of the wrong kind. Later replies could not be trusted, so the connection fails.
    pub(super) fn unexpected_reply(&mut self, request: &Request, reply: &Reply) -> EngineError {
        let excerpt = printable(&serde_json::to_string(reply).unwrap_or_default(), EXCERPT_CHARS_MAX);
        let (command, name) = (&self.command, request.name());
        let reason = format!("the sidecar `{command}`, on request `{name}`, sent the unexpected reply `{excerpt}`");
        self.fail(reason)
    }

    /// Sends `bye` and waits for the sidecar to end. Returns what went wrong at the end, with the sidecar's last lines on
    /// standard error.
    pub(super) fn close(&mut self) -> Option<String> {
        if self.failure.is_some() {
            return None;
        }
        self.failure = Some(format!("the sidecar `{}` has ended", self.command));
        self.send_bye();
        let problem = match (self.companion.end(), self.companion.was_killed()) {
            (Ending::Exited(0), _) => return None,
            (_, true) => "did not exit after `bye` and was killed".to_owned(),
            (ending, false) => format!("{} after `bye`", ending.predicate()),
        };
        Some(self.with_last_lines(format!("the sidecar `{}` {problem}", self.command)))
    }

    fn send_bye(&mut self) {
        // An error means that the sidecar is ending or has ended.
        let _ = self.companion.write_line(b"{\"ask\":\"bye\"}\n");
    }

    /// Appends the sidecar's last lines on standard error, if there are any.
    fn with_last_lines(&self, mut reason: String) -> String {
        let last = self.companion.last_stderr_lines();
        if !last.is_empty() {
            reason.push_str("; its last lines on standard error:\n  ");
            reason.push_str(&printable(&last.join("\n  "), REASON_CHARS_MAX));
        }
        reason
    }

    /// Ends the process and returns the error that describes how it ended: by itself, or killed because it closed its
    /// standard `pipe` and did not exit. `rest` is an incomplete line.
    fn end_error(&mut self, request: &Request, pipe: &str, rest: &str) -> EngineError {
        let name = request.name();
        let ending = match (self.companion.end(), self.companion.was_killed()) {
            (_, true) => format!("closed its standard {pipe} while handling `{name}`, did not exit, and was killed"),
            (ending, false) => format!("ended while handling `{name}`: {ending}"),
        };
        let mut reason = format!("the sidecar `{}` {ending}", self.command);
        if !rest.is_empty() {
            reason.push_str(&format!("; it left an incomplete line: `{rest}`"));
        }
        let reason = self.with_last_lines(reason);
        self.fail(reason)
    }

    fn fail(&mut self, reason: String) -> EngineError {
        self.failure = Some(reason.clone());
        EngineError::Failed(reason)
    }
}

/// Converts an error reply.
fn to_engine_error(reply: &ErrorReply) -> EngineError {
    match &reply.operator {
        Some(MissingOperator { op, node }) => {
            let [op, node] = [op, node].map(|name| printable_line(name, NAME_CHARS_MAX));
            EngineError::Operator { engine: "sidecar", op, node }
        }
        None if reply.reason.trim().is_empty() => {
            EngineError::Failed("the sidecar reported an error without a reason".to_owned())
        }
        None => EngineError::Failed(printable(&reply.reason, REASON_CHARS_MAX)),
    }
}

/// Describes a line that is not a valid reply: a reply whose fields are malformed, or something else.
fn describe_invalid_line(line: &[u8], error: &serde_json::Error) -> String {
    let excerpt = excerpt(line);
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(reply) if reply.get("answer").is_some() => {
            let error = printable_line(&error.to_string(), EXCERPT_CHARS_MAX);
            format!("sent a malformed reply: {error}: `{excerpt}`")
        }
        _ => {
            format!("wrote a line that is not a reply: `{excerpt}` ({error}); its standard output is for replies only")
        }
    }
}

/// Returns the beginning of what a sidecar wrote.
fn excerpt(line: &[u8]) -> String {
    printable(String::from_utf8_lossy(&line[..line.len().min(4 * EXCERPT_CHARS_MAX)]).trim_end(), EXCERPT_CHARS_MAX)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.send_bye();
        self.companion.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::protocol::PROTOCOL;

    #[test]
    fn a_sidecar_that_does_not_reply_in_time_is_named_with_the_request_and_the_limit() {
        let argv = ["sh", "-c", "read hello; read bye"].map(Into::into).to_vec();
        let command = CompanionCommand { argv, folder: "/".into(), environment: Vec::new() };
        let mut connection = Connection::start(&command, tempfile::tempdir().unwrap()).unwrap();
        let request = Request::Hello { protocol: PROTOCOL, host: String::new() };
        let late = connection.request_within(&request, Some(Seconds(0.1))).unwrap_err().to_string();
        let expected = "the sidecar `sh -c read hello; read bye`, on request `hello`, has not replied within 0.1 s";
        assert_eq!(late, expected);
        assert_eq!(connection.request(&request).unwrap_err().to_string(), expected);
    }
}
