//! The link to one host: a thread that keeps a connection to the agent of the host, reconnects after a failure, and writes the
//! files that arrive.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, tick, unbounded};

use super::bootstrap::OwnProgram;
use super::connection::{Connection, ConnectionSettings, ReceivedReply};
use super::launcher::Launcher;
use super::mirror::{PartError, list_files, write_part};
use super::protocol::{HostFacts, Reply, Request};
use super::session::{SessionOutcome, SessionTask};
use super::tree::Tree;
use crate::config::Site;
use crate::event::Event;
use crate::measure::{Clock, Nanos};
use crate::step::{Phase, Step};
use crate::text::{one_line, truncate};
use crate::units::Seconds;

/// Time between two pings of the agent.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Time without a reply after which a connection counts as broken.
const SILENCE_MAX: Seconds = Seconds(10.0);
/// Largest number of bytes of a reason that a host states.
const REASON_BYTES_MAX: usize = 2000;
/// Longest wait for a link to end, which first removes the finished sessions from its host.
const CLOSE_WAIT: Duration = Duration::from_secs(3);
/// How often the files of a session are requested again because some are missing or changed on this machine.
const RESENT_MAX: u32 = 10;
/// Shortest and longest wait before a new connection is opened.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What all links of a run share.
pub(super) struct LinkContext {
    pub(super) site: Site,
    pub(super) program: OwnProgram,
    pub(super) tree: Tree,
    /// File to which the programs of launchers write their standard error.
    pub(super) log: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
}

/// A command to a link.
pub(super) enum LinkCommand {
    /// Start a session, whose files are written below `folder`.
    Start { session: String, task: Box<SessionTask>, folder: PathBuf },
    /// Let a session pass the barrier of this step.
    Release { session: String, step: Step },
    /// Interrupt every session.
    Interrupt,
    /// Remove the files of a finished session from the host.
    Remove { session: String },
}

/// An event that a link reports.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// The first connection was opened.
    Connected(HostFacts),
    /// The connection broke, for this reason. The link tries to reconnect.
    Disconnected(String),
    /// A new connection was opened, this long after the last one broke.
    Reconnected(Seconds),
    /// The host is lost, for this reason: it could not be reached within the time limit.
    HostLost(String),
    /// A session emitted an event.
    Event { session: String, phase: Phase, event: Box<Event> },
    /// A session waits at a barrier.
    Ready { session: String, step: Step },
    /// A session has ended, and all of its files have arrived.
    SessionEnded { session: String, outcome: Option<Box<SessionOutcome>>, log: Vec<String> },
    /// A session failed to start, or its files cannot be written on this machine.
    SessionFailed { session: String, reason: String },
}

/// The handle of a link. Dropping it closes the connection.
pub(super) struct HostLink {
    commands: Option<Sender<LinkCommand>>,
    /// Disconnects when the thread of the link has ended.
    done: Receiver<()>,
}

impl HostLink {
    /// Starts the link to a host. It sends its events to `events`, each with the name of the host.
    pub(super) fn start(
        host: String,
        launcher: &'static dyn Launcher,
        context: Arc<LinkContext>,
        events: Sender<(String, LinkEvent)>,
    ) -> Self {
        let (commands, receiver) = unbounded();
        let (running, done) = bounded::<()>(0);
        thread::spawn(move || {
            let sessions = HashMap::new();
            let progress = context.clock.now();
            let (commands, interrupted) = (receiver, false);
            LinkThread { host, launcher, context, commands, events, sessions, interrupted, progress }.run();
            drop(running);
        });
        HostLink { commands: Some(commands), done }
    }

    /// Sends a command to the link, which ignores it if the host is lost.
    pub(super) fn send(&self, command: LinkCommand) {
        let _ = self.commands.as_ref().map(|commands| commands.send(command));
    }

    /// Asks the link to close its connection and end.
    pub(super) fn close(&mut self) {
        self.commands = None;
    }
}

impl Drop for HostLink {
    /// Waits until the host has answered the last commands, but not for long if the connection is broken.
    fn drop(&mut self) {
        self.close();
        let _ = self.done.recv_timeout(CLOSE_WAIT);
    }
}

/// A session that has not ended.
struct OpenSession {
    /// The task that starts the session; `None` once it was started.
    task: Option<Box<SessionTask>>,
    folder: PathBuf,
    released: Vec<Step>,
    /// Number of the last request for the files of the session. Replies to earlier requests are ignored.
    round: u32,
    /// How often the files were requested again, because another process had changed them on this machine.
    resent: u32,
}

/// The state of a link's thread.
struct LinkThread {
    host: String,
    launcher: &'static dyn Launcher,
    context: Arc<LinkContext>,
    commands: Receiver<LinkCommand>,
    events: Sender<(String, LinkEvent)>,
    sessions: HashMap<String, OpenSession>,
    interrupted: bool,
    /// When the agent last replied to a request of the run. Opening a connection does not count.
    progress: Nanos,
}

/// Why a connection is no longer used.
enum ConnectionEnd {
    /// The launcher's program has exited.
    Exited,
    /// The connection broke, for this reason.
    Broken(String),
    /// The run has ended and needs the connection no more.
    Closed,
}

/// Returns a reason that a host states as one line of limited length.
fn short(reason: &str) -> String {
    truncate(&one_line(reason), REASON_BYTES_MAX).into_owned()
}

impl ConnectionEnd {
    /// Classifies an error of sending a request.
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => ConnectionEnd::Exited,
            _ => ConnectionEnd::Broken(error.to_string()),
        }
    }
}

impl LinkThread {
    fn report(&self, event: LinkEvent) {
        // This fails when the run has ended.
        let _ = self.events.send((self.host.clone(), event));
    }

    /// Keeps a connection open until the run has ended or the host is lost.
    fn run(mut self) {
        let mut connection = match self.open(self.context.site.host_timeout) {
            Ok(connection) => connection,
            Err(reason) => return self.report(LinkEvent::HostLost(reason)),
        };
        self.report(LinkEvent::Connected(connection.host.clone()));
        self.progress = self.context.clock.now();
        loop {
            let reason = match self.serve(&mut connection) {
                ConnectionEnd::Closed => return connection.close(),
                ConnectionEnd::Exited => connection.why_ended(),
                ConnectionEnd::Broken(reason) => {
                    drop(connection);
                    reason
                }
            };
            let broken = self.context.clock.now();
            self.report(LinkEvent::Disconnected(reason.clone()));
            match self.reconnect(reason) {
                Ok(opened) => connection = opened,
                Err(reason) => {
                    let state = self.launcher.state_of(&self.host);
                    let reason = if state.is_empty() { reason } else { format!("{reason}; {state}") };
                    return self.report(LinkEvent::HostLost(reason));
                }
            }
            self.report(LinkEvent::Reconnected(self.context.clock.now().since(broken)));
        }
    }

    fn open(&self, silence_max: Seconds) -> Result<Connection, String> {
        let (LinkContext { site, program, tree, log, .. }, launcher) = (&*self.context, self.launcher);
        Connection::open(&self.host, ConnectionSettings { launcher, site, program, tree, log, silence_max })
    }

    /// Tries to open a new connection until that succeeds or the time limit has passed.
    fn reconnect(&self, mut reason: String) -> Result<Connection, String> {
        let limit = self.context.site.host_timeout;
        let mut wait = WAIT_MIN;
        loop {
            let silent = self.context.clock.now().since(self.progress);
            if silent.0 > limit.0 {
                return Err(format!("no contact for {:.0} s; last error: {reason}", silent.0));
            }
            thread::sleep(wait);
            wait = (2 * wait).min(WAIT_MAX);
            match self.open(Seconds((limit.0 - silent.0).max(WAIT_MAX.as_secs_f64()))) {
                Ok(connection) => return Ok(connection),
                Err(error) => reason = error,
            }
        }
    }

    /// Executes commands and handles replies until the connection ends.
    fn serve(&mut self, connection: &mut Connection) -> ConnectionEnd {
        let sessions = self.sessions.keys().cloned().collect::<Vec<_>>();
        for session in sessions {
            if let Err(error) = self.start_and_attach(connection, &session) {
                return ConnectionEnd::of(&error);
            }
        }
        let (clock, replies, commands) =
            (self.context.clock.clone(), connection.replies.clone(), self.commands.clone());
        let limit = self.context.site.host_timeout;
        let silence_max = if limit < SILENCE_MAX { limit } else { SILENCE_MAX };
        let ticks = tick(PING_INTERVAL);
        let mut last_reply = clock.now();
        loop {
            select! {
                recv(replies) -> received => {
                    last_reply = clock.now();
                    match received {
                        Ok(received) => if let Err(end) = self.handle(connection, received) { return end },
                        Err(_) => return ConnectionEnd::Exited,
                    }
                }
                recv(commands) -> command => match command {
                    Ok(command) => if let Err(error) = self.execute(connection, command) {
                        return ConnectionEnd::of(&error);
                    },
                    Err(_) => return ConnectionEnd::Closed,
                },
                recv(ticks) -> _ => {
                    if clock.now().since(last_reply) > silence_max {
                        return ConnectionEnd::Broken(format!("no answer from the host for {:.0} s", silence_max.0));
                    }
                    if let Err(error) = connection.send(&Request::Ping) {
                        return ConnectionEnd::of(&error);
                    }
                }
            }
        }
    }

    /// Requests the missing files of a session again, because `path` on this machine was changed or removed.
    fn request_again(&mut self, connection: &mut Connection, session: String, path: &str) -> Result<(), ConnectionEnd> {
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        open.resent += 1;
        if open.resent <= RESENT_MAX {
            return self.start_and_attach(connection, &session).map_err(|error| ConnectionEnd::of(&error));
        }
        let reason =
            format!("`{path}` is incomplete: is another program changing or deleting the results on this machine?");
        self.abandon(connection, session, reason)
    }

    /// Interrupts a session whose files cannot be written on this machine, so that it does not run during the next case.
    fn abandon(&mut self, connection: &mut Connection, session: String, reason: String) -> Result<(), ConnectionEnd> {
        self.sessions.remove(&session);
        let sent = connection.send(&Request::Interrupt { session: session.clone() });
        self.report(LinkEvent::SessionFailed { session, reason });
        sent.map_err(|error| ConnectionEnd::of(&error))
    }

    /// Starts a session unless it was started before, and requests its files.
    fn start_and_attach(&mut self, connection: &mut Connection, session: &str) -> io::Result<()> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let name = session.to_owned();
        let have: BTreeMap<String, u64> = list_files(&open.folder)?;
        open.round += 1;
        let mut requests = Vec::new();
        if let Some(task) = &open.task {
            requests.push(Request::Start { session: name.clone(), task: task.clone() });
        }
        requests.push(Request::Attach { session: name.clone(), have, round: open.round });
        requests.extend(open.released.iter().map(|step| Request::Release { session: name.clone(), step: *step }));
        requests.extend(self.interrupted.then_some(Request::Interrupt { session: name }));
        requests.iter().try_for_each(|request| connection.send(request))
    }

    fn execute(&mut self, connection: &mut Connection, command: LinkCommand) -> io::Result<()> {
        match command {
            LinkCommand::Start { session, task, folder } => {
                let open = OpenSession { task: Some(task), folder, released: Vec::new(), round: 0, resent: 0 };
                self.sessions.insert(session.clone(), open);
                self.start_and_attach(connection, &session)
            }
            LinkCommand::Release { session, step } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.released.push(step));
                connection.send(&Request::Release { session, step })
            }
            LinkCommand::Remove { session } => connection.send(&Request::Remove { session }),
            LinkCommand::Interrupt => {
                self.interrupted = true;
                let interrupt = |session: &String| Request::Interrupt { session: session.clone() };
                self.sessions.keys().map(interrupt).try_for_each(|request| connection.send(&request))
            }
        }
    }

    /// Handles a reply of the agent.
    fn handle(&mut self, connection: &mut Connection, received: ReceivedReply) -> Result<(), ConnectionEnd> {
        let (reply, payload) = received.map_err(|reason| ConnectionEnd::Broken(short(&reason)))?;
        if !matches!(reply, Reply::Failed { session: None, .. }) {
            self.progress = self.context.clock.now();
        }
        match reply {
            Reply::Present { .. } | Reply::Missing { .. } | Reply::Report { .. } => {}
            Reply::Started { session } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.task = None);
            }
            Reply::Part { session, path, offset, round } => {
                let open = self.sessions.get_mut(&session).filter(|open| open.round == round);
                let Some(open) = open else { return Ok(()) };
                match write_part(&open.folder, &path, offset, &payload) {
                    Ok(()) => {}
                    Err(PartError::MissingPart) => return self.request_again(connection, session, &path),
                    Err(PartError::Unwritable(error)) => {
                        let reason = format!("cannot write `{}`: {error}", open.folder.join(&path).display());
                        return self.abandon(connection, session, reason);
                    }
                }
            }
            Reply::Event { session, phase, event } => self.report(LinkEvent::Event { session, phase, event }),
            Reply::Ready { session, step } => self.report(LinkEvent::Ready { session, step }),
            Reply::Ended { session, outcome, files, log, round } => {
                let open = self.sessions.get(&session).filter(|open| open.round == round);
                let Some(open) = open else { return Ok(()) };
                // Another process may have changed the files on this machine.
                let here = list_files(&open.folder).unwrap_or_default();
                let lacking = files.iter().find(|(path, size)| here.get(*path) != Some(size));
                if let Some((path, _)) = lacking {
                    return self.request_again(connection, session, path);
                }
                self.sessions.remove(&session);
                self.report(LinkEvent::SessionEnded { session, outcome, log });
            }
            Reply::Failed { session: Some(session), reason } => {
                self.sessions.remove(&session);
                self.report(LinkEvent::SessionFailed { session, reason: short(&reason) });
            }
            Reply::Failed { session: None, reason } => return Err(ConnectionEnd::Broken(short(&reason))),
        }
        Ok(())
    }
}
