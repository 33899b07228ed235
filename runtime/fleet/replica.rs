//! The replicas of a case, and the part of each in the summary.

use std::path::Path;

use super::session::Outcome;
use crate::config::{CaseKey, Replica};
use crate::plan::{CasePlan, EffectiveValue, Plan};
use crate::result::{ProcessorTime, Record, ReplicaSummary, read_windows};
use crate::run::lost_record;
use crate::units::Seconds;

/// Largest record in bytes that is read.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Returns the replicas of a case on these hosts.
pub(super) fn replicas_of(key: &CaseKey, hosts: &[String]) -> Vec<Replica> {
    let devices = key.scale.devices;
    let of_host = |(rank, host): (u32, &String)| {
        let host = host.clone();
        (0..devices).map(move |device| Replica {
            host: host.clone(),
            node_rank: rank,
            device: (devices > 1).then_some(device),
        })
    };
    (0..key.scale.hosts).zip(hosts).flat_map(of_host).collect()
}

/// Returns the name of a replica for the display: `node3`, `node3 device 7`.
pub(super) fn shown_name(replica: &Replica) -> String {
    let device = replica.device.map(|device| format!(" device {device}")).unwrap_or_default();
    format!("{}{device}", replica.host)
}

/// How a replica ended.
#[derive(Clone, Debug)]
pub(super) enum ReplicaEnd {
    /// Its session ended, and its files are here.
    Ended(Outcome),
    /// It has no record of its own, for this reason; what to do about it may be empty.
    Lost(String, String),
}

/// Returns the record of a replica whose files are in `folder`.
pub(super) fn replica_record(
    (plan, rows, case): (&Plan, &[EffectiveValue], &CasePlan),
    run: &Path,
    folder: &Path,
    end: &ReplicaEnd,
) -> Record {
    let lost = |reason: String, hint: &str| lost_record((plan, rows, case), run, folder, reason, hint);
    let outcome = match end {
        ReplicaEnd::Lost(reason, hint) => return lost(reason.clone(), hint),
        ReplicaEnd::Ended(outcome) => outcome,
    };
    if let Some(first) = outcome.refused.first() {
        let more = outcome.refused.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let (mistake, hint) = first.split_once("\n  hint: ").unwrap_or((first, ""));
        return lost(format!("the host refused the case: {mistake}{more}"), hint);
    }
    let text = flagperf_onnx::read_regular_text(&folder.join("record.json"), RECORD_BYTES_MAX);
    match text.map(|text| serde_json::from_str::<Record>(&text)) {
        Ok(Ok(record)) => match &outcome.interrupted {
            Some(reason) => Record { warnings: [record.warnings.clone(), vec![reason.clone()]].concat(), ..record },
            None => record,
        },
        Ok(Err(error)) => lost(format!("the record of the host cannot be read: {error}"), ""),
        Err(error) => lost(format!("the host wrote no record: {error}"), "was its disk full?"),
    }
}

/// Returns the part of a replica in the summary. `offset` is what its host's wall clock is ahead of the one here, and
/// `folder` contains its files.
pub(super) fn replica_summary(
    replica: &Replica,
    record: &Record,
    (folder, digest): (&Path, Option<String>),
    processor: Option<ProcessorTime>,
    offset: Option<Seconds>,
) -> ReplicaSummary {
    let started = record.started.parse::<jiff::Timestamp>().ok().map(|started| started.as_duration().as_secs_f64());
    let zero = started.zip(offset).map(|(started, offset)| started - offset.0);
    let windows = read_windows(&folder.join("events.jsonl"));
    ReplicaSummary::of(replica, record, digest, processor, |phase| {
        let passes = &windows.iter().find(|found| found.phase == phase)?.passes;
        Some([Seconds(zero? + passes.first()?.begin.0), Seconds(zero? + passes.last()?.end.0)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_a_replica_for_each_device_of_its_hosts() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let folders = |key: &str| {
            let replicas = replicas_of(&key.parse().unwrap(), &hosts);
            replicas.iter().map(Replica::folder).collect::<Vec<_>>()
        };
        assert_eq!(folders("x:y"), ["a_noderank0"]);
        assert_eq!(folders("x:y:2x1"), ["a_noderank0", "b_noderank1"]);
        assert_eq!(folders("x:y:1x2"), ["a_noderank0_device0", "a_noderank0_device1"]);
    }
}
