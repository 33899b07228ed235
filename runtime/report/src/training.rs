//! The figures of a training as rows, with the names of FlagPerf's tables.

use super::rows::{HEADLINE_MFU, plural};
use super::text::{digits, duration, percent, rate};
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Record, TrainingRecord, TrainingRound, Verdict};

/// Largest number of epochs of a repetition in the details.
const EPOCHS_SHOWN: usize = 20;

/// Returns FlagPerf's rows for a training: those of its last repetition.
pub(super) fn training_rows(record: &Record, training: &TrainingRecord) -> Vec<(&'static str, String)> {
    let info = &record.finish_info;
    let none = TrainingRound::default();
    let round = training.rounds.last().unwrap_or(&none);
    let perf =
        |found: Option<SamplesPerSecond>| found.map_or_else(|| "none: the training did not end".to_owned(), rate);
    let memory = |value: Option<f64>| value.map_or_else(|| "unknown: not reported".to_owned(), digits);
    vec![
        ("vendor", info.vendor.clone()),
        ("precision", info.precision.clone()),
        ("batchsize", info.batchsize.to_string()),
        ("e2e_time(second)", format!("{:.1}", info.e2e_time.0)),
        ("p_whole(qps)", perf(round.throughput_whole_samples_per_s)),
        ("p_train(qps)", perf(round.throughput_train_samples_per_s)),
        ("*p_core(qps)", perf(round.throughput_core_samples_per_s)),
        ("converged", converged(record, round)),
        ("final metric", metrics(round)),
        ("loss", losses(round)),
        ("vendor_usage(GiB)", memory(info.vendor_usage)),
        ("vendor_max_mem(GiB)", memory(info.vendor_max_mem)),
        (HEADLINE_MFU, mfu(record)),
    ]
}

/// Returns the utilisation by the declared operations, or else by the counted ones.
fn mfu(record: &Record) -> String {
    let counted = || record.flops.counted_mfu.map(|share| format!("{} of the counted operations", percent(share)));
    let declared = record.finish_info.mfu.clone();
    declared.or_else(counted).unwrap_or_else(|| "unknown: the device's peak is unknown".to_owned())
}

/// Says whether the last evaluation reached the target, and after how much work.
fn converged(record: &Record, round: &TrainingRound) -> String {
    let target = record.accuracy.target.iter().map(|(name, value)| format!("{name} {value}"));
    let target = target.collect::<Vec<_>>().join(", ");
    let work = format!("after {}, {}", work(round), round.train_s.map_or_else(|| "not ended".to_owned(), duration));
    match record.accuracy.verdict {
        Verdict::Met => format!("yes ({target}), {work}"),
        Verdict::NoTarget => format!("no target, {work}"),
        Verdict::Missed => format!("no ({target}), {work}"),
        Verdict::Unknown => format!("unknown, {work}"),
    }
}

/// `3 epochs, 30 steps, 960 samples`.
fn work(round: &TrainingRound) -> String {
    let (epochs, steps) = (plural(round.epochs.into(), "epoch", "epochs"), plural(round.steps, "step", "steps"));
    format!("{epochs}, {steps}, {}", plural(round.samples, "sample", "samples"))
}

/// Returns the rows of the details: the data, and each repetition with its figures and its last epochs.
pub(super) fn detail_rows(training: &TrainingRecord) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(data) = &training.dataset {
        rows.push(("data", format!("{} in {}", plural(data.samples, "sample", "samples"), data.location)));
        rows.extend(data.pipeline.iter().map(|transform| ("transform", transform.clone())));
    }
    for round in &training.rounds {
        let time = round.train_s.map_or_else(|| "not ended".to_owned(), duration);
        let times = [("evaluations", round.evaluation_s), ("initialization", round.init_s), ("core", round.core_s)];
        let times = times.map(|(name, time)| format!("{name} {}", duration(time)));
        rows.push(("training", format!("{} in {time} ({})", work(round), times.join(", "))));
        let rates = [
            ("whole", round.throughput_whole_samples_per_s),
            ("train", round.throughput_train_samples_per_s),
            ("core", round.throughput_core_samples_per_s),
        ];
        let rates = rates.into_iter().filter_map(|(name, found)| Some(format!("{name} {}", rate(found?))));
        rows.push(("throughput", rates.collect::<Vec<_>>().join(", ")));
        rows.extend(epoch_rows(round));
        // The values are text from outside; a section escapes them.
        rows.extend(round.reported.iter().map(|(name, value)| ("reported by the program", format!("{name} {value}"))));
    }
    rows
}

/// Returns a row for each of the last epochs: its loss, and the metrics of the evaluation after it.
fn epoch_rows(round: &TrainingRound) -> impl Iterator<Item = (&'static str, String)> {
    let losses = round.epoch_losses.iter().zip(1..);
    losses.skip(round.epoch_losses.len().saturating_sub(EPOCHS_SHOWN)).map(|(loss, epoch)| {
        let evaluation = round.evaluations.iter().find(|evaluation| evaluation.epochs == epoch);
        let metrics = evaluation.into_iter().flat_map(|evaluation| &evaluation.metrics);
        let metrics: String = metrics.map(|(name, value)| format!(", {name} {value:.4}")).collect();
        ("epoch", format!("{epoch}: loss {loss:.4}{metrics}"))
    })
}

fn metrics(round: &TrainingRound) -> String {
    let metrics = round.final_metrics().into_iter().flatten();
    let shown: Vec<String> = metrics.map(|(name, value)| format!("{name} {value:.4}")).collect();
    if shown.is_empty() { "none: nothing was evaluated".to_owned() } else { shown.join(", ") }
}

/// The mean losses of the first and the last epoch.
fn losses(round: &TrainingRound) -> String {
    match (round.epoch_losses.first(), round.epoch_losses.last()) {
        (Some(first), Some(last)) => format!("{first:.4} in the first epoch, {last:.4} in the last"),
        _ => "none: no epoch ended".to_owned(),
    }
}
