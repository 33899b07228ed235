//! The summary of a case that ran on several hosts or devices, computed again from the records of its replicas.

use std::path::Path;

use flagperf_core::regular_file::read_regular_text;

use super::CaseReport;
use super::difference::{check_known, compare};
use super::record_file::{ReadRecord, read_record};
use flagperf_config::{CaseKey, is_host_name};
use flagperf_core::hash::Seed;
use flagperf_core::run_files::{EVENTS_FILE, RECORD_FILE, SUMMARY_FILE};
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_result::{
    Record, ReplicaMeasurement, ReplicaSummary, ResultManifest, Status, Summary, different_setting, read_windows,
};

/// Largest summary in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Largest difference in seconds between the length of a window in the summary and in the events. Times since 1970 have this
/// resolution as 64-bit floating-point numbers.
const RESOLUTION: f64 = 1e-6;

/// The fields of a summary that only the run states: the machines behind the names of the hosts, the processor times, and when the passes
/// of a replica began by the clock of the machine on which the run was started.
const NOT_CHECKABLE: [&str; 3] = ["replicas[].machine", "replicas[].measured[].window_s", "replicas[].processor"];

/// Reports that the folder of a case has several results, but no summary.
pub fn missing_summary(folder: &Path) -> CaseReport {
    let mut report = CaseReport::new(&folder.join(SUMMARY_FILE));
    report.give_up("it is missing, so that nothing says how many devices the case ran on");
    report
}

/// Verifies the summary in the folder of a case; returns `None` when there is none. The results of the replicas are verified
/// separately.
pub fn verify_summary(folder: &Path) -> Option<CaseReport> {
    let path = folder.join(SUMMARY_FILE);
    std::fs::symlink_metadata(&path).ok()?;
    let mut report = CaseReport::new(&path);
    let read = read_regular_text(&path, BYTES_MAX).map_err(|error| error.to_string());
    let read = read.and_then(|text| Ok((serde_json::from_str(&text).map_err(|error| error.to_string())?, text)));
    let stated: Summary = match read {
        Ok((stated, text)) => {
            check_known(&mut report, SUMMARY_FILE, "summary", &stated, text.as_bytes());
            stated
        }
        Err(error) => {
            report.give_up(format!("the summary cannot be read: {error}"));
            return Some(report);
        }
    };
    report.case = Some(stated.case.clone());
    report.not_checkable = &NOT_CHECKABLE;
    check_replicas(folder, &stated, &mut report);
    let (mut records, mut replicas) = (Vec::new(), Vec::new());
    let own_run = stated.run.clone();
    let own_case = stated.case.split(':').take(2).collect::<Vec<_>>().join(":");
    for stated in &stated.replicas {
        if !is_host_name(&stated.host) {
            return Some(report);
        }
        let replica = folder.join(stated.replica().folder());
        if is_absent(&replica) {
            // The folder has the name of the host, so nothing in the result belongs to this replica.
            continue;
        }
        let Some(ReadRecord::Current(record)) = read_record(&replica.join(RECORD_FILE), &mut report) else {
            report.give_up(format!("the record of `{}` cannot be read", stated.folder));
            return Some(report);
        };
        report.compare(SUMMARY_FILE, "run in the record of a replica", &own_run, &record.run);
        report.compare(
            SUMMARY_FILE,
            "case in the record of a replica",
            &own_case,
            &format!("{}:{}", record.case, record.framework),
        );
        replicas.push(recomputed(&replica, &record, stated));
        records.push(record);
    }
    if records.len() < stated.replicas.len() {
        return Some(report);
    }
    let records: Vec<&Record> = records.iter().map(AsRef::as_ref).collect();
    check_places(&stated, &records, &mut report);
    let expected = Summary::of(&stated.case, &records, replicas);
    compare(&mut report, SUMMARY_FILE, "summary", &expected, &stated);
    Some(report)
}

/// Checks that the summary belongs to its folder, and lists each host and device of the case exactly once.
fn check_replicas(folder: &Path, stated: &Summary, report: &mut CaseReport) {
    let Ok(key) = stated.case.parse::<CaseKey>() else {
        return report.add(SUMMARY_FILE, "case", None, Some(stated.case.clone()));
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    report.compare(SUMMARY_FILE, "case in the name of the folder", &name, &key.folder());
    let expected: Vec<(u32, Option<u32>)> = (0..key.scale.hosts)
        .flat_map(|rank| (0..key.scale.devices).map(move |device| (rank, (key.scale.devices > 1).then_some(device))))
        .collect();
    let found: Vec<_> = stated.replicas.iter().map(|replica| (replica.node_rank, replica.device)).collect();
    compare(report, SUMMARY_FILE, "hosts and devices (rank, device)", &expected, &found);
    for replica in &stated.replicas {
        let other =
            stated.replicas.iter().any(|other| (other.host == replica.host) != (other.node_rank == replica.node_rank));
        if other || !is_host_name(&replica.host) {
            report.add(SUMMARY_FILE, "host name of a replica", None, Some(replica.host.clone()));
            continue;
        }
        let own = replica.replica().folder();
        report.compare(
            SUMMARY_FILE,
            &format!("folder of the replica on host `{}`", replica.host),
            &own,
            &replica.folder,
        );
        if is_absent(&folder.join(&own)) {
            report.add(SUMMARY_FILE, "replica without a folder in the result", None, Some(own));
        }
    }
}

/// Checks that each replica has a record of its own: of its host and device, with the settings and scripts of the others, and with
/// a seed that no other one drew.
fn check_places(stated: &Summary, records: &[&Record], report: &mut CaseReport) {
    for (index, (replica, record)) in stated.replicas.iter().zip(records).enumerate() {
        compare(report, SUMMARY_FILE, &format!("device of `{}`", replica.folder), &record.device, &replica.device);
        for host in &record.hosts {
            report.compare(SUMMARY_FILE, &format!("host of `{}`", replica.folder), &host.name, &replica.host);
        }
        // The record of a lost replica is that of the machine on which the run was started.
        if let Some(first) = records[..index].iter().find(|first| [first.status, record.status] == [Status::Ok; 2]) {
            let what = different_setting(&first.settings, &record.settings, false);
            what.into_iter()
                .for_each(|what| report.add(SUMMARY_FILE, format!("`{}`: {what}", replica.folder), None, None));
            let (scripts, own) = (&first.provenance.scripts_sha256, &record.provenance.scripts_sha256);
            compare(report, SUMMARY_FILE, &format!("scripts of `{}`", replica.folder), scripts, own);
        }
        let seed = record.provenance.run_seed;
        // The processes that train one model share a seed.
        let is_group = stated.case.parse::<CaseKey>().is_ok_and(|key| key.training.is_some());
        let is_same = |other: &&Record| !is_group && seed != Seed::default() && other.provenance.run_seed == seed;
        if let Some(same) = records[..index].iter().position(is_same) {
            let (one, other) = (&stated.replicas[same].folder, &replica.folder);
            report.add(
                SUMMARY_FILE,
                format!("`{one}` and `{other}` are the same result: they have the same seed"),
                None,
                None,
            );
        }
    }
}

/// Returns whether it is certain that a folder does not exist.
fn is_absent(folder: &Path) -> bool {
    matches!(folder.try_exists(), Ok(false))
}

/// Returns the expected part of the summary for a replica whose files are in `folder`.
fn recomputed(folder: &Path, record: &Record, stated: &ReplicaSummary) -> ReplicaSummary {
    let windows = read_windows(&folder.join(EVENTS_FILE));
    let of_phase = |phase: Phase| {
        let is_own = |measured: &&ReplicaMeasurement| measured.step == phase.measured_step();
        let [begin, end] = stated.measured.iter().find(is_own)?.window_s?;
        let passes = &windows.iter().find(|found| found.phase == phase)?.passes;
        let length = passes.last()?.end.0 - passes.first()?.begin.0;
        let is_right = (end.0 - begin.0 - length).abs() <= RESOLUTION;
        Some([begin, if is_right { end } else { Seconds(begin.0 + length) }])
    };
    let digest = ResultManifest::digest_of_folder(folder);
    let machine = stated.machine.clone();
    ReplicaSummary { machine, ..ReplicaSummary::of(&stated.replica(), record, digest, stated.processor, of_phase) }
}
