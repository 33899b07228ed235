//! Forwards the files and messages of one session to the process that the user started, and the commands of that
//! process to the session.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::control::{self, SOCKET, SessionCommand, SessionMessage};
use super::mirror::FolderSender;
use super::protocol::Reply;
use super::reply_sender::ReplySender;
use super::session::{LOCK_FILE, LOG_FILE, OUTCOME_FILE, STOP_FILE, SessionOutcome, TASK_FILE};
use super::store::free_bytes;

/// How often an agent checks the files of a session for new content.
const FORWARD_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two attempts to connect to a session that has no socket yet.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time until the sender of the commands of a removed session is known to be gone.
const REMOVAL_WAIT: Duration = Duration::from_secs(1);
/// Number of checks within which a new session must have created its socket.
const START_CHECKS_MAX: u32 = 600;
/// Free space in bytes below which a session may have been unable to write its outcome.
const FREE_BYTES_MIN: u64 = 64 << 10;
/// Number of bytes at the end of a session's log that are read, and of lines that are sent.
const LOG_BYTES: u64 = 16 << 10;
const LOG_LINES: usize = 20;

/// Sends the files and messages of one session until it has ended, and passes commands to it.
pub(super) struct Forwarder {
    pub(super) session: String,
    /// The folder of the session.
    pub(super) folder: PathBuf,
    /// The files of its results.
    pub(super) files: FolderSender,
    /// Number of the request that is answered.
    pub(super) round: u32,
    pub(super) replies: ReplySender,
}

impl Forwarder {
    /// Forwards until the session has ended and everything was sent, the connection fails, or nobody holds the sender of
    /// `commands` any more.
    pub(super) fn run(mut self, commands: Receiver<SessionCommand>) {
        let link =
            SocketLink { session: self.session.clone(), folder: self.folder.clone(), replies: self.replies.clone() };
        let (forwarding, ended) = bounded::<()>(0);
        // Commands are passed on by a thread of their own: sending large files may take long.
        let (released, no_commands) = bounded::<()>(0);
        thread::spawn(move || {
            link.pass_on(&commands, &ended);
            drop(released);
        });
        if let Err(error) = self.forward(&no_commands) {
            // If the connection is gone, this fails, too.
            let _ = self.replies.send(Reply::Failed { session: Some(self.session.clone()), reason: error.to_string() });
        }
        drop(forwarding);
    }

    /// Sends the files until the session has ended, or `no_commands` is disconnected.
    fn forward(&mut self, no_commands: &Receiver<()>) -> io::Result<()> {
        let mut checks = 0;
        loop {
            checks += 1;
            if is_deleted(&self.folder) {
                // The agent itself removes the folder of a session after it has dropped the sender of its commands.
                let is_removed = no_commands.recv_timeout(REMOVAL_WAIT) == Err(RecvTimeoutError::Disconnected);
                return if is_removed { Ok(()) } else { Err(deleted(&self.folder)) };
            }
            // Whether the session has ended is checked before its files are sent: otherwise its last lines could be missed. A
            // session takes its lock before it creates its socket, so the lock is checked last.
            let has_begun = self.folder.join(OUTCOME_FILE).exists() || self.folder.join(SOCKET).exists();
            let has_ended = (has_begun || checks > START_CHECKS_MAX) && !is_running(&self.folder);
            let is_complete = self.send_new()?;
            if has_ended && is_complete {
                return self.end();
            }
            let wait = if is_complete { FORWARD_INTERVAL } else { Duration::ZERO };
            if no_commands.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
        }
    }

    fn send_new(&mut self) -> io::Result<bool> {
        let (replies, session, round) = (&self.replies, &self.session, self.round);
        self.files.send_new(|path, offset, part| {
            replies.send_part(Reply::Part { session: session.clone(), path: path.to_owned(), offset, round }, part)
        })
    }

    fn end(&self) -> io::Result<()> {
        let outcome: Option<SessionOutcome> =
            fs::read(self.folder.join(OUTCOME_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if outcome.is_none() {
            // The replica counts as lost, so its session must not begin later.
            stop(&self.folder);
        }
        let mut log = if outcome.is_some() { Vec::new() } else { last_lines(&self.folder.join(LOG_FILE)) };
        let free = free_bytes(&self.folder);
        if outcome.is_none() && free < FREE_BYTES_MIN {
            log.push(format!("the disk that holds `{}` is full", self.folder.display()));
        }
        let (session, files, round) = (self.session.clone(), self.files.files()?, self.round);
        self.replies.send(Reply::Ended { session, outcome: outcome.map(Box::new), files, log, round })
    }
}

/// The socket of one session, as its agent uses it.
struct SocketLink {
    session: String,
    folder: PathBuf,
    replies: ReplySender,
}

impl SocketLink {
    /// Passes commands to the session until nobody sends any more, or `ended` is disconnected. A session that drops the
    /// connection, because the agent was slow to read, is connected again.
    fn pass_on(&self, commands: &Receiver<SessionCommand>, ended: &Receiver<()>) {
        let mut socket: Option<Socket> = None;
        let mut waiting = Vec::new();
        loop {
            if socket.as_ref().is_none_or(Socket::is_closed) {
                socket = self.connect();
            }
            if let Some(open) = &mut socket
                && !waiting.is_empty()
            {
                match open.stream.write_all(&waiting) {
                    Ok(()) => waiting.clear(),
                    Err(_) => socket = None,
                }
            }
            match commands.recv_timeout(CONNECT_INTERVAL) {
                Ok(command) => {
                    waiting.extend(line_of(command));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if ended.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected) {
                if let Some(open) = socket.as_mut().filter(|_| is_deleted(&self.folder)) {
                    // Nobody can collect the results of the session, so it must not run during the next case.
                    let _ = open.stream.write_all(&line_of(SessionCommand::Interrupt { reason: None }));
                }
                return;
            }
        }
    }

    /// Connects to the session and forwards its messages in a thread; returns `None` while the session has no socket.
    fn connect(&self) -> Option<Socket> {
        let stream = control::connect(&self.folder).ok()?;
        let input = BufReader::new(stream.try_clone().ok()?);
        let (replies, session) = (self.replies.clone(), self.session.clone());
        let (reading, closed) = bounded(0);
        thread::spawn(move || {
            forward_messages(input, &session, &replies);
            drop(reading);
        });
        Some(Socket { stream, closed })
    }
}

/// A connection to a session.
struct Socket {
    stream: UnixStream,
    /// Disconnects when the session has closed the connection.
    closed: Receiver<()>,
}

impl Socket {
    fn is_closed(&self) -> bool {
        self.closed.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
    }
}

fn line_of(command: SessionCommand) -> Vec<u8> {
    let mut line = serde_json::to_vec(&command).expect("a command is plain data");
    line.push(b'\n');
    line
}

fn forward_messages(input: impl BufRead, session: &str, replies: &ReplySender) {
    for line in input.lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str(&line) else { continue };
        let session = session.to_owned();
        let reply = match message {
            SessionMessage::Alive => Reply::Alive { session },
            SessionMessage::Ready { step } => Reply::Ready { session, step },
            SessionMessage::Preparation { line } => Reply::Preparation { session, line },
            SessionMessage::Event { phase, event } => Reply::Event { session, phase, event },
        };
        if replies.send(reply).is_err() {
            return;
        }
    }
}

/// Returns whether a process holds the lock of a session. On a file system without locks, no session runs.
pub(super) fn is_running(folder: &Path) -> bool {
    File::open(folder.join(LOCK_FILE)).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns whether somebody has deleted the folder of a session, which has had its task since before the session began.
fn is_deleted(folder: &Path) -> bool {
    matches!(folder.join(TASK_FILE).try_exists(), Ok(false))
}

/// Returns the error that somebody has deleted the folder of a session.
pub(super) fn deleted(folder: &Path) -> io::Error {
    io::Error::other(format!("somebody deleted the folder of the session there, `{}`", folder.display()))
}

/// Marks a session as one that must end.
pub(super) fn stop(folder: &Path) {
    // This fails if there is no such session, or if the disk is full; the session then ends when it has had no contact.
    let _ = File::create(folder.join(STOP_FILE));
}

/// Returns the last lines of a log.
pub(super) fn last_lines(path: &Path) -> Vec<String> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    let size = file.metadata().map_or(0, |found| found.len());
    let mut text = Vec::new();
    let _ = io::Seek::seek(&mut file, io::SeekFrom::Start(size.saturating_sub(LOG_BYTES)));
    let _ = file.take(LOG_BYTES).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_session_whose_folder_is_deleted_fails_with_this_reason_unless_it_was_removed() {
        let forwarded = |is_removed: bool| {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join("s");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(TASK_FILE), "{}").unwrap();
            let (commands, no_commands) = bounded::<()>(0);
            let files = FolderSender::new(folder.join("results"), BTreeMap::new());
            let replies = ReplySender::start(io::sink()).0;
            let mut forwarder = Forwarder { session: "s".into(), folder: folder.clone(), files, round: 1, replies };
            let forwarding = thread::spawn(move || forwarder.forward(&no_commands));
            if is_removed {
                drop(commands);
                fs::remove_dir_all(&folder).unwrap();
                return forwarding.join().unwrap();
            }
            fs::remove_dir_all(&folder).unwrap();
            let ended = forwarding.join().unwrap();
            drop(commands);
            ended
        };
        let error = forwarded(false).unwrap_err().to_string();
        assert!(error.starts_with("somebody deleted the folder of the session there, `/"), "{error}");
        assert!(forwarded(true).is_ok());
    }
}
