//! Output of the program: results on standard output, messages on standard error.

use std::io::{self, Read as _, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use console::Term;

use super::closed_stdout::stdout_was_closed;
use flagperf_core::exit_code;
use flagperf_core::text;
use flagperf_report::wrap;
use flagperf_verify::is_folder_of_result;

/// A kind of file that the program writes where the user says.
pub(super) struct FileKind {
    /// Its name with an article.
    name: &'static str,
    /// How every such file begins.
    beginning: &'static [u8],
}

pub(super) const PAGE: FileKind = FileKind { name: "a page", beginning: b"<!doctype html>" };
pub(super) const JUNIT: FileKind = FileKind { name: "a file of JUnit", beginning: b"<?xml" };
pub(super) const TRACE: FileKind = FileKind { name: "a trace", beginning: b"{\"displayTimeUnit\":" };

/// Prints a listing; returns the exit code `code`, or the one for unwritten results when printing fails.
pub(super) fn print_result(text: &str, code: u8) -> ExitCode {
    match write_listing(text) {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            print_message(&format!("error: {}", stdout_error(&error)));
            ExitCode::from(exit_code::UNWRITTEN)
        }
    }
}

/// Writes a result to standard output and flushes it.
///
/// # Errors
/// Fails when the result cannot be written completely, for example because the reader closed the pipe, and when standard
/// output was closed from the start.
pub(super) fn write_result(text: &str) -> io::Result<()> {
    if stdout_was_closed() {
        return Err(io::Error::other("it was closed before the program started"));
    }
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a part of a listing, as [`write_result`] does; on a terminal, long lines of text that is not JSON are wrapped between words.
/// A reader that has closed the pipe, such as `head`, has read all that it wanted, which is no error.
///
/// # Errors
/// Fails when the text cannot be written for any other reason.
pub(super) fn write_listing(text: &str) -> io::Result<()> {
    let columns = Term::stdout().is_term().then(|| Term::stdout().size_checked()).flatten();
    let wrapped =
        columns.filter(|_| !text.starts_with(['{', '['])).map(|(_, columns)| wrap(text, usize::from(columns)));
    match write_result(wrapped.as_deref().unwrap_or(text)) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Returns a number with a word, which gets an `s` unless the number is 1: `2 files`.
pub(super) fn counted(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// Describes an error of standard output.
pub(super) fn stdout_error(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

/// Writes a message to standard error, with control characters escaped; on a terminal, long lines are wrapped between
/// words. An error is ignored: nobody may be reading.
pub(super) fn print_message(message: &str) {
    let message = text::escape_lines(message);
    let columns = Term::stderr().is_term().then(|| Term::stderr().size_checked()).flatten();
    let _ = match columns {
        Some((_, columns)) => writeln!(stderr(), "{}", wrap(&message, usize::from(columns))),
        None => writeln!(stderr(), "{message}"),
    };
}

/// Prints the message about a mistake of the user, and returns its exit code.
pub(super) fn print_mistake(message: &str) -> ExitCode {
    print_message(&format!("error: {message}"));
    ExitCode::from(exit_code::MISTAKE)
}

/// Writes a text to a file that the user named. A link is followed, and a device or a pipe stays what it is.
///
/// # Errors
/// When the file cannot be written; the message has its path.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    // A link may be one of the descriptors of this process, such as /dev/stdout: the file that it leads to is not replaced by another one.
    let is_link = path.symlink_metadata().is_ok_and(|known| known.is_symlink());
    let opened = match is_link || path.metadata().is_ok_and(|known| !known.is_file()) {
        true => std::fs::OpenOptions::new().write(true).create(is_link).truncate(true).open(path),
        false => flagperf_core::file::create(path),
    };
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

/// Checks that a file that the user named is not in the folder of a result.
///
/// # Errors
/// When it is; the message has its path.
pub(super) fn check_outside(file: &Path, folder: &Path) -> Result<(), String> {
    match target(file).zip(folder.canonicalize().ok()).is_some_and(|(file, folder)| file.starts_with(folder)) {
        true => Err(format!("`{}` is in the folder of the result, whose files never change", file.display())),
        false => Ok(()),
    }
}

/// Returns the path of a file without links, although it may not exist yet.
fn target(file: &Path) -> Option<PathBuf> {
    let parent = file.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let new = || Some(parent?.canonicalize().ok()?.join(file.file_name()?));
    file.canonicalize().ok().or_else(new)
}

/// Returns the folder of the result in which a file is.
fn result_around(file: &Path) -> Option<PathBuf> {
    let target = target(file)?;
    target.ancestors().skip(1).find(|folder| is_folder_of_result(folder)).map(Path::to_owned)
}

/// Checks that a file that the user named can be written, before what it shows is measured. One that exists must be of the same kind or
/// empty, because it is replaced.
///
/// # Errors
/// When the file is something else, is in the folder of a result, or cannot be written; the message has its path.
pub(super) fn check_replaceable(path: &Path, FileKind { name, beginning }: &FileKind) -> Result<(), String> {
    if let Some(result) = result_around(path) {
        return check_outside(path, &result);
    }
    let refused = |reason: &str| Err(format!("`{}` {reason}: it is not overwritten", path.display()));
    let shown = |error: io::Error| format!("cannot write `{}`: {error}", path.display());
    match path.metadata() {
        Ok(known) if !known.is_file() => refused("exists and is not a file"),
        Ok(_) => {
            let mut found = Vec::new();
            let opened = flagperf_core::regular_file::open_regular(path).map_err(shown)?;
            opened.take(beginning.len() as u64).read_to_end(&mut found).map_err(shown)?;
            match found.is_empty() || found == *beginning {
                true => std::fs::OpenOptions::new().append(true).open(path).map(drop).map_err(shown),
                false => refused(&format!("exists and is not {name}")),
            }
        }
        // A command that is refused afterwards, or interrupted, leaves no empty file.
        Err(_) => std::fs::File::create_new(path).and_then(|_| std::fs::remove_file(path)).map_err(shown),
    }
}

/// Writes a message to standard error at once, whatever another thread is writing. The message begins on a line of its own.
pub(super) fn print_now(message: &str) {
    let _ = nix::unistd::write(stderr(), format!("\n{}\n", text::escape_lines(message)).as_bytes());
}

/// Time in milliseconds that a line of the display waits for a reader.
const PATIENCE: u16 = 200;
/// Number of bytes that a ready pipe accepts without blocking (PIPE_BUF on Linux).
const PIECE_BYTES: usize = 4096;

/// Standard error for the live display. When nobody reads (a stopped terminal, a full pipe), text that cannot be
/// written within 200 ms is dropped, so that a slow reader never delays a run.
#[derive(Debug, Default)]
pub(super) struct StderrDisplay {
    is_stuck: bool,
}

impl Write for StderrDisplay {
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
