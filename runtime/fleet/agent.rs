//! The agent on a host: answers requests from its standard input, starts sessions, and sends the files that they write.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use sysinfo::System;

use super::control::{self, SOCKET, SessionCommand, SessionMessage};
use super::frame::{read_frame, write_frame};
use super::mirror::FolderSender;
use super::protocol::{HostFacts, Reply, Request};
use super::session::{LOCK_FILE, LOG_FILE, OUTCOME_FILE, RESULTS, STOP_FILE, SessionOutcome, SessionTask, TASK_FILE};
use super::store::{FileReceiver, Store, free_bytes};
use super::tree::TreeFile;
use crate::host::{CapturedCommand, capture, start_detached};
use crate::measure::MonotonicClock;
use crate::units::{Bytes, Seconds};

/// How often an agent checks the files of a session for new content.
const FORWARD_INTERVAL: Duration = Duration::from_millis(100);
/// Largest report of `flagperf doctor` in bytes, and longest time that the command may take.
const REPORT_BYTES_MAX: u64 = 512 << 10;
const REPORT_TIME_MAX: Seconds = Seconds(120.0);
/// Age at which sessions whose results nobody has fetched, and checkouts that no run has used, are removed: a week.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Free space in bytes below which a session may have been unable to write its outcome.
const FREE_BYTES_MIN: u64 = 64 << 10;
/// The id that the kernel draws each time it starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Number of checks within which a new session must have created its socket.
const START_CHECKS_MAX: u32 = 600;
/// Number of bytes at the end of a session's log that are read, and of lines that are sent.
const LOG_BYTES: u64 = 16 << 10;
const LOG_LINES: usize = 20;

/// Serves requests until `input` ends. `program` is the command that starts a session; the session's folder is appended to it.
///
/// # Errors
/// When the store cannot be opened, or the input is not a request.
pub fn serve(input: impl Read, output: impl Write + Send + 'static, program: &[OsString]) -> io::Result<()> {
    let store = Store::open()?;
    store.remove_old(|folder| !is_running(folder) && age(folder) > AGE_MAX);
    let output: Output = Arc::new(Mutex::new(Box::new(output)));
    let mut agent = Agent {
        store,
        output,
        program: program.to_vec(),
        files: Vec::new(),
        incoming: None,
        forwarders: BTreeMap::new(),
    };
    agent.reply(&Reply::Present { host: agent.facts() })?;
    let mut input = BufReader::new(input);
    while let Some((request, payload)) = read_frame::<Request>(&mut input)? {
        let session = request.session().map(str::to_owned);
        if let Err(error) = agent.answer(request, &payload) {
            agent.reply(&Reply::Failed { session, reason: error.to_string() })?;
        }
    }
    Ok(())
}

type Output = Arc<Mutex<Box<dyn Write + Send>>>;

fn send_reply(output: &Output, reply: &Reply, payload: &[u8]) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *output, reply, payload)
}

impl Request {
    /// Returns the session to which a request applies.
    fn session(&self) -> Option<&str> {
        match self {
            Request::Start { session, .. }
            | Request::Attach { session, .. }
            | Request::Release { session, .. }
            | Request::Interrupt { session }
            | Request::Remove { session } => Some(session),
            Request::Offer { .. } | Request::Content { .. } | Request::Examine { .. } | Request::Ping => None,
        }
    }
}

struct Agent {
    store: Store,
    output: Output,
    program: Vec<OsString>,
    /// The files of the checkout in the last `Request::Offer`.
    files: Vec<TreeFile>,
    /// The file that is being received.
    incoming: Option<FileReceiver>,
    /// The senders of commands to the sessions whose files are forwarded.
    forwarders: BTreeMap<String, Sender<SessionCommand>>,
}

impl Agent {
    fn reply(&self, reply: &Reply) -> io::Result<()> {
        send_reply(&self.output, reply, &[])
    }

    fn facts(&self) -> HostFacts {
        HostFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: System::host_name().unwrap_or_default(),
            boot_id: fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default(),
            time_s: wall_time(),
            clock_offset_s: Seconds(0.0),
            free_bytes: Bytes(free_bytes(self.store.root())),
        }
    }

    fn answer(&mut self, request: Request, payload: &[u8]) -> io::Result<()> {
        match request {
            Request::Ping => {
                self.forwarders.retain(|_, commands| commands.send(SessionCommand::Contact).is_ok());
                self.reply(&Reply::Present { host: self.facts() })
            }
            Request::Offer { files } => {
                let time_s = wall_time();
                self.files = files;
                self.reply(&Reply::Missing { sha256: self.store.missing(&self.files), time_s })
            }
            Request::Examine { arguments } => self.examine(arguments),
            Request::Content { sha256 } => self.receive(&sha256, payload),
            Request::Start { session, task } => {
                self.start(&session, *task)?;
                self.reply(&Reply::Started { session })
            }
            Request::Attach { session, have, round } => self.attach(&session, have, round),
            Request::Release { session, step } => self.send_command(&session, SessionCommand::Release { step }),
            Request::Interrupt { session } => {
                stop(&self.folder(&session)?);
                self.send_command(&session, SessionCommand::Interrupt)
            }
            Request::Remove { session } => {
                let folder = self.folder(&session)?;
                self.forwarders.remove(&session);
                match is_running(&folder) {
                    true => Err(io::Error::other("the session is still running and cannot be removed")),
                    // The agent of an earlier connection may still be about to start this session; the mark prevents that.
                    false => File::create(self.store.ended_mark(&folder)).and_then(|_| fs::remove_dir_all(&folder)),
                }
            }
        }
    }

    /// Runs `flagperf doctor` in the offered checkout, and sends its report.
    fn examine(&self, arguments: Vec<String>) -> io::Result<()> {
        let root = self.store.checkout(&self.files)?;
        // The exit code is the last line.
        let script = "cd \"$1\" || exit 2; shift; \"$@\" 2>&1; echo $?";
        // Within a shell, /proc/self/exe is the file of the shell.
        let program = std::env::current_exe()?;
        let words = ["sh", "-c", script, "sh"].map(OsString::from).into_iter();
        let doctor =
            [root.clone().into(), program.into(), "doctor".into(), "--config".into(), root.join("configs").into()];
        let argv = words.chain(doctor).chain(arguments.into_iter().map(OsString::from)).collect();
        let command =
            CapturedCommand { argv, input: Vec::new(), bytes_max: REPORT_BYTES_MAX, time_max: REPORT_TIME_MAX };
        let output = capture(&command, &MonotonicClock::start(), || false).map_err(io::Error::other)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        let (text, code) = output.trim_end().rsplit_once('\n').unwrap_or(("", &output));
        self.reply(&Reply::Report { text: text.to_owned(), can_run: code == "0" })
    }

    fn folder(&self, session: &str) -> io::Result<PathBuf> {
        self.store.session(session).ok_or_else(|| io::Error::other(format!("`{session}` is not a session name")))
    }

    /// Receives a part of a file. An empty part ends the file.
    fn receive(&mut self, sha256: &str, part: &[u8]) -> io::Result<()> {
        let mut incoming = match self.incoming.take() {
            Some(incoming) if incoming.sha256 == sha256 => incoming,
            _ => self.store.create(sha256)?,
        };
        if part.is_empty() {
            return incoming.finish().map_err(|error| cannot_store(&error));
        }
        incoming.append(part).map_err(|error| cannot_store(&error))?;
        self.incoming = Some(incoming);
        Ok(())
    }

    /// Starts a session unless its folder exists: then it was started before the connection broke.
    fn start(&self, session: &str, task: SessionTask) -> io::Result<()> {
        let folder = self.folder(session)?;
        if folder.join(TASK_FILE).exists() || self.store.ended_mark(&folder).exists() {
            return Ok(());
        }
        let task = SessionTask { root: self.store.checkout(&self.files)?, ..task };
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(TASK_FILE), serde_json::to_vec(&task)?)?;
        let argv = [self.program.clone(), vec![folder.clone().into()]].concat();
        start_detached(&argv, &folder.join(LOG_FILE)).map_err(io::Error::other)
    }

    fn attach(&mut self, session: &str, have: BTreeMap<String, u64>, round: u32) -> io::Result<()> {
        let folder = self.folder(session)?;
        let task: SessionTask = serde_json::from_slice(&fs::read(folder.join(TASK_FILE))?)?;
        let root = folder.join(RESULTS).join(&task.run).join(&task.folder);
        let (sender, commands) = bounded(64);
        self.forwarders.insert(session.to_owned(), sender);
        let forwarder = Forwarder {
            session: session.to_owned(),
            files: FolderSender::new(root, have),
            folder,
            round,
            output: self.output.clone(),
        };
        thread::spawn(move || forwarder.run(&commands));
        Ok(())
    }

    fn send_command(&self, session: &str, command: SessionCommand) -> io::Result<()> {
        // A session that has ended has no forwarder and needs no commands.
        self.forwarders.get(session).map_or(Ok(()), |commands| commands.send(command).or(Ok(())))
    }
}

/// Describes an error of storing a file of the checkout.
fn cannot_store(error: &io::Error) -> io::Error {
    io::Error::other(format!("the files of the checkout cannot be stored on the host: {error}"))
}

/// Marks a session as one that must end.
fn stop(folder: &Path) {
    // This fails if there is no such session, or if the disk is full; the session then ends when it has had no contact.
    let _ = File::create(folder.join(STOP_FILE));
}

/// Returns the time since an entry of a folder was created or removed; zero if the time is unknown.
fn age(folder: &Path) -> Duration {
    fs::metadata(folder).and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok()).unwrap_or_default()
}

/// Returns the time of the wall clock since 1970.
pub(super) fn wall_time() -> Seconds {
    Seconds(jiff::Timestamp::now().as_duration().as_secs_f64())
}

/// Returns whether a process holds the lock of a session.
fn is_running(folder: &Path) -> bool {
    File::open(folder.join(LOCK_FILE)).is_ok_and(|file| file.try_lock_shared().is_err())
}

/// Sends the files and messages of one session until it has ended, and passes commands to it.
struct Forwarder {
    session: String,
    folder: PathBuf,
    files: FolderSender,
    round: u32,
    output: Output,
}

impl Forwarder {
    /// Runs until the session has ended and everything was sent, the connection fails, or the session is attached again.
    fn run(mut self, commands: &Receiver<SessionCommand>) {
        if let Err(error) = self.forward(commands) {
            // If the connection is gone, this fails, too.
            let reply = Reply::Failed { session: Some(self.session.clone()), reason: error.to_string() };
            let _ = send_reply(&self.output, &reply, &[]);
        }
    }

    fn forward(&mut self, commands: &Receiver<SessionCommand>) -> io::Result<()> {
        let (mut socket, mut waiting, mut checks) = (None, Vec::new(), 0);
        loop {
            if socket.is_none() {
                socket = self.connect();
            }
            if let Some(open) = &mut socket
                && !waiting.is_empty()
            {
                // A session that does not read its socket has ended.
                match open.write_all(&waiting) {
                    Ok(()) => waiting.clear(),
                    Err(_) => socket = None,
                }
            }
            checks += 1;
            // Whether the session has ended is checked before its files are sent: otherwise its last lines could be missed. A
            // session takes its lock before it creates its socket, so the lock is checked last.
            let has_begun = self.folder.join(OUTCOME_FILE).exists() || self.folder.join(SOCKET).exists();
            let has_ended = (has_begun || checks > START_CHECKS_MAX) && !is_running(&self.folder);
            let is_complete = self.send_new()?;
            if has_ended && is_complete {
                return self.end();
            }
            let wait = if is_complete { FORWARD_INTERVAL } else { Duration::ZERO };
            match commands.recv_timeout(wait) {
                Ok(command) => {
                    waiting.extend(serde_json::to_vec(&command)?);
                    waiting.push(b'\n');
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn send_new(&mut self) -> io::Result<bool> {
        let (output, session, round) = (&self.output, &self.session, self.round);
        self.files.send_new(|path, offset, part| {
            let reply = Reply::Part { session: session.clone(), path: path.to_owned(), offset, round };
            send_reply(output, &reply, part)
        })
    }

    /// Connects to the session and forwards its messages in a thread; returns `None` while the session has no socket.
    fn connect(&self) -> Option<UnixStream> {
        let socket = control::connect(&self.folder).ok()?;
        let input = BufReader::new(socket.try_clone().ok()?);
        let (output, session) = (self.output.clone(), self.session.clone());
        thread::spawn(move || {
            for line in input.lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str(&line) else { continue };
                let session = session.clone();
                let reply = match message {
                    SessionMessage::Ready { step } => Reply::Ready { session, step },
                    SessionMessage::Event { phase, event } => Reply::Event { session, phase, event },
                };
                if send_reply(&output, &reply, &[]).is_err() {
                    return;
                }
            }
        });
        Some(socket)
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
        send_reply(&self.output, &Reply::Ended { session, outcome: outcome.map(Box::new), files, log, round }, &[])
    }
}

/// Returns the last lines of a log.
fn last_lines(path: &Path) -> Vec<String> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    let size = file.metadata().map_or(0, |found| found.len());
    let mut text = Vec::new();
    let _ = io::Seek::seek(&mut file, io::SeekFrom::Start(size.saturating_sub(LOG_BYTES)));
    let _ = file.take(LOG_BYTES).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}
