//! What the program prints: results on standard output, messages on standard error.

use std::io::{self, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::run::Outcome;
use crate::text;

/// Prints a result; the exit code is `code`, or says that the result could not be written.
pub(super) fn print(text: &str, code: u8) -> ExitCode {
    match write(text) {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: {}", unwritten(&error)));
            ExitCode::from(Outcome::UNWRITTEN)
        }
    }
}

/// Writes a result to standard output, to its end.
///
/// # Errors
/// When it cannot be written, or nobody reads it to its end.
pub(super) fn write(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Why standard output has no result.
pub(super) fn unwritten(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

/// Writes a message to standard error, control characters as escapes. That nobody reads it stops nothing.
pub(super) fn say(message: &str) {
    let _ = writeln!(stderr(), "{}", text::lines(message));
}

/// Milliseconds that a line of the display waits for a reader.
const PATIENCE: u16 = 200;
/// Bytes that a pipe takes without waiting when it says that it is ready (PIPE_BUF of Linux).
const PIECE_BYTES: usize = 4096;

/// Standard error for the display. Where nobody reads (a terminal that is stopped, a pipe that is not emptied), what
/// cannot be written in a moment is left out, so that a run is never held up by who watches it.
#[derive(Debug, Default)]
pub(super) struct Display {
    is_stuck: bool,
}

impl Write for Display {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stderr = stderr();
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let patience = if self.is_stuck { PollTimeout::ZERO } else { PollTimeout::from(PATIENCE) };
        self.is_stuck = poll(&mut ready, patience)? == 0;
        if self.is_stuck {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stderr.lock().write(&bytes[..bytes.len().min(PIECE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
