//! Compares the hashes in a record with the files of its result: sources, samples and what the workers wrote.

use std::path::Path;

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;
use serde_json::Value;

use super::CaseReport;
use super::difference::compare;
use super::events::Replay;
use super::files::FileHashes;
use flagperf_config::is_reserved;
use flagperf_core::run_files::{CONFIG_FILE, QUERIES_FILE, RECORD_FILE, SOURCES_FOLDER, samples_file};
use flagperf_core::step::Phase;
use flagperf_result::{PhaseRecord, Record, SAMPLES_KIND, Status};

/// Largest merged configuration in bytes.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

/// Compares the hashes in a record with those of the files.
pub(super) fn check_sources(
    folder: &Path,
    record: &Record,
    replay: &Replay,
    files: &FileHashes,
    report: &mut CaseReport,
) {
    let hashes = record.file_hashes();
    for (path, hash) in hashes.iter().chain(&replay.derived) {
        check_file(path, hash, files, report);
    }
    let sources = format!("{SOURCES_FOLDER}/");
    for name in files.below(&sources).filter(|name| !hashes.contains_key(&format!("{sources}{name}"))) {
        report.add(RECORD_FILE, format!("provenance lacks `{name}`"), None, None);
    }
    check_config(&folder.join(&sources).join(CONFIG_FILE), record, report);
    for phase in &record.phases {
        check_written_files(phase, record, replay, files, report);
    }
}

/// Checks that the files of a phase are in the folder of the result, which names the run, the host and the device.
fn check_written_files(
    phase: &PhaseRecord,
    record: &Record,
    replay: &Replay,
    files: &FileHashes,
    report: &mut CaseReport,
) {
    for file in &phase.files {
        let Some(path) = file.path_in_result(&record.run) else {
            report.add(RECORD_FILE, format!("run, or the path of `{}`", file.path), None, Some(record.run.clone()));
            continue;
        };
        if let Some(size) = files.size(path) {
            report.compare(path, "size in the record", &file.size_bytes.0.to_string(), &size.to_string());
        }
        let of_result = file.path.strip_suffix(path).unwrap_or_default().trim_end_matches('/');
        let name = of_result.rsplit('/').next().unwrap_or_default();
        let (host, rank) = name.rsplit_once("_noderank").unwrap_or((name, ""));
        for found in &record.hosts {
            report.compare(RECORD_FILE, "hosts[0].name", host, &found.name);
        }
        let device = rank.split_once("_device").map(|(_, device)| device.to_owned());
        compare(report, RECORD_FILE, "device", &device, &record.device.map(|device| device.to_string()));
    }
    let queries = (phase.phase == Phase::Infer).then(|| QUERIES_FILE.to_owned());
    for name in [samples_file(phase.phase)].into_iter().chain(queries) {
        let own = phase.files.iter().filter(|file| file.what == SAMPLES_KIND);
        let listed = own.filter(|file| file.path_in_result(&record.run) == Some(&name)).count();
        let expected = usize::from(replay.derived.contains_key(&name));
        if listed != expected && (record.status == Status::Ok || listed > expected) {
            let count = |count: usize| Some(count.to_string());
            report.add(RECORD_FILE, format!("`{name}` among the files of the phase"), count(expected), count(listed));
        }
    }
}

fn check_file(path: &str, hash: &str, files: &FileHashes, report: &mut CaseReport) {
    match files.sha256(path) {
        Some(found) => report.compare(path, "SHA-256 in the record", hash, found),
        None => report.add(path, "the file is missing", Some(hash.to_owned()), None),
    }
}

/// Compares settings and targets in a record with the merged configuration that the case ran with.
fn check_config(path: &Path, record: &Record, report: &mut CaseReport) {
    let text = read_regular(path, CONFIG_BYTES_MAX).ok();
    let config: Option<IndexMap<String, Value>> = text.and_then(|text| serde_json::from_slice(&text).ok());
    let Some(config) = config else {
        report.add(&format!("{SOURCES_FOLDER}/config.json"), "it cannot be read as JSON", None, None);
        return;
    };
    for (key, value) in config.iter().filter(|(key, _)| !is_reserved(key)) {
        let found = record.settings.get(key).map(|setting| &setting.value);
        // For scripts, a seed that is not set is 0.
        if key == "seed" && *value == 0 && found == Some(&Value::Null) {
            continue;
        }
        compare(report, RECORD_FILE, &format!("settings.{key}"), &Some(value), &found);
    }
    for (key, value) in [("case", &record.case), ("framework", &record.framework), ("vendor", &record.vendor)] {
        if let Some(expected) = config.get(key).and_then(Value::as_str) {
            report.compare(RECORD_FILE, key, expected, value);
        }
    }
}
