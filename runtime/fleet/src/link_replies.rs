//! What a link does with the replies of its agent: writes the files that arrive, and reports the rest as events.

use super::agent::wall_time;
use super::clock_offset::ClockOffset;
use super::connection::{Connection, ConnectionEnd, ReceivedReply};
use super::group_member::checked_output;
use super::host_link::{LinkEvent, SessionEnd};
use super::host_text::{short, shown_errors};
use super::link_thread::{LinkThread, restored_text};
use super::mirror::{PartError, list_files, reconcile, write_part};
use super::protocol::{Reply, SessionProcess};
use super::session::SessionOutcome;
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_host::start_detached;

impl LinkThread {
    /// Handles a reply of the agent.
    pub(super) fn handle(&mut self, connection: &mut Connection, received: ReceivedReply) -> Result<(), ConnectionEnd> {
        let (reply, payload) = received.map_err(|reason| ConnectionEnd::Broken(short(&reason)))?;
        let now = self.context.clock.now();
        if reply.is_progress() {
            self.progress = now;
        }
        self.received_bytes += payload.len() as u64;
        if let Some(open) = reply.session().and_then(|session| self.sessions.get_mut(session)) {
            open.last_sign = now;
        }
        match reply {
            Reply::Missing { .. } | Reply::Report { .. } | Reply::Alive { .. } => {}
            Reply::Working => self.worked = Some(now),
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
                self.report(LinkEvent::Planned(shown_errors(&errors)));
            }
            Reply::Measured { output } => self.report(LinkEvent::Measured(checked_output(output))),
            Reply::NotMeasured { reason } => self.report(LinkEvent::Measured(Err(short(&reason)))),
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
                return self.receive_part(connection, session, (&path, offset, round), &payload);
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
                let outcome = outcome.map(|outcome| Box::new(outcome.shortened()));
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

    /// Writes a part of a file: its path, its offset and the number of the request that it answers.
    fn receive_part(
        &mut self,
        connection: &mut Connection,
        session: String,
        (path, offset, round): (&str, u64, u32),
        part: &[u8],
    ) -> Result<(), ConnectionEnd> {
        let open = self.sessions.get_mut(&session).filter(|open| open.round == round);
        let Some(open) = open else { return Ok(()) };
        let growth = match open.received.add(&open.folder, path, offset, part.len()) {
            Ok(growth) => growth,
            Err(reason) => {
                let reason = format!("what the host sends is not stored any more: {}", short(&reason));
                return self.abandon(connection, session, reason, SessionEnd::Unwritten);
            }
        };
        match write_part(&open.folder, path, offset, part) {
            Ok(()) => {
                let missed = if path == EVENTS_FILE { open.displayed.missed(&open.folder) } else { Vec::new() };
                let missed = missed.into_iter().map(|(phase, event)| (phase, Box::new(event)));
                missed.for_each(|(phase, event)| self.report_event(session.clone(), phase, event));
                if growth > 0 {
                    self.progress = self.context.clock.now();
                    self.report(LinkEvent::PartReceived { session, growth });
                }
                Ok(())
            }
            Err(PartError::MissingPart) => self.request_again(connection, session, path),
            Err(PartError::Unwritable(error)) => {
                let reason = format!("cannot write `{}`: {error}", open.folder.join(path).display());
                self.abandon(connection, session, short(&reason), SessionEnd::Unwritten)
            }
        }
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
}
