//! A connection to an agent: the process of a launcher, from the bootstrap to its end.

use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::thread;

use crossbeam_channel::{Receiver, bounded};

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
}

impl Connection {
    /// Starts an agent on `host` and sends it what it lacks. Blocks; the launcher limits the time.
    ///
    /// # Errors
    /// With the reason, and the last lines of the launcher's program.
    pub(super) fn open(host: &str, settings: ConnectionSettings<'_>) -> Result<Self, String> {
        let ConnectionSettings { launcher, site, program, tree, log } = settings;
        let argv = launcher.command(host, &program.script(), site);
        let (mut process, mut input, output) = DuplexProcess::start(&argv, log).map_err(|error| error.to_string())?;
        let mut output = BufReader::new(output);
        let opened = greet(&mut input, &mut output, program).and_then(|facts| {
            let clock_offset_s = offer(&mut input, &mut output, tree)?;
            Ok(HostFacts { clock_offset_s, ..facts })
        });
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

    /// Returns why the connection ended, after its replies have ended.
    pub(super) fn why_ended(mut self, reason: &str) -> String {
        drop(self.input);
        last_line(&mut self.process).unwrap_or_else(|| reason.to_owned())
    }
}

/// Returns the reason of a failure; when the connection ended, what the launcher's program printed last.
fn describe_failure(process: &mut DuplexProcess, error: &BootstrapError) -> String {
    match error {
        BootstrapError::Connection(error)
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) =>
        {
            last_line(process).unwrap_or_else(|| "the connection ended".to_owned())
        }
        error => error.to_string(),
    }
}

/// Kills a process and returns the last line that it printed to standard error.
fn last_line(process: &mut DuplexProcess) -> Option<String> {
    process.kill();
    process.last_stderr_lines().last().map(|line| line.trim().to_owned())
}

fn greet(
    input: &mut ChildStdin,
    output: &mut BufReader<ChildStdout>,
    program: &OwnProgram,
) -> Result<HostFacts, BootstrapError> {
    program.install(input, output)?;
    match next_reply(output)? {
        Reply::Present { host } => Ok(host),
        other => Err(unexpected(&other)),
    }
}

fn next_reply(output: &mut BufReader<ChildStdout>) -> Result<Reply, BootstrapError> {
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
fn offer(input: &mut ChildStdin, output: &mut BufReader<ChildStdout>, tree: &Tree) -> Result<Seconds, BootstrapError> {
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
            let read = io::Read::read(&mut file, &mut part)?;
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

fn read_replies(mut output: BufReader<ChildStdout>) -> Receiver<Incoming> {
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
