//! The end of a report: the verdict, the headline figures and the path of the record.

use indexmap::IndexMap;

use super::rows::{HEADLINE_MFU, pass_text};
use super::scenario::scenario_text;
use super::text::{count, duration, rate};
use super::training::{is_reached, metrics};
use super::usage::energy_text;
use flagperf_core::event::{GraphChange, GraphRewrite};
use flagperf_core::measure::Measurement;
use flagperf_core::step::Step;
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{AuditVerdict, Record, Verdict, other_dataset};

/// Returns the headline figures: throughput and latency of each measured loop, that of the last phase first, then energy,
/// agreement, or why it was not checked, the audit, and accuracy where it is known.
pub fn headline_rows(record: &Record) -> Vec<(String, String)> {
    let loops = record.measured_loops().rev();
    // The figure for utilisation is that of the first loop, which is the headline.
    let mut mfu = record.finish_info.mfu.as_deref();
    let mut rows: Vec<_> = loops
        .map(|measured| (measured.step.name().to_owned(), throughput_text(measured, record, mfu.take())))
        .collect();
    rows.extend(scenario_text(record).map(|text| ("scenario".to_owned(), text)));
    rows.extend(graph_changes_text(record).map(|text| ("graph".to_owned(), text)));
    rows.extend(energy_text(record).map(|text| ("energy".to_owned(), text)));
    rows.extend(agreement_text(record).map(|text| ("agreement".to_owned(), text)));
    rows.extend(audit_text(record).map(|text| ("audit".to_owned(), text)));
    rows.extend(accuracy_text(record).map(|text| ("accuracy".to_owned(), text)));
    rows
}

/// Returns the figure for which a case is run, in one phrase: the throughput of the last measured phase, and what a training reached.
pub(super) fn headline_figure(record: &Record) -> String {
    let measured = record.measured_loops().next_back();
    let figure = measured.and_then(|measured| Some((measured.step.name(), measured.throughput_core_samples_per_s?)));
    let unit = &record.unit;
    let figure =
        figure.map_or_else(|| "no figure".to_owned(), |(step, core)| format!("{step} {} {unit}s/s core", rate(core)));
    let reached = record.training().and_then(|training| training.rounds.last()).map(|round| {
        let target = match is_reached(record, round) {
            Some(true) => " (target reached)",
            Some(false) => " (target missed)",
            None if round.train_s.is_none() => " (not ended)",
            None => "",
        };
        format!(", {}{target}", metrics(round))
    });
    figure + &reached.unwrap_or_default()
}

/// `48.2 images/s core, 45.1 whole, median step 165 ms, *MFU 45.3%`, in the unit of the case.
fn throughput_text(measured: &Measurement, record: &Record, mfu: Option<&str>) -> String {
    let unit = &record.unit;
    let throughput = |value: Option<SamplesPerSecond>| value.map_or_else(|| "unknown".to_owned(), rate);
    let core = throughput(measured.throughput_core_samples_per_s);
    let whole = throughput(measured.throughput_whole_samples_per_s);
    // A program may report several steps at once, so that the times of its reports are not those of its steps.
    let latency = measured.latency.as_ref().filter(|_| !record.is_reported_by_program());
    let latency = latency.map(|latency| format!(", median step {}", duration(latency.p50_s)));
    let mfu = mfu.map(|mfu| format!(", {HEADLINE_MFU} {mfu}"));
    format!("{core} {unit}s/s core, {whole} whole{}{}", latency.unwrap_or_default(), mfu.unwrap_or_default())
}

/// `35 places: fuse LayerNormalization; nodes 1,240 -> 960 (cpu/export.rhai)`, for each graph that a script changed.
fn graph_changes_text(record: &Record) -> Option<String> {
    let rewrites = record.phases.iter().flat_map(|phase| &phase.rewrites);
    let text = |rewrite: &GraphRewrite| {
        let approximation = |change: &GraphChange| {
            let text = |error: f64| format!(", an approximation with a relative L2 error of {error:.1e}");
            change.approximation.map(text).unwrap_or_default()
        };
        let places = |change: &GraphChange| match change.places {
            1 => format!("1 place: {}{}", change.what, approximation(change)),
            places => format!("{} places: {}{}", count(places), change.what, approximation(change)),
        };
        let changes: Vec<String> = rewrite.changes.iter().map(places).collect();
        let [before, after] = rewrite.nodes.map(count);
        let changes = if changes.is_empty() { String::new() } else { format!("{}; ", changes.join(", ")) };
        let has_unproved_place = rewrite.changes.iter().any(|change| !change.unproved.is_empty());
        let places = if has_unproved_place { "; not every place was compared: see the record" } else { "" };
        let whole =
            rewrite.proof.unproved.as_ref().map(|reason| format!("; the whole graph was not compared: {reason}"));
        format!("{changes}nodes {before} -> {after} ({}){places}{}", rewrite.script, whole.unwrap_or_default())
    };
    let all: Vec<String> = rewrites.map(text).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn audit_text(record: &Record) -> Option<String> {
    match record.audit.verdict {
        AuditVerdict::Exact => Some("passed; repeated runs returned identical outputs".to_owned()),
        AuditVerdict::WithinTolerance => Some("passed; repeated runs differed within the limits".to_owned()),
        AuditVerdict::Failed => Some(format!("failed: {}", record.audit.failures.join("; "))),
        AuditVerdict::NotAudited => None,
    }
}

fn agreement_text(record: &Record) -> Option<String> {
    let compared = record.inference_agreement();
    match record.agreement.verdict {
        Verdict::Met => Some(match compared {
            Some(compared) if !compared.between_passes.is_empty() => format!(
                "the outputs of inference agree with those of validation in {}, and the passes with each other",
                pass_text(compared)
            ),
            _ if record.training().is_some() => {
                "the outputs of the last evaluation are those of another engine".to_owned()
            }
            _ => "the outputs of inference agree with those of validation".to_owned(),
        }),
        Verdict::Missed => Some(format!("does not agree: {}", record.agreement.missed.join("; "))),
        // Without a measured inference, the reason is a failure, or that the case has no compiler.
        Verdict::Unknown | Verdict::NoTarget => {
            let reason = record.agreement.unknown.as_ref().filter(|_| record.measurement(Step::Inference).is_some());
            reason.map(|reason| format!("not checked: {reason}"))
        }
    }
}

fn accuracy_text(record: &Record) -> Option<String> {
    let accuracy = &record.accuracy;
    let metrics = |metrics: &IndexMap<String, f64>| {
        metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
    };
    let of_steps = [&accuracy.inference, &accuracy.validation, &accuracy.training];
    let measured = of_steps.into_iter().find(|metrics| !metrics.is_empty()).unwrap_or(&accuracy.validation);
    match accuracy.verdict {
        Verdict::Met => {
            let place = other_dataset(record).map_or("", |_| ", on a dataset that is not known to be the target's");
            Some(format!("{}: target met{place}", metrics(measured)))
        }
        Verdict::Missed => Some(format!("missed: {}", accuracy.missed.join("; "))),
        Verdict::NoTarget => Some(format!("{}: no target set", metrics(measured))),
        Verdict::Unknown => None,
    }
}
