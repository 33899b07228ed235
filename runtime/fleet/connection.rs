//! A connection to an agent: the process of a launcher, from the bootstrap to its end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::agent::wall_time;
use super::bootstrap::{BootstrapError, OwnProgram};
use super::frame::{PAYLOAD_BYTES_MAX, read_frame, write_frame};
use super::launcher::Launcher;
use super::protocol::{HostFacts, Reply, Request};
use super::tree::Tree;
use crate::config::Site;
use crate::host::DuplexProcess;
use crate::units::Seconds;

/// Replies that were read and not yet taken.
const REPLIES_WAITING: usize = 64;

/// What arrives from an agent.
pub(super) type Incoming = Result<(Reply, Vec<u8>), String>;

/// An open connection. Dropping it ends the launcher's process.
pub(super) struct Connection {
    process: DuplexProcess,
    input: ChildStdin,
    pub(super) replies: Receiver<Incoming>,
    pub(super) host: HostFacts,
}

/// What a connection needs.
#[derive(Clone, Copy)]
pub(super) struct ConnectionSettings<'a> {
    pub(super) launcher: &'static dyn Launcher,
    pub(super) site: &'a Site,
    pub(super) program: &'a OwnProgram,
    pub(super) tree: &'a Tree,
    /// File for what the launcher's programs print.
    pub(super) log: &'a Path,
    /// Longest time for which the host may be silent until the agent runs.
    pub(super) silence_max: Seconds,
}

impl Connection {
    /// Starts an agent on `host` and sends it what it lacks. Blocks until the host is silent for too long.
    ///
    /// # Errors
    /// With the reason, and the last line of the launcher's program.
    pub(super) fn open(host: &str, settings: ConnectionSettings<'_>) -> Result<Self, String> {
        let ConnectionSettings { launcher, site, program, tree, log, silence_max } = settings;
        let argv = launcher.command(host, &program.script(), site);
        let (mut process, mut input, output) = DuplexProcess::start(&argv, log).map_err(|error| error.to_string())?;
        let (sender, signs) = bounded(1);
        let kill = process.killer();
        let mut output = BufReader::new(Watched { inner: output, signs: sender.clone() });
        let (opened, was_silent) = thread::scope(|scope| {
            let watch = scope.spawn(move || is_silent_for(silence_max, &signs).then(kill).is_some());
            let mut input = Watched { inner: &mut input, signs: sender };
            let opened = greet(&mut input, &mut output, program).and_then(|facts| {
                let clock_offset_s = offer(&mut input, &mut output, tree)?;
                Ok(HostFacts { clock_offset_s, ..facts })
            });
            // The senders are gone, so the watch ends.
            output.get_mut().signs = bounded(0).0;
            drop(input);
            (opened, watch.join().unwrap_or_default())
        });
        if was_silent {
            drop((input, output));
            let last = last_line(&mut process).map(|line| format!("; `{}` printed: {line}", launcher.name()));
            return Err(format!("no answer for {:.0} s{}", silence_max.0, last.unwrap_or_default()));
        }
        match opened {
            Ok(host) => Ok(Connection { process, input, replies: read_replies(output), host }),
            Err(error) => {
                drop((input, output));
                Err(describe_failure(&mut process, &error))
            }
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        write_frame(&mut self.input, request, &[])
    }

    /// Lets the agent answer what it was asked, and end.
    pub(super) fn close(mut self) {
        drop(self.input);
        // Replies that nobody takes would hold it up.
        while self.replies.recv().is_ok() {}
        self.process.ending();
    }

    /// Returns why the connection ended, after its replies have ended.
    pub(super) fn why_ended(mut self) -> String {
        drop(self.input);
        describe_end(&mut self.process)
    }
}

/// Input or output of a launcher's program of which each use is a sign of life.
struct Watched<T> {
    inner: T,
    signs: Sender<()>,
}

impl<T> Watched<T> {
    fn sign(&self) {
        // One that was not taken yet is enough.
        let _ = self.signs.try_send(());
    }
}

impl<T: Read> Read for Watched<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        self.sign();
        read
    }
}

impl<T: Write> Write for Watched<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.sign();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Waits for signs of life until there was none for `limit`, or until nobody can send one.
fn is_silent_for(limit: Seconds, signs: &Receiver<()>) -> bool {
    let limit = Duration::from_secs_f64(limit.0.max(0.0));
    loop {
        match signs.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Returns the reason of a failure; when the connection ended, what the launcher's program printed last.
fn describe_failure(process: &mut DuplexProcess, error: &BootstrapError) -> String {
    match error {
        BootstrapError::Connection(error)
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) =>
        {
            describe_end(process)
        }
        error => error.to_string(),
    }
}

/// Returns what the program of a connection that has ended printed last, or how it ended.
fn describe_end(process: &mut DuplexProcess) -> String {
    // Its last line comes after its output has ended.
    let ending = process.ending();
    let how = || ending.map_or_else(String::new, |ending| format!(": the program of its launcher {ending}"));
    last_line(process).unwrap_or_else(|| format!("the connection ended{}", how()))
}

/// Kills a process and returns the last line that it printed to standard error.
fn last_line(process: &mut DuplexProcess) -> Option<String> {
    process.kill();
    process.last_stderr_lines().last().map(|line| line.trim().to_owned())
}

fn greet(input: &mut impl Write, output: &mut impl BufRead, program: &OwnProgram) -> Result<HostFacts, BootstrapError> {
    program.install(input, output)?;
    match next_reply(output)? {
        Reply::Present { host } => Ok(host),
        other => Err(unexpected(&other)),
    }
}

fn next_reply(output: &mut impl BufRead) -> Result<Reply, BootstrapError> {
    match read_frame::<Reply>(output)? {
        Some((Reply::Failed { reason, .. }, _)) => Err(io::Error::other(reason).into()),
        Some((reply, _)) => Ok(reply),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn unexpected(reply: &Reply) -> BootstrapError {
    let line = serde_json::to_string(reply).unwrap_or_default();
    BootstrapError::Unexpected { line: line.chars().take(200).collect() }
}

/// Sends the files of the checkout that the host lacks. Returns what the host's wall clock is ahead of the one here, as of
/// the middle of the time that the answer took.
fn offer(input: &mut impl Write, output: &mut impl BufRead, tree: &Tree) -> Result<Seconds, BootstrapError> {
    let asked = wall_time();
    write_frame(input, &Request::Offer { files: tree.files.clone() }, &[])?;
    let (sha256, time_s) = match next_reply(output)? {
        Reply::Missing { sha256, time_s } => (sha256, time_s),
        other => return Err(unexpected(&other)),
    };
    let offset = Seconds(time_s.0 - (asked.0 + wall_time().0) / 2.0);
    for sha256 in sha256 {
        let Some(source) = tree.sources.get(&sha256) else { continue };
        let mut file = std::fs::File::open(source)?;
        let mut part = vec![0; PAYLOAD_BYTES_MAX];
        let request = Request::Content { sha256 };
        loop {
            let read = file.read(&mut part)?;
            write_frame(input, &request, &part[..read])?;
            if read == 0 {
                break;
            }
        }
    }
    // What could not be stored is reported when a session starts.
    input.flush()?;
    Ok(offset)
}

fn read_replies(mut output: impl BufRead + Send + 'static) -> Receiver<Incoming> {
    let (sender, replies) = bounded(REPLIES_WAITING);
    thread::spawn(move || {
        loop {
            let incoming = match read_frame(&mut output) {
                Ok(Some(frame)) => Ok(frame),
                Ok(None) => return,
                Err(error) => Err(error.to_string()),
            };
            let is_error = incoming.is_err();
            if sender.send(incoming).is_err() || is_error {
                return;
            }
        }
    });
    replies
}
