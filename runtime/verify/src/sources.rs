//! Compares the hashes in a record with the files of its result: sources, samples and what the workers wrote.

use std::path::Path;

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;
use serde_json::Value;

use super::CaseReport;
use super::difference::compare;
use super::events::Replay;
use super::files::FileHashes;
use flagperf_core::run_files::{RECORD_FILE, SOURCES_FOLDER};
use flagperf_result::Record;

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
    let provenance = &record.provenance;
    let scripts = format!("{SOURCES_FOLDER}/scripts/");
    check_folder(&scripts, "provenance.scripts_sha256", &provenance.scripts_sha256, files, report);
    for (name, hash) in &provenance.config_files_sha256 {
        check_file(&format!("{SOURCES_FOLDER}/{name}"), hash, files, report);
    }
    let config = format!("{SOURCES_FOLDER}/config.json");
    check_file(&config, &provenance.config_sha256, files, report);
    check_config(&folder.join(&config), record, report);
    for (name, hash) in &replay.samples {
        check_file(name, hash, files, report);
    }
    for file in record.phases.iter().flat_map(|phase| &phase.files).filter(|file| !file.sha256.is_empty()) {
        let inside = path_in_result(&file.path, &record.run);
        let Some((path, size)) = inside.and_then(|path| Some((path, files.size(path)?))) else {
            report.unchecked.push(format!("`{}`: it is not in the result", inside.unwrap_or(&file.path)));
            continue;
        };
        check_file(path, &file.sha256, files, report);
        report.compare(path, "size in the record", &file.size_bytes.0.to_string(), &size.to_string());
    }
}

/// Compares the hashes by name in a record with the files below a folder.
fn check_folder(
    prefix: &str,
    place: &str,
    hashes: &IndexMap<String, String>,
    files: &FileHashes,
    report: &mut CaseReport,
) {
    for (name, hash) in hashes {
        check_file(&format!("{prefix}{name}"), hash, files, report);
    }
    for name in files.below(prefix).filter(|name| !hashes.contains_key(*name)) {
        report.add(RECORD_FILE, format!("{place} lacks `{name}`"), None, None);
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
    for (key, setting) in &record.settings {
        if let Some(value) = config.get(key) {
            compare(report, RECORD_FILE, &format!("settings.{key}"), value, &setting.value);
        }
    }
    for (key, value) in [("case", &record.case), ("framework", &record.framework), ("vendor", &record.vendor)] {
        if let Some(expected) = config.get(key).and_then(Value::as_str) {
            report.compare(RECORD_FILE, key, expected, value);
        }
    }
    let target = |value: &Value| serde_json::from_value::<IndexMap<String, f64>>(value.clone()).ok();
    let expected = config.get("target_accuracy").and_then(target).unwrap_or_default();
    compare(report, RECORD_FILE, "accuracy.target", &expected, &record.accuracy.target);
    let batch_size = config.get("batch_size").cloned().unwrap_or_default();
    compare(report, RECORD_FILE, "finish_info.batchsize", &batch_size, &Value::from(record.finish_info.batchsize));
    let compiler = config.get("compiler").cloned().unwrap_or_default();
    compare(report, RECORD_FILE, "finish_info.compiler", &compiler, &Value::from(record.finish_info.compiler.clone()));
}

/// Returns the path of a file within the folder of its case: `.../RUN/CASE/HOST/FILE`.
fn path_in_result<'p>(path: &'p str, run: &str) -> Option<&'p str> {
    let (_, below) = path.rsplit_once(&format!("/{run}/"))?;
    below.splitn(3, '/').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_in_the_result_follows_run_case_and_host() {
        let path = |path| path_in_result(path, "run1");
        assert_eq!(path("/a/result/run1/tiny_mock/localhost_noderank0/m.onnx"), Some("m.onnx"));
        assert_eq!(path("/a/result/run1/tiny_mock/localhost_noderank0/x/y"), Some("x/y"));
        assert_eq!((path("/a/models/m.onnx"), path("/a/run1/m.onnx")), (None, None));
    }
}
