//! `flagperf resume`: resumes a run that was interrupted, or whose main process was killed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::arguments::ResumeArguments;
use super::output::print_message;
use super::result_printer::relative_path;
use super::run::{RunRequest, run_request};
use super::setup::{announce, locate_checkout};
use flagperf_config::{CaseKey, TrainingKey, load};
use flagperf_core::exit_code;
use flagperf_core::run_files::STATE_FILE;
use flagperf_fleet::RunState;
use flagperf_prepare::Prepared;
use flagperf_run::{RunOutcome, case_parts};

/// Resumes a run that was interrupted, or whose main process was killed.
pub(super) fn resume(arguments: &ResumeArguments) -> anyhow::Result<ExitCode> {
    let folder = std::path::absolute(&arguments.run).context("cannot determine the current directory")?;
    let mut state = match RunState::read(&folder) {
        Ok(state) => state,
        Err(error) => {
            let shown = folder.display();
            let reason = match error.kind() {
                io::ErrorKind::NotFound if folder.is_dir() => {
                    ": this run has ended, or is one of the blocks of `compare`, `ablate` or `sweep`".to_owned()
                }
                _ => format!(" from its run.json: {error}"),
            };
            print_message(&format!(
                "error: cannot resume `{shown}`{reason}\n  hint: only a run that was interrupted, or whose main process was killed, \
                 can be resumed"
            ));
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
    };
    let checkout = announce(locate_checkout()?);
    for (index, key) in arguments.case.iter().enumerate() {
        let own = without_scale(key);
        if let Some(other) = arguments.case[..index].iter().find(|other| own.is_some() && without_scale(other) == own) {
            print_message(&format!("error: --case {key}: `--case {other}` states already how this training goes on"));
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
        if let Err(message) = rescale(&checkout, &folder, &mut state, key) {
            print_message(&message);
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
    }
    let (overrides, audit, official, output) = (state.overrides(), state.audit, state.official, arguments.output);
    let (resumed, skips_unreachable) = (Some((folder, state)), arguments.skip_unreachable);
    run_request(&checkout, RunRequest { overrides, output, official, audit, resumed, skips_unreachable })
}

/// Returns the parts of a key that do not say on how many hosts and devices it trains.
fn without_scale(key: &str) -> Option<(String, String, Option<TrainingKey>)> {
    let CaseKey { case, framework, training, .. } = key.parse().ok()?;
    Some((case, framework, training))
}

/// Lets a training of a run go on with the numbers of hosts and devices of a key.
fn rescale(checkout: &Path, folder: &Path, state: &mut RunState, key: &str) -> Result<(), String> {
    let refused = |reason: String, hint: &str| format!("error: --case {key}: {reason}\n  hint: {hint}");
    let form = "it is the key of a training, of the form `CASE:FRAMEWORK:HARDWARE:HOSTS:DEVICES:REPEAT`";
    let known = key.parse::<CaseKey>().map_err(|finding| refused(finding.message, form))?;
    let site = load(checkout, &state.overrides()).map_err(|findings| format!("error: {findings}"))?.site;
    state.rescale(folder, &known, &site).map_err(|(reason, hint)| refused(reason, hint))
}

/// Refuses to resume a run with cases that would not be measured as when it began: one run would contain results of two
/// configurations, and a record of what had been measured would state the later one.
pub(super) fn refuse_changed_cases(resumed: &(PathBuf, RunState), planned: &Prepared) -> Option<ExitCode> {
    let (folder, state) = resumed;
    let changed = state.changed_cases(&case_parts(&planned.plan, &planned.values));
    if changed.is_empty() {
        return None;
    }
    let about = |(case, parts): &(String, Vec<String>)| match parts.is_empty() {
        true => format!("`{case}` is a case of either the run or the present configuration, not of both"),
        false => format!("`{case}` would not be measured as when the run began: {}", parts.join(", ")),
    };
    print_message(&format!(
        "error: cannot resume `{}`: {}\n  hint: undo the change, or start a new run; what was measured stays in that folder",
        folder.display(),
        changed.iter().map(about).collect::<Vec<_>>().join("; "),
    ));
    Some(ExitCode::from(exit_code::MISTAKE))
}

/// Says how a run is continued that was interrupted or whose worker was killed, if something is left to run.
pub(super) fn announce_resume(outcome: &RunOutcome) {
    if (outcome.interrupted || outcome.has_checkpoints) && outcome.folder.join(STATE_FILE).exists() {
        let run = relative_path(&outcome.folder).display().to_string();
        print_message(&format!("note: `flagperf resume {run}` runs the cases that are not finished"));
    }
}
