//! The summary of a case that ran on several hosts or devices, as text.

use std::path::Path;

use indexmap::IndexMap;

use super::case_report::{outcome_word, verdict_word};
use super::rows::plural;
use super::table::{Screen, headed_table};
use super::text::{digits, display_text, duration, exposed_share_text, percent, rate, wrap};
use flagperf_core::step::{Phase, Step};
use flagperf_core::text::one_line;
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{GroupCommunication, ReplicaSummary, ShortTime, StepSummary, Summary};

/// Largest number of hosts whose processor times are listed separately.
const HOSTS_NAMED: usize = 4;

/// Largest number of hosts and devices that are named with a reason.
const PLACES_NAMED: usize = 4;

/// Largest number of reasons that are printed.
const REASONS_MAX: usize = 5;

/// Formats a summary: for each measured step, a line for each host and device and a line with their sum; then the warnings, the
/// digests and the verdict. `hints` are those of the replicas' failures, in the order of the replicas; empty without one.
/// `is_official_run` is whether the run required a valid result.
pub fn summary_report(
    summary: &Summary,
    hints: &[String],
    path: &Path,
    is_official_run: bool,
    screen: Screen,
) -> String {
    let core = format!("core ({}/s)", summary.unit);
    let mut rows = vec![["host", "device", "step", "state", core.as_str(), "whole"].map(str::to_owned)];
    for step in Phase::ALL.map(Phase::measured_step) {
        let own = summary.steps.iter().find(|own| own.step == step);
        rows.extend(summary.replicas.iter().filter_map(|replica| measured_row(replica, step)));
        rows.extend(own.map(|own| sum_row(own, summary)));
    }
    let without = summary.replicas.iter().filter(|replica| replica.measured.is_empty());
    rows.extend(without.map(|replica| replica_row(replica, "", [None, None])));
    let case = one_line(&display_text(&summary.case)).into_owned();
    let mut lines = vec![case, headed_table(rows, screen.columns).trim_end().to_owned()];
    if summary.steps.is_empty() {
        lines.push("no sum, because not every host and device succeeded".to_owned());
    }
    lines.extend(summary.steps.iter().filter_map(|step| whole_time_line(step, &summary.unit)));
    lines.extend(summary.steps.iter().filter_map(|step| communication_line(step, summary)));
    let energy = summary.steps.last().and_then(|step| step.device_energy_j_per_sample);
    lines.extend(energy.map(|energy| format!("energy of all devices: {} J per {}", digits(energy), summary.unit)));
    lines.extend(processor_line(summary));
    lines.extend(summary.warnings.iter().map(|warning| format!("warning: {warning}")));
    for (index, replica) in summary.replicas.iter().enumerate() {
        let Some(reason) = replica.reasons.first() else { continue };
        lines.push(format!("{}: {reason}", display_name(replica)));
        let hint = hints.get(index).filter(|hint| !hint.is_empty());
        lines.extend(hint.map(|hint| format!("  hint: {hint}")));
    }
    for replica in &summary.replicas {
        lines.extend(replica.digest.as_ref().map(|digest| format!("digest of {}: {digest}", display_name(replica))));
    }
    lines.push(format!("verdict: {}", summary.validity.name()));
    let reasons = summary_reasons(summary);
    lines.extend(reasons.iter().take(REASONS_MAX).map(|reason| format!("    {reason}")));
    if reasons.len() > REASONS_MAX {
        let more = plural((reasons.len() - REASONS_MAX) as u64, "more reason", "more reasons");
        lines.push(format!("    and {more}, listed in the records"));
    }
    let (head, rest) = lines.split_at(2);
    let wrapped = rest.iter().map(|line| wrap(&one_line(&display_text(line)), screen.columns.into()));
    let shown = display_text(&path.display().to_string()).into_owned();
    let word = outcome_word(summary.status, summary.validity, is_official_run);
    let last = format!("{word}: {shown}\n");
    head.iter().cloned().chain(wrapped).collect::<Vec<_>>().join("\n") + "\n" + last.as_str()
}

/// Returns the line with the throughput over the whole time of a step, and with the common share.
fn whole_time_line(step: &StepSummary, unit: &str) -> Option<String> {
    let (rate_of_all, share) = (step.throughput_together_samples_per_s?, step.common_share?);
    Some(format!(
        "{}: {} {unit}/s from the begin of the first worker to the end of the last, including the audit between passes; common \
         share: all workers measured at the same time for {} of the longest one's time",
        step.step.name(),
        rate(rate_of_all),
        percent(share)
    ))
}

/// Returns the line with what training together costs.
fn communication_line(step: &StepSummary, summary: &Summary) -> Option<String> {
    let GroupCommunication { core_s, local_core_s, exposed_share, slowest_rank, slower_by } = step.communication?;
    let slowest = display_name(summary.replicas.get(slowest_rank as usize)?);
    Some(format!(
        "share of a step that is communication or waiting, not overlapped: {} ({}, and {} without exchange); slowest alone: rank \
         {slowest_rank} ({slowest}), {} above the median",
        exposed_share_text(exposed_share),
        duration(core_s),
        duration(local_core_s),
        percent(slower_by)
    ))
}

/// Returns the reasons why the result is not valid, each with the hosts and devices whose records state it, unless all do.
pub fn summary_reasons(summary: &Summary) -> Vec<String> {
    let mut places: IndexMap<String, (Vec<String>, Option<ShortTime>)> = IndexMap::new();
    for replica in &summary.replicas {
        for reason in &replica.validity_reasons {
            // The measured times of replicas differ by a little, and are one reason.
            let time = replica.short_time.filter(|time| *reason == time.to_string());
            let kind = if time.is_some() { String::new() } else { reason.clone() };
            let (names, times) = places.entry(kind).or_default();
            names.push(display_name(replica));
            *times = times.zip(time).map(|(known, own)| known.or(own)).or(time);
        }
    }
    let all = summary.replicas.len();
    let of_replicas = places.into_iter().map(|(kind, (names, times))| {
        let reason = times.map_or(kind, |time| time.to_string());
        match names.len() {
            count if count == all => format!("all: {reason}"),
            count if count > PLACES_NAMED => {
                format!("{} and {} more: {reason}", names[..PLACES_NAMED].join(", "), count - PLACES_NAMED)
            }
            _ => format!("{}: {reason}", names.join(", ")),
        }
    });
    summary.validity_reasons.iter().cloned().chain(of_replicas).collect()
}

/// Returns the name of a replica: `h2`, or `h2 device 7`.
fn display_name(replica: &ReplicaSummary) -> String {
    let device = replica.device.map(|device| format!(" device {device}")).unwrap_or_default();
    format!("{}{device}", replica.host)
}

/// Returns a line with the processor time on each host or, for many hosts, with the smallest and the largest time.
fn processor_line(summary: &Summary) -> Option<String> {
    // The time of flagperf itself, and that of the workers, which may be unknown.
    let mut hosts: Vec<(&str, [Option<f64>; 2])> = Vec::new();
    for replica in &summary.replicas {
        let Some(own) = replica.processor else { continue };
        let own = [Some(own.host_s.0), own.workers_s.map(|time| time.0)];
        match hosts.last_mut().filter(|(host, _)| *host == replica.host) {
            Some((_, sums)) => *sums = [0, 1].map(|part| Some(sums[part]? + own[part]?)),
            None => hosts.push((&replica.host, own)),
        }
    }
    let seconds = |time: Option<f64>| time.map_or_else(|| "unknown".to_owned(), |time| format!("{time:.1} s"));
    let shown = |[host, workers]: [Option<f64>; 2]| {
        format!("{} in workers, {} in flagperf itself", seconds(workers), seconds(host))
    };
    let text = match hosts.as_slice() {
        [] => return None,
        few if few.len() <= HOSTS_NAMED => {
            few.iter().map(|(host, times)| format!("{host}: {}", shown(*times))).collect::<Vec<_>>().join("; ")
        }
        many => {
            let bound = |of: fn(f64, f64) -> f64| {
                let both = |a: Option<f64>, b: Option<f64>| Some(of(a?, b?));
                [0, 1].map(|part| many.iter().map(|(_, times)| times[part]).reduce(both).flatten())
            };
            format!("from {} to {} on each of {} hosts", shown(bound(f64::min)), shown(bound(f64::max)), many.len())
        }
    };
    Some(format!("processor time: {text}"))
}

fn shown_rate(value: Option<SamplesPerSecond>) -> String {
    value.map_or_else(|| "unknown".to_owned(), rate)
}

/// The row of a step that a replica measured.
fn measured_row(replica: &ReplicaSummary, step: Step) -> Option<[String; 6]> {
    let found = replica.measured.iter().find(|found| found.step == step)?;
    let figures = [found.throughput_core_samples_per_s, found.throughput_whole_samples_per_s];
    Some(replica_row(replica, step.name(), figures))
}

fn replica_row(replica: &ReplicaSummary, step: &str, figures: [Option<SamplesPerSecond>; 2]) -> [String; 6] {
    let device = replica.device.map(|device| device.to_string()).unwrap_or_default();
    let [core, whole] = figures.map(|figure| if step.is_empty() { String::new() } else { shown_rate(figure) });
    [replica.host.clone(), device, step.to_owned(), verdict_word(replica.status).to_owned(), core, whole]
}

/// The row with the sums over all replicas, whose first cell states over what they are: `sum: 2 hosts x 8 devices`.
fn sum_row(step: &StepSummary, summary: &Summary) -> [String; 6] {
    let figures = [step.throughput_core_samples_per_s, step.throughput_whole_samples_per_s].map(shown_rate);
    let [core, whole] = figures;
    let hosts = summary.replicas.iter().map(|replica| replica.node_rank + 1).max().unwrap_or_default();
    let over = match hosts {
        _ if step.shares_devices => format!("sum: {} workers, not devices", step.replicas),
        0 => String::new(),
        hosts => {
            let devices = plural(u64::from(step.replicas / hosts), "device", "devices");
            format!("sum: {} x {devices}", plural(hosts.into(), "host", "hosts"))
        }
    };
    [over, String::new(), step.step.name().to_owned(), String::new(), core, whole]
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::Replica;
    use flagperf_core::units::Seconds;
    use flagperf_result::{FailureRecord, Record, Status, testing};

    /// Returns the summary of replicas whose records state these reasons.
    fn summary_of(reasons: &[&[String]]) -> Summary {
        let record = testing::record();
        let replica = |(rank, reasons): (usize, &&[String])| {
            let replica = Replica { host: format!("h{}", rank + 1), ..Replica::default() };
            let summary = ReplicaSummary::of(&replica, &record, None, None, |_| None);
            ReplicaSummary { validity_reasons: reasons.to_vec(), ..summary }
        };
        Summary::of("a:b:2x1", &[&record], reasons.iter().enumerate().map(replica).collect())
    }

    #[test]
    fn replicas_that_measured_for_different_short_times_have_one_reason() {
        let of = |times: [f64; 2]| {
            let times = times.map(|time| ShortTime { least: Seconds(time), most: Seconds(time) });
            let [first, second] = times.map(|time| time.to_string());
            let mut summary = summary_of(&[&[first], &[second, "no accuracy".to_owned()]]);
            summary.validity_reasons.clear();
            summary.replicas.iter_mut().zip(times).for_each(|(replica, time)| replica.short_time = Some(time));
            summary_reasons(&summary)
        };
        assert_eq!(of([14.0, 13.0]), ["all: measured for 13 s to 14 s (official: at least 10 min)", "h2: no accuracy"]);
        assert_eq!(of([13.0, 13.0])[0], "all: measured for 13 s (official: at least 10 min)");
    }

    #[test]
    fn one_reason_beyond_the_limit_is_singular() {
        let shown = |count: usize| {
            let reasons: Vec<String> = (0..count).map(|number| format!("reason {number}")).collect();
            let summary = Summary { validity_reasons: Vec::new(), ..summary_of(&[&reasons]) };
            summary_report(&summary, &[], Path::new("summary.json"), false, Screen { columns: 100, colour: false })
        };
        assert!(shown(6).contains("\n    and 1 more reason, listed in the records\n"), "{}", shown(6));
        assert!(shown(7).contains("\n    and 2 more reasons, listed in the records\n"), "{}", shown(7));
    }

    #[test]
    fn no_control_character_of_a_summary_is_printed() {
        let hostile = "a\u{1b}[2J\nb".to_owned();
        let mut summary = summary_of(&[std::slice::from_ref(&hostile)]);
        (summary.case, summary.unit) = (hostile.clone(), hostile.clone());
        summary.warnings = vec![hostile.clone()];
        summary.replicas[0].host = hostile;
        let path = Path::new("\u{1b}.json");
        let text = summary_report(&summary, &[], path, false, Screen { columns: 100, colour: false });
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.starts_with("a\\u{1b}[2J\\nb\n"), "{text:?}");
    }

    #[test]
    fn the_failure_of_a_replica_is_printed_with_its_hint() {
        let failure = FailureRecord {
            phase: None,
            step: None,
            reason: "host `h1` was lost".to_owned(),
            hint: "check h1".to_owned(),
            stderr: Vec::new(),
        };
        let record = Record { status: Status::Failed, failures: vec![failure], ..testing::record() };
        let replica = Replica { host: "h1".to_owned(), ..Replica::default() };
        let replica = ReplicaSummary::of(&replica, &record, None, None, |_| None);
        let summary = Summary::of("a:b:1x2", &[&record], vec![replica]);
        let text = summary_report(
            &summary,
            &["check h1".to_owned()],
            Path::new("summary.json"),
            false,
            Screen { columns: 100, colour: false },
        );
        assert!(text.contains("\nh1: host `h1` was lost\n  hint: check h1\n"), "{text}");
    }
}
