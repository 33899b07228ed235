//! Compares a record with what the conductor wrote into the last event, and names the fields for which there is no other evidence.

use super::CaseReport;
use super::difference::compare;
use super::events::Replay;
use flagperf_core::run_files::{EVENTS_FILE, RECORD_FILE};
use flagperf_result::{Record, conductor_facts};

/// The fields of a record that only the conductor of the run states, in the record and in the last event. `[]` stands for every
/// element, and a field for what is in it.
pub(super) const NOT_CHECKABLE: [&str; 24] = [
    "code_variables",
    "failures",
    "finish_info.e2e_time(second)",
    "host_doubts",
    "hosts[].machine",
    "monitors",
    "phases[].conditions",
    "phases[].ending",
    "phases[].libraries",
    "phases[].observed_memory_bytes_max",
    "phases[].time_s",
    "provenance.binary_sha256",
    "provenance.flagperf",
    "provenance.git_clean",
    "provenance.git_difference",
    "provenance.git_revision",
    "provenance.image",
    "provenance.rustc",
    "settings.FLAGPERF_PATH.value",
    "settings.framework.origin",
    "settings.visible_devices",
    "started",
    "status",
    "warnings",
];

/// Compares a record with the conductor's own event.
pub(super) fn check_facts(record: &Record, replay: &Replay, report: &mut CaseReport) {
    match &replay.facts {
        Some(facts) => compare(report, RECORD_FILE, "", facts, &conductor_facts(record)),
        None => report.give_up(format!(
            "`{EVENTS_FILE}` lacks the last event, with what the conductor of the case observed: the case was lost, or an older \
             version of flagperf wrote the result"
        )),
    }
}
