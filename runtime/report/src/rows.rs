//! The content of a record as rows of text. An unknown or meaningless value is replaced by the reason.

use indexmap::IndexMap;

use super::loading::{decoder_text, searched_loading};
use super::scenario::scenario_rows;
use super::text::{bytes, count, digits, duration, percent, rate};
use super::training::{detail_rows, training_rows};
use super::usage::usage_rows;
use flagperf_core::measure::{Latency, LatencyBounds, Measurement, Observation, SpanTimes, ThroughputInterval};
use flagperf_core::metric::{Agreement, AgreementLimits, OutputAgreement};
use flagperf_core::step::{EngineRole, Phase, Step};
use flagperf_core::text::one_line;
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_result::{Accuracy, PhaseRecord, Record, TrainingRecord, Verdict, step_time_change_text};
use flagperf_sampling::DEVICE_SOURCE;

/// Rows below one heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading; empty for FlagPerf's rows.
    pub title: String,
    /// Name and value.
    pub rows: Vec<(String, String)>,
}

/// Returns the sections of a record's table: first FlagPerf's rows, with its names and in its order, then those of
/// flagperf.
pub fn sections(record: &Record) -> Vec<Section> {
    let none = TrainingRecord::default();
    // A training that fails early observes nothing.
    let is_training = record.phases.iter().any(|phase| phase.phase == Phase::Train);
    let training = record.training().or_else(|| is_training.then_some(&none));
    let first = training.map_or_else(|| flagperf_rows(record), |training| training_rows(record, training));
    let mut sections = vec![section("", first)];
    for phase in &record.phases {
        sections.extend(phase.measured.iter().map(|found| section(found.step.name(), loop_rows(phase, found))));
    }
    sections
        .extend(record.training().map(|training| section("training data and epochs", detail_rows(record, training))));
    sections.push(section("scenario", scenario_rows(record)));
    sections.extend(agreement_sections(record));
    sections.extend(audit_section(record));
    sections.push(section("accuracy", accuracy_rows(&record.accuracy)));
    sections.push(section("power and memory", usage_rows(record)));
    sections.push(section("model, data and hardware", subject_rows(record)));
    sections.retain(|section| !section.rows.is_empty());
    sections
}

/// Creates a section. Line breaks are escaped, so that the text of an engine or a script cannot begin another row.
fn section(title: &str, rows: Vec<(&str, String)>) -> Section {
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), one_line(&value).into_owned())).collect();
    Section { title: one_line(title).into_owned(), rows }
}

fn flagperf_rows(record: &Record) -> Vec<(&'static str, String)> {
    let info = &record.finish_info;
    let reasons = MissingReasons::of(record);
    let perf = |rate_: Option<SamplesPerSecond>, why: &str| rate_.map_or_else(|| why.to_owned(), rate);
    let devices = record.monitors.as_ref().and_then(|monitors| monitors.sources.get(DEVICE_SOURCE));
    let missing = devices.and_then(|source| source.unavailable.as_deref().or(source.problem.as_deref()));
    let missing = format!("unknown: {}", missing.unwrap_or("not reported"));
    let gib = |value: Option<f64>| value.map_or_else(|| missing.clone(), digits);
    let accuracy = |value: Option<f64>, why: &str| match value {
        Some(value) => format!("{value:.4}"),
        None => why.to_owned(),
    };
    vec![
        ("vendor", info.vendor.clone()),
        ("compiler", info.compiler.clone().unwrap_or_else(|| "none".to_owned())),
        ("precision", info.precision.clone()),
        ("batchsize", info.batchsize.to_string()),
        (
            "flops",
            info.flops.map_or_else(
                || "unknown: nothing was measured".to_owned(),
                |f| format!("{:.3e} per second, of the declared operations", f.0),
            ),
        ),
        ("e2e_time(second)", format!("{:.1}", info.e2e_time.0)),
        ("p_validation_whole(qps)", perf(info.validation_whole, reasons.validation)),
        ("p_validation_core(qps)", perf(info.validation_core, reasons.validation)),
        ("p_inference_whole(qps)", perf(info.inference_whole, reasons.inference)),
        ("*p_inference_core(qps)", perf(info.inference_core, reasons.inference)),
        ("val_average_acc", accuracy(info.val_average_acc, reasons.accuracy_of(Step::Validation))),
        ("infer_average_acc", accuracy(info.infer_average_acc, reasons.accuracy_of(Step::Inference))),
        ("vendor_usage(GiB)", gib(info.vendor_usage)),
        ("vendor_max_mem(GiB)", gib(info.vendor_max_mem)),
        (HEADLINE_MFU, info.mfu.clone().unwrap_or_else(|| reasons.mfu.to_owned())),
    ]
}

/// FlagPerf's name of the utilisation by the declared operations, which is the headline; that by the counted operations is
/// the counted MFU.
pub(super) const HEADLINE_MFU: &str = "*MFU";

/// Why figures are missing.
struct MissingReasons {
    validation: &'static str,
    inference: &'static str,
    accuracy: String,
    mfu: &'static str,
}

impl MissingReasons {
    fn of(record: &Record) -> Self {
        let flag = |key: &str| record.settings.get(key).map(|setting| &setting.value);
        let skipped = flag("no_validation").and_then(serde_json::Value::as_bool).unwrap_or(false);
        let failed = "none: the step did not complete";
        let peak = record.headline_device().is_some_and(|device| device.peak.is_some());
        let unknown = record.accuracy.unknown.as_deref();
        MissingReasons {
            validation: if skipped { "none: `no_validation` is set" } else { failed },
            inference: if record.finish_info.compiler.is_none() { "none: `compiler` is null" } else { failed },
            accuracy: unknown.map_or_else(|| failed.to_owned(), |why| format!("no accuracy: {why}")),
            mfu: if peak { "unknown: nothing was measured" } else { "unknown: the device's peak is unknown" },
        }
    }

    /// Returns why the accuracy of a step is missing: the loop was not configured, or its accuracy is unknown.
    fn accuracy_of(&self, step: Step) -> &str {
        let missing = if step == Step::Validation { self.validation } else { self.inference };
        if missing.contains('`') { missing } else { &self.accuracy }
    }
}

fn loop_rows(phase: &PhaseRecord, measured: &Measurement) -> Vec<(&'static str, String)> {
    let mut rows = vec![("samples", samples(measured))];
    let steady = if measured.warmup_steady { "steady" } else { "hit its limit before step times settled" };
    let steps = plural(measured.warmup_steps.into(), "step", "steps");
    let warmup = format!("{steps}, {}, {steady}", duration(measured.warmup_s));
    rows.push(("warm-up", warmup));
    let intervals = [("core", measured.throughput_core_interval), ("whole", measured.throughput_whole_interval)];
    rows.extend(
        intervals
            .into_iter()
            .filter_map(|(name, found)| Some(("95 % interval", interval_text(name, &found?, measured.steps)))),
    );
    rows.extend(step_time_change_text(phase, measured).map(|text| ("step times", text)));
    if let Some(latency) = &measured.latency {
        rows.push(("latency of a step", latency_text(latency)));
    }
    rows.extend(bounds_text(&measured.latency_bounds).map(|text| ("latency at most", text)));
    rows.extend(time_split(measured).map(|split| ("whole", split)));
    rows.extend(measured.spans.iter().map(|(name, times)| ("span", format!("{name}: {}", span_text(times)))));
    if let Some(time) = measured.vendor_time.filter(|time| time.max_s.0 > 0.0) {
        let (max, sum) = (duration(time.max_s), duration(time.sum_s));
        rows.push(("foo_time", format!("at most {max} per step, {sum} in total, not subtracted")));
    }
    let device = measured.device_memory_bytes_max.map(|memory| format!(", device {}", bytes(memory)));
    let states = measured.state_memory_bytes_max;
    let states = if states.0 > 0 { format!(", states {}", bytes(states)) } else { String::new() };
    let worker = bytes(phase.memory_used().unwrap_or(measured.memory_bytes_max));
    rows.push(("memory", format!("worker {worker}{}{states}", device.unwrap_or_default())));
    if measured.non_finite_outputs > 0 {
        rows.push(("NaN or infinite", plural(measured.non_finite_outputs, "output element", "output elements")));
    }
    rows
}

fn samples(measured: &Measurement) -> String {
    let steps = plural(measured.steps, "step", "steps");
    let passes = plural(measured.passes.len() as u64, "pass", "passes");
    let mut text = format!("{} in {steps}, {passes}", count(measured.samples));
    if measured.failed_samples > 0 {
        text += &format!(", {} failed", count(measured.failed_samples));
    }
    if measured.padded_samples > 0 {
        text += &format!(", {} discarded", plural(measured.padded_samples, "padding row", "padding rows"));
    }
    text
}

/// `1 pass`, `2 passes`.
pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

pub(super) fn latency_text(latency: &Latency) -> String {
    let percentiles =
        [("p50", latency.p50_s), ("p90", latency.p90_s), ("p99", latency.p99_s), ("p99.9", latency.p999_s)];
    let text = percentiles.map(|(name, time)| format!("{name} {}", duration(time)));
    format!("{}, min {}, max {}", text.join(", "), duration(latency.min_s), duration(latency.max_s))
}

/// `core 79.1 to 81.0 samples/s (±1.2 %), from 5 passes`, of a loop with some steps
fn interval_text(name: &str, interval: &ThroughputInterval, steps: u64) -> String {
    let high = interval.high_samples_per_s.map_or_else(|| "unbounded".to_owned(), rate);
    let count = match interval.of {
        Observation::Pass => plural(interval.observations, "pass", "passes"),
        Observation::Batch if interval.observations == steps => plural(steps, "step", "steps"),
        Observation::Batch => plural(interval.observations, "group of steps", "groups of steps"),
    };
    let (low, share) = (rate(interval.low_samples_per_s), 100.0 * interval.relative_half_width);
    format!("{name} {low} to {high} samples/s (\u{b1}{share:.1} %), from {count}")
}

/// `p90 21 ms, p99 25 ms at 99 % confidence`; `None` with too few steps for either.
fn bounds_text(bounds: &LatencyBounds) -> Option<String> {
    let known = [("p90", bounds.p90_s), ("p99", bounds.p99_s)];
    let texts: Vec<String> =
        known.into_iter().filter_map(|(name, time)| Some(format!("{name} {}", duration(time?)))).collect();
    (!texts.is_empty()).then(|| format!("{} at 99 % confidence", texts.join(", ")))
}

/// `64 runs, 1.3 s, 512 items, 390.1/s, p50 20 ms, p90 21 ms, p99 25 ms`
fn span_text(times: &SpanTimes) -> String {
    let mut text = format!("{}, {}", plural(times.runs, "run", "runs"), duration(times.total_s));
    if let Some(per_second) = times.throughput_items_per_s {
        text += &format!(", {}, {}/s", plural(times.items, "item", "items"), rate(per_second));
    }
    if let Some(latency) = times.latency.filter(|_| times.runs > 1) {
        let percentiles = [("p50", latency.p50_s), ("p90", latency.p90_s), ("p99", latency.p99_s)];
        text.extend(percentiles.map(|(name, time)| format!(", {name} {}", duration(time))));
    }
    text
}

/// Returns the wall time of all passes with the shares of its parts.
fn time_split(measured: &Measurement) -> Option<String> {
    let sum =
        |part: fn(&flagperf_core::measure::PassTimes) -> Seconds| measured.passes.iter().map(part).sum::<Seconds>();
    let whole = sum(|pass| pass.whole_s);
    if whole.0 <= 0.0 {
        return None;
    }
    let parts = [
        ("load", sum(|pass| pass.load_wait_s)),
        ("core", sum(|pass| pass.core_s)),
        ("output", sum(|pass| pass.output_s)),
        ("evaluate", sum(|pass| pass.evaluate_s)),
        ("host", sum(|pass| pass.host_s)),
    ];
    let parts = parts.map(|(name, time)| format!("{name} {}", percent(time.0 / whole.0)));
    Some(format!("{}: {}", duration(whole), parts.join(", ")))
}

/// Returns the section of the audit; `None` without one.
fn audit_section(record: &Record) -> Option<Section> {
    let audit = record.phases.iter().find_map(|phase| phase.audit.as_ref())?;
    let median = |times: &[Seconds]| Latency::of(times).map_or_else(|| "not run".to_owned(), |l| duration(l.p50_s));
    let mut rows = vec![
        ("groups of steps", audit.repeated_s.len().to_string()),
        ("repeated batch", format!("{}, {} in the pass", median(&audit.repeated_s), median(&audit.measured_s))),
        ("fresh inputs", median(&audit.fresh_s)),
        ("one sample in every row", median(&audit.uniform_s)),
    ];
    if let Some(changed) = &audit.changed_model {
        let different = changed.steps - changed.unchanged_steps;
        let times = format!("{}, {} in the pass", median(&changed.core_s), median(&changed.measured_s));
        rows.push(("changed weights", format!("outputs differ in {different} of {} steps; {times}", changed.steps)));
    }
    rows.extend(record.audit.failures.iter().map(|failure| ("failed", failure.clone())));
    rows.extend(record.audit.doubts.iter().map(|doubt| ("doubt", doubt.clone())));
    rows.extend(record.audit.notes.iter().map(|note| ("note", note.clone())));
    Some(section("audit", rows))
}

/// Returns a section for each compared output, and one for the verdict.
fn agreement_sections(record: &Record) -> Vec<Section> {
    let agreement = record.inference_agreement();
    // The figures of an engine that computes nothing have no meaning.
    let compared = agreement.filter(|_| record.agreement.verdict != Verdict::Unknown);
    let outputs = compared.into_iter().flat_map(|agreement| &agreement.outputs);
    let mut sections: Vec<Section> =
        outputs.map(|(name, figures)| section(&format!("agreement of `{name}`"), output_rows(figures))).collect();
    let mut rows = Vec::new();
    if let Some(agreement) = compared {
        rows.push(("samples", format!("{}, of {}", count(agreement.samples), pass_text(agreement))));
        rows.extend(agreement.between_passes.iter().map(|(name, difference)| {
            let (figure, pass) = (difference.judged(), difference.pass + 1);
            ("between passes", format!("`{name}` differs from pass 1 by at most {figure:.2e}, in pass {pass}"))
        }));
    }
    let check = &record.agreement;
    if let Some(limits) = &check.limits {
        let AgreementLimits { relative_l2, worst_sample, cosine, correlation, mismatches, .. } = limits;
        rows.push((
            "limits",
            format!(
                "relative L2 {relative_l2:.0e}, worst sample {worst_sample:.0e}, cosine {cosine}, \
                 correlation {correlation}, mismatches {mismatches}"
            ),
        ));
    }
    let verdict = match check.verdict {
        Verdict::Missed => format!("does not agree: {}", check.missed.join("; ")),
        Verdict::Unknown | Verdict::NoTarget => format!("none: {}", check.unknown.as_deref().unwrap_or("unknown")),
        Verdict::Met => {
            agreement.map_or_else(|| "agrees".to_owned(), |agreement| format!("agrees in {}", pass_text(agreement)))
        }
    };
    rows.push(("verdict", verdict));
    if !check.not_judged.is_empty() {
        rows.push(("not judged", check.not_judged.join("; ")));
    }
    sections.push(section("inference against validation", rows));
    sections.extend(reference_section(record));
    sections
}

/// Returns the section on the outputs of validation that flagperf's interpreter computed, too.
fn reference_section(record: &Record) -> Option<Section> {
    let validation = record.phases.iter().find(|phase| phase.phase == Phase::Validate)?;
    let agreement = validation.agreement.as_ref()?;
    let mut rows = vec![("samples", count(agreement.samples))];
    let outputs = agreement.outputs.iter();
    rows.extend(
        outputs.map(|(name, figures)| ("output", format!("`{name}`: relative L2 {:.2e}", figures.relative_l2))),
    );
    rows.extend(agreement.not_compared.iter().map(|reason| ("not compared", reason.clone())));
    Some(section("validation against flagperf's interpreter", rows))
}

/// Names the pass that was compared with validation: `pass 3 of 6`.
pub(super) fn pass_text(agreement: &Agreement) -> String {
    let pass = agreement.pass + 1;
    // An older record does not have the number of passes.
    if agreement.passes == 0 { format!("pass {pass}") } else { format!("pass {pass} of {}", agreement.passes) }
}

fn output_rows(agreement: &OutputAgreement) -> Vec<(&'static str, String)> {
    let OutputAgreement { max_abs, max_rel, mean_abs, median_abs, mean_rel, median_rel, .. } = agreement;
    let cosine = agreement.cosine.map(|cosine| format!("{cosine:.6}"));
    let no_cosine = match agreement.non_finite {
        0 => "unknown: one side is all zero".to_owned(),
        1 => "unknown: 1 element is NaN or infinite".to_owned(),
        elements => format!("unknown: {} elements are NaN or infinite", count(elements)),
    };
    let mut rows = vec![
        ("absolute error", format!("max {max_abs:.2e}, mean {mean_abs:.2e}, median {median_abs:.2e}")),
        ("relative error", format!("max {max_rel:.2e}, mean {mean_rel:.2e}, median {median_rel:.2e}")),
        ("relative L2 error", format!("{:.2e}, worst sample {:.2e}", agreement.relative_l2, agreement.worst_sample)),
        ("cosine similarity", cosine.unwrap_or(no_cosine)),
    ];
    rows.extend(agreement.variation.map(|variation| {
        let correlation = agreement.correlation.map_or_else(|| "unknown".to_owned(), |c| format!("{c:.4}"));
        ("over the samples", format!("variation {variation:.2e}, correlation {correlation}"))
    }));
    rows.extend(agreement.mismatches.map(|share| ("mismatches", percent(share))));
    rows.extend(agreement.top1_agreement.map(|share| ("same top-1", percent(share))));
    rows
}

fn accuracy_rows(accuracy: &Accuracy) -> Vec<(&'static str, String)> {
    let metrics = |metrics: &IndexMap<String, f64>| {
        metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
    };
    let mut rows = Vec::new();
    for (name, values) in [("validation", &accuracy.validation), ("inference", &accuracy.inference)] {
        if !values.is_empty() {
            rows.push((name, metrics(values)));
        }
    }
    if !accuracy.target.is_empty() {
        rows.push(("target", metrics(&accuracy.target)));
    }
    rows.push((
        "verdict",
        match accuracy.verdict {
            Verdict::Met => "target met".to_owned(),
            Verdict::Missed => format!("missed: {}", accuracy.missed.join("; ")),
            Verdict::NoTarget => "no target set".to_owned(),
            Verdict::Unknown => format!("no accuracy: {}", accuracy.unknown.as_deref().unwrap_or("unknown")),
        },
    ));
    rows
}

fn subject_rows(record: &Record) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(model) = record.phases.iter().find_map(|phase| phase.model.as_ref()) {
        rows.extend(model.parameters.map(|parameters| ("parameters", count(parameters))));
        rows.push(("weights", model.weights.clone()));
    }
    rows.extend(operation_rows(record));
    if let Some(data) = record.phases.iter().find_map(|phase| phase.dataset.as_ref()) {
        rows.push(("data", format!("{} in {}", plural(data.samples, "sample", "samples"), data.location)));
        rows.extend(data.decoder.as_ref().map(|decoder| ("decoder", decoder_text(decoder))));
    }
    rows.extend(record.phases.iter().filter_map(searched_loading));
    rows.extend(record.phases.iter().filter_map(engine_row));
    for host in &record.hosts {
        let machine = &host.machine;
        let threads = plural(machine.threads as u64, "thread", "threads");
        let text = format!("{}, {threads}, {}", machine.cpu, bytes(machine.memory_bytes));
        rows.push(("host", format!("{}: {text}", host.name)));
    }
    rows
}

/// Returns the operations per sample, declared and counted, and the utilisation by each.
fn operation_rows(record: &Record) -> Vec<(&'static str, String)> {
    let flops = &record.flops;
    let convention = match flops.declared_per_multiply_add {
        Some(operations) => format!("a multiply-add as {operations}"),
        None => "operations per multiply-add not stated".to_owned(),
    };
    let not_counted = "not counted: the graph or its shapes are unknown".to_owned();
    let counted = flops.counted_per_sample.map_or(not_counted, |c| format!("{c:.3e} (a multiply-add as 2)"));
    let why = MissingReasons::of(record).mfu;
    let mfu = |mfu: Option<f64>| mfu.map_or_else(|| why.to_owned(), percent);
    let declared = match flops.declared.as_str() {
        "" => "none".to_owned(),
        declared => format!("{declared} per sample ({convention})"),
    };
    vec![
        ("operations, declared", declared),
        ("operations, counted", counted),
        (HEADLINE_MFU, mfu(flops.declared_mfu)),
        (
            "counted MFU",
            match flops.counted_per_sample {
                Some(_) => mfu(flops.counted_mfu),
                None => "unknown: the operations were not counted".to_owned(),
            },
        ),
    ]
}

fn engine_row(phase: &PhaseRecord) -> Option<(&'static str, String)> {
    let engine = phase.engine.as_ref()?;
    let threads = match engine.threads {
        0 => String::new(),
        threads => format!(", {}", plural(threads.into(), "thread", "threads")),
    };
    let what = match (&engine.plugin, &engine.sidecar) {
        (Some(plugin), _) => format!("{} {} (plug-in)", plugin.name, plugin.version),
        (_, Some(sidecar)) => format!("{} {} (sidecar)", sidecar.name, sidecar.version),
        _ => format!("{} {}", engine.name, engine.version),
    };
    let text = format!("{what} on {}, {}{threads}", engine.device, engine.precision);
    let role = match phase.phase.role() {
        EngineRole::Framework => "framework",
        EngineRole::Compiler => "compiler engine",
    };
    Some((role, text))
}
