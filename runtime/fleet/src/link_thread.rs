//! The thread of a link: keeps a connection to the agent of a host, reconnects after a failure, and writes the files that arrive.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, tick};

use super::agent::wall_time;
use super::clock_offset::ClockOffset;
use super::connection::{Connection, ConnectionEnd, ConnectionSettings, ReceivedReply};
use super::displayed_events::DisplayedEvents;
use super::forwarder::last_lines;
use super::host_link::{LinkCommand, LinkContext, LinkEvent, SessionEnd};
use super::launcher::Launcher;
use super::mirror::{PartError, list_files, reconcile, write_part};
use super::protocol::{Reply, Request, SessionProcess};
use super::session::{SessionOutcome, SessionTask, started_by};
use flagperf_config::Site;
use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_core::step::{Phase, Step};
use flagperf_core::text::{one_line, truncate};
use flagperf_core::units::Seconds;
use flagperf_host::start_detached;

/// Longest time between two pings of the agent.
const PING_INTERVAL_MAX: Seconds = Seconds(2.0);
/// Time without a reply after which a connection counts as broken.
const SILENCE_MAX: Seconds = Seconds(10.0);
/// Largest number of bytes of a reason that a host states.
const REASON_BYTES_MAX: usize = 2000;
/// How often the files of a session are requested again because some are missing or changed on this machine.
const RESENT_MAX: u32 = 10;
/// Longest time in which an agent starts a session: it makes the checkout first.
const START_TIME_MAX: Seconds = Seconds(600.0);
/// How much longer a session or a reservation waits for contact than this process tries to reconnect.
const CONTACT_MARGIN: Seconds = Seconds(30.0);
/// Number of waiting events from which on those for the display are dropped.
const DISPLAY_EVENTS_MAX: usize = 1000;
/// Shortest and longest wait before a new connection is opened.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A session that has not ended.
pub(super) struct OpenSession {
    /// The task that starts the session; `None` once it was started.
    task: Option<Box<SessionTask>>,
    folder: PathBuf,
    released: Vec<Step>,
    /// Number of the last request for the files of the session. Replies to earlier requests are ignored.
    round: u32,
    displayed: DisplayedEvents,
    /// How often the files were requested again, because another process had changed them on this machine.
    resent: u32,
    /// When the session or its agent last said something about it on this connection.
    last_sign: Nanos,
}

/// The state of a link's thread.
pub(super) struct LinkThread {
    pub(super) host: String,
    pub(super) launcher: &'static dyn Launcher,
    pub(super) context: Arc<LinkContext>,
    pub(super) commands: Receiver<LinkCommand>,
    pub(super) events: Sender<(String, LinkEvent)>,
    pub(super) sessions: HashMap<String, OpenSession>,
    pub(super) interrupted: bool,
    /// When the agent last replied to a request of the run. Opening a connection does not count.
    pub(super) progress: Nanos,
    /// The reservation that a new connection requests again: whether it waits.
    pub(super) reservation: Option<bool>,
    /// The arguments of a plan that the host has not answered yet, and that a new connection requests again.
    pub(super) plan_arguments: Option<Vec<String>>,
    /// The wall clock when each ping was sent that is not answered yet.
    pub(super) pings: VecDeque<Seconds>,
}

/// Returns a reason that a host states as one line of limited length.
fn short(reason: &str) -> String {
    truncate(&one_line(reason), REASON_BYTES_MAX).into_owned()
}

/// What is reported about a host that had another program stored as this one.
pub(super) const REPLACED_PROGRAM: &str = "had another file stored as this program, which is replaced";

/// Returns what is reported about a host whose stored files were not as they had been sent.
pub(super) fn restored_text(first: &str, others: usize) -> String {
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("had stored `{first}`{others} otherwise than as sent, which is replaced or removed")
}

/// Returns a text of a host with its lines, but of limited length.
fn short_text(text: &str) -> String {
    truncate(text, REASON_BYTES_MAX).into_owned()
}

/// Returns the time without contact after which a session and a reservation end. It is longer than this process tries to
/// reconnect, because it notices a broken connection late, and the last attempt takes a while.
pub fn contact_limit(site: &Site) -> Seconds {
    Seconds(site.host_timeout.0 + CONTACT_MARGIN.0)
}

impl LinkThread {
    fn report(&self, event: LinkEvent) {
        // This fails when the run has ended.
        let _ = self.events.send((self.host.clone(), event));
    }

    /// Reports an event for the display, which may be dropped: the files have all events.
    fn report_event(&self, session: String, phase: Phase, event: Box<Event>) {
        if self.events.len() < DISPLAY_EVENTS_MAX {
            self.report(LinkEvent::Event { session, phase, event });
        }
    }

    /// Keeps a connection open until the run has ended or the host is lost.
    pub(super) fn run(mut self) {
        let mut connection = match self.open(self.context.site.host_timeout) {
            Ok(connection) => connection,
            Err(reason) => return self.report(LinkEvent::HostLost(reason)),
        };
        self.report(LinkEvent::Connected(connection.host.clone()));
        self.report_replaced_program(&connection);
        self.progress = self.context.clock.now();
        loop {
            let reason = match self.serve(&mut connection) {
                ConnectionEnd::Closed => {
                    if self.reservation.is_some() {
                        // Without it, the reservation ends when the run has had no contact.
                        let _ = connection.send(&Request::EndReservation);
                    }
                    return connection.close();
                }
                ConnectionEnd::Exited => connection.why_ended(),
                ConnectionEnd::Broken(reason) => {
                    drop(connection);
                    reason
                }
            };
            let broken = self.context.clock.now();
            self.report(LinkEvent::Disconnected(reason.clone()));
            self.sessions.values_mut().for_each(|open| open.displayed.connection_broke(&open.folder));
            match self.reconnect(reason) {
                Ok(opened) => connection = opened,
                Err(reason) => {
                    let state = self.launcher.state_of(&self.host);
                    let reason = if state.is_empty() { reason } else { format!("{reason}; {state}") };
                    return self.report(LinkEvent::HostLost(reason));
                }
            }
            self.report(LinkEvent::Reconnected(self.context.clock.now().since(broken)));
            self.report_replaced_program(&connection);
        }
    }

    /// Reports that the host had another program stored as this one.
    fn report_replaced_program(&self, connection: &Connection) {
        if connection.has_replaced_program {
            self.report(LinkEvent::Warning(REPLACED_PROGRAM.to_owned()));
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
        self.pings.clear();
        if let Some(Err(error)) = self.reservation.map(|waits| connection.send(&self.reserve_request(waits))) {
            return ConnectionEnd::of(&error);
        }
        let plan = self.plan_arguments.clone().map(|arguments| connection.send(&Request::Plan { arguments }));
        if let Some(Err(error)) = plan {
            return ConnectionEnd::of(&error);
        }
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
        // Several pings fit into the time limit.
        let ticks = tick(Duration::from_secs_f64(PING_INTERVAL_MAX.0.min(silence_max.0 / 4.0)));
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
                    self.pings.push_back(wall_time());
                    if let Err(error) = connection.send(&Request::Ping) {
                        return ConnectionEnd::of(&error);
                    }
                    if let Err(end) = self.abandon_silent_sessions(connection) {
                        return end;
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
        self.abandon(connection, session, reason, SessionEnd::Unwritten)
    }

    /// Gives up sessions of which nothing was heard for too long although the agent answers: their process is stopped or hangs.
    fn abandon_silent_sessions(&mut self, connection: &mut Connection) -> Result<(), ConnectionEnd> {
        let (now, limit) = (self.context.clock.now(), self.context.site.host_timeout);
        let silence_of = |open: &OpenSession| now.since(open.last_sign).0;
        let is_silent = |open: &OpenSession| {
            silence_of(open) > if open.task.is_some() { START_TIME_MAX.0.max(limit.0) } else { limit.0 }
        };
        let silent = self.sessions.iter().filter(|(_, open)| is_silent(open));
        let silent: Vec<_> = silent.map(|(session, open)| (session.clone(), silence_of(open))).collect();
        silent.into_iter().try_for_each(|(session, seconds)| {
            let last = self.launcher_log().pop().map(|line| format!("; {}: {line}", self.launcher.name()));
            let reason = format!(
                "the process that ran the case there has given no sign for {seconds:.0} s although the host answers{}",
                last.unwrap_or_default()
            );
            self.abandon(connection, session, reason, SessionEnd::Silent)
        })
    }

    /// Interrupts a session that is given up, so that it does not run during the next case.
    fn abandon(
        &mut self,
        connection: &mut Connection,
        session: String,
        reason: String,
        end: SessionEnd,
    ) -> Result<(), ConnectionEnd> {
        self.sessions.remove(&session);
        let sent = connection.send(&Request::Interrupt { session: session.clone() });
        self.report(LinkEvent::SessionFailed { session, reason, end });
        sent.map_err(|error| ConnectionEnd::of(&error))
    }

    /// Starts a session unless it was started before, and requests its files.
    fn start_and_attach(&mut self, connection: &mut Connection, session: &str) -> io::Result<()> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let name = session.to_owned();
        let have: BTreeMap<String, u64> = list_files(&open.folder)?;
        open.round += 1;
        open.last_sign = self.context.clock.now();
        let mut requests = Vec::new();
        if let Some(task) = &open.task {
            let (session, task) = (name.clone(), task.clone());
            requests.push(Request::Start { session, task, by_launcher: self.launcher.starts_sessions() });
        }
        requests.push(Request::Attach { session: name.clone(), have, round: open.round });
        requests.extend(open.released.iter().map(|step| Request::Release { session: name.clone(), step: *step }));
        requests.extend(self.interrupted.then_some(Request::Interrupt { session: name }));
        requests.iter().try_for_each(|request| connection.send(request))
    }

    /// Starts the process of a session that the agent has prepared. It keeps running when this process ends.
    fn start_process(
        &mut self,
        connection: &mut Connection,
        session: String,
        process: &SessionProcess,
    ) -> Result<(), ConnectionEnd> {
        let argv = self.launcher.session_command(&self.host, process);
        match start_detached(&argv, &self.context.log) {
            Ok(()) => Ok(()),
            Err(error) => self.abandon(connection, session, error.to_string(), SessionEnd::Unwritten),
        }
    }

    /// Returns the last lines that the launcher printed, if it starts sessions: it may have failed to start one.
    fn launcher_log(&self) -> Vec<String> {
        if self.launcher.starts_sessions() { last_lines(&self.context.log) } else { Vec::new() }
    }

    fn execute(&mut self, connection: &mut Connection, command: LinkCommand) -> io::Result<()> {
        match command {
            LinkCommand::Start { session, task, folder } => {
                let last_sign = self.context.clock.now();
                let (task, released, displayed) = (Some(task), Vec::new(), DisplayedEvents::default());
                let open = OpenSession { task, folder, released, round: 0, displayed, resent: 0, last_sign };
                self.sessions.insert(session.clone(), open);
                self.start_and_attach(connection, &session)
            }
            LinkCommand::Release { session, step } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.released.push(step));
                connection.send(&Request::Release { session, step })
            }
            LinkCommand::Remove { session } => connection.send(&Request::Remove { session }),
            LinkCommand::Reserve { waits } => {
                self.reservation = Some(waits);
                connection.send(&self.reserve_request(waits))
            }
            LinkCommand::EndReservation => {
                self.reservation = None;
                connection.send(&Request::EndReservation)
            }
            LinkCommand::Plan { arguments } => {
                self.plan_arguments = Some(arguments.clone());
                connection.send(&Request::Plan { arguments })
            }
            LinkCommand::Interrupt => {
                self.interrupted = true;
                let interrupt = |session: &String| Request::Interrupt { session: session.clone() };
                self.sessions.keys().map(interrupt).try_for_each(|request| connection.send(&request))
            }
        }
    }

    fn reserve_request(&self, waits: bool) -> Request {
        let LinkContext { run, run_id, site, .. } = &*self.context;
        let (run, run_id, contact_limit_s) = (run.clone(), run_id.clone(), contact_limit(site));
        Request::Reserve { run_id, run, started_by: started_by(), waits, contact_limit_s }
    }

    /// Handles a reply of the agent.
    fn handle(&mut self, connection: &mut Connection, received: ReceivedReply) -> Result<(), ConnectionEnd> {
        let (reply, payload) = received.map_err(|reason| ConnectionEnd::Broken(short(&reason)))?;
        if !matches!(reply, Reply::Failed { session: None, .. }) {
            self.progress = self.context.clock.now();
        }
        if let Some(open) = reply.session().and_then(|session| self.sessions.get_mut(session)) {
            open.last_sign = self.progress;
        }
        match reply {
            Reply::Missing { .. } | Reply::Report { .. } | Reply::Working | Reply::Alive { .. } => {}
            Reply::Restored { first, others } => {
                self.report(LinkEvent::Warning(restored_text(&short(&first), others)));
            }
            Reply::Present { host } => {
                if let Some(sent) = self.pings.pop_front() {
                    self.report(LinkEvent::Clock(ClockOffset::measured(sent, wall_time(), host.time_s)));
                }
            }
            Reply::Reserved { warning } => self.report(LinkEvent::Reserved(warning.as_deref().map(short))),
            Reply::Planned { errors } => {
                self.plan_arguments = None;
                self.report(LinkEvent::Planned(errors.iter().map(|error| short_text(error)).collect()));
            }
            Reply::HostBusy { reason, run_id, waits } => {
                self.report(LinkEvent::HostBusy { reason: short(&reason), run_id, waits });
            }
            Reply::Started { session, process } => {
                let is_new = self.sessions.get_mut(&session).is_some_and(|open| open.task.take().is_some());
                if let Some(process) = process.filter(|_| is_new) {
                    return self.start_process(connection, session, &process);
                }
            }
            Reply::Part { session, path, offset, round } => {
                let open = self.sessions.get_mut(&session).filter(|open| open.round == round);
                let Some(open) = open else { return Ok(()) };
                match write_part(&open.folder, &path, offset, &payload) {
                    Ok(()) => {
                        let missed = if path == EVENTS_FILE { open.displayed.missed(&open.folder) } else { Vec::new() };
                        let missed = missed.into_iter().map(|(phase, event)| (phase, Box::new(event)));
                        missed.for_each(|(phase, event)| self.report_event(session.clone(), phase, event));
                        self.report(LinkEvent::PartReceived { session });
                    }
                    Err(PartError::MissingPart) => return self.request_again(connection, session, &path),
                    Err(PartError::Unwritable(error)) => {
                        let reason = format!("cannot write `{}`: {error}", open.folder.join(&path).display());
                        return self.abandon(connection, session, reason, SessionEnd::Unwritten);
                    }
                }
            }
            Reply::Preparation { session, line } => {
                self.report(LinkEvent::Preparation { session, line: short(&line) });
            }
            Reply::Event { session, phase, event } => {
                let open = self.sessions.get_mut(&session);
                if open.is_none_or(|open| open.displayed.accept(phase, &event)) {
                    self.report_event(session, phase, event);
                }
            }
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
                let outcome = outcome.map(|outcome| {
                    let deleted = reconcile(&open.folder, &here, &files);
                    SessionOutcome { unsealed: deleted.or(outcome.unsealed), ..*outcome }
                });
                self.sessions.remove(&session);
                let log = if outcome.is_none() && log.is_empty() { self.launcher_log() } else { log };
                let log = log.iter().map(|line| short(line)).collect();
                let outcome = outcome.map(|outcome| Box::new(outcome.shortened(short_text)));
                self.report(LinkEvent::SessionEnded { session, outcome, log });
            }
            Reply::Removed { session } => self.report(LinkEvent::Removed { session }),
            Reply::Failed { session: Some(session), reason } => {
                self.sessions.remove(&session);
                let (reason, end) = (short(&reason), SessionEnd::Unwritten);
                self.report(LinkEvent::SessionFailed { session, reason, end });
            }
            Reply::Failed { session: None, reason } => return Err(ConnectionEnd::Broken(short(&reason))),
        }
        Ok(())
    }
}
