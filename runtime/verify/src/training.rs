//! What a training reports about its steps and evaluations: the learning rates follow from the schedule of the case, the
//! evaluations from its settings.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::CaseReport;
use super::accuracy::{is_close, stored_case};
use super::events::{Replay, ReplayedPhase};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::limits::Limits;
use flagperf_core::measure::{MonotonicClock, TrainingLength};
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_result::{Record, TrainingRecord};
use flagperf_script::{CaseScripts, HostServices, ScriptChoice, run_on_script_stack};

/// What a training states that no other file and no formula contradicts.
const UNCHECKED: &str = "the trained parameters (`model.safetensors`), their number, which steps were computed again, and the seed of \
                         the run: only the run itself states them";

/// Checks the trainings of a result.
pub(super) fn check_training(folder: &Path, record: &Record, replay: &Replay, report: &mut CaseReport) {
    for phase in replay.phases.iter().filter(|phase| phase.failure.is_none()) {
        let Some(training) = &phase.record.training else { continue };
        if phase.record.engine.as_ref().is_some_and(|engine| engine.name == PROGRAM_ENGINE) {
            report.unchecked.push("what the training program reported: nothing else states it".to_owned());
            continue;
        }
        if training.resumed.is_some() {
            report.unchecked.push("the learning rates and evaluations of a training that was resumed".to_owned());
            continue;
        }
        report.unchecked.push(UNCHECKED.to_owned());
        if record.processes() > 1 {
            let what = "whether all processes trained one model: the summary of the case and the results of the others state it";
            report.unchecked.push(format!("of one of {} processes, {what}", record.processes()));
        }
        check_evaluations(record, training, phase, report);
        match expected_rates(folder, record, training) {
            Ok(expected) => compare_rates(&expected, &phase.learning_rates, report),
            Err(reason) => report.give_up(format!("the learning rates cannot be recomputed: {reason}")),
        }
        let unchecked = "the losses and the norms of the gradients of the training: no other file states them";
        report.unchecked.push(unchecked.to_owned());
    }
}

/// Checks that every evaluation took place that was due, and that its metrics are those of the pass before it.
fn check_evaluations(record: &Record, training: &TrainingRecord, phase: &ReplayedPhase, report: &mut CaseReport) {
    let Some(steps) = length(record).and_then(|length| Some(length.in_steps(batches(record, training)?))) else {
        return report.give_up("the record does not state when evaluations were due".to_owned());
    };
    let mut passes = phase.passes.iter();
    for (index, round) in training.rounds.iter().enumerate() {
        // A worker that was found to claim more steps than due has no more passes.
        let ends: Vec<u64> = steps.pass_ends(round.steps).take(phase.passes.len() + 1).collect();
        let is_due = |step: &u64| steps.is_evaluated(*step);
        let due: Vec<(u64, u64)> =
            ends.iter().copied().filter(is_due).map(|step| (step, steps.epochs_begun(step))).collect();
        let found: Vec<(u64, u64)> =
            round.evaluations.iter().map(|evaluation| (evaluation.steps, evaluation.epochs.into())).collect();
        if due != found {
            let what = format!("steps and epochs before each evaluation of training {index}");
            report.add(EVENTS_FILE, what, Some(format!("{due:?}")), Some(format!("{found:?}")));
        }
        if ends.len() != round.passes as usize {
            let what = format!("passes of training {index}");
            report.add(EVENTS_FILE, what, Some(ends.len().to_string()), Some(round.passes.to_string()));
        }
        let own: Vec<_> = passes.by_ref().take(round.passes as usize).collect();
        for evaluation in &round.evaluations {
            let pass = ends.iter().position(|end| *end == evaluation.steps).and_then(|pass| own.get(pass));
            if pass.is_none_or(|pass| !are_close(&pass.accuracy, &evaluation.metrics)) {
                let what = format!("metrics after step {} of training {index}", evaluation.steps);
                let expected = pass.map(|pass| format!("{:?}", pass.accuracy));
                report.add(EVENTS_FILE, what, expected, Some(format!("{:?}", evaluation.metrics)));
            }
        }
    }
}

/// Returns when evaluations and the end of a training were due, as its settings state it.
fn length(record: &Record) -> Option<TrainingLength> {
    let settings = record.settings.iter().map(|(key, setting)| (key.clone(), setting.value.clone()));
    serde_json::from_value(Value::Object(settings.collect())).ok()
}

/// Returns the number of steps of an epoch.
fn batches(record: &Record, training: &TrainingRecord) -> Option<u64> {
    let batch = record.settings.get("batch_size")?.value.as_u64()?;
    training.dataset.as_ref()?.samples.checked_div(batch)
}

fn are_close(expected: &IndexMap<String, f64>, found: &IndexMap<String, f64>) -> bool {
    let is_same = |(name, value): (&String, &f64)| found.get(name).is_some_and(|found| is_close(*value, *found));
    expected.len() == found.len() && expected.iter().all(is_same)
}

/// Returns the learning rates of each training, by the schedule in the script that the result stores.
fn expected_rates(folder: &Path, record: &Record, training: &TrainingRecord) -> Result<Vec<Vec<f64>>, String> {
    let (scripts, config) = stored_case(folder, record)?;
    let number = |key: &str| record.settings.get(key).and_then(|setting| setting.value.as_f64());
    let (Some(rate), Some(batches)) = (number("learning_rate"), batches(record, training)) else {
        return Err("the record lacks `learning_rate`, `batch_size` or the dataset of the training".to_owned());
    };
    let per_update = number("gradient_accumulation_steps").unwrap_or(1.0) as u64;
    let name = |key: &str| config.get(key).and_then(|name| name.as_str()).map(str::to_owned);
    let choice = ScriptChoice { forward: name("forward"), evaluator: name("evaluator"), without_model: true };
    let limits = Limits::default();
    let work = || {
        let services = HostServices { log: Arc::new(|_, _, _| {}), clock: Arc::new(MonotonicClock::start()) };
        let scripts = CaseScripts::load(&scripts, &choice, &limits, services).map_err(|error| error.to_string())?;
        scripts.create_scheduler(&config).map_err(|error| error.to_string())
    };
    let schedule = run_on_script_stack(limits.script_memory_bytes.0, work)
        .map_err(|reason| format!("training.rhai {reason}"))
        .flatten()?;
    let rates = |steps: u64| (0..steps).map(|step| rate * schedule.factor(step, batches, per_update)).collect();
    Ok(training.rounds.iter().map(|round| rates(round.steps)).collect())
}

/// Adds the first learning rate that differs.
fn compare_rates(expected: &[Vec<f64>], found: &[Vec<f64>], report: &mut CaseReport) {
    for (index, expected) in expected.iter().enumerate() {
        let found = found.get(index).map(Vec::as_slice).unwrap_or_default();
        let rate = |rates: &[f64], step: usize| rates.get(step).copied();
        let differs = (0..expected.len().max(found.len())).find(|step| {
            !matches!((rate(expected, *step), rate(found, *step)), (Some(expected), Some(found)) if is_close(expected, found))
        });
        if let Some(step) = differs {
            let what = format!("learning rate of step {} of training {index}", step + 1);
            let text = |rates: &[f64]| Some(rate(rates, step).map_or("none".to_owned(), |rate| rate.to_string()));
            report.add(EVENTS_FILE, what, text(expected), text(found));
        }
    }
}
