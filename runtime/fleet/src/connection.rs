//! A connection to an agent: the process that a launcher starts, from the bootstrap to its end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crossbeam_channel::{Receiver, bounded};

use super::agent::wall_time;
use super::bootstrap::{BootstrapError, OwnProgram, StoredProgram};
use super::clock_offset::ClockOffset;
use super::frame::{PAYLOAD_BYTES_MAX, read_frame, write_frame};
use super::host_text::short;
use super::launcher::Launcher;
use super::monitored_stream::{MonitoredStream, stall};
use super::protocol::{HostFacts, Reply, Request};
use super::tree::Tree;
use flagperf_config::Site;
use flagperf_core::units::Seconds;
use flagperf_host::{DuplexProcess, Ending};

/// Number of replies that are read before earlier ones are handled.
const REPLIES_WAITING: usize = 64;

/// A reply with its payload, or the reason why the connection failed.
pub(super) type ReceivedReply = Result<(Reply, Vec<u8>), String>;

/// An open connection. Dropping it ends the launcher's process.
pub(super) struct Connection {
    process: DuplexProcess,
    launcher: &'static dyn Launcher,
    input: ChildStdin,
    pub(super) replies: Receiver<ReceivedReply>,
    pub(super) host: HostFacts,
    /// Whether the host had another program stored as this one, which is replaced.
    pub(super) has_replaced_program: bool,
}

/// Why a connection is no longer used.
pub(super) enum ConnectionEnd {
    /// The launcher's program has exited.
    Exited,
    /// The connection broke, for this reason.
    Broken(String),
    /// The run has ended and needs the connection no more.
    Closed,
}

impl ConnectionEnd {
    /// Classifies an error of sending a request.
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => ConnectionEnd::Exited,
            _ => ConnectionEnd::Broken(error.to_string()),
        }
    }
}

/// Settings of a connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionSettings<'a> {
    pub(super) launcher: &'static dyn Launcher,
    pub(super) site: &'a Site,
    pub(super) program: &'a OwnProgram,
    pub(super) tree: &'a Tree,
    /// File to which the launcher's program writes its standard error.
    pub(super) log: &'a Path,
    /// Longest time without input or output until the agent runs.
    pub(super) silence_max: Seconds,
}

impl Connection {
    /// Starts an agent on `host` and sends it the files that it lacks. Blocks until the agent runs.
    ///
    /// # Errors
    /// When this fails or the host is silent for too long; with the reason and the last line of the launcher's program.
    pub(super) fn open(host: &str, settings: ConnectionSettings<'_>) -> Result<Self, String> {
        Self::start(host, settings).map_err(|reason| short(&reason))
    }

    fn start(host: &str, settings: ConnectionSettings<'_>) -> Result<Self, String> {
        let ConnectionSettings { launcher, site, program, tree, log, silence_max } = settings;
        let argv = launcher.command(host, &program.script(), site);
        let (mut process, mut input, output) = DuplexProcess::start(&argv, log).map_err(|error| error.to_string())?;
        let (sender, activity) = bounded(1);
        let bytes = Arc::new(AtomicU64::new(0));
        let kill = process.killer();
        let mut output = BufReader::new(MonitoredStream::new(output, bytes.clone(), sender.clone()));
        let (opened, stalled) = thread::scope(|scope| {
            let moved = bytes.clone();
            let watch = scope.spawn(move || stall(silence_max, &activity, &moved).inspect(|_| kill()));
            let mut input = MonitoredStream::new(&mut input, bytes, sender);
            let opened = start_agent(&mut input, &mut output, program).and_then(|(facts, stored)| {
                let clock_offset = send_checkout(&mut input, &mut output, tree)?;
                Ok((HostFacts { clock_offset, ..facts }, stored))
            });
            // Without senders, the watching thread ends.
            output.get_mut().stop();
            drop(input);
            (opened, watch.join().unwrap_or_default())
        });
        if let Some(stalled) = stalled {
            drop((input, output));
            let last = last_line(&mut process).map(|line| format!("; `{}` printed: {line}", launcher.name()));
            let unexpected = opened.err().filter(|error| matches!(error, BootstrapError::Unexpected { .. }));
            let unexpected = unexpected.map(|error| format!("; {error}")).unwrap_or_default();
            return Err(format!("{stalled}{unexpected}{}", last.unwrap_or_default()));
        }
        match opened {
            Ok((host, stored)) => {
                let (replies, has_replaced_program) = (read_replies(output), stored == StoredProgram::Changed);
                Ok(Connection { process, launcher, input, replies, host, has_replaced_program })
            }
            Err(error) => {
                drop((input, output));
                Err(describe_failure(&mut process, launcher, &error))
            }
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        write_frame(&mut self.input, request, &[])
    }

    /// Closes the agent's input, and waits until the agent has answered all requests and ended.
    pub(super) fn close(mut self) {
        drop(self.input);
        // The agent would block if nobody read its replies.
        while self.replies.recv().is_ok() {}
        self.process.ending();
    }

    /// Returns why the connection ended. Called when there are no more replies.
    pub(super) fn why_ended(mut self) -> String {
        drop(self.input);
        short(&describe_end(&mut self.process, self.launcher, false))
    }
}

/// Returns the reason of a failure. If the connection has ended, this is the last line of the launcher's program.
fn describe_failure(process: &mut DuplexProcess, launcher: &dyn Launcher, error: &BootstrapError) -> String {
    match error {
        BootstrapError::Connection(error)
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) =>
        {
            describe_end(process, launcher, launcher.has_login_shell())
        }
        error => error.to_string(),
    }
}

/// Returns the last line that the program of an ended connection printed, or how the program ended. `names_shell` says that a
/// login shell may have ended it.
fn describe_end(process: &mut DuplexProcess, launcher: &dyn Launcher, names_shell: bool) -> String {
    // The program may print its last line after it has closed its output.
    let ending = process.ending();
    last_line(process).unwrap_or_else(|| {
        let how = ending
            .map_or_else(String::new, |ending| format!(": launcher `{}` {}", launcher.name(), ending.predicate()));
        // Status 255 is that of ssh itself.
        let is_of_shell = names_shell && matches!(ending, Some(Ending::Exited(status)) if status != 255);
        let shell = " (does a start-up file of the login shell there, such as ~/.bashrc, end the shell?)";
        format!("the connection ended{how}{}", if is_of_shell { shell } else { "" })
    })
}

/// Kills a process and returns the last line that it printed to standard error.
fn last_line(process: &mut DuplexProcess) -> Option<String> {
    process.kill();
    process.last_stderr_lines().last().map(|line| line.trim().to_owned())
}

fn start_agent(
    input: &mut impl Write,
    output: &mut impl BufRead,
    program: &OwnProgram,
) -> Result<(HostFacts, StoredProgram), BootstrapError> {
    let stored = program.install(input, output)?;
    match next_reply(output)? {
        Reply::Present { host } => Ok((host.shortened(), stored)),
        other => Err(unexpected(&other)),
    }
}

fn next_reply(output: &mut impl BufRead) -> Result<Reply, BootstrapError> {
    let frame = read_frame::<Reply>(output).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => BootstrapError::Foreign(error),
        _ => error.into(),
    })?;
    match frame {
        Some((Reply::Failed { reason, .. }, _)) => Err(io::Error::other(reason).into()),
        Some((reply, _)) => Ok(reply),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn unexpected(reply: &Reply) -> BootstrapError {
    let line: String = serde_json::to_string(reply).unwrap_or_default().chars().take(200).collect();
    BootstrapError::Foreign(io::Error::other(format!("`{line}`")))
}

/// Sends the files of the checkout that the host lacks. Returns by how much the host's wall clock is ahead of the clock of this
/// machine, under the assumption that the host read its clock in the middle of the round trip.
fn send_checkout(
    input: &mut impl Write,
    output: &mut impl BufRead,
    tree: &Tree,
) -> Result<ClockOffset, BootstrapError> {
    let sent = wall_time();
    write_frame(input, &Request::Offer { files: tree.files.clone() }, &[])?;
    let (sha256, time_s) = match next_reply(output)? {
        Reply::Missing { sha256, time_s } => (sha256, time_s),
        other => return Err(unexpected(&other)),
    };
    let offset = ClockOffset::measured(sent, wall_time(), time_s);
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
    // When a session starts, the agent reports files that it could not store.
    input.flush()?;
    Ok(offset)
}

fn read_replies(mut output: impl BufRead + Send + 'static) -> Receiver<ReceivedReply> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_that_a_start_up_file_prints_is_not_taken_for_the_answer_of_an_agent() {
        let error = next_reply(&mut &b"flagperf-bootstrap x86_64 missing\n"[..]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the answer of the host is not that of flagperf: `flagperf-bootstrap x86_64 missing` is not a message of the agent \
             protocol (does a start-up file of the login shell there print it?)"
        );
    }

    #[test]
    fn a_login_shell_that_ends_is_mentioned_with_the_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let launcher = super::super::launcher::launcher_for("h", flagperf_config::LauncherChoice::Ssh);
        let failed = |status: &str| {
            let argv = ["sh", "-c", &format!("exit {status}")].map(std::ffi::OsString::from);
            let (mut process, _input, _output) = DuplexProcess::start(&argv, &folder.path().join("log")).unwrap();
            let error = BootstrapError::Connection(io::ErrorKind::UnexpectedEof.into());
            describe_failure(&mut process, launcher, &error)
        };
        assert_eq!(
            failed("3"),
            "the connection ended: launcher `ssh` exited with status 3 (does a start-up file of the login shell there, such as \
             ~/.bashrc, end the shell?)"
        );
        assert_eq!(failed("255"), "the connection ended: launcher `ssh` exited with status 255");
    }
}
