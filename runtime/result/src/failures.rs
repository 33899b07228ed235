//! The reasons why a case fails although its phases ran: its results are not acceptable. A pure function of the record.

use super::accuracy::target_key;
use super::scenario_verdict::{scenario_failures, scenario_hint};
use super::{AuditVerdict, FailureRecord, OutputTimeVerdict, PhaseRecord, Record, Status, Verdict};
use flagperf_core::event::FileFacts;
use flagperf_core::measure::{PassTimes, ReplayedValue, StepReplay, TrainingReplay};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;

/// Largest relative difference between the worker's clock and the conductor's with which figures may be used.
const CLOCK_DISCREPANCY_MAX: f64 = 0.05;
/// Largest absolute difference of a step with which they may be used: events arrive late on a busy machine.
const CLOCK_DELAY_MAX: Seconds = Seconds(1.0);
/// The same of all passes of a loop.
const PASSES_DELAY_MAX: Seconds = Seconds(1.0);

/// What to do about clocks that differ. On an overloaded machine, events arrive late.
const STEP_CLOCK_HINT: &str = "was the machine overloaded or suspended, or does code in the worker change its clock? run the case again without other load";
const PASS_CLOCK_HINT: &str = "was the machine overloaded or flagperf suspended, or does the engine change the worker's reports? run \
                               the case again without other load";

/// Returns the failures that follow from the phases of a record and from its verdicts on accuracy and agreement.
pub fn verdict_failures(record: &Record) -> Vec<FailureRecord> {
    // What an interruption cut off was not the engine's fault.
    if record.status == Status::Interrupted {
        return Vec::new();
    }
    let mut failures: Vec<FailureRecord> = exported_model_mismatch(record).into_iter().collect();
    if record.accuracy.verdict == Verdict::Missed && !is_cut_off(record) {
        let reason = format!("accuracy check failed: {}", record.accuracy.missed.join("; "));
        let file = if record.training_key.is_some() { "training.yaml" } else { "parameters.yaml" };
        let hint = format!("`{}` in the case's {file} sets the target", target_key(record));
        failures.push(verdict_failure(reason, &hint));
    }
    if record.agreement.verdict == Verdict::Missed {
        let missed = record.agreement.missed.join("; ");
        let reason = match record.training() {
            Some(_) => format!("the last evaluation does not agree with another engine's: {missed}"),
            None => format!("inference does not agree with validation: {missed}"),
        };
        let hint = "`agreement` in the case's parameters.yaml sets the limits; both sides must run the same model";
        failures.push(verdict_failure(reason, hint));
    }
    failures.extend(output_times(record).filter_map(|time| match time {
        OutputTimeVerdict::Computing(text) => {
            Some(verdict_failure(text, "synchronising the device must wait for every output"))
        }
        _ => None,
    }));
    failures.extend(replay_failures(record));
    failures.extend(step_clock_failures(record));
    failures.extend(pass_clock_failures(record));
    let of_scenario = scenario_failures(record);
    if !of_scenario.is_empty() {
        failures
            .push(verdict_failure(format!("the scenario failed: {}", of_scenario.join("; ")), scenario_hint(record)));
    }
    if record.audit.verdict == AuditVerdict::Failed {
        let reason = format!("the audit of inference failed: {}", record.audit.failures.join("; "));
        let hint = "inference must compute every output from its inputs in every run, and nothing else";
        failures.push(verdict_failure(reason, hint));
    }
    failures
}

/// Returns whether a training ended before its end, which has a failure of its own.
fn is_cut_off(record: &Record) -> bool {
    record.status == Status::Failed
        && record.phases.iter().any(|phase| phase.phase == Phase::Train && phase.memory_bytes_max.is_none())
}

/// Returns a warning for each loop whose engine may compute while its outputs are copied.
pub fn output_time_warnings(record: &Record) -> Vec<String> {
    let slow = |time| match time {
        OutputTimeVerdict::Slow(text) => Some(text),
        _ => None,
    };
    output_times(record).filter_map(slow).collect()
}

/// Judges each loop's time in *output*: an engine that computes while its outputs are copied makes *core* wrong.
fn output_times(record: &Record) -> impl Iterator<Item = OutputTimeVerdict> {
    record.phases.iter().flat_map(|phase| &phase.measured).map(OutputTimeVerdict::judge)
}

/// Creates the failure of a case whose phases ran but whose results are not acceptable.
fn verdict_failure(reason: String, hint: &str) -> FailureRecord {
    FailureRecord { phase: None, step: Some(Step::Record), reason, hint: hint.to_owned(), stderr: Vec::new() }
}

/// Returns a failure if training steps are not those that another engine computes: one of them is wrong, or most are imprecise.
/// That a single one is imprecise has an honest explanation: an activation so close to 0 that the engines disagree about its
/// sign.
fn replay_failures(record: &Record) -> Vec<FailureRecord> {
    let replay = record.training().and_then(|training| training.replay.as_ref());
    let failure = |replay: &TrainingReplay| {
        let imprecise = replay.steps.iter().filter(|step| step.imprecise > 0).count();
        let is_failed = replay.steps.iter().any(|step| step.wrong > 0) || 2 * imprecise > replay.steps.len();
        let worst = replay.steps.iter().max_by_key(|step| (step.wrong, step.imprecise)).filter(|_| is_failed)?;
        let StepReplay { step, values, imprecise: differing, worst, .. } = worst;
        let ReplayedValue { name, difference, limit } = worst;
        let (engine, steps) = (&replay.engine, replay.steps.len());
        let reason = format!(
            "{imprecise} of {steps} training steps do not agree with the same steps computed by `{engine}`: in step {step}, \
             {differing} of {values} values differ, most of all `{name}` by {difference:.2e} (limit {limit:.2e})"
        );
        let hint = "the engine must compute every step from its inputs, in the precision of the case";
        Some(verdict_failure(reason, hint))
    };
    replay.and_then(failure).into_iter().collect()
}

/// Returns a failure for each step whose time by the worker's clock is not that by the conductor's.
fn step_clock_failures(record: &Record) -> Vec<FailureRecord> {
    let steps = record.phases.iter().flat_map(|phase| phase.steps.iter().map(move |step| (phase.phase, step)));
    let differs = steps.filter_map(|(phase, step)| {
        let (time, clock) = (step.time_s?, step.clock?);
        let difference = clock_difference(time, clock.conductor_s)?;
        Some(clock_failure(phase, step.step, &format!("the step took {difference}")))
    });
    differs.collect()
}

/// Returns a failure for each measured loop whose passes took longer by the conductor's clock than the worker reported. The
/// sum decides, because a busy machine may delay the events of any single pass: a late begin makes the conductor's time shorter, a
/// late end makes it longer, and only together do they cancel out.
fn pass_clock_failures(record: &Record) -> Vec<FailureRecord> {
    let mut failures = Vec::new();
    for measured in record.phases.iter().flat_map(|phase| &phase.measured) {
        let missing = |pass: &PassTimes| pass.conductor_s.map_or(0.0, |time| time.0 - pass.whole_s.0);
        let missing: f64 = measured.passes.iter().map(missing).sum();
        let whole: f64 = measured.passes.iter().map(|pass| pass.whole_s.0).sum();
        if missing <= PASSES_DELAY_MAX.0 || missing <= CLOCK_DISCREPANCY_MAX * (whole + missing) {
            continue;
        }
        let (name, passes) = (measured.step.name(), measured.passes.len());
        let reason = format!(
            "the {passes} passes of {name} took {whole:.3} s by the worker's clock, but {:.3} s by that of the main process",
            whole + missing
        );
        failures.push(verdict_failure(reason, PASS_CLOCK_HINT));
    }
    failures
}

/// Describes by how much less time passed by the worker's clock than by the conductor's, if that is too much; `None` when it is
/// not. The event that begins a step may arrive late, which makes the conductor's time shorter and flatters nobody. A time that is
/// NaN is not within any limit.
fn clock_difference(worker: Seconds, conductor: Seconds) -> Option<String> {
    let difference = (conductor - worker).0;
    let is_within = difference <= CLOCK_DELAY_MAX.0 || difference <= CLOCK_DISCREPANCY_MAX * conductor.0;
    let text =
        || format!("{:.1} s by the worker's clock, but {:.1} s by that of the main process", worker.0, conductor.0);
    (!is_within).then(text)
}

fn clock_failure(phase: Phase, step: Step, reason: &str) -> FailureRecord {
    FailureRecord {
        phase: Some(phase),
        step: Some(step),
        reason: reason.to_owned(),
        hint: STEP_CLOCK_HINT.to_owned(),
        stderr: Vec::new(),
    }
}

/// Returns a failure when inference should have run the exported model and did not. The workers of the two phases hash
/// the files independently of each other.
fn exported_model_mismatch(record: &Record) -> Option<FailureRecord> {
    let inference = record.phases.iter().find(|phase| phase.phase == Phase::Infer && phase.model.is_some())?;
    let is_set = |key: &str| record.settings.get(key).is_some_and(|setting| !setting.value.is_null());
    if is_set("exist_onnx_path") || is_set("exist_compiler_path") {
        return None;
    }
    let files = record.phases.iter().flat_map(|phase| &phase.files).filter(|file| file.what == "onnx");
    let mut exported: Vec<(&str, &str)> = files.map(|file| (file.path.as_str(), file.sha256.as_str())).collect();
    let mut opened: Vec<(&str, &str)> =
        opened_files(inference).map(|file| (file.path.as_str(), file.sha256.as_str())).collect();
    exported.sort_unstable();
    opened.sort_unstable();
    let unexpected = opened.iter().find(|file| !exported.contains(file));
    let (path, _) = unexpected.or_else(|| exported.iter().find(|file| !opened.contains(file)))?;
    Some(FailureRecord {
        phase: Some(Phase::Infer),
        step: Some(Step::Compile),
        reason: format!("inference did not load the files that validation exported: `{path}` differs"),
        hint: "does another program write to the folder of the run?".to_owned(),
        stderr: Vec::new(),
    })
}

/// Returns the model files that a phase opened.
pub fn opened_files(phase: &PhaseRecord) -> impl Iterator<Item = &FileFacts> {
    phase.model.iter().flat_map(|model| model.files.values().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Returns the number of failures of passes that take 10 s each by the worker's clock, and this long by the conductor's.
    fn failures(conductor_s: &[f64]) -> usize {
        let mut record = testing::record();
        let pass = |time: &f64| PassTimes {
            whole_s: Seconds(10.0),
            conductor_s: Some(Seconds(*time)),
            ..PassTimes::default()
        };
        record.phases[0].measured[0].passes = conductor_s.iter().map(pass).collect();
        pass_clock_failures(&record).len()
    }

    #[test]
    fn delays_at_the_begin_and_at_the_end_of_passes_cancel_out() {
        assert_eq!(failures(&[11.5, 8.7, 11.2, 8.9]), 0, "events that arrived late");
        assert_eq!(failures(&[10.6, 10.6, 10.6, 10.6]), 1, "time that the worker left out");
        assert_eq!(failures(&[10.9]), 0, "less than a second");
        assert_eq!(failures(&[f64::NAN]), 1);
    }

    #[test]
    fn a_step_whose_begin_was_reported_late_is_no_failure() {
        assert_eq!(clock_difference(Seconds(40.0), Seconds(37.0)), None);
        assert!(clock_difference(Seconds(37.0), Seconds(40.0)).is_some());
    }
}
