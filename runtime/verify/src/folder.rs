//! Verifies the folder of a case, or finds those in the folder of a run.

use std::fs;
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use super::accuracy::check_accuracy;
use super::authenticity::check_authenticity;
use super::events::replay;
use super::facts::{NOT_CHECKABLE, check_facts};
use super::figures::{check_derived, check_figures, recomputed};
use super::files::check_files;
use super::log::{check_last_lines, check_log};
use super::monitors::check_monitors;
use super::record_file::{ReadRecord, parse_record, read_record};
use super::settings::check_settings;
use super::sources::check_sources;
use super::training::check_training;
use super::{CaseReport, Trust};
use flagperf_core::panic::panic_text;
use flagperf_core::run_files::{EVENTS_FILE, MANIFEST_FILE, RECORD_FILE, SUMMARY_FILE};
use flagperf_result::{ChainError, Record, verify_chain};

/// Largest number of entries of a folder in which results are looked for.
const ENTRIES_MAX: usize = 10_000;

/// Finds the results at `path`: a case's folder or its record, or a run's folder, which contains `<case>/<host>/`.
///
/// # Errors
/// When there is no result, or the path cannot be read.
pub fn find_results(path: &Path) -> io::Result<Vec<PathBuf>> {
    let found = fs::metadata(path)?;
    if !found.is_dir() && path.file_name() == Some(SUMMARY_FILE.as_ref()) {
        return Err(io::Error::other("a summary is verified with its results: give the folder that contains it"));
    }
    if !found.is_dir() {
        if path.extension().is_none_or(|extension| extension != "json") {
            return Err(io::Error::other(
                "it is not a record: give the folder of a run, that of a case, or `record.json`",
            ));
        }
        // Beside a manifest, a record stands for its folder.
        let folder = path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        let whole = folder.filter(|folder| is_result(folder) && path.file_name() == Some(RECORD_FILE.as_ref()));
        return Ok(vec![whole.unwrap_or(path).to_owned()]);
    }
    if is_result(path) {
        return Ok(vec![path.to_owned()]);
    }
    // The folder of a case that ran on several hosts or devices, or else that of a run.
    let mut results = results_in(path)?;
    if results.is_empty() {
        for case in folders_in(path)? {
            results.extend(results_in(&case)?);
        }
    }
    if results.is_empty() {
        let run = latest_run(path)?.map(|run| format!("; give the folder of one run, such as `{}`", run.display()));
        return Err(io::Error::other(format!(
            "it contains no result: neither a `record.json` nor folders CASE/HOST that contain one{}",
            run.unwrap_or_default()
        )));
    }
    results.sort_unstable();
    Ok(results)
}

/// Returns the results of the hosts and devices of a case.
fn results_in(case: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(folders_in(case)?.into_iter().filter(|host| is_folder_of_result(host)).collect())
}

fn is_result(folder: &Path) -> bool {
    [RECORD_FILE, MANIFEST_FILE].iter().any(|name| fs::symlink_metadata(folder.join(name)).is_ok())
}

/// Returns whether a folder is one that a run wrote for a case on a host: by its name, or by files that only a run writes.
pub fn is_folder_of_result(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_of_run =
        name.contains("_noderank") || [EVENTS_FILE, MANIFEST_FILE].iter().any(|name| folder.join(name).exists());
    is_of_run && is_result(folder)
}

/// Finds the results of every run in the folder `path`, and otherwise those that [`find_results`] finds there. A run that has no result, such
/// as one that was not finished, is left out.
///
/// # Errors
/// As [`find_results`], if there is no run in the folder.
pub fn find_results_of_runs(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut runs = if path.is_dir() { folders_in(path)? } else { Vec::new() };
    runs.retain(|folder| is_run(folder));
    runs.sort_unstable();
    match runs.as_slice() {
        [] => find_results(path),
        runs => Ok(runs.iter().filter_map(|run| find_results(run).ok()).flatten().collect()),
    }
}

/// Returns whether a folder has the name of a run.
fn is_run(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("run").is_some_and(|time| !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the last folder of a run in `path`, by name.
fn latest_run(path: &Path) -> io::Result<Option<PathBuf>> {
    Ok(folders_in(path)?.into_iter().filter(|folder| is_run(folder)).max())
}

fn folders_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(path)?.take(ENTRIES_MAX) {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// Verifies one of the results that [`find_results`] found. A number with which no figure can be computed, such as a count
/// near 2^64, is wrong and does not keep the other results from being verified.
pub fn verify_result(path: &Path, trust: &Trust) -> CaseReport {
    catch_unwind(|| verify_files(path, trust)).unwrap_or_else(|panic| {
        let mut report = CaseReport::new(path);
        report.add(
            RECORD_FILE,
            format!("no figure can be computed from its numbers: {}", panic_text(&*panic)),
            None,
            None,
        );
        report
    })
}

fn verify_files(path: &Path, trust: &Trust) -> CaseReport {
    let mut report = CaseReport::new(path);
    if !path.is_dir() {
        verify_record_alone(path, &mut report);
        return report;
    }
    // The files are hashed while the events are read.
    let mut files_report = CaseReport::new(path);
    let (files, read) = rayon::join(
        || check_files(path, &mut files_report),
        || {
            let record = read_record(&path.join(RECORD_FILE), &mut report)?;
            Some(match record {
                ReadRecord::Current(record) => {
                    let replayed = replay(path, &record, &mut report);
                    (Some(record), replayed)
                }
                ReadRecord::Older { schema, events_sha256 } => {
                    verify_older(path, schema, &events_sha256, &mut report);
                    (None, None)
                }
            })
        },
    );
    report = files_report.followed_by(report);
    let (record, replayed) = read.unwrap_or_default();
    if let (Some(record), Some(replay)) = (&record, &replayed) {
        check_facts(record, replay, &mut report);
        check_figures(record, replay, &mut report);
        check_monitors(path, record, replay, &mut report);
        if let Some(files) = &files {
            check_log(path, record, &mut report);
            check_sources(path, record, replay, files, &mut report);
            check_settings(path, record, &mut report);
            check_accuracy(path, record, replay, &mut report);
            check_training(path, record, replay, &mut report);
        }
    }
    if let Some(record) = &record {
        describe(record, &mut report);
    }
    check_authenticity(path, record.as_ref().map(|record| record.vendor.as_str()), trust, &mut report);
    report
}

fn describe(record: &Record, report: &mut CaseReport) {
    report.case = Some(record.key());
    report.validity = Some(record.validity.clone());
    report.not_checkable = &NOT_CHECKABLE;
}

/// Checks a record without its other files: whether its figures and verdicts follow from its measurements, and whether its log, if
/// it is given, states them.
fn verify_record_alone(path: &Path, report: &mut CaseReport) {
    match read_record(path, report) {
        Some(ReadRecord::Current(record)) => {
            check_alone(&record, None, report);
            describe(&record, report);
            report.give_up(
                "this is only a record: figures are recomputed from `events.jsonl`, and files are checked with \
                 `manifest.json`",
            );
        }
        Some(ReadRecord::Older { schema, .. }) => {
            report.give_up(format!("schema {schema} was written by an older version of flagperf"))
        }
        None => {}
    }
}

/// Verifies the text of a record that a reader has without the folder of its result, with the text of its log. Such a record is never
/// more than consistent.
pub fn verify_published(record: &[u8], log: Option<&str>) -> CaseReport {
    let mut report = CaseReport::new(Path::new(RECORD_FILE));
    match parse_record(record, &mut report) {
        Some(ReadRecord::Current(record)) => check_alone(&record, log, &mut report),
        Some(ReadRecord::Older { schema, .. }) => {
            report.give_up(format!("schema {schema} was written by an older version of flagperf"))
        }
        None => {}
    }
    report
}

fn check_alone(record: &Record, log: Option<&str>, report: &mut CaseReport) {
    check_derived(&recomputed(record), record, report);
    if let Some(log) = log {
        check_last_lines(log, record, report);
    }
}

/// Checks what can be checked of a result of an older version.
fn verify_older(folder: &Path, schema: u32, events_sha256: &str, report: &mut CaseReport) {
    match verify_chain(&folder.join(EVENTS_FILE), events_sha256) {
        Ok(()) => report.unchecked.push("the hash chain of the events is intact; nothing else was checked".to_owned()),
        Err(ChainError::Read(error)) => report.give_up(format!("`{EVENTS_FILE}` cannot be read: {error}")),
        Err(error) => report.add(EVENTS_FILE, error.to_string(), None, None),
    }
    report.give_up(format!(
        "schema {schema} was written by an older version of flagperf: its figures cannot be recomputed"
    ));
}
