//! Makes each host plan its cases before the first case of a run begins, because a host whose plan has errors could run
//! none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use super::conduct::{FleetError, POLL_INTERVAL};
use super::host_link::{LinkCommand, LinkEvent};
use super::host_text::HostError;
use super::links::Fleet;
use flagperf_config::Overrides;
use flagperf_core::event::Level;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::units::Seconds;
use flagperf_host::{CapturedCommand, capture};
use flagperf_plan::Plan;
use flagperf_run::{Interrupt, Notice};

/// Largest output of `flagperf plan` in bytes, and longest time that the command may take.
const PLAN_BYTES_MAX: u64 = 64 << 20;
const PLAN_TIME_MAX: Seconds = Seconds(300.0);

/// An error of the plan on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRefusal {
    /// The hosts that report the error.
    pub hosts: Vec<String>,
    /// The error.
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

impl Fleet {
    /// Lets all hosts plan their cases at the same time.
    ///
    /// # Errors
    /// When a plan has errors, a host is lost, or the planning is interrupted.
    pub(super) fn plan_on_hosts(
        mut self,
        plan: &Plan,
        overrides: &Overrides,
        hosts: &[String],
        notify: &mut dyn FnMut(&Notice<'_>),
        interrupt: &Interrupt,
    ) -> Result<Self, FleetError> {
        notify(&Notice::Preparation { line: "each host checks whether it can run its cases" });
        for (rank, host) in hosts.iter().enumerate() {
            let arguments = host_arguments(plan, overrides, rank, host);
            self.links
                .get(host)
                .into_iter()
                .for_each(|link| link.send(LinkCommand::Plan { arguments: arguments.clone() }));
        }
        let mut waiting: BTreeSet<&String> = hosts.iter().collect();
        let mut errors = Vec::new();
        while !waiting.is_empty() {
            if interrupt.is_set() {
                return Err(FleetError::Interrupted);
            }
            let Ok((host, event)) = self.events.recv_timeout(POLL_INTERVAL) else { continue };
            match event {
                LinkEvent::Planned(own) => {
                    waiting.remove(&host);
                    errors.push((host, own));
                }
                LinkEvent::HostLost(reason) => return Err(FleetError::Hosts(vec![(host, reason)])),
                other => self.note(&host, other, notify),
            }
        }
        match refusals(hosts, errors) {
            refusals if refusals.is_empty() => Ok(self),
            refusals => Err(FleetError::Refused(refusals)),
        }
    }
}

/// Returns the arguments with which the host of this rank plans the cases that it takes part in.
fn host_arguments(plan: &Plan, overrides: &Overrides, rank: usize, host: &str) -> Vec<String> {
    let own = plan.cases.iter().filter(|case| case.key.scale.hosts as usize > rank);
    let own = Overrides {
        config: None,
        host_file_name: Some(plan.host_file.name.to_string()),
        cases: own.map(|case| case.key.to_string()).collect(),
        ..overrides.clone()
    };
    [own.arguments(), vec!["--as-host".to_owned(), host.to_owned()]].concat()
}

/// Returns each error once, with the hosts that report it, in the order of the hosts.
fn refusals(hosts: &[String], errors: Vec<(String, Vec<HostError>)>) -> Vec<HostRefusal> {
    let errors: BTreeMap<String, Vec<HostError>> = errors.into_iter().collect();
    let mut refusals: Vec<HostRefusal> = Vec::new();
    for (host, error) in
        hosts.iter().flat_map(|host| errors.get(host).into_iter().flatten().map(move |error| (host, error)))
    {
        match refusals.iter_mut().find(|known| known.error == *error) {
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

#[derive(Deserialize)]
struct PlanFinding {
    level: Level,
    origin: String,
    message: String,
    hint: String,
}

impl PlanFinding {
    fn error(self) -> HostError {
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
        let found = refusals(&hosts, vec![of("a", &["x", "y"]), of("c", &[]), of("b", &["y"])]);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["hosts `b`, `a` report: y", "host `a` reports: x"]);
    }
}
