//! The replicas of a case: their names, their records, and their parts of the summary.

use std::path::Path;

use super::session::SessionOutcome;
use crate::config::{CaseKey, Replica};
use crate::plan::{CasePlan, EffectiveValue, Plan};
use crate::result::{ProcessorTime, Record, ReplicaSummary, ResultManifest, read_windows};
use crate::run::lost_record;
use crate::units::Seconds;

/// Largest size of a record in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Returns the replicas of a case, in the order of its hosts and devices.
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

/// Returns the name of a replica in messages: `node3`, or `node3 device 7`.
pub(super) fn display_name(replica: &Replica) -> String {
    let device = replica.device.map(|device| format!(" device {device}")).unwrap_or_default();
    format!("{}{device}", replica.host)
}

/// How a replica ended.
#[derive(Clone, Debug)]
pub(super) enum ReplicaEnd {
    /// The session ended with this outcome, and all of its files have arrived.
    Ended(SessionOutcome),
    /// The session did not report an outcome: the reason, and a hint, which may be empty.
    Lost(String, String),
}

/// Returns the record of a replica whose files are in `folder`.
pub(super) fn replica_record(
    (plan, rows, case): (&Plan, &[EffectiveValue], &CasePlan),
    run: &Path,
    folder: &Path,
    end: &ReplicaEnd,
) -> Record {
    let lost = |reason: String, hint: &str| {
        set_aside(folder);
        lost_record((plan, rows, case), run, folder, reason, hint)
    };
    let outcome = match end {
        ReplicaEnd::Lost(reason, hint) => {
            // The complete result may have arrived before the host was lost.
            let complete = read_record(folder).ok().filter(|_| ResultManifest::digest_of_folder(folder).is_some());
            let complete = complete.filter(|record| other_origin(record, run, case).is_none());
            return complete.unwrap_or_else(|| lost(reason.clone(), hint));
        }
        ReplicaEnd::Ended(outcome) => outcome,
    };
    if let Some(first) = outcome.refused.first() {
        let more = outcome.refused.len() - 1;
        let more = if more > 0 { format!(" (and {more} more errors)") } else { String::new() };
        let (mistake, hint) = first.split_once("\n  hint: ").unwrap_or((first, ""));
        return lost(format!("the host refused the case: {mistake}{more}"), hint);
    }
    match (read_record(folder), &outcome.interrupted) {
        (Ok(record), interrupted) => match (other_origin(&record, run, case), interrupted) {
            (Some(what), _) => lost(format!("the host sent the record of another {what}"), ""),
            (None, Some(reason)) => lost(format!("the host ended the case: {reason}"), ""),
            (None, None) => record,
        },
        (Err(error), _) => lost(format!("the host sent no usable record: {error}"), "is the disk of the host full?"),
    }
}

fn read_record(folder: &Path) -> std::io::Result<Record> {
    let text = flagperf_onnx::read_regular_text(&folder.join("record.json"), RECORD_BYTES_MAX)?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns what shows that a record belongs to another run or case; `None` if it belongs to this one.
fn other_origin(record: &Record, run: &Path, case: &CasePlan) -> Option<&'static str> {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let differs = [
        ("run", record.run != name),
        ("case", record.case != case.key.case),
        ("framework", record.framework != case.key.framework),
    ];
    differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
}

/// Renames a record and a manifest from the host that do not count, to make place for the record that this process writes.
fn set_aside(folder: &Path) {
    for name in ["record.json", "manifest.json"] {
        // This fails if the file does not exist.
        let _ = std::fs::rename(folder.join(name), folder.join(format!("{name}.from_host")));
    }
}

/// Returns the part of a replica in the summary. `folder` contains the files of the replica, and `offset` states by how
/// much the wall clock of its host is ahead of the clock of this machine.
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
