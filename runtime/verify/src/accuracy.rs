//! The accuracy of a pass, computed again by the evaluator of the result from the outputs that the result stores.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;

use super::CaseReport;
use super::events::{Replay, ReplayedPass, ReplayedPhase, known_seed};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::hash::Seed;
use flagperf_core::limits::Limits;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::run_files::{CONFIG_FILE, SOURCES_FOLDER};
use flagperf_evaluation::{FILE_KIND, StoredPass, digest_outputs, file_name, name_outputs};
use flagperf_result::Record;
use flagperf_script::{EvaluatorFn, HostServices, ScriptChoice, ScriptConfig, load_evaluator, run_on_script_stack};

/// Largest merged configuration in bytes.
const CONFIG_BYTES_MAX: u64 = 64 << 20;
/// Largest relative difference of a metric that another processor's mathematical functions explain.
const RELATIVE_DIFFERENCE_MAX: f64 = 1e-9;

/// Compares the stored outputs of each phase with the digests of its steps, and evaluates them again.
pub(super) fn check_accuracy(folder: &Path, record: &Record, replay: &Replay, report: &mut CaseReport) {
    for phase in replay.phases.iter().filter(|phase| phase.failure.is_none() && !phase.passes.is_empty()) {
        let rounds = phase.record.training.iter().flat_map(|training| &training.rounds);
        if rounds.map(|round| round.evaluations.len()).sum::<usize>() > 1 {
            let unchecked =
                "the metrics of the evaluations of the training before the last one: their outputs are not stored";
            report.unchecked.push(unchecked.to_owned());
        }
        let path = file_name(phase.record.phase);
        // A training program stores no outputs.
        if phase.record.engine.as_ref().is_some_and(|engine| engine.name == PROGRAM_ENGINE) {
            continue;
        }
        let listed = phase.record.files.iter().any(|file| file.what == FILE_KIND && file.path.ends_with(&path));
        if !listed {
            report.add(&path, "the stored outputs of a pass are missing, so accuracy cannot be recomputed", None, None);
            continue;
        }
        match StoredPass::read(&folder.join(&path)) {
            Ok(stored) => check_pass(folder, record, (&path, &stored), phase, report),
            Err(error) => report.add(&path, error.to_string(), None, None),
        }
    }
}

fn check_pass(
    folder: &Path,
    record: &Record,
    (path, stored): (&str, &StoredPass),
    phase: &ReplayedPhase,
    report: &mut CaseReport,
) {
    let Some(pass) = phase.passes.get(stored.pass() as usize) else {
        report.add(path, format!("pass {} did not take place", stored.pass()), None, None);
        return;
    };
    // An evaluation of a training is not timed, so that its outputs have no digests.
    let is_timed = phase.record.training.is_none();
    let is_same_pass = match known_seed(record) {
        _ if !is_timed => true,
        Some(seed) => check_digests(path, stored, &seed, pass, report),
        None => {
            let lost = "whether the stored outputs are those of the timed steps: the seed was lost with the process of the run";
            report.unchecked.push(lost.to_owned());
            true
        }
    };
    if !is_same_pass || !pass.is_accuracy_known {
        return;
    }
    let (steps, kept) = stored.step_count();
    if kept < steps {
        report.unchecked.push(format!(
            "the metrics of {} of {steps} steps of pass {}: their outputs are not stored, so their metrics were taken from \
             the file",
            steps - kept,
            stored.pass()
        ));
    }
    match evaluate(folder, record, stored) {
        Ok(accuracy) => compare_accuracy(path, stored.pass(), &accuracy, &pass.accuracy, report),
        Err(reason) => report.give_up(format!("accuracy cannot be recomputed: {reason}")),
    }
}

/// Compares the digests of the stored steps with those that were computed when the steps were timed.
fn check_digests(path: &str, stored: &StoredPass, seed: &Seed, pass: &ReplayedPass, report: &mut CaseReport) -> bool {
    let (steps, _) = stored.step_count();
    if steps != pass.digests.len() as u64 {
        let what = format!("number of steps of pass {}", stored.pass());
        report.add(path, what, Some(pass.digests.len().to_string()), Some(steps.to_string()));
        return false;
    }
    let differs = stored.steps().find(|(position, step)| {
        let digest = digest_outputs(seed, &step.samples, &name_outputs(&step.output));
        pass.digests.get(*position as usize) != Some(&digest)
    });
    if let Some((position, _)) = differs {
        let what = format!("the outputs of step {position} of pass {} are not those of the timed step", stored.pass());
        report.add(path, what, None, None);
    }
    differs.is_none()
}

fn compare_accuracy(
    path: &str,
    pass: u32,
    expected: &IndexMap<String, f64>,
    found: &IndexMap<String, f64>,
    report: &mut CaseReport,
) {
    let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
    for name in names {
        let (expected, found) = (expected.get(name), found.get(name));
        let is_same = match (expected, found) {
            (Some(expected), Some(found)) => is_close(*expected, *found),
            _ => false,
        };
        if !is_same {
            let text = |value: Option<&f64>| Some(value.map_or("none".to_owned(), f64::to_string));
            report.add(path, format!("`{name}` of pass {pass}"), text(expected), text(found));
        }
    }
}

pub(super) fn is_close(expected: f64, found: f64) -> bool {
    let limit = RELATIVE_DIFFERENCE_MAX * expected.abs().max(found.abs());
    expected == found || (expected - found).abs() <= limit || (expected.is_nan() && found.is_nan())
}

/// Calls the evaluator among the sources of the result, in the sandbox of scripts.
fn evaluate(folder: &Path, record: &Record, stored: &StoredPass) -> Result<IndexMap<String, f64>, String> {
    let (scripts, config) = stored_case(folder, record)?;
    let limits = Limits::default();
    let work = || {
        let mut evaluator = find_evaluator(&scripts, &config, &limits)?;
        stored.evaluate(&mut evaluator).map_err(|error| error.to_string())
    };
    run_on_script_stack(limits.script_memory_bytes.0, work)
        .map_err(|reason| format!("the evaluator {reason}"))
        .flatten()
}

/// Returns the folder with the scripts of the case among the sources of the result, and its configuration.
pub(super) fn stored_case(folder: &Path, record: &Record) -> Result<(PathBuf, ScriptConfig), String> {
    let sources = folder.join(SOURCES_FOLDER);
    let config = read_regular(&sources.join(CONFIG_FILE), CONFIG_BYTES_MAX)
        .map_err(|error| format!("`{SOURCES_FOLDER}/{CONFIG_FILE}`: {error}"))?;
    let config: ScriptConfig =
        serde_json::from_slice(&config).map_err(|error| format!("`{SOURCES_FOLDER}/{CONFIG_FILE}`: {error}"))?;
    let is_name = Path::new(&record.case).components().eq([Component::Normal(record.case.as_ref())]);
    match is_name {
        true => Ok((sources.join("scripts").join(&record.case), config)),
        false => Err(format!("`{}` is not the name of a case", record.case)),
    }
}

fn find_evaluator(scripts: &Path, config: &ScriptConfig, limits: &Limits) -> Result<EvaluatorFn, String> {
    let shared = config.get("evaluator").and_then(|name| name.as_str()).map(str::to_owned);
    let choice = ScriptChoice { evaluator: shared, ..ScriptChoice::default() };
    let services = HostServices { log: Arc::new(|_, _, _| {}), clock: Arc::new(MonotonicClock::start()) };
    let evaluator = load_evaluator(scripts, &choice, limits, services);
    evaluator.and_then(|evaluator| evaluator.with_config(config)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_may_differ_by_rounding_only() {
        assert!(is_close(0.5, 0.5) && is_close(0.5, 0.5 + 1e-12) && is_close(f64::NAN, f64::NAN));
        assert!(!is_close(0.5, 0.501) && !is_close(0.0, 1e-12) && !is_close(f64::NAN, 0.5));
    }
}
