//! What a run on hosts does with the events of its links while replicas run.

use super::conduct::FleetRun;
use super::host_link::{LinkEvent, SessionEnd};
use super::replica::{ReplicaEnd, ReplicaState, display_name};
use flagperf_run::Notice;

impl FleetRun<'_> {
    /// Handles an event; `replicas` are those of the case that runs.
    pub(super) fn handle(
        &mut self,
        host: &str,
        event: LinkEvent,
        replicas: &mut [ReplicaState],
        notify: &mut dyn FnMut(&Notice<'_>),
    ) {
        let find =
            |replicas: &mut [ReplicaState], session: &str| replicas.iter().position(|open| open.session == session);
        match event {
            LinkEvent::Connected(_) | LinkEvent::Reserved(_) | LinkEvent::Planned(_) | LinkEvent::Measured(_) => {}
            LinkEvent::Clock(_) | LinkEvent::Removed { .. } | LinkEvent::Warning(_) => {
                self.fleet.note(host, event, notify);
            }
            LinkEvent::HostBusy { reason, .. } => {
                let what = format!("is no longer reserved for this run: {reason}");
                notify(&Notice::Host { host, what: &what, is_warning: true });
            }
            LinkEvent::PartReceived { session, growth } => {
                let now = self.options.clock.now();
                find(replicas, &session).into_iter().for_each(|place| replicas[place].receive(growth, now));
            }
            LinkEvent::Disconnected(reason) => {
                let what = format!("is disconnected: {reason}; reconnecting");
                notify(&Notice::Host { host, what: &what, is_warning: true });
            }
            LinkEvent::Reconnected(after) => {
                let what = format!("has reconnected after {:.1} s", after.0);
                notify(&Notice::Host { host, what: &what, is_warning: false });
            }
            LinkEvent::HostLost(reason) => {
                let what = format!("is lost: {reason}");
                notify(&Notice::Host { host, what: &what, is_warning: true });
                let of_host = replicas.iter_mut().filter(|open| open.replica.host == host && open.end.is_none());
                of_host.for_each(|open| {
                    open.end = Some(lost_host(host, &reason));
                    open.is_given_up = true;
                });
                self.fleet.lost.insert(host.to_owned(), reason);
            }
            LinkEvent::Preparation { session, line } => {
                let Some(place) = find(replicas, &session) else { return };
                let (host, what) = (display_name(&replicas[place].replica), format!("prepares its worker: {line}"));
                notify(&Notice::Host { host: &host, what: &what, is_warning: false });
            }
            LinkEvent::Event { session, phase, event } => {
                let Some(place) = find(replicas, &session) else { return };
                replicas[place].begins(self.fleet.offsets.get(host).copied());
                let replica = display_name(&replicas[place].replica);
                notify(&Notice::ReplicaEvent { replica: &replica, phase, event: &event });
            }
            LinkEvent::Ready { session, step } => {
                find(replicas, &session).into_iter().for_each(|place| replicas[place].waits_for = Some(step));
            }
            LinkEvent::SessionEnded { session, outcome, log } => {
                let Some(place) = find(replicas, &session) else { return };
                let end = match outcome {
                    Some(outcome) => ReplicaEnd::Ended(*outcome),
                    None => {
                        replicas[place].is_given_up = true;
                        ReplicaEnd::Lost(unexpected_end(host, &log), String::new())
                    }
                };
                replicas[place].end = Some(end);
            }
            LinkEvent::SessionFailed { session, reason, end } => {
                let Some(place) = find(replicas, &session) else { return };
                replicas[place].is_given_up = end == SessionEnd::Silent;
                replicas[place].end = Some(ReplicaEnd::Lost(format!("host `{host}`: {reason}"), String::new()));
            }
        }
    }
}

/// Returns the reason for which a case has no result: its process ended without one. `log` has the last lines of the process,
/// of which the last has the cause.
fn unexpected_end(host: &str, log: &[String]) -> String {
    let last = log.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty());
    let last = last.map(|line| format!(": {line}")).unwrap_or_default();
    format!("the process that ran the case on host `{host}` ended unexpectedly{last}")
}

/// Returns the end of a replica whose host was lost.
pub(super) fn lost_host(host: &str, reason: &str) -> ReplicaEnd {
    let hint = "the folder of the result contains what had arrived before; `flagperf doctor --hosts` checks the hosts";
    ReplicaEnd::Lost(format!("host `{host}` was lost: {reason}"), hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_an_unexpected_end_is_the_last_line_without_its_indentation() {
        let log = ["Error: the session failed", "", "Caused by:", "    cannot create `lock`: Permission denied", ""];
        let ended = "the process that ran the case on host `h1` ended unexpectedly";
        assert_eq!(
            unexpected_end("h1", &log.map(str::to_owned)),
            format!("{ended}: cannot create `lock`: Permission denied")
        );
        assert_eq!(unexpected_end("h1", &[]), ended);
    }
}
