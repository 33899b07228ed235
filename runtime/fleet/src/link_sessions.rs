//! The sessions of a link: starts them, requests their files, and gives up those that are silent or endless.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::connection::{Connection, ConnectionEnd};
use super::displayed_events::DisplayedEvents;
use super::host_link::{LinkEvent, SessionEnd};
use super::link_thread::LinkThread;
use super::mirror::list_files;
use super::protocol::Request;
use super::received_files::ReceivedFiles;
use super::session::SessionTask;
use flagperf_config::Site;
use flagperf_core::measure::Nanos;
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;

/// How often the files of a session are requested again because some are missing or changed on this machine.
const RESENT_MAX: u32 = 10;
/// Longest time in which an agent starts a session: it makes the checkout first.
const START_TIME_MAX: Seconds = Seconds(600.0);

/// A session that has not ended.
pub(super) struct OpenSession {
    /// The task that starts the session; `None` once it was started.
    pub(super) task: Option<Box<SessionTask>>,
    pub(super) folder: PathBuf,
    pub(super) released: Vec<Step>,
    /// Why the run has ended this session, if it has.
    pub(super) ended_because: Option<String>,
    /// Number of the last request for the files of the session. Replies to earlier requests are ignored.
    pub(super) round: u32,
    pub(super) displayed: DisplayedEvents,
    /// How often the files were requested again, because another process had changed them on this machine.
    resent: u32,
    /// The files that have arrived.
    pub(super) received: ReceivedFiles,
    /// When the session was to start.
    started: Nanos,
    /// When the session or its agent last said something about it on this connection.
    pub(super) last_sign: Nanos,
}

impl OpenSession {
    /// Returns a session that is to start now.
    pub(super) fn new(task: Box<SessionTask>, folder: PathBuf, now: Nanos) -> Self {
        OpenSession {
            task: Some(task),
            folder,
            released: Vec::new(),
            ended_because: None,
            round: 0,
            displayed: DisplayedEvents::default(),
            resent: 0,
            received: ReceivedFiles::default(),
            started: now,
            last_sign: now,
        }
    }
}

/// Returns the longest time of a session: that of both phases, in which it may wait as long for slower replicas.
fn session_time_max(site: &Site) -> Seconds {
    Seconds(4.0 * site.phase_timeout.0 + START_TIME_MAX.0)
}

impl LinkThread {
    /// Requests the missing files of a session again, because `path` on this machine was changed or removed.
    pub(super) fn request_again(
        &mut self,
        connection: &mut Connection,
        session: String,
        path: &str,
    ) -> Result<(), ConnectionEnd> {
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        open.resent += 1;
        if open.resent <= RESENT_MAX {
            return self.start_and_attach(connection, &session).map_err(|error| ConnectionEnd::of(&error));
        }
        let reason =
            format!("`{path}` is incomplete: is another program changing or deleting the results on this machine?");
        self.abandon(connection, session, reason, SessionEnd::Unwritten)
    }

    /// Gives up sessions of which nothing was heard for too long although the agent answers: their process is stopped or hangs. Also
    /// gives up sessions that have taken longer than their phases may.
    pub(super) fn abandon_silent_sessions(&mut self, connection: &mut Connection) -> Result<(), ConnectionEnd> {
        let (now, limit) = (self.context.clock.now(), self.context.site.host_timeout);
        let time_max = session_time_max(&self.context.site);
        let endless = self.sessions.iter().filter(|(_, open)| now.since(open.started).0 > time_max.0);
        let endless: Vec<String> = endless.map(|(session, _)| session.clone()).collect();
        for session in endless {
            let reason = format!("the case has not ended within {:.0} s (four times `PHASE_TIMEOUT`)", time_max.0);
            self.abandon(connection, session, reason, SessionEnd::Silent)?;
        }
        if self.is_behind() {
            return Ok(());
        }
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
    pub(super) fn abandon(
        &mut self,
        connection: &mut Connection,
        session: String,
        reason: String,
        end: SessionEnd,
    ) -> Result<(), ConnectionEnd> {
        self.sessions.remove(&session);
        let sent = connection.send(&Request::Interrupt { session: session.clone(), reason: None });
        self.report(LinkEvent::SessionFailed { session, reason, end });
        sent.map_err(|error| ConnectionEnd::of(&error))
    }

    /// Starts a session unless it was started before, and requests its files.
    pub(super) fn start_and_attach(&mut self, connection: &mut Connection, session: &str) -> io::Result<()> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let name = session.to_owned();
        let have: BTreeMap<String, u64> = list_files(&open.folder)?;
        open.received = ReceivedFiles::of(&open.folder)?;
        open.round += 1;
        open.last_sign = self.context.clock.now();
        let mut requests = Vec::new();
        if let Some(task) = &open.task {
            let (session, task) = (name.clone(), task.clone());
            requests.push(Request::Start { session, task, by_launcher: self.launcher.starts_sessions() });
        }
        requests.push(Request::Attach { session: name.clone(), have, round: open.round });
        requests.extend(open.released.iter().map(|step| Request::Release { session: name.clone(), step: *step }));
        let reason = open.ended_because.clone();
        let is_interrupted = self.interrupted || reason.is_some();
        requests.extend(is_interrupted.then_some(Request::Interrupt { session: name, reason }));
        requests.iter().try_for_each(|request| connection.send(request))
    }
}
