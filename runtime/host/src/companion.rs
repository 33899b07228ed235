//! A companion process of the worker, in the worker's process group: it gets a line, replies with a line, and is killed
//! with the group.
//!
//! It cannot delay the worker for longer than the phase may take: the length of its lines and the wait for its last
//! lines are limited, and its end is noticed even if a child of its own keeps the pipes open.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::child::POLL_INTERVAL;
use super::file_holder::{FileHolder, spawn_isolated};
use super::inspection::maps_file;
use super::stderr::{Destination, StderrReader};
use super::{Ending, ProcessError};
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::units::Seconds;

/// Maximum length of a line in bytes; the rest of a longer line is not read. No reply is that long.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Interval, in milliseconds, at which a silent process is checked for its end.
const ALIVE_POLL_MS: u16 = 100;
/// Number of polls for the end of a process that was asked to end, or was killed.
const GRACE_POLLS: u32 = 150;

/// The program of a companion process.
#[derive(Clone, Debug)]
pub struct CompanionCommand {
    /// The program and its arguments; no shell is involved. A program with a slash is relative to `folder`.
    pub argv: Vec<OsString>,
    /// Working directory of the process.
    pub folder: PathBuf,
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(&'static str, OsString)>,
}

/// Whether companions are started in domains of their own.
static ISOLATES: AtomicBool = AtomicBool::new(false);

/// From now on, companions that this process starts cannot reach it. This process must be this program and not a test, and
/// it must have restricted itself by [`super::protect_worker`].
pub fn isolate_companions() {
    ISOLATES.store(true, Ordering::Relaxed);
}

/// A running companion process. Dropping it closes its input and, if it does not end, kills it.
///
/// Its standard error is copied to that of this process.
#[derive(Debug)]
pub struct CompanionProcess {
    child: Child,
    /// Shares files with a companion that cannot reach this process.
    holder: Option<FileHolder>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    stderr: StderrReader,
    ended: Option<Ending>,
    was_killed: bool,
}

/// The next output of a companion process.
#[derive(Debug, PartialEq, Eq)]
pub enum CompanionOutput<'a> {
    /// A line, without its end.
    Line(&'a [u8]),
    /// The beginning of a line longer than 16 MiB.
    TooLong(&'a [u8]),
    /// The output is closed or the process has ended. Contains the unfinished last line.
    End(&'a [u8]),
}

impl CompanionProcess {
    /// Starts a program.
    ///
    /// # Errors
    /// Fails when the program cannot be started.
    pub fn start(program: &CompanionCommand) -> Result<Self, ProcessError> {
        let (name, arguments) = program.argv.split_first().ok_or(ProcessError::Empty)?;
        let failed = |source| ProcessError::Start { program: name.to_string_lossy().into_owned(), source };
        let has_slash = name.to_string_lossy().contains('/');
        let path = if has_slash { program.folder.join(name) } else { Path::new(name).to_owned() };
        if !program.folder.is_dir() {
            let reason = format!("the folder `{}` does not exist", program.folder.display());
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, reason)));
        }
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut command = Command::new(path);
        command.args(arguments).current_dir(&program.folder);
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        let (mut child, holder) = match ISOLATES.load(Ordering::Relaxed) {
            true => spawn_isolated(&mut command).map(|(child, holder)| (child, Some(holder))),
            false => {
                let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                piped.spawn().map(|child| (child, None))
            }
        }
        .map_err(failed)?;
        let output = child.stdout.take().expect("standard output is piped");
        let errors = child.stderr.take().expect("standard error is piped");
        Ok(CompanionProcess {
            input: child.stdin.take(),
            child,
            holder,
            output: BufReader::new(output),
            line: Vec::new(),
            stderr: StderrReader::start(errors, Destination::OwnStderr),
            ended: None,
            was_killed: false,
        })
    }

    /// Returns a path by which the process can open `file`, until [`CompanionProcess::unshare_file`] is called.
    ///
    /// # Errors
    /// When the process that holds files for the companion has ended.
    pub fn share_file(&self, file: &File) -> io::Result<PathBuf> {
        match &self.holder {
            Some(holder) => holder.hold(file),
            None => Ok(PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))),
        }
    }

    /// Ends the sharing of a file, which the process has opened.
    ///
    /// # Errors
    /// As [`CompanionProcess::share_file`].
    pub fn unshare_file(&self) -> io::Result<()> {
        self.holder.as_ref().map_or(Ok(()), FileHolder::release)
    }

    /// Returns whether the process that was started maps `file` itself, and not another one that it started; `None` if that cannot be
    /// read.
    pub fn maps(&self, file: &File) -> Option<bool> {
        maps_file(self.child.id(), file.metadata().ok()?.ino())
    }

    /// Writes a line; `line` includes its end.
    ///
    /// # Errors
    /// Fails when the process no longer accepts input.
    pub fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line)
    }

    /// Returns the next line of output; waits until there is one, the process has ended, or `limit` is over.
    ///
    /// Polls for the first `busy_wait` seconds before sleeping: a sleeping core takes tens of microseconds to wake.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::TimedOut`] after `limit`, and when the pipe cannot be read.
    pub fn read_line(&mut self, busy_wait: Seconds, limit: Option<Seconds>) -> io::Result<CompanionOutput<'_>> {
        self.line.clear();
        let clock = MonotonicClock::start();
        let begin = clock.now();
        let is_late = || limit.is_some_and(|limit| clock.now().since(begin) > limit);
        let mut is_readable = !self.unread().is_empty() || self.poll_output(busy_wait);
        loop {
            if !is_readable && !self.wait_for_output(is_late)? {
                return Ok(CompanionOutput::End(&self.line));
            }
            let piece = match self.output.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            if piece.is_empty() {
                return Ok(CompanionOutput::End(&self.line));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            self.line.extend_from_slice(&piece[..taken]);
            self.output.consume(taken);
            if end.is_some() {
                return Ok(CompanionOutput::Line(self.line.trim_ascii_end()));
            }
            if self.line.len() >= LINE_BYTES_MAX {
                return Ok(CompanionOutput::TooLong(&self.line));
            }
            is_readable = false;
        }
    }

    /// Returns the output that arrived after the last line read.
    pub fn unread(&self) -> &[u8] {
        self.output.buffer()
    }

    /// Polls for output until there is some or `busy_wait` is over, and returns whether there is some. Yields the core
    /// to other threads.
    fn poll_output(&self, busy_wait: Seconds) -> bool {
        let clock = MonotonicClock::start();
        let begin = clock.now();
        let mut pipe = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut pipe, PollTimeout::ZERO) {
                Ok(1..) => return true,
                Ok(_) if clock.now().since(begin) < busy_wait => thread::yield_now(),
                _ => return false,
            }
        }
    }

    /// Sleeps until there is output; returns `false` when there is none and the process has ended. The pipe alone does
    /// not show the end, because a child of the process may keep it open.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::TimedOut`] as soon as `is_late` returns true.
    fn wait_for_output(&mut self, is_late: impl Fn() -> bool) -> io::Result<bool> {
        loop {
            if is_late() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let is_gone = self.has_ended();
            let mut pipe = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
            let timeout = if is_gone { PollTimeout::ZERO } else { PollTimeout::from(ALIVE_POLL_MS) };
            match poll(&mut pipe, timeout) {
                Ok(1..) => return Ok(true),
                Ok(_) if is_gone => return Ok(false),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether the process has ended.
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten().map(Ending::from);
        }
        self.ended.is_some()
    }

    /// Closes the input, which asks the process to end, and kills the process if it does not. Returns how it ended.
    pub fn end(&mut self) -> Ending {
        drop((self.input.take(), self.holder.take()));
        if !self.wait_for_end() {
            self.was_killed = true;
            // Nobody else waited for the process, so the number is still its own.
            let _ = self.child.kill();
            // A process stuck in the kernel ends later; whoever kills this process's group waits for it.
            self.wait_for_end();
        }
        *self.ended.get_or_insert(Ending::Killed(9))
    }

    /// Returns whether [`CompanionProcess::end`] had to kill the process.
    pub fn was_killed(&self) -> bool {
        self.was_killed
    }

    fn wait_for_end(&mut self) -> bool {
        for _ in 0..GRACE_POLLS {
            if self.has_ended() {
                return true;
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Returns the last lines of standard error after the process has ended.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        self.stderr.last_lines()
    }
}

impl Drop for CompanionProcess {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
