//! Names of the files of a run that more than one part of the program reads or writes.

use crate::step::Phase;

/// State of a run in its folder, for `flagperf resume`.
pub const STATE_FILE: &str = "run.json";
/// Log of a run, in its folder.
pub const RUN_LOG: &str = "host.out.log";
/// Summary of the replicas of a case.
pub const SUMMARY_FILE: &str = "summary.json";
/// Record of a case, in its folder, as every file below.
pub const RECORD_FILE: &str = "record.json";
/// Events of the workers, one per line.
pub const EVENTS_FILE: &str = "events.jsonl";
/// Samples of the monitors.
pub const MONITOR_FILE: &str = "monitor.jsonl";
/// Log in FlagPerf's format.
pub const CASE_LOG: &str = "container.out.log";
/// Standard error of the workers.
pub const WORKER_LOG: &str = "stdout_err.out.log";
/// Manifest.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Signature of the manifest.
pub const SIGNATURE_FILE: &str = "manifest.sig";
/// Folder of the checkpoints of a training that has not ended.
pub const CHECKPOINTS_FOLDER: &str = "checkpoints";
/// Folder of the sources.
pub const SOURCES_FOLDER: &str = "sources";
/// Merged configuration of the case, among the sources.
pub const CONFIG_FILE: &str = "config.json";

/// Times of the queries of a scenario.
pub const QUERIES_FILE: &str = "queries.csv";

/// Returns the name of the file with the times of the steps of a phase.
pub fn samples_file(phase: Phase) -> String {
    format!("samples.{}.csv", phase.name())
}
