//! The standard streams of a worker: this process writes one line of input, reads lines of output, and copies standard
//! error to a log. Knows nothing about how the worker is started.

use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use super::ProcessError;
use super::lines::LineReader;
use super::stderr::{Destination, StderrReader};
use flagperf_core::measure::{Clock, Nanos};

/// This process's ends of a worker's standard streams.
#[derive(Debug)]
pub struct Streams {
    lines: LineReader,
    input: WorkerInput,
    stderr: StderrReader,
}

/// The input of a worker, which stays open until the conductor closes it.
#[derive(Clone, Debug)]
pub struct WorkerInput(Arc<Mutex<Option<PipeWriter>>>);

impl WorkerInput {
    /// Writes a text. A worker that has ended does not get it.
    pub fn write(&self, text: &str) {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            let _ = pipe.write_all(text.as_bytes()).and_then(|()| pipe.flush());
        }
    }

    /// Closes the input, which makes the worker end itself. A thread that still writes closes it when it is dropped.
    fn close(&self) {
        if let Ok(mut pipe) = self.0.try_lock() {
            *pipe = None;
        }
    }
}

/// The worker's ends of its standard streams.
#[derive(Debug)]
pub struct WorkerStreams {
    /// Standard input, a pipe.
    pub stdin: OwnedFd,
    /// Standard output, a socket: another process can open a pipe by its name in /proc and write to it, but not a socket.
    pub stdout: OwnedFd,
    /// Standard error, a pipe.
    pub stderr: OwnedFd,
}

impl Streams {
    /// Opens the streams of a worker that gets `input`, which stays open, and whose standard error is appended to the file
    /// `stderr`, up to 64 MiB. `clock` stamps its lines as they arrive.
    ///
    /// # Errors
    /// When the file cannot be opened, or this process has too many open files.
    pub fn open(input: &str, stderr: &Path, clock: Arc<dyn Clock>) -> Result<(Self, WorkerStreams), ProcessError> {
        let log = Destination::log(stderr)?;
        let opened = || -> io::Result<_> { Ok((io::pipe()?, UnixStream::pair()?, io::pipe()?)) };
        let ((stdin, writer), (output, stdout), (errors, stderr)) = opened().map_err(ProcessError::Streams)?;
        let text = input.to_owned();
        let worker_input = WorkerInput(Arc::new(Mutex::new(Some(writer))));
        let first = worker_input.clone();
        // A worker that does not read would hold the conductor up.
        thread::spawn(move || first.write(&text));
        let streams = Streams {
            lines: LineReader::read(output, clock),
            input: worker_input,
            stderr: StderrReader::start(errors, log),
        };
        Ok((streams, WorkerStreams { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() }))
    }

    /// Returns the next line with the time of its arrival; waits at most `timeout`.
    ///
    /// # Errors
    /// When no line arrives in this time, or the worker has closed its standard output.
    pub fn next_line(&self, timeout: Duration) -> Result<(Nanos, String), RecvTimeoutError> {
        self.lines.next(timeout)
    }

    /// Returns the input, for further lines.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }

    /// Closes the worker's input, which makes the worker end itself.
    pub fn close_input(&mut self) {
        self.input.close();
    }

    /// Returns the last lines of standard error after the worker has ended. Does not wait for other processes that hold
    /// the pipe open.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        self.stderr.last_lines()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.input.close();
    }
}
