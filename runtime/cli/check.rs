//! Checks the scripts and the files of each planned case, in a process of its own: a script may exhaust its memory or
//! its stack, which ends the process.

use std::io;
use std::process::ExitCode;

use anyhow::Context as _;

use super::own_process::{NoReply, TIME_LIMIT, print_reply, run_for_reply};
use crate::check::{CheckRequest, Fault, FaultPlace, finding, unchecked_finding};
use crate::config::{CaseConfig, Config, Finding};
use crate::host::THIS_PROGRAM;
use crate::plan::CasePlan;
use crate::units::Seconds;

/// `flagperf check`: reads a request and prints the faults.
pub(super) fn check() -> anyhow::Result<ExitCode> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the request from standard input")?;
    let request: CheckRequest =
        serde_json::from_str(&line).context("standard input contains no request (expected: one line of JSON)")?;
    print_reply(|| crate::check::check(&request))
}

/// Checks each planned case and returns what is wrong, each once: cases share scripts.
pub(super) fn check_cases(config: &Config, cases: &[CasePlan]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for case in cases {
        let configured = config.cases.iter().find(|configured| configured.key.value == case.key);
        let mut own = configured.map(|configured| check_case(config, configured, case)).unwrap_or_default();
        Finding::assign(&mut own, &case.key);
        findings.extend(own);
    }
    Finding::merge(findings)
}

fn check_case(config: &Config, configured: &CaseConfig, case: &CasePlan) -> Vec<Finding> {
    let Some(request) = CheckRequest::new(case) else { return Vec::new() };
    let input = serde_json::to_string(&request).expect("a request has text keys") + "\n";
    let limit = Seconds(TIME_LIMIT.0.min(config.site.phase_timeout.0));
    let argv = [THIS_PROGRAM, "check"].map(Into::into).to_vec();
    let faults = match run_for_reply::<Vec<Fault>>(argv, input, limit) {
        Ok(faults) => faults,
        // A script that exhausts its memory or its stack ends its process; the last line says which script.
        Err(NoReply::Ended { ending, stderr }) => {
            let last = stderr.last().map(|line| format!(": {line}")).unwrap_or_default();
            let reason = format!("the check of case `{}` ended: {ending}{last}", case.key);
            vec![Fault { place: FaultPlace::Case, reason }]
        }
        Err(NoReply::NotStarted(error)) => return vec![unchecked_finding(&error.to_string(), configured)],
        Err(NoReply::TimedOut(limit)) => {
            return vec![unchecked_finding(&format!("it took longer than {} s", limit.0), configured)];
        }
    };
    let root = &config.site.flagperf_path;
    faults.into_iter().map(|fault| finding(fault, configured, root)).collect()
}
