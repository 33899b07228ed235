//! The thread of a link: keeps a connection to the agent of a host, reconnects after a failure, and writes the files that arrive.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, tick};

use super::agent::wall_time;
use super::connection::{Connection, ConnectionEnd, ConnectionSettings};
use super::forwarder::last_lines;
use super::host_link::{LinkCommand, LinkContext, LinkEvent};
use super::launcher::Launcher;
use super::link_sessions::OpenSession;
use super::outage::Outage;
use super::protocol::Request;
use super::session::started_by;
use super::transfer_rate::{is_too_slow, slow_reason};
use flagperf_config::Site;
use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;

/// Longest time between two pings of the agent.
const PING_INTERVAL_MAX: Seconds = Seconds(2.0);
/// Time without a reply after which a connection counts as broken.
pub(super) const SILENCE_MAX: Seconds = Seconds(10.0);
/// How much longer a session or a reservation waits for contact than this process tries to reconnect.
const CONTACT_MARGIN: Seconds = Seconds(30.0);
/// Number of pings without an answer from which on answers wait behind files.
const PINGS_WAITING_MAX: usize = 3;
/// Time after which an agent that has said that it is busy with a long request says so again, three times over.
const WORKING_MAX: Seconds = Seconds(6.0);
/// Number of waiting events from which on those for the display are dropped.
const DISPLAY_EVENTS_MAX: usize = 1000;
/// Shortest and longest wait before a new connection is opened.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The state of a link's thread.
pub(super) struct LinkThread {
    pub(super) host: String,
    pub(super) launcher: &'static dyn Launcher,
    pub(super) context: Arc<LinkContext>,
    pub(super) commands: Receiver<LinkCommand>,
    pub(super) events: Sender<(String, LinkEvent)>,
    pub(super) sessions: HashMap<String, OpenSession>,
    pub(super) interrupted: bool,
    /// When the run last made progress on the host: see `Reply::is_progress`.
    pub(super) progress: Nanos,
    /// The broken connections since then.
    pub(super) outage: Outage,
    /// Number of bytes of files that have arrived.
    pub(super) received_bytes: u64,
    /// When the agent last said that it is busy with a long request.
    pub(super) worked: Option<Nanos>,
    /// The reservation that a new connection requests again: whether it waits.
    pub(super) reservation: Option<bool>,
    /// The arguments of a plan that the host has not answered yet, and that a new connection requests again.
    pub(super) plan_arguments: Option<Vec<String>>,
    /// The wall clock when each ping was sent that is not answered yet.
    pub(super) pings: VecDeque<Seconds>,
}

/// What is reported about a host that had another program stored as this one.
pub(super) const REPLACED_PROGRAM: &str = "had another file stored as this program, which is replaced";

/// Returns what is reported about a host whose stored files were not as they had been sent.
pub(super) fn restored_text(first: &str, others: usize) -> String {
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("had stored `{first}`{others} otherwise than as sent, which is replaced or removed")
}

/// Returns the time without contact after which a session and a reservation end. It is longer than this process tries to
/// reconnect, because it notices a broken connection late, and the last attempt takes a while.
pub fn contact_limit(site: &Site) -> Seconds {
    Seconds(site.host_timeout.0 + CONTACT_MARGIN.0)
}

impl LinkThread {
    pub(super) fn report(&self, event: LinkEvent) {
        // This fails when the run has ended.
        let _ = self.events.send((self.host.clone(), event));
    }

    /// Reports an event for the display, which may be dropped: the files have all events.
    pub(super) fn report_event(&self, session: String, phase: Phase, event: Box<Event>) {
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
            let opened = self.context.clock.now();
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
            self.outage.broke(opened, self.progress, broken, self.context.site.host_timeout);
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
            let now = self.context.clock.now();
            let silent = self.outage.length(now);
            if silent.0 > limit.0 {
                return Err(self.outage.reason(now, &reason));
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
        if let Err(error) = self.request_all(connection) {
            return ConnectionEnd::of(&error);
        }
        let (clock, replies, commands) =
            (self.context.clock.clone(), connection.replies.clone(), self.commands.clone());
        let limit = self.context.site.host_timeout;
        let silence_max = if limit < SILENCE_MAX { limit } else { SILENCE_MAX };
        // Several pings fit into the time limit.
        let ticks = tick(Duration::from_secs_f64(PING_INTERVAL_MAX.0.min(silence_max.0 / 4.0)));
        let mut last_reply = clock.now();
        let mut backlog = None;
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
                    if let Err(end) = self.check(connection, &mut backlog, silence_max) {
                        return end;
                    }
                }
            }
        }
    }

    /// Requests on a new connection what earlier ones had not answered.
    fn request_all(&mut self, connection: &mut Connection) -> io::Result<()> {
        self.pings.clear();
        self.reservation.map_or(Ok(()), |waits| connection.send(&self.reserve_request(waits)))?;
        let plan = self.plan_arguments.clone().map(|arguments| Request::Plan { arguments });
        plan.map_or(Ok(()), |request| connection.send(&request))?;
        let sessions = self.sessions.keys().cloned().collect::<Vec<_>>();
        sessions.iter().try_for_each(|session| self.start_and_attach(connection, session))
    }

    /// Sends a ping, and gives up a connection that is too slow and sessions that are silent. `backlog` is since when, and since how
    /// many bytes, the answers to pings have been waiting behind files.
    fn check(
        &mut self,
        connection: &mut Connection,
        backlog: &mut Option<(Nanos, u64)>,
        silence_max: Seconds,
    ) -> Result<(), ConnectionEnd> {
        let now = self.context.clock.now();
        *backlog = if self.is_behind() { backlog.or(Some((now, self.received_bytes))) } else { None };
        if let Some((since, bytes)) = *backlog {
            let (taken, bytes) = (now.since(since), self.received_bytes - bytes);
            if is_too_slow(taken, bytes, silence_max) {
                return Err(ConnectionEnd::Broken(slow_reason(taken, bytes)));
            }
        }
        self.pings.push_back(wall_time());
        connection.send(&Request::Ping).map_err(|error| ConnectionEnd::of(&error))?;
        self.abandon_silent_sessions(connection)
    }

    /// Returns whether the answers of the agent wait behind the files that it has sent. Signs of its sessions then wait, too. An agent
    /// that works on a long request says so, and answers later.
    pub(super) fn is_behind(&self) -> bool {
        let works = self.worked.is_some_and(|at| self.context.clock.now().since(at).0 <= WORKING_MAX.0);
        self.pings.len() > PINGS_WAITING_MAX && !works
    }

    /// Returns the last lines that the launcher printed, if it starts sessions: it may have failed to start one.
    pub(super) fn launcher_log(&self) -> Vec<String> {
        if self.launcher.starts_sessions() { last_lines(&self.context.log) } else { Vec::new() }
    }

    fn execute(&mut self, connection: &mut Connection, command: LinkCommand) -> io::Result<()> {
        match command {
            LinkCommand::Start { session, task, folder } => {
                let open = OpenSession::new(task, folder, self.context.clock.now());
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
            LinkCommand::Measure { arguments } => {
                let contact_limit_s = self.context.contact_limit;
                connection.send(&Request::Measure { arguments, contact_limit_s })
            }
            LinkCommand::EndMeasurement => connection.send(&Request::EndMeasurement),
            LinkCommand::EndSession { session, reason } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.ended_because = Some(reason.clone()));
                connection.send(&Request::Interrupt { session, reason: Some(reason) })
            }
            LinkCommand::Interrupt => {
                self.interrupted = true;
                let interrupt = |session: &String| Request::Interrupt { session: session.clone(), reason: None };
                self.sessions.keys().map(interrupt).try_for_each(|request| connection.send(&request))
            }
        }
    }

    fn reserve_request(&self, waits: bool) -> Request {
        let LinkContext { run, run_id, contact_limit, .. } = &*self.context;
        let (run, run_id, contact_limit_s) = (run.clone(), run_id.clone(), *contact_limit);
        Request::Reserve { run_id, run, started_by: started_by(), waits, contact_limit_s }
    }
}
