//! The figures of a training as rows, with the names of FlagPerf's tables.

use super::text::{count, digits, duration, rate};
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Record, TrainingRecord, TrainingRound, Verdict};

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
    ]
}

/// Says whether the last evaluation reached the target, and after how much work.
fn converged(record: &Record, round: &TrainingRound) -> String {
    let target = record.accuracy.target.iter().map(|(name, value)| format!("{name} {value}"));
    let target = target.collect::<Vec<_>>().join(", ");
    let work = format!(
        "after {} epochs, {} steps, {} samples, {}",
        round.epochs,
        count(round.steps),
        count(round.samples),
        round.train_s.map_or_else(|| "not ended".to_owned(), duration)
    );
    match record.accuracy.verdict {
        Verdict::Met => format!("yes ({target}), {work}"),
        Verdict::NoTarget => format!("no target, {work}"),
        Verdict::Missed => format!("no ({target}), {work}"),
        Verdict::Unknown => format!("unknown, {work}"),
    }
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
