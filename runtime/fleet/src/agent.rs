//! The agent on a host: answers requests from its standard input, starts sessions, and sends the files that they write.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sysinfo::System;

use super::clock_offset::ClockOffset;
use super::control::SessionCommand;
use super::doctor_report::examine;
use super::forwarder::{Forwarder, deleted, is_running, stop};
use super::frame::read_frame;
use super::group_member::GroupMember;
use super::host_plan::plan_errors;
use super::host_text::HostError;
use super::mirror::FolderSender;
use super::network::own_addresses;
use super::protocol::{HostFacts, Reply, Request, SessionProcess};
use super::reply_sender::ReplySender;
use super::reservation::{Reservation, ReservationRequest};
use super::session::{LOCK_FILE, LOG_FILE, RESULTS, SessionTask, TASK_FILE, run_description};
use super::store::{FileReceiver, Store, free_bytes};
use super::store_cleaning::clean;
use super::tree::TreeFile;
use flagperf_core::file;
use flagperf_core::measure::{Clock, MonotonicClock, Nanos};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_host::start_detached;

/// The id that the kernel draws each time it starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Time without a request after which an agent ends, unless a reservation states another limit.
const CONTACT_MAX: Seconds = Seconds(300.0);
/// Time between two signs that an agent is busy with a long request.
const WORKING_INTERVAL: Duration = Duration::from_secs(2);
/// Requests that were read and not yet answered.
const REQUESTS_WAITING_MAX: usize = 16;

/// Serves requests until `input` ends, or no request has arrived for too long. `program` is the command that starts a session;
/// the session's folder is appended to it.
///
/// # Errors
/// When the store cannot be opened, or the input is not a request.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl io::Write + Send + 'static,
    program: &[OsString],
) -> io::Result<()> {
    let store = Store::open()?;
    clean(&store, own_program().ok().as_deref());
    let clock = MonotonicClock::start();
    let (replies, writer) = ReplySender::start(output);
    let mut agent = Agent {
        store,
        replies,
        program: program.to_vec(),
        files: Vec::new(),
        incoming: None,
        forwarders: BTreeMap::new(),
        member: None,
        reservation: None,
        contact_limit: CONTACT_MAX,
    };
    agent.replies.send(Reply::Present { host: agent.facts() })?;
    let (ended, last) = agent.answer_all(&read_requests(input), &clock);
    // Nobody sends commands to the sessions any more.
    agent.forwarders.clear();
    // Nobody waits for what a group measures any more, and no later connection goes on with it.
    let has_measured = agent.member.take().is_some();
    match agent.reservation {
        Some(reservation) if has_measured => reservation.end(),
        // The connection broke.
        Some(reservation) => reservation.keep(&clock, last),
        None => writer.finish(),
    }
    ended
}

/// Reads requests in a thread.
fn read_requests(input: impl Read + Send + 'static) -> Receiver<io::Result<(Request, Vec<u8>)>> {
    let (sender, requests) = bounded(REQUESTS_WAITING_MAX);
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        while let Some(request) = read_frame::<Request>(&mut input).transpose() {
            let is_error = request.is_err();
            if sender.send(request).is_err() || is_error {
                return;
            }
        }
    });
    requests
}

impl Request {
    /// Returns the session to which a request applies.
    fn session(&self) -> Option<&str> {
        match self {
            Request::Start { session, .. }
            | Request::Attach { session, .. }
            | Request::Release { session, .. }
            | Request::Interrupt { session, .. }
            | Request::Remove { session } => Some(session),
            Request::Offer { .. }
            | Request::Content { .. }
            | Request::Examine { .. }
            | Request::Plan { .. }
            | Request::Reserve { .. }
            | Request::EndReservation
            | Request::Measure { .. }
            | Request::EndMeasurement
            | Request::Ping => None,
        }
    }
}

struct Agent {
    store: Store,
    replies: ReplySender,
    program: Vec<OsString>,
    /// The files of the checkout in the last `Request::Offer`.
    files: Vec<TreeFile>,
    /// The file that is being received.
    incoming: Option<FileReceiver>,
    /// The senders of commands to the sessions whose files are forwarded.
    forwarders: BTreeMap<String, Sender<SessionCommand>>,
    /// The processes that measure together with those of other hosts.
    member: Option<GroupMember>,
    reservation: Option<Reservation>,
    /// Time without a request after which this process ends.
    contact_limit: Seconds,
}

impl Agent {
    /// Answers requests until there are no more. Returns how they ended, and when the last one arrived.
    fn answer_all(
        &mut self,
        requests: &Receiver<io::Result<(Request, Vec<u8>)>>,
        clock: &dyn Clock,
    ) -> (io::Result<()>, Nanos) {
        let mut last = clock.now();
        loop {
            let (request, payload) = match requests.recv_timeout(Duration::from_secs_f64(self.contact_limit.0)) {
                Ok(Ok(request)) => request,
                Ok(Err(error)) => return (Err(error), last),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return (Ok(()), last),
            };
            last = clock.now();
            let session = request.session().map(str::to_owned);
            let answered = self
                .answer(request, &payload)
                .or_else(|error| self.replies.send(Reply::Failed { session, reason: error.to_string() }));
            // The other side has closed the connection.
            if answered.is_err() {
                return (Ok(()), last);
            }
        }
    }

    fn facts(&self) -> HostFacts {
        HostFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: System::host_name().unwrap_or_default(),
            boot_id: fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default(),
            time_s: wall_time(),
            clock_offset: ClockOffset::default(),
            free_bytes: Bytes(free_bytes(self.store.root())),
            addresses: own_addresses(),
        }
    }

    fn answer(&mut self, request: Request, payload: &[u8]) -> io::Result<()> {
        match request {
            Request::Ping => {
                self.forwarders.retain(|_, commands| commands.send(SessionCommand::Contact).is_ok());
                self.replies.send(Reply::Present { host: self.facts() })
            }
            Request::Offer { files } => {
                let time_s = wall_time();
                self.files = files;
                let (sha256, changed) = self.store.missing(&self.files);
                self.replies.send(Reply::Missing { sha256, time_s })?;
                self.report_restored(&changed)
            }
            Request::Examine { arguments } => self.examine(arguments),
            Request::Plan { arguments } => self.plan(arguments),
            Request::Reserve { run_id, run, started_by, waits, contact_limit_s } => {
                self.contact_limit = contact_limit_s;
                let description = run_description(&run, &started_by);
                let (holder, contact_limit) = (self.store.reservation(&run_id)?, contact_limit_s);
                let request = ReservationRequest { run_id, description, waits, holder, contact_limit };
                // An earlier request ends first.
                self.reservation = None;
                self.reservation = Some(Reservation::request(request, self.replies.clone()));
                Ok(())
            }
            Request::EndReservation => {
                self.reservation.take().into_iter().for_each(Reservation::end);
                Ok(())
            }
            Request::Measure { arguments, contact_limit_s } => {
                self.contact_limit = contact_limit_s;
                self.measure(&arguments)
            }
            Request::EndMeasurement => {
                self.member.iter().for_each(GroupMember::stop);
                Ok(())
            }
            Request::Content { sha256 } => self.receive(&sha256, payload),
            Request::Start { session, task, by_launcher } => {
                let process = self.start(&session, *task, by_launcher)?;
                self.replies.send(Reply::Started { session, process })
            }
            Request::Attach { session, have, round } => self.attach(&session, have, round),
            Request::Release { session, step } => self.send_command(&session, SessionCommand::Release { step }),
            Request::Interrupt { session, reason } => {
                stop(&self.folder(&session)?);
                self.send_command(&session, SessionCommand::Interrupt { reason })
            }
            Request::Remove { session } => {
                let folder = self.folder(&session)?;
                self.forwarders.remove(&session);
                if is_running(&folder) {
                    return Err(io::Error::other("the session is still running and cannot be removed"));
                }
                if folder.exists() {
                    // The agent of an earlier connection may still be about to start this session; the mark prevents that.
                    File::create(self.store.ended_mark(&folder)).and_then(|_| fs::remove_dir_all(&folder))?;
                }
                self.replies.send(Reply::Removed { session })
            }
        }
    }

    /// Runs `flagperf doctor` in the offered checkout, and sends its report.
    fn examine(&self, arguments: Vec<String>) -> io::Result<()> {
        let report = examine(&self.checkout()?, &own_program()?, arguments).map_err(io::Error::other)?;
        self.replies.send(Reply::Report { report })
    }

    /// Plans cases in the offered checkout in a thread, which replies with [`Reply::Planned`].
    fn plan(&self, arguments: Vec<String>) -> io::Result<()> {
        let root = match self.checkout() {
            Ok(root) => root,
            Err(error) => return self.replies.send(Reply::Planned { errors: vec![HostError::new(error.to_string())] }),
        };
        let (replies, program) = (self.replies.clone(), own_program()?);
        thread::spawn(move || {
            let errors = plan_errors(&root, &program, arguments).unwrap_or_else(|error| vec![HostError::new(error)]);
            // This fails when the connection has ended.
            let _ = replies.send(Reply::Planned { errors });
        });
        Ok(())
    }

    /// Measures in the offered checkout in a thread, which replies with [`Reply::Measured`] or [`Reply::NotMeasured`].
    fn measure(&mut self, arguments: &[String]) -> io::Result<()> {
        // An earlier measurement ends first.
        self.member = None;
        let started = self.checkout().and_then(|root| {
            GroupMember::start(&root, &own_program()?, arguments, self.replies.clone()).map_err(io::Error::other)
        });
        match started {
            Ok(member) => {
                self.member = Some(member);
                Ok(())
            }
            Err(error) => self.replies.send(Reply::NotMeasured { reason: error.to_string() }),
        }
    }

    /// Returns the folder of the offered checkout. Copying its files may take long, so the agent says meanwhile that it works.
    fn checkout(&self) -> io::Result<PathBuf> {
        thread::scope(|scope| {
            let (working, done) = bounded::<()>(0);
            let replies = &self.replies;
            scope.spawn(move || {
                while done.recv_timeout(WORKING_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if replies.send(Reply::Working).is_err() {
                        return;
                    }
                }
            });
            let checkout = self.store.checkout(&self.files);
            drop(working);
            let (root, changed) = checkout?;
            self.report_restored(&changed)?;
            Ok(root)
        })
    }

    /// Reports stored files that were not as they had been sent.
    fn report_restored(&self, paths: &[String]) -> io::Result<()> {
        match paths {
            [] => Ok(()),
            [first, others @ ..] => self.replies.send(Reply::Restored { first: first.clone(), others: others.len() }),
        }
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

    /// Prepares a session, and starts its process or returns the process that the launcher must start. A session that was
    /// prepared before the connection broke is not prepared again.
    fn start(&self, session: &str, task: SessionTask, by_launcher: bool) -> io::Result<Option<SessionProcess>> {
        let folder = self.folder(session)?;
        if self.store.ended_mark(&folder).exists() {
            return Ok(None);
        }
        let is_new = self.prepare(&folder, task)?;
        if by_launcher {
            let has_begun = folder.join(LOCK_FILE).exists();
            return Ok((!has_begun).then_some(SessionProcess { program: own_program()?, folder }));
        }
        if is_new {
            let argv = [self.program.clone(), vec![folder.clone().into()]].concat();
            start_detached(&argv, &folder.join(LOG_FILE)).map_err(io::Error::other)?;
        }
        Ok(None)
    }

    /// Creates the folder of a session with its task. Returns false if another connection has already done this.
    fn prepare(&self, folder: &Path, task: SessionTask) -> io::Result<bool> {
        let path = folder.join(TASK_FILE);
        if path.exists() {
            return Ok(false);
        }
        let task = SessionTask { root: self.checkout()?, program: own_program()?, ..task };
        fs::create_dir_all(folder)?;
        match file::stage(&serde_json::to_vec(&task)?, &path, None)?.persist_noclobber(&path) {
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            staged => staged.map(|_| true).map_err(|error| error.error),
        }
    }

    fn attach(&mut self, session: &str, have: BTreeMap<String, u64>, round: u32) -> io::Result<()> {
        let folder = self.folder(session)?;
        let task = fs::read(folder.join(TASK_FILE)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => deleted(&folder),
            _ => error,
        })?;
        let task: SessionTask = serde_json::from_slice(&task)?;
        let root = folder.join(RESULTS).join(&task.run).join(&task.folder);
        let (sender, commands) = bounded(64);
        self.forwarders.insert(session.to_owned(), sender);
        let forwarder = Forwarder {
            session: session.to_owned(),
            files: FolderSender::new(root, have),
            folder,
            round,
            replies: self.replies.clone(),
        };
        thread::spawn(move || forwarder.run(commands));
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

/// Returns the path of this program. When agents on hosts with a common home folder store the same program at the same time, one
/// replaces the file of another by a file with the same content, and the kernel marks the path of the former as deleted.
fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string().into_vec();
    let path = path.strip_suffix(b" (deleted)").map(<[u8]>::to_vec).unwrap_or(path);
    Ok(OsString::from_vec(path).into())
}

/// Returns the time of the wall clock since 1970.
pub(super) fn wall_time() -> Seconds {
    Seconds(jiff::Timestamp::now().as_duration().as_secs_f64())
}
