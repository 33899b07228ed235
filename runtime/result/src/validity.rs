//! The verdict on a result as a whole: whether it may be published as an official one.
//!
//! A pure function of the record.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::accuracy::target_key;
use super::executed_code::{unhashed_code, untraced_code};
use super::output_copy::unproven_copy;
use super::scenario_verdict::scenario_doubts;
use super::step_time_change::time_change_notes;
use super::training_verdict::{training_reasons, unknown_of_training};
use super::{DeviceConditions, Record, Status, Verdict, output_time_warnings};
use flagperf_core::measure::Measurement;
use flagperf_core::metric::Agreement;
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;
use flagperf_sampling::DEVICE_SOURCE;

/// Shortest measured time of an official result: FlagPerf's rule for `repeat`.
pub const OFFICIAL_TIME_MIN: Seconds = Seconds(600.0);
/// Longest measured time of an official result: FlagPerf's rule for `repeat`.
pub const OFFICIAL_TIME_MAX: Seconds = Seconds(86_400.0);
/// Largest relative half-width of the 95 % interval of a throughput in an official result.
pub const OFFICIAL_HALF_WIDTH_MAX: f64 = 0.05;

/// Largest share of padding in the rows that a loop of an official result computes.
pub const OFFICIAL_PADDING_MAX: f64 = 0.1;

/// The measured time of a result in whole seconds, or the shortest and the longest of several results, which is too short
/// for an official one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortTime {
    /// The shortest.
    pub least: Seconds,
    /// The longest.
    pub most: Seconds,
}

impl ShortTime {
    /// Returns the measured time of a record if it is too short.
    pub fn of(record: &Record) -> Option<Self> {
        let time = time_of(headline(record)?);
        let seconds = Seconds(time.0.floor());
        (time.0.is_nan() || time.0 < OFFICIAL_TIME_MIN.0).then_some(ShortTime { least: seconds, most: seconds })
    }

    /// Returns the shortest and the longest of both.
    pub fn or(self, other: Self) -> Self {
        ShortTime { least: Seconds(self.least.0.min(other.least.0)), most: Seconds(self.most.0.max(other.most.0)) }
    }
}

impl fmt::Display for ShortTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least.0 < 1.0 {
            true => f.write_str("measured for less than 1 s")?,
            false => write!(f, "measured for {:.0} s", self.least.0)?,
        }
        if self.least.0 < self.most.0 {
            write!(f, " to {:.0} s", self.most.0)?;
        }
        f.write_str(" (official: at least 10 min)")
    }
}

/// Number of readings of a device from which one that was idle in all of them was not used.
const READINGS_MIN: u64 = 3;

/// Whether a result counts, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// The result may be published as an official one.
    Valid,
    /// The result is sound, but does not meet the rules of an official one.
    Unofficial,
    /// The case or one of its checks failed: the figures must not be used.
    #[default]
    Invalid,
}

impl Validity {
    /// Returns the verdict's name as used in records and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Unofficial => "unofficial",
            Validity::Invalid => "invalid",
        }
    }
}

/// The verdict on a result with its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ValidityCheck {
    pub verdict: Validity,
    /// Why the result is not valid, one fragment each; empty when it is.
    pub reasons: Vec<String>,
    /// What could not be determined and does not change the verdict, one fragment each.
    pub unknown: Vec<String>,
    /// What a reader of the figures should know and does not change the verdict, one fragment each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ValidityCheck {
    /// Judges a record whose other verdicts are filled in.
    pub fn judge(record: &Record) -> Self {
        let (unknown, notes) = (unknown_conditions(record), time_change_notes(record));
        let failed = failures(record);
        if record.status != Status::Ok || !failed.is_empty() {
            return ValidityCheck { verdict: Validity::Invalid, reasons: failed, unknown, notes };
        }
        let reasons: Vec<String> = [
            other_dataset(record).into_iter().collect(),
            measured_time(record),
            unsteady_loops(record),
            missing_accuracy(record),
            unknown_agreement(record).into_iter().collect(),
            partial_audit(record).into_iter().collect(),
            dependent_reference(record).into_iter().collect(),
            training_reasons(record),
            departures(record),
            failed_samples(record),
            padding_warnings(record),
            checkout_state(record),
            shared_host(record),
            unprotected_workers(record).into_iter().collect(),
            other_code(record).into_iter().collect(),
            untraced_code(record),
            container_rights(record),
            record.host_doubts.clone(),
            shared_processor(record).into_iter().collect(),
            device_conditions(record),
            output_time_warnings(record),
            record.audit.doubts.clone(),
            scenario_doubts(record),
        ]
        .concat();
        let verdict = if reasons.is_empty() { Validity::Valid } else { Validity::Unofficial };
        ValidityCheck { verdict, reasons, unknown, notes }
    }

    /// Returns the verdict, its reasons and the notes as one line: `unofficial: measured for 3 s (official: at least 10 min)`.
    pub fn line(&self) -> String {
        let verdict = match self.reasons.as_slice() {
            [] => self.verdict.name().to_owned(),
            reasons => format!("{}: {}", self.verdict.name(), reasons.join("; ")),
        };
        let notes = self.notes.iter().map(|note| format!("; note: {note}"));
        verdict + &notes.collect::<String>()
    }
}

fn measurements(record: &Record) -> impl Iterator<Item = &Measurement> {
    record.phases.iter().flat_map(|phase| &phase.measured)
}

/// Returns why the result must not be used.
fn failures(record: &Record) -> Vec<String> {
    let interrupted = (record.status == Status::Interrupted).then(|| "the run was interrupted".to_owned());
    let first_line = |text: &String| text.lines().next().unwrap_or_default().to_owned();
    let mut reasons: Vec<String> =
        interrupted.into_iter().chain(record.failures.iter().map(|failure| first_line(&failure.reason))).collect();
    if reasons.is_empty() && record.status == Status::Failed {
        reasons.push("the case failed".to_owned());
    }
    reasons
}

/// Returns the wall time of all passes of a loop.
fn time_of(measured: &Measurement) -> Seconds {
    measured.passes.iter().map(|pass| pass.whole_s).sum()
}

/// Returns the loop whose time is judged: that of inference if there is one.
fn headline(record: &Record) -> Option<&Measurement> {
    record.measured_loops().next_back()
}

fn measured_time(record: &Record) -> Vec<String> {
    if headline(record).is_none() {
        return vec!["nothing was measured".to_owned()];
    }
    if let Some(short) = ShortTime::of(record) {
        return vec![short.to_string()];
    }
    let total = measurements(record).map(time_of).sum::<Seconds>();
    if total.0 > OFFICIAL_TIME_MAX.0 {
        return vec![format!("measured for {:.1} h (official: at most 24 h)", total.0 / 3600.0)];
    }
    Vec::new()
}

/// Returns the loops whose step times had not settled, or whose throughput is not known well enough.
fn unsteady_loops(record: &Record) -> Vec<String> {
    let mut reasons = Vec::new();
    for measured in measurements(record) {
        let name = measured.step.name();
        if !measured.warmup_steady {
            reasons.push(format!("{name}: step times were not steady at the end of warm-up"));
        }
        match measured.throughput_core_interval {
            None => reasons.push(format!("{name}: too few steps for a confidence interval")),
            // A width that is NaN is not narrow enough, either.
            Some(interval) if interval.relative_half_width <= OFFICIAL_HALF_WIDTH_MAX => {}
            Some(interval) => reasons.push(format!(
                "{name}: the confidence interval of throughput is \u{b1}{:.1} % (official: at most 5 %)",
                100.0 * interval.relative_half_width
            )),
        }
    }
    reasons
}

fn missing_accuracy(record: &Record) -> Vec<String> {
    match (record.accuracy.verdict, &record.accuracy.unknown) {
        (Verdict::Met, _) => Vec::new(),
        (Verdict::NoTarget, _) => vec![format!("the case sets no `{}`", target_key(record))],
        (_, Some(reason)) => vec![format!("no accuracy: {reason}")],
        (_, None) => vec!["no accuracy".to_owned()],
    }
}

/// Returns that the dataset is not the one for which the case sets its target.
pub fn other_dataset(record: &Record) -> Option<String> {
    if record.accuracy.verdict != Verdict::Met {
        return None;
    }
    let dataset = record.headline_phase()?.dataset.as_ref()?;
    let samples = record.settings.get("target_samples").and_then(|setting| setting.value.as_u64()).unwrap_or_default();
    let index = target_index(record).filter(|index| *index != dataset.index_sha256);
    match samples {
        0 => Some("the case does not say which dataset its target is for (`target_samples`)".to_owned()),
        _ if samples != dataset.samples => {
            let key = target_key(record);
            Some(format!("the dataset has {} samples, and that of `{key}` has {samples}", dataset.samples))
        }
        _ => index.map(|index| {
            let (key, found) = (target_key(record), &dataset.index_sha256);
            format!("the dataset is not that of `{key}`: its index is {found}, and `target_index` is {index}")
        }),
    }
}

fn target_index(record: &Record) -> Option<&str> {
    record.settings.get("target_index")?.value.as_str()
}

fn departures(record: &Record) -> Vec<String> {
    match record.departures.as_slice() {
        [] => Vec::new(),
        [one] => vec![format!("changed by --set: {one}")],
        [one, rest @ ..] => vec![format!("changed by --set: {one} and {} more", rest.len())],
    }
}

fn failed_samples(record: &Record) -> Vec<String> {
    let failed = measurements(record).filter(|measured| measured.failed_samples > 0);
    failed.map(|m| format!("{}: {} samples could not be read", m.step.name(), m.failed_samples)).collect()
}

/// Returns the loops in which more than 10 % of the rows were padding, so that the samples per second say little about the
/// device.
pub fn padding_warnings(record: &Record) -> Vec<String> {
    let warning = |measured: &Measurement| {
        let padded = measured.padded_samples;
        let rows = measured.samples.saturating_add(measured.failed_samples).saturating_add(padded);
        let share = padded as f64 / rows as f64;
        if padded == 0 || share <= OFFICIAL_PADDING_MAX {
            return None;
        }
        let rates = measured.throughput_core_samples_per_s.map_or_else(String::new, |core| {
            let computed = core.0 * rows as f64 / measured.samples as f64;
            format!(": {computed:.1} rows/s were computed for {:.1} {}s/s", core.0, record.unit)
        });
        let name = measured.step.name();
        let share = 100.0 * share;
        Some(format!("{name}: {padded} of {rows} rows were padding, {share:.1} % (official: at most 10 %){rates}"))
    };
    measurements(record).filter_map(warning).collect()
}

fn checkout_state(record: &Record) -> Vec<String> {
    record.provenance.unofficial_checkout().into_iter().collect()
}

/// Returns that inference was not compared with validation: its outputs may be wrong.
fn unknown_agreement(record: &Record) -> Option<String> {
    record.measurement(Step::Inference)?;
    let reason = record.agreement.unknown.as_ref()?;
    Some(format!("the outputs of inference are not known to be right: {reason}"))
}

/// Returns that both sides of the agreement are engines of the vendor, which can agree on wrong outputs, and that flagperf's
/// interpreter did not compute all outputs, with the reason for each.
fn dependent_reference(record: &Record) -> Option<String> {
    let engine = |step: Step| record.phase_of(step)?.engine.as_ref();
    let is_vendors = |step| {
        engine(step)
            .is_some_and(|engine| engine.plugin.is_some() || engine.sidecar.is_some() || engine.server.is_some())
    };
    if !is_vendors(Step::Validation) || !is_vendors(Step::Inference) {
        return None;
    }
    let validation = record.phase_of(Step::Validation)?.agreement.as_ref();
    // Only the audit has inputs that validation did not compute, and that nothing else was audited is a reason of its own.
    let inference = record.phase_of(Step::Inference)?.audit.as_ref();
    let lacking = |phase: &str, reference: Option<&Agreement>| {
        let not_compared = reference.map_or(&[][..], |reference| &reference.not_compared);
        let computed = match reference.is_some_and(|reference| !reference.outputs.is_empty()) {
            true if not_compared.is_empty() => return None,
            true => "not every output",
            false => "no outputs",
        };
        let reasons = if not_compared.is_empty() { String::new() } else { format!(": {}", not_compared.join(", ")) };
        Some(format!("{computed} of {phase}{reasons}"))
    };
    let lacking = lacking("validation", validation)
        .or_else(|| inference.and_then(|audit| lacking("inference", audit.unseen.as_ref())))?;
    Some(format!(
        "validation and inference both ran engines that the vendor supplies, and flagperf's interpreter computed {lacking}"
    ))
}

/// Returns what the audit of inference did not include.
fn partial_audit(record: &Record) -> Option<String> {
    match &record.phase_of(Step::Inference)?.audit {
        None => Some("inference was not audited".to_owned()),
        Some(audit) if audit.changed_model.is_none() => {
            Some("inference was not audited with changed weights (official: `--audit full`)".to_owned())
        }
        Some(_) => None,
    }
}

/// Returns that other processes could write to the workers and their files.
fn unprotected_workers(record: &Record) -> Option<String> {
    let is_off = record.settings.get("WORKER_PROTECTION").is_some_and(|setting| setting.value == false);
    is_off.then(|| "the workers were not protected from their engines (`WORKER_PROTECTION: false`)".to_owned())
}

/// Returns that the workers may have executed code that the record does not describe.
fn other_code(record: &Record) -> Option<String> {
    let variables = record.code_variables.join(", ");
    (!variables.is_empty()).then(|| format!("the environment makes workers execute other code: {variables}"))
}

/// Returns the rights with which the workers could reach the machine outside their containers.
fn container_rights(record: &Record) -> Vec<String> {
    let rights = record.provenance.image.iter().flat_map(|image| &image.rights);
    rights.map(|right| format!("the container did not separate the worker from the machine: {right}")).collect()
}

/// Returns that other runs were allowed on the host at the same time. Whether there was one is not known: it may have begun later.
fn shared_host(record: &Record) -> Vec<String> {
    let is_shared = record.settings.get("BUSY_HOST").is_some_and(|setting| setting.value == "share");
    is_shared
        .then(|| "other runs could use the host at the same time (`BUSY_HOST: share`)".to_owned())
        .into_iter()
        .collect()
}

/// Returns that the headline figures come from the processor although the case runs on several devices of each host: the
/// workers of a host then share its processor.
fn shared_processor(record: &Record) -> Option<String> {
    let step = record.device.and(record.headline_step())?;
    let engine = record.phase_of(step)?.engine.as_ref()?;
    engine.runs_on_processor().then(|| {
        format!("{}: the workers of the host shared its processor, which is not one of several devices", step.name())
    })
}

/// Returns what disturbed the devices.
fn device_conditions(record: &Record) -> Vec<String> {
    let mut reasons = Vec::new();
    for phase in &record.phases {
        let (name, conditions) = (phase.phase.name(), phase.conditions.as_ref());
        let lists = conditions.map(|conditions| (&conditions.other_processes, &conditions.throttling));
        let Some((processes, throttling)) = lists else { continue };
        if let Some(processes) = processes.as_ref().filter(|processes| !processes.is_empty()) {
            reasons.push(format!("{name}: other processes used the device: {}", processes.join(", ")));
        }
        if let Some(readings) = conditions.and_then(idle_readings).filter(|_| !phase.measured.is_empty()) {
            reasons.push(format!(
                "{name}: the device was idle in all {readings} readings: did the engine use another one?"
            ));
        }
        if let Some(throttling) = throttling.as_ref().filter(|throttling| !throttling.is_empty()) {
            reasons.push(format!("{name}: the device was slowed down: {}", throttling.join(", ")));
        }
    }
    reasons
}

/// Returns the number of readings of a device that never computed; `None` if it did, or nothing is known.
fn idle_readings(conditions: &DeviceConditions) -> Option<u64> {
    let is_idle = conditions.busy_share_max.is_some_and(|share| share == 0.0);
    Some(conditions.readings).filter(|readings| is_idle && *readings >= READINGS_MIN)
}

/// Returns the conditions that no monitor reported.
fn unknown_conditions(record: &Record) -> Vec<String> {
    let mut unknown = unknown_of_training(record);
    if record.accuracy.verdict == Verdict::Met && other_dataset(record).is_none() {
        let known = target_index(record).map_or("number is", |_| "names, sizes and classes are");
        let key = target_key(record);
        unknown.push(format!("whether the samples are those of `{key}`: only their {known} compared"));
    }
    let monitor = record.monitors.as_ref().and_then(|monitors| monitors.sources.get(DEVICE_SOURCE));
    let why = monitor.and_then(|monitor| monitor.unavailable.as_ref().or(monitor.problem.as_ref()));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    for phase in record.phases.iter().filter(|phase| !phase.measured.is_empty()) {
        let (name, conditions) = (phase.phase.name(), phase.conditions.as_ref());
        if conditions.is_none_or(|conditions| conditions.other_processes.is_none()) {
            unknown.push(format!("{name}: other processes on the device{why}"));
        }
        if conditions.is_none_or(|conditions| conditions.throttling.is_none()) {
            unknown.push(format!("{name}: throttling of the device{why}"));
        }
        unknown.extend(phase.measured.iter().filter_map(unproven_copy));
        let engine = phase.engine.as_ref().filter(|engine| !engine.runs_on_processor());
        if record.device.is_some() && engine.is_some_and(|engine| engine.device_id.is_none()) {
            unknown.push(format!("{name}: which device the worker used"));
        }
    }
    unknown.extend(unhashed_code(record));
    unknown
}

#[cfg(test)]
mod tests;
