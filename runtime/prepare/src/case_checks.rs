//! Checks the scripts and the files of each planned case, in a process of its own: a script may exhaust its memory or
//! its stack, which ends the process.

use super::case::CheckRequest;
use super::fault::{Fault, FaultPlace, finding, unchecked_finding};
use super::own_process::{NoReply, TIME_LIMIT, run_for_reply};
use flagperf_config::{CaseConfig, Config, Finding};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::event::Level;
use flagperf_core::units::Seconds;
use flagperf_host::THIS_PROGRAM;
use flagperf_plan::{CasePlan, TrainingProgram};

/// Checks each planned case and returns what is wrong, each once: cases share scripts.
pub(super) fn check_cases(config: &Config, cases: &[CasePlan]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for plan in cases {
        let Some(configured) = config.cases.iter().find(|configured| configured.key.value == plan.key) else {
            continue;
        };
        let mut own = check_together(&[PlannedCase { config, configured, plan }]).concat();
        Finding::assign(&mut own, &plan.key);
        findings.extend(own);
    }
    Finding::merge(findings)
}

/// A planned case with the configuration that it was planned from.
#[derive(Debug)]
pub struct PlannedCase<'p> {
    /// The configuration.
    pub config: &'p Config,
    /// The case in it.
    pub configured: &'p CaseConfig,
    pub plan: &'p CasePlan,
}

/// Checks planned cases in one process, and returns the findings of each. If the process ends before its reply, the
/// cases are checked again, each in a process of its own.
pub fn check_together(cases: &[PlannedCase<'_>]) -> Vec<Vec<Finding>> {
    // A case that runs nothing has no request.
    let (checked, requests): (Vec<_>, Vec<CheckRequest>) =
        cases.iter().enumerate().filter_map(|(place, case)| Some((place, CheckRequest::new(case.plan)?))).unzip();
    let own = |case: &PlannedCase<'_>| {
        let fault = program_fault(case.plan)?;
        finding(fault, case.configured, &case.config.site.flagperf_path)
    };
    let mut found: Vec<Vec<Finding>> = cases.iter().map(|case| own(case).into_iter().collect()).collect();
    let Some(first) = checked.first().map(|place| &cases[*place]) else { return found };
    let faults = match run_check(&requests, first.config.site.phase_timeout) {
        Ok(faults) => faults,
        Err(_) if cases.len() > 1 => {
            return cases.iter().flat_map(|case| check_together(std::slice::from_ref(case))).collect();
        }
        Err(no_reply) => return vec![no_reply_finding(&no_reply, first).into_iter().collect()],
    };
    for (place, faults) in checked.into_iter().zip(faults) {
        let PlannedCase { config, configured, .. } = cases[place];
        let own = faults.into_iter().filter_map(|fault| finding(fault, configured, &config.site.flagperf_path));
        // A parameter that is nearly one of the host's has a warning already.
        let is_known = |finding: &Finding| config.findings.iter().any(|known| known.origin == finding.origin);
        found[place] = own.filter(|finding| finding.level == Level::Error || !is_known(finding)).collect();
    }
    found
}

/// Returns why the training program of a case cannot be started, as far as that is known without starting it: `PATH` may become another
/// one by the vendor's `environment_variables.sh`, and a container has other files.
fn program_fault(plan: &CasePlan) -> Option<Fault> {
    let job = plan.jobs.first().filter(|job| job.engine.engine == PROGRAM_ENGINE)?;
    if plan.container.is_some() || !job.data_dir.is_dir() {
        return None;
    }
    let TrainingProgram { argv, folder, .. } = job.program(0).ok()?;
    let fault = |key: &str, reason: String| Some(Fault { place: FaultPlace::Program(key.to_owned()), reason });
    if !folder.is_dir() {
        return fault("command_folder", format!("`command_folder`: there is no folder `{}`", folder.display()));
    }
    let (program, arguments) = argv.split_first()?;
    if program.contains('/') && !folder.join(program).exists() {
        return fault("command", format!("`command`: there is no program `{}`", folder.join(program).display()));
    }
    let first = arguments.iter().take_while(|argument| !["-c", "-m"].contains(&argument.as_str()));
    let script = first.into_iter().find(|argument| !argument.starts_with('-'))?;
    let is_script =
        program.rsplit('/').next().is_some_and(|name| name.starts_with("python")) && script.ends_with(".py");
    if is_script && !folder.join(script).exists() {
        return fault("command", format!("`command`: there is no script `{}`", folder.join(script).display()));
    }
    None
}

/// Runs `flagperf check`, and returns the faults of each request.
fn run_check(requests: &[CheckRequest], phase_timeout: Seconds) -> Result<Vec<Vec<Fault>>, NoReply> {
    let input = serde_json::to_string(requests).expect("a request has text keys") + "\n";
    let limit = Seconds(TIME_LIMIT.0.min(phase_timeout.0));
    run_for_reply([THIS_PROGRAM, "check"].map(Into::into).to_vec(), input, limit)
}

/// Returns the finding about a case whose check gave no reply.
fn no_reply_finding(no_reply: &NoReply, case: &PlannedCase<'_>) -> Option<Finding> {
    match no_reply {
        // A script that exhausts its memory or its stack ends its process; the last line says which script.
        NoReply::Ended { ending, stderr } => {
            let last = stderr.last().map(|line| format!(": {line}")).unwrap_or_default();
            let reason = format!("the check of case `{}` ended: {ending}{last}", case.plan.key);
            let fault = Fault { place: FaultPlace::Case, reason };
            finding(fault, case.configured, &case.config.site.flagperf_path)
        }
        NoReply::NotStarted(error) => Some(unchecked_finding(&error.to_string(), case.configured)),
        NoReply::TimedOut(limit) => {
            Some(unchecked_finding(&format!("it took longer than {} s", limit.0), case.configured))
        }
    }
}
