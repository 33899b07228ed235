//! The summary of a case that ran on several hosts or devices, as text.

use std::path::Path;

use super::case_report::verdict_word;
use super::table::{Screen, plain_table};
use super::text::{digits, display_text, percent, rate};
use crate::result::{ReplicaMeasurement, ReplicaSummary, StepSummary, Summary};
use crate::text::one_line;
use crate::units::SamplesPerSecond;

/// Number of hosts up to which each is named with its processor time.
const HOSTS_NAMED: usize = 4;

/// Formats a summary: a line for each host and device, the sums, and the warnings.
pub fn summary_report(summary: &Summary, path: &Path, screen: Screen) -> String {
    let mut rows = vec![["host", "device", "verdict", "core", "whole"].map(str::to_owned)];
    rows.extend(summary.replicas.iter().map(replica_row));
    for step in &summary.steps {
        rows.push(sum_row(step));
    }
    let table = plain_table(rows, screen.columns);
    let mut text = format!("{}\n{table}", summary.case);
    if summary.steps.is_empty() {
        text.push_str("no sum: not every host and device succeeded\n");
    }
    for step in &summary.steps {
        let together = step.throughput_together_samples_per_s;
        if let (Some(together), Some(share)) = (together, step.common_share) {
            text.push_str(&format!(
                "{}: {} samples/s together, audit between passes included; all ran at once for {} of the time\n",
                step.step.name(),
                rate(together),
                percent(share)
            ));
        }
    }
    let energy = summary.steps.last().and_then(|step| step.device_energy_j_per_sample);
    if let Some(energy) = energy {
        text.push_str(&format!("energy of the devices: {} J per {}\n", digits(energy), summary.unit));
    }
    text.push_str(&processor_line(summary));
    for warning in &summary.warnings {
        text.push_str(&format!("warning: {}\n", one_line(&display_text(warning))));
    }
    let shown = display_text(&path.display().to_string()).into_owned();
    text.push_str(&format!("{}: {shown}\n", verdict_word(summary.status)));
    text
}

/// Returns a line with the processor time on each host, or from the least to the most of many.
fn processor_line(summary: &Summary) -> String {
    let mut hosts: Vec<(&str, [f64; 2])> = Vec::new();
    for replica in &summary.replicas {
        let Some(own) = replica.processor else { continue };
        match hosts.last_mut().filter(|(host, _)| *host == replica.host) {
            Some((_, sums)) => *sums = [sums[0] + own.host_s.0, sums[1] + own.workers_s.0],
            None => hosts.push((&replica.host, [own.host_s.0, own.workers_s.0])),
        }
    }
    let shown = |[host, workers]: [f64; 2]| format!("{host:.1} s + {workers:.1} s in workers");
    let text = match hosts.as_slice() {
        [] => return String::new(),
        few if few.len() <= HOSTS_NAMED => {
            few.iter().map(|(host, times)| format!("{host} {}", shown(*times))).collect::<Vec<_>>().join(", ")
        }
        many => {
            let bound = |of: fn(f64, f64) -> f64| {
                [0, 1].map(|part| many.iter().map(|(_, times)| times[part]).reduce(of).unwrap_or_default())
            };
            format!("{} to {} on each of {} hosts", shown(bound(f64::min)), shown(bound(f64::max)), many.len())
        }
    };
    format!("processor time: {}\n", display_text(&text))
}

fn shown_rate(value: Option<SamplesPerSecond>) -> String {
    value.map_or_else(|| "unknown".to_owned(), rate)
}

/// The row of a replica, with the figures of the step that comes last.
fn replica_row(replica: &ReplicaSummary) -> [String; 5] {
    let last = replica.measured.last();
    let figure = |rate: fn(&ReplicaMeasurement) -> Option<SamplesPerSecond>| {
        last.map_or_else(String::new, |measured| shown_rate(rate(measured)))
    };
    let device = replica.device.map(|device| device.to_string()).unwrap_or_default();
    let reason = replica.reasons.first().map(|reason| format!(": {reason}")).unwrap_or_default();
    let verdict = format!("{}{reason}", verdict_word(replica.status));
    [
        replica.host.clone(),
        device,
        one_line(&display_text(&verdict)).into_owned(),
        figure(|measured| measured.throughput_core_samples_per_s),
        figure(|measured| measured.throughput_whole_samples_per_s),
    ]
}

fn sum_row(step: &StepSummary) -> [String; 5] {
    [
        "sum".to_owned(),
        step.replicas.to_string(),
        step.step.name().to_owned(),
        shown_rate(step.throughput_core_samples_per_s),
        shown_rate(step.throughput_whole_samples_per_s),
    ]
}
