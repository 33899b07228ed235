//! The figures of a training as rows, with the names of FlagPerf's tables.

use super::rows::{HEADLINE_MFU, plural};
use super::text::{digits, duration, exposed_share_text, percent, rate};
use flagperf_core::measure::{TrainedBy, TrainingProgress};
use flagperf_core::metric;
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Communication, Record, TrainingRecord, TrainingRound, Verdict};

/// Largest number of epochs of a repetition in the details.
const EPOCHS_SHOWN: usize = 20;

/// Returns FlagPerf's rows for a training: those of its last repetition.
pub(super) fn training_rows(record: &Record, training: &TrainingRecord) -> Vec<(&'static str, String)> {
    let info = &record.finish_info;
    let none = TrainingRound::default();
    let round = training.rounds.last().unwrap_or(&none);
    let resumed = training.earlier(training.rounds.len().saturating_sub(1));
    let perf =
        |found: Option<SamplesPerSecond>| found.map_or_else(|| "none: the training did not end".to_owned(), rate);
    let memory = |value: Option<f64>| value.map_or_else(|| "unknown: not reported".to_owned(), digits);
    let mut rows = vec![
        ("vendor", info.vendor.clone()),
        ("precision", info.precision.clone()),
        ("batchsize", info.batchsize.to_string()),
        ("e2e_time(second)", format!("{:.1}", info.e2e_time.0)),
        ("p_whole(qps)", perf(round.throughput_whole_samples_per_s)),
        ("p_train(qps)", perf(round.throughput_train_samples_per_s)),
        ("*p_core(qps)", perf(round.throughput_core_samples_per_s)),
        ("converged", converged(record, round, resumed)),
        ("final metric", metrics(round)),
        ("loss", losses(round, resumed)),
        ("vendor_usage(GiB)", memory(info.vendor_usage)),
        ("vendor_max_mem(GiB)", memory(info.vendor_max_mem)),
        (HEADLINE_MFU, mfu(record)),
    ];
    if training.trained_by.len() > 1 {
        rows.push(("devices", devices(&training.trained_by)));
    }
    if record.repeat() > 1 {
        rows.insert(0, ("repetition", repetition(record, training)));
    }
    rows
}

/// Says how many devices have trained which steps.
fn devices(parts: &[TrainedBy]) -> String {
    let text = |part: &TrainedBy| {
        let round = if part.round > 0 { format!(" of repetition {}", part.round + 1) } else { String::new() };
        format!("{} after step {}{round}", part.ranks, part.after_step)
    };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Says which repetition the figures are of.
fn repetition(record: &Record, training: &TrainingRecord) -> String {
    let begun = training.rounds.len() as u32 + training.resumed.map_or(0, |resumed| resumed.rounds);
    format!("{begun} of {}", record.repeat())
}

/// Returns the utilisation by the declared operations, or else by the counted ones.
fn mfu(record: &Record) -> String {
    let counted = || record.flops.counted_mfu.map(|share| format!("{} of the counted operations", percent(share)));
    let declared = record.finish_info.mfu.clone();
    declared.or_else(counted).unwrap_or_else(|| "unknown: the device's peak is unknown".to_owned())
}

/// Says whether the last evaluation reached the target, and after how much work.
fn converged(record: &Record, round: &TrainingRound, resumed: Option<TrainingProgress>) -> String {
    let target = record.accuracy.target.iter().map(|(name, value)| format!("{name} {value}"));
    let target = target.collect::<Vec<_>>().join(", ");
    let time = round.train_s.map_or_else(String::new, |time| format!(", {}", duration(time)));
    let work = format!("after {}{time}{}", work(record, round), earlier(resumed));
    match record.accuracy.verdict {
        _ if round.train_s.is_none() => format!("no: the training did not end, {work}"),
        Verdict::Met => format!("yes ({target}), {work}"),
        Verdict::NoTarget => format!("no target, {work}"),
        Verdict::Missed => format!("no ({target}), {work}"),
        Verdict::Unknown => {
            let reason = record.accuracy.unknown.as_deref().unwrap_or("nothing was evaluated");
            let reached = match is_reached(record, round) {
                Some(true) => format!("the target ({target}) was reached, "),
                Some(false) => format!("the target ({target}) was missed, "),
                None => String::new(),
            };
            format!("unknown: {reached}{reason}; {work}")
        }
    }
}

/// Returns whether the last evaluation reached the target, also where data have no verdict; `None` without a target or an evaluation.
pub(super) fn is_reached(record: &Record, round: &TrainingRound) -> Option<bool> {
    let (target, metrics) = (&record.accuracy.target, round.final_metrics()?);
    let reached =
        |(name, target): (&String, &f64)| metrics.get(name).map(|value| metric::is_reached(name, *value, *target));
    if target.is_empty() || round.train_s.is_none() {
        return None;
    }
    target.iter().map(reached).collect::<Option<Vec<bool>>>().map(|reached| reached.into_iter().all(|reached| reached))
}

/// Says what was trained before a training was resumed.
fn earlier(resumed: Option<TrainingProgress>) -> String {
    let text = |part: TrainingProgress| {
        let epochs = plural(part.epochs.into(), "epoch", "epochs");
        format!(
            " since it was resumed, and {epochs}, {}, {} before",
            plural(part.steps, "step", "steps"),
            duration(part.train_s)
        )
    };
    resumed.map_or_else(String::new, text)
}

/// `3 epochs, 30 steps, 960 samples`. Of the steps of a program, only those are known that it reported.
fn work(record: &Record, round: &TrainingRound) -> String {
    let (step, steps) =
        if record.is_reported_by_program() { ("reported step", "reported steps") } else { ("step", "steps") };
    let (epochs, steps) = (plural(round.epochs.into(), "epoch", "epochs"), plural(round.steps, step, steps));
    // The samples of a pass are counted when it has ended.
    match round.samples {
        0 => format!("{epochs}, {steps}"),
        samples => format!("{epochs}, {steps}, {}", plural(samples, "sample", "samples")),
    }
}

/// Returns the rows of the details: the data, and each repetition with its figures and its last epochs.
pub(super) fn detail_rows(record: &Record, training: &TrainingRecord) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(data) = &training.dataset {
        rows.push(("data", format!("{} in {}", plural(data.samples, "sample", "samples"), data.location)));
        rows.extend(data.pipeline.iter().map(|transform| ("transform", transform.clone())));
    }
    for (index, round) in training.rounds.iter().enumerate() {
        let time = round.train_s.map_or_else(|| "not ended".to_owned(), duration) + &earlier(training.earlier(index));
        let times = [("evaluations", round.evaluation_s), ("initialization", round.init_s), ("core", round.core_s)];
        let times = times.map(|(name, time)| format!("{name} {}", duration(time)));
        rows.push(("training", format!("{} in {time} ({})", work(record, round), times.join(", "))));
        let rates = [
            ("whole", round.throughput_whole_samples_per_s),
            ("train", round.throughput_train_samples_per_s),
            ("core", round.throughput_core_samples_per_s),
        ];
        let rates = rates.into_iter().filter_map(|(name, found)| Some(format!("{name} {}", rate(found?))));
        rows.push(("throughput", rates.collect::<Vec<_>>().join(", ")));
        rows.extend(epoch_rows(round, training.earlier(index)));
        // The values are text from outside; a section escapes them.
        rows.extend(round.reported.iter().map(|(name, value)| ("reported by the program", format!("{name} {value}"))));
    }
    rows.extend(training.communication.map(|own| ("communication", communication(own))));
    rows
}

/// `share of a step that is not overlapped: 4.0%; median 58.2 ms, and 55.9 ms in 50 steps without exchange`.
fn communication(own: Communication) -> String {
    let Communication { local_steps, local_core_s, core_s } = own;
    let share = exposed_share_text(own.exposed_share());
    let steps = plural(local_steps, "step", "steps");
    let (with, without) = (duration(core_s), duration(local_core_s));
    format!("share of a step that is not overlapped: {share}; median {with}, and {without} in {steps} without exchange")
}

/// Returns a row for each of the last epochs: its loss, and the metrics of the evaluation after it.
fn epoch_rows(
    round: &TrainingRound,
    resumed: Option<TrainingProgress>,
) -> impl Iterator<Item = (&'static str, String)> {
    let first = resumed.map_or(0, |part| part.epochs).saturating_add(1);
    let losses = round.epoch_losses.iter().zip(first..);
    losses.skip(round.epoch_losses.len().saturating_sub(EPOCHS_SHOWN)).map(|(loss, epoch)| {
        let evaluation = round.evaluations.iter().find(|evaluation| evaluation.epochs == epoch);
        let metrics = evaluation.into_iter().flat_map(|evaluation| &evaluation.metrics);
        let metrics: String = metrics.map(|(name, value)| format!(", {name} {value:.4}")).collect();
        ("epoch", format!("{epoch}: loss {loss:.4}{metrics}"))
    })
}

pub(super) fn metrics(round: &TrainingRound) -> String {
    let metrics = round.final_metrics().into_iter().flatten();
    let shown: Vec<String> = metrics.map(|(name, value)| format!("{name} {value:.4}")).collect();
    if shown.is_empty() { "none: nothing was evaluated".to_owned() } else { shown.join(", ") }
}

/// The mean losses of the first and the last epoch; a resumed training knows those since it was resumed.
fn losses(round: &TrainingRound, resumed: Option<TrainingProgress>) -> String {
    let since = if resumed.is_some() { " since it was resumed" } else { "" };
    match (round.epoch_losses.first(), round.epoch_losses.last()) {
        (Some(first), Some(_)) if first.is_nan() => "none: not reported".to_owned(),
        (Some(only), Some(_)) if round.epoch_losses.len() == 1 => format!("{only:.4} in the only epoch{since}"),
        (Some(first), Some(last)) => format!("{first:.4} in the first epoch{since}, {last:.4} in the last"),
        _ => "none: no epoch ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::units::Seconds;

    #[test]
    fn one_epoch_is_no_epochs_and_the_details_have_each_repetition() {
        let round = TrainingRound {
            epochs: 1,
            steps: 10,
            samples: 320,
            epoch_losses: vec![0.5],
            train_s: Some(Seconds(2.0)),
            throughput_whole_samples_per_s: Some(SamplesPerSecond(160.0)),
            reported: [("e2e_time".to_owned(), 9.5.into())].into(),
            ..TrainingRound::default()
        };
        assert_eq!(losses(&round, None), "0.5000 in the only epoch");
        let record = flagperf_result::testing::record();
        let rows = detail_rows(&record, &TrainingRecord { rounds: vec![round; 2], ..TrainingRecord::default() });
        let of =
            |name: &str| rows.iter().filter(|(row, _)| *row == name).map(|(_, text)| text.as_str()).collect::<Vec<_>>();
        let training = "1 epoch, 10 steps, 320 samples in 2.00 s (evaluations 0 s, initialization 0 s, core 0 s)";
        assert_eq!(of("training"), [training; 2]);
        assert_eq!(of("throughput"), ["whole 160"; 2]);
        assert_eq!(of("epoch"), ["1: loss 0.5000"; 2]);
        assert_eq!(of("reported by the program"), ["e2e_time 9.5"; 2]);
    }
}
