//! The agent of a host: answers requests on its standard input, starts sessions, and sends what they write.

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

use super::control::{self, News, Order, SOCKET};
use super::frame::{read_frame, write_frame};
use super::mirror::GrowingFolder;
use super::protocol::{HostFacts, Reply, Request};
use super::session::{LOCK_FILE, LOG_FILE, OUTCOME_FILE, Outcome, RESULTS, STOP_FILE, SessionTask, TASK_FILE};
use super::store::{Incoming, Store, free_bytes};
use super::tree::TreeFile;
use crate::host::{CapturedCommand, capture, start_detached};
use crate::measure::MonotonicClock;
use crate::units::{Bytes, Seconds};

/// How often an agent looks for what a session has written.
const FEED_INTERVAL: Duration = Duration::from_millis(100);
/// Longest report of `flagperf doctor` in bytes, and longest time that it may take.
const REPORT_BYTES_MAX: u64 = 512 << 10;
const REPORT_TIME_MAX: Seconds = Seconds(120.0);
/// Time after which the results of a session that nobody has fetched are removed, and checkouts that no run has used: a week.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Free space below which a session may have been unable to write how it ended.
const FREE_BYTES_MIN: u64 = 64 << 10;
/// The kernel's id since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Number of looks in which the socket of a new session may appear.
const START_LOOKS: u32 = 600;
/// Bytes of the log of a session that are read, and lines of it that are sent.
const LOG_BYTES: u64 = 16 << 10;
const LOG_LINES: usize = 20;

/// Serves requests until `input` ends. `program` starts a session: the program and arguments before the folder.
///
/// # Errors
/// When the store cannot be opened, or the input is no request.
pub fn serve(input: impl Read, output: impl Write + Send + 'static, program: &[OsString]) -> io::Result<()> {
    let store = Store::open()?;
    store.remove_old(|folder| !is_running(folder) && age(folder) > AGE_MAX);
    let output: Output = Arc::new(Mutex::new(Box::new(output)));
    let mut agent =
        Agent { store, output, program: program.to_vec(), files: Vec::new(), incoming: None, feeds: BTreeMap::new() };
    agent.say(&Reply::Present { host: agent.facts() })?;
    let mut input = BufReader::new(input);
    while let Some((request, payload)) = read_frame::<Request>(&mut input)? {
        let session = request.session().map(str::to_owned);
        if let Err(error) = agent.answer(request, &payload) {
            agent.say(&Reply::Failed { session, reason: error.to_string() })?;
        }
    }
    Ok(())
}

type Output = Arc<Mutex<Box<dyn Write + Send>>>;

fn say(output: &Output, reply: &Reply, payload: &[u8]) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *output, reply, payload)
}

impl Request {
    /// Returns the session that a request is about.
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
    /// The files of the checkout that was offered.
    files: Vec<TreeFile>,
    /// The file whose parts arrive.
    incoming: Option<Incoming>,
    /// The orders for each session whose files are sent.
    feeds: BTreeMap<String, Sender<Order>>,
}

impl Agent {
    fn say(&self, reply: &Reply) -> io::Result<()> {
        say(&self.output, reply, &[])
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
                self.feeds.retain(|_, orders| orders.send(Order::Contact).is_ok());
                self.say(&Reply::Present { host: self.facts() })
            }
            Request::Offer { files } => {
                let time_s = wall_time();
                self.files = files;
                self.say(&Reply::Missing { sha256: self.store.missing(&self.files), time_s })
            }
            Request::Examine { arguments } => self.examine(arguments),
            Request::Content { sha256 } => self.receive(&sha256, payload),
            Request::Start { session, task } => {
                self.start(&session, *task)?;
                self.say(&Reply::Started { session })
            }
            Request::Attach { session, have, round } => self.attach(&session, have, round),
            Request::Release { session, step } => self.order(&session, Order::Release { step }),
            Request::Interrupt { session } => {
                stop(&self.folder(&session)?);
                self.order(&session, Order::Interrupt)
            }
            Request::Remove { session } => {
                let folder = self.folder(&session)?;
                self.feeds.remove(&session);
                match is_running(&folder) {
                    true => Err(io::Error::other("the session is still running and cannot be removed")),
                    // An agent of an earlier connection may still be about to start it.
                    false => File::create(self.store.ended_mark(&folder)).and_then(|_| fs::remove_dir_all(&folder)),
                }
            }
        }
    }

    /// Runs `flagperf doctor` in a checkout, and sends what it prints.
    fn examine(&self, arguments: Vec<String>) -> io::Result<()> {
        let root = self.store.checkout(&self.files)?;
        // The exit code is the last line.
        let script = "cd \"$1\" || exit 2; shift; \"$@\" 2>&1; echo $?";
        // In a shell, /proc/self/exe is the shell.
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
        self.say(&Reply::Report { text: text.to_owned(), can_run: code == "0" })
    }

    fn folder(&self, session: &str) -> io::Result<PathBuf> {
        self.store.session(session).ok_or_else(|| io::Error::other(format!("`{session}` is not a session name")))
    }

    /// Receives a part of a file; an empty part ends it.
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

    /// Starts a session unless its folder exists: then it was started before the connection was cut.
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
        let (sender, orders) = bounded(64);
        self.feeds.insert(session.to_owned(), sender);
        let feed = Feed {
            session: session.to_owned(),
            files: GrowingFolder::new(root, have),
            folder,
            round,
            output: self.output.clone(),
        };
        thread::spawn(move || feed.run(&orders));
        Ok(())
    }

    fn order(&self, session: &str, order: Order) -> io::Result<()> {
        let feed = self.feeds.get(session);
        // A session that has ended needs no orders.
        feed.map_or(Ok(()), |orders| orders.send(order).or(Ok(())))
    }
}

/// Returns why a file of the checkout is not on this host.
fn cannot_store(error: &io::Error) -> io::Error {
    io::Error::other(format!("the files of the checkout cannot be stored on the host: {error}"))
}

/// Marks a session that is to end.
fn stop(folder: &Path) {
    // Without its folder there is no session; on a full disk it ends when it has no contact.
    let _ = File::create(folder.join(STOP_FILE));
}

/// Returns the time since something in a folder was created or removed; zero if it is unknown.
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

/// Sends what one session writes until it has ended.
struct Feed {
    session: String,
    folder: PathBuf,
    files: GrowingFolder,
    round: u32,
    output: Output,
}

impl Feed {
    /// Runs until the session has ended and everything was sent, the connection fails, or the agent attaches anew.
    fn run(mut self, orders: &Receiver<Order>) {
        let sent = self.feed(orders);
        if let Err(error) = sent {
            // This fails, too, if the connection is gone.
            let reply = Reply::Failed { session: Some(self.session.clone()), reason: error.to_string() };
            let _ = say(&self.output, &reply, &[]);
        }
    }

    fn feed(&mut self, orders: &Receiver<Order>) -> io::Result<()> {
        let (mut socket, mut waiting, mut looks) = (None, Vec::new(), 0);
        loop {
            if socket.is_none() {
                socket = self.connect();
            }
            if let Some(open) = &mut socket
                && !waiting.is_empty()
            {
                // A session that does not read has ended, or another one has its place.
                match open.write_all(&waiting) {
                    Ok(()) => waiting.clear(),
                    Err(_) => socket = None,
                }
            }
            // Before the files are looked at: what a session writes before it ends is sent.
            looks += 1;
            // A session takes its lock before it makes its socket, so the lock is looked at last.
            let has_begun = self.folder.join(OUTCOME_FILE).exists() || self.folder.join(SOCKET).exists();
            let has_ended = (has_begun || looks > START_LOOKS) && !is_running(&self.folder);
            let is_complete = self.send_new()?;
            if has_ended && is_complete {
                return self.end();
            }
            let wait = if is_complete { FEED_INTERVAL } else { Duration::ZERO };
            match orders.recv_timeout(wait) {
                Ok(order) => {
                    waiting.extend(serde_json::to_vec(&order)?);
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
            say(output, &reply, part)
        })
    }

    /// Connects to the session and passes on what it tells; `None` while it has no socket.
    fn connect(&self) -> Option<UnixStream> {
        let socket = control::connect(&self.folder).ok()?;
        let input = BufReader::new(socket.try_clone().ok()?);
        let (output, session) = (self.output.clone(), self.session.clone());
        thread::spawn(move || {
            for line in input.lines().map_while(Result::ok) {
                let Ok(news) = serde_json::from_str(&line) else { continue };
                let session = session.clone();
                let reply = match news {
                    News::Ready { step } => Reply::Ready { session, step },
                    News::Event { phase, event } => Reply::Event { session, phase, event },
                };
                if say(&output, &reply, &[]).is_err() {
                    return;
                }
            }
        });
        Some(socket)
    }

    fn end(&self) -> io::Result<()> {
        let outcome: Option<Outcome> =
            fs::read(self.folder.join(OUTCOME_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if outcome.is_none() {
            // It counts as lost, so it must not begin later.
            stop(&self.folder);
        }
        let mut log = if outcome.is_some() { Vec::new() } else { last_lines(&self.folder.join(LOG_FILE)) };
        let free = free_bytes(&self.folder);
        if outcome.is_none() && free < FREE_BYTES_MIN {
            log.push(format!("the disk that holds `{}` is full", self.folder.display()));
        }
        let (session, files, round) = (self.session.clone(), self.files.files()?, self.round);
        say(&self.output, &Reply::Ended { session, outcome: outcome.map(Box::new), files, log, round }, &[])
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
