//! Makes each host plan its cases before the first case of a run begins, because a host whose plan has errors could run
//! none of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use super::conduct::{FleetRun, POLL_INTERVAL};
use super::fleet_error::FleetError;
use super::host_link::{LinkCommand, LinkEvent};
use super::host_text::HostError;
use super::replica::{ReplicaEnd, ReplicaState};
use flagperf_config::Overrides;
use flagperf_core::event::Level;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::units::Seconds;
use flagperf_host::{CapturedCommand, capture};
use flagperf_plan::Plan;
use flagperf_run::Notice;

/// Largest output of `flagperf plan` in bytes, and longest time that the command may take.
const PLAN_BYTES_MAX: u64 = 64 << 20;
const PLAN_TIME_MAX: Seconds = Seconds(300.0);
/// Longest time in which the hosts plan their cases, with the time in which they make the checkout.
const PLANS_TIME_MAX: Seconds = Seconds(900.0);
/// Longest time for which sessions of a case that does not begin are waited for.
const STOP_TIME_MAX: Seconds = Seconds(5.0);

/// An error of the plan on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRefusal {
    /// The hosts that report the error.
    pub hosts: Vec<String>,
    pub error: HostError,
}

impl fmt::Display for HostRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.hosts.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ");
        match self.hosts.len() {
            1 => write!(f, "host {names} reports: {}", self.error),
            _ => write!(f, "hosts {names} report: {}", self.error),
        }
    }
}

impl FleetRun<'_> {
    /// Lets all hosts plan their cases at the same time: the first case in its sessions, which then wait, and the others beside. No
    /// case is therefore planned twice before the first one begins.
    ///
    /// # Errors
    /// When a plan has errors, a host is lost or takes too long, or the planning is interrupted. Then nothing was measured.
    pub(super) fn plan_on_hosts(&mut self, notify: &mut dyn FnMut(&Notice<'_>)) -> Result<(), FleetError> {
        notify(&Notice::Preparation { line: "each host checks whether it can run its cases" });
        let Some(first) = self.plan.cases.first() else { return Ok(()) };
        let mut waiting = BTreeSet::new();
        for (rank, host) in self.hosts.iter().enumerate().filter(|(_, host)| self.fleet.links.contains_key(*host)) {
            if let Some(arguments) = host_arguments(self.plan, &self.options.overrides, rank, host) {
                self.send(host, LinkCommand::Plan { arguments });
                waiting.insert(host.clone());
            }
        }
        let mut replicas = self.start(first, true, None);
        let planned = self.await_plans(waiting, &mut replicas, notify);
        match planned {
            Ok(()) => self.begun = Some(replicas),
            Err(_) => self.stop_sessions(replicas, notify),
        }
        planned
    }

    /// Waits until each of these hosts has planned, and each replica waits for the begin of its case.
    fn await_plans(
        &mut self,
        mut waiting: BTreeSet<String>,
        replicas: &mut [ReplicaState],
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> Result<(), FleetError> {
        let began = self.options.clock.now();
        let mut errors = Vec::new();
        let is_planning = |open: &ReplicaState| open.end.is_none() && open.waits_for.is_none();
        let late = |replicas: &[ReplicaState]| {
            replicas.iter().find(|open| is_planning(open)).map(|open| open.replica.host.clone())
        };
        while let Some(host) = waiting.first().cloned().or_else(|| late(replicas)) {
            if self.interrupt.is_set() {
                return Err(FleetError::Interrupted);
            }
            if self.options.clock.now().since(began).0 > PLANS_TIME_MAX.0 {
                let reason = format!("it has not planned its cases within {:.0} s", PLANS_TIME_MAX.0);
                return Err(FleetError::Hosts(vec![(host, reason)]));
            }
            let Ok((host, event)) = self.fleet.events.recv_timeout(POLL_INTERVAL) else { continue };
            match event {
                LinkEvent::Planned(own) => {
                    waiting.remove(&host);
                    errors.push((host, own));
                }
                LinkEvent::HostLost(reason) => return Err(FleetError::Hosts(vec![(host, reason)])),
                other => self.handle(&host, other, replicas, notify),
            }
        }
        for open in replicas {
            if let Some(ReplicaEnd::Ended(outcome)) = &open.end {
                errors.push((open.replica.host.clone(), outcome.refused.clone()));
            }
        }
        match refusals(&self.hosts, &errors) {
            refusals if refusals.is_empty() => Ok(()),
            refusals => Err(FleetError::Refused(refusals)),
        }
    }

    /// Ends the sessions of a case that does not begin, and removes them from their hosts.
    fn stop_sessions(&mut self, mut replicas: Vec<ReplicaState>, notify: &mut dyn FnMut(&Notice<'_>)) {
        self.fleet.links.values().for_each(|link| link.send(LinkCommand::Interrupt));
        let began = self.options.clock.now();
        while replicas.iter().any(|open| open.end.is_none())
            && self.options.clock.now().since(began).0 < STOP_TIME_MAX.0
        {
            let Ok((host, event)) = self.fleet.events.recv_timeout(POLL_INTERVAL) else { continue };
            self.handle(&host, event, &mut replicas, notify);
        }
        for open in replicas {
            match open.end {
                Some(ReplicaEnd::Ended(_)) => {
                    self.send(&open.replica.host, LinkCommand::Remove { session: open.session })
                }
                _ => self.fleet.given_up.add(&open.session, &open.replica.host),
            }
        }
    }
}

/// Returns the arguments with which the host of this rank plans the cases after the first one that it takes part in; `None` without
/// such a case.
fn host_arguments(plan: &Plan, overrides: &Overrides, rank: usize, host: &str) -> Option<Vec<String>> {
    let own = plan.cases.iter().skip(1).filter(|case| case.key.scale.hosts as usize > rank);
    let own = Overrides {
        config: None,
        host_file_name: Some(plan.host_file.name.to_string()),
        cases: own.map(|case| case.key.to_string()).collect(),
        ..overrides.clone()
    };
    let has_cases = !own.cases.is_empty();
    has_cases.then(|| [own.arguments(), vec!["--as-host".to_owned(), host.to_owned()]].concat())
}

/// Returns each error once, with the hosts that report it, in the order of the hosts.
fn refusals(hosts: &[String], errors: &[(String, Vec<HostError>)]) -> Vec<HostRefusal> {
    let mut refusals: Vec<HostRefusal> = Vec::new();
    let pairs = hosts.iter().flat_map(|host| errors.iter().filter(move |(own, _)| own == host));
    for (host, error) in pairs.flat_map(|(host, errors)| errors.iter().map(move |error| (host, error))) {
        match refusals.iter_mut().find(|known| known.error == *error) {
            // Several devices of a host may have the same error.
            Some(known) if known.hosts.contains(host) => {}
            Some(known) => known.hosts.push(host.clone()),
            None => refusals.push(HostRefusal { hosts: vec![host.clone()], error: error.clone() }),
        }
    }
    refusals
}

/// The part of the output of `flagperf plan --json` that this module reads.
#[derive(Deserialize)]
struct PlanOutput {
    findings: Vec<PlanFinding>,
}

/// A finding in the output of a command.
#[derive(Deserialize)]
pub(super) struct PlanFinding {
    pub(super) level: Level,
    origin: String,
    message: String,
    hint: String,
}

impl PlanFinding {
    /// Returns the finding as an error of this host.
    pub(super) fn error(self) -> HostError {
        let place = if self.origin == "default" { String::new() } else { format!("{}: ", self.origin) };
        HostError { text: format!("{place}{}", self.message), hint: self.hint }
    }
}

/// Runs `flagperf plan` in the checkout at `root` of this host, and returns the errors of the plan.
///
/// # Errors
/// When the command does not print a plan, with the reason.
pub(super) fn plan_errors(root: &Path, program: &Path, arguments: Vec<String>) -> Result<Vec<HostError>, String> {
    // The exit code only repeats whether there are errors, unless the program was killed.
    let script = "cd \"$1\" || exit 2; shift; \"$@\"; code=$?; [ $code -le 3 ] || exit $code";
    let words = ["sh", "-c", script, "sh"].map(OsString::from).into_iter();
    let plan =
        [root.into(), program.into(), "plan".into(), "--json".into(), "--config".into(), root.join("configs").into()];
    let argv = words.chain(plan).chain(arguments.into_iter().map(OsString::from)).collect();
    let command =
        CapturedCommand { argv, folder: None, input: Vec::new(), bytes_max: PLAN_BYTES_MAX, time_max: PLAN_TIME_MAX };
    let output = capture(&command, &MonotonicClock::start(), || false)
        .map_err(|error| format!("`flagperf plan` failed on the host: {error}"))?;
    let output: PlanOutput = serde_json::from_slice(&output)
        .map_err(|error| format!("`flagperf plan` printed no plan on the host: {error}"))?;
    Ok(output.findings.into_iter().filter(|finding| finding.level == Level::Error).map(PlanFinding::error).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_several_hosts_is_reported_once_with_all_of_them() {
        let hosts = ["b", "a", "c"].map(str::to_owned);
        let of = |host: &str, errors: &[&str]| {
            (host.to_owned(), errors.iter().map(|error| HostError::new(*error)).collect())
        };
        let found = refusals(&hosts, &[of("a", &["x"]), of("a", &["x", "y"]), of("c", &[]), of("b", &["y"])]);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["hosts `b`, `a` report: y", "host `a` reports: x"]);
    }
}
