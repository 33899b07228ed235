//! Checks what FlagPerf asks of a submission: a new record with its log for each adapted case, and a row of the table
//! of results that is equal to the record.
//!
//! Compares a record only with the tree that contains it. Whether a run wrote the record is for `flagperf verify` to
//! check.

use std::collections::BTreeMap;

use serde_json::Value;

use super::findings::ReviewFinding;
use super::pattern::Pattern;
use super::policy::SubmissionRule;
use super::result_row::{differences, expected_row, record_link};
use super::role::{Outcome, Role};
use super::rows::ResultTable;
use super::tree::{Change, FilePath, Snapshot};
use flagperf_core::hash::hash_bytes;
use flagperf_core::run_files::RECORD_FILE;
use flagperf_verify::{DifferentSetting, Standing, different_settings, verify_published};

/// A new record of a submission.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewRecord {
    pub(super) path: String,
    pub(super) vendor: String,
    pub(super) case: String,
    /// The record; null when it cannot be read.
    pub(super) value: Value,
}

/// Returns the new records of a vendor; those of every vendor for `None`.
pub(super) fn new_records(
    rule: &SubmissionRule,
    vendor: Option<&str>,
    changes: &[Change],
    after: &dyn Snapshot,
) -> Vec<NewRecord> {
    let added = changes.iter().filter_map(|change| if let Change::Added(side) = change { Some(side) } else { None });
    let records = added.filter_map(|side| {
        let bindings = rule.records.matches(side.path.text())?;
        let is_own = vendor.is_none_or(|vendor| bindings.vendor.as_deref() == Some(vendor)) && side.kind.is_file();
        let text = after.text(side.path.text()).unwrap_or_default();
        let value = serde_json::from_str(&text).unwrap_or_default();
        let (vendor, case) = (bindings.vendor.unwrap_or_default(), bindings.case.unwrap_or_default());
        is_own.then(|| NewRecord { path: side.path.text().to_owned(), vendor, case, value })
    });
    records.collect()
}

/// Checks the submission of a vendor.
pub(super) fn check_submission(
    rule: &SubmissionRule,
    vendor: &str,
    changes: &[Change],
    records: &[NewRecord],
    after: &dyn Snapshot,
) -> Vec<ReviewFinding> {
    let mut findings = changed_records(rule, changes);
    let adapted = adapted_cases(rule, vendor, changes);
    for (case, file) in &adapted {
        let is_recorded = records.iter().any(|record| case.as_ref().is_none_or(|case| record.case == *case));
        // Files that serve every case need the record of one.
        let is_needed = case.is_some() || adapted.len() == 1;
        if is_needed && !is_recorded {
            let what = case.as_ref().map_or_else(|| "every case".to_owned(), |case| format!("case `{case}`"));
            let hint = format!("add the record of a run, as `{}`, with `{}` beside it", rule.records.text(), rule.log);
            findings.push(finding(
                "submission",
                file,
                None,
                format!("the change adapts {what} without a new record"),
                hint,
            ));
        }
    }
    findings.extend(changed_engines(rule, vendor, changes, records));
    findings.extend(records.iter().flat_map(|record| check_record(rule, record, after)));
    findings
}

/// Returns the records from which rows of results may follow: those in which nothing is wrong.
pub(super) fn accepted_records(rule: &SubmissionRule, records: &[NewRecord], after: &dyn Snapshot) -> Vec<NewRecord> {
    let is_accepted = |record: &&NewRecord| {
        let findings = check_record(rule, record, after);
        findings.iter().all(|finding| finding.outcome == Outcome::Allowed)
    };
    records.iter().filter(is_accepted).cloned().collect()
}

/// Returns the first change of the code of the vendor's engines, which no new record measures.
fn changed_engines(
    rule: &SubmissionRule,
    vendor: &str,
    changes: &[Change],
    records: &[NewRecord],
) -> Option<ReviewFinding> {
    let matches = |patterns: &[Pattern], path: &str| patterns.iter().find_map(|pattern| pattern.matches(path));
    let is_engine = |path: &&FilePath| {
        let bindings = matches(&rule.engines, path.text()).filter(|_| matches(&rule.no_engines, path.text()).is_none());
        bindings.is_some_and(|bindings| bindings.vendor.as_deref() == Some(vendor))
    };
    let path = changes.iter().flat_map(|change| change.paths()).find(is_engine).filter(|_| records.is_empty())?;
    let message = "what the vendor's engines run is changed without a new record".to_owned();
    let hint = format!("add the record of a run with these files, as `{}`", rule.records.text());
    let outcome = Outcome::Needs(Role::Maintainer);
    Some(ReviewFinding { outcome, ..finding("submission", path.text(), None, message, hint) })
}

/// Returns the adapted cases, each with the first file; `None` stands for every case.
fn adapted_cases(rule: &SubmissionRule, vendor: &str, changes: &[Change]) -> BTreeMap<Option<String>, String> {
    let mut adapted = BTreeMap::new();
    for path in changes.iter().filter_map(|change| change.after()).map(|side| side.path.text()) {
        let bindings = rule.adaptation.iter().find_map(|pattern| pattern.matches(path));
        if let Some(bindings) = bindings.filter(|bindings| bindings.vendor.as_deref() == Some(vendor)) {
            adapted.entry(bindings.case).or_insert_with(|| path.to_owned());
        }
    }
    adapted
}

/// Refuses changes of records that exist and of what is beside them: a new run makes a new record. Removing one needs a maintainer.
fn changed_records(rule: &SubmissionRule, changes: &[Change]) -> Vec<ReviewFinding> {
    let hint = "add the record of a new run in a folder of its own";
    let changed = changes.iter().filter_map(|change| {
        let before = change.before().filter(|before| rule.is_published(before.path.text()))?;
        let is_record = rule.records.matches(before.path.text()).is_some();
        let what = if is_record { "a record that exists" } else { "a file beside a record that exists" };
        let (outcome, how) = match change {
            Change::Modified { .. } => (Outcome::Refused, "changed"),
            _ => (Outcome::Needs(Role::Maintainer), "removed or moved"),
        };
        let found = finding("record", before.path.text(), None, format!("{what} is {how}"), hint.to_owned());
        Some(ReviewFinding { outcome, ..found })
    });
    changed.collect()
}

/// Checks one record against the tree that contains it.
fn check_record(rule: &SubmissionRule, record: &NewRecord, after: &dyn Snapshot) -> Vec<ReviewFinding> {
    let NewRecord { path, vendor, case, value } = record;
    if !value["finish_info"].is_object() {
        let hint = "add record.json as `flagperf run` wrote it";
        return vec![finding("record", path, None, "the file is not a record".to_owned(), hint.to_owned())];
    }
    let mut findings = Vec::new();
    let mut add = |message: String, hint: &str| findings.push(finding("record", path, None, message, hint.to_owned()));
    for (key, expected) in [("vendor", vendor.as_str()), ("case", case.as_str()), ("status", "ok")] {
        if value[key] != expected {
            add(
                format!("`{key}` is {}, but must be `{expected}`", quoted(&value[key])),
                "add the record of another run",
            );
        }
    }
    let departures: Vec<String> = value["departures"].as_array().into_iter().flatten().map(quoted).collect();
    if !departures.is_empty() {
        let hint = "put the values into the overlay and run without `--set`";
        add(format!("the run departs from the committed configuration: {}", departures.join(", ")), hint);
    }
    let training_key = value["training_key"].as_str();
    let read = |file: &str| after.text(file).ok();
    for different in different_settings(vendor, case, training_key, &value["settings"], &read) {
        let DifferentSetting { key, file, used, committed } = different;
        let (used, committed) = (quoted(&used), quoted(&committed));
        let message = format!("the run had {used} for `{key}`, but {file} has {committed}");
        add(message, "run again with the configuration of this change");
    }
    for message in different_scripts(value, after) {
        add(message, "run again with the scripts of this change");
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let log = format!("{folder}/{}", rule.log);
    if !after.list(folder).iter().any(|name| name.text == rule.log) {
        add(format!("its log `{log}` is missing"), "add the log that the run wrote beside the record");
    }
    findings.extend(check_verdict(path, value));
    findings.extend(unverified(path, &log, after));
    findings.extend(check_row(rule, record, after));
    findings
}

/// Verifies a record with its log. A record that this version cannot verify needs a maintainer.
fn unverified(path: &str, log: &str, after: &dyn Snapshot) -> Vec<ReviewFinding> {
    let text = after.read(path).unwrap_or_default();
    let log = after.text(log).ok();
    let report = verify_published(&text, log.as_deref());
    let hint = "add the record and the log as `flagperf run` wrote them; `flagperf verify` says more";
    let add = |message: String| finding("record", path, None, message, hint.to_owned());
    let mut findings: Vec<ReviewFinding> = report
        .findings
        .iter()
        .map(|found| {
            let place = if found.file == RECORD_FILE { String::new() } else { format!("{}: ", found.file) };
            add(format!(
                "{place}`{}` does not follow from the measurements of the record",
                super::keys::shown(&found.what)
            ))
        })
        .collect();
    if report.standing == Standing::NotVerifiable {
        let reasons = report.unchecked.iter().map(|reason| format!("the record cannot be verified: {reason}"));
        findings
            .extend(reasons.map(|reason| ReviewFinding { outcome: Outcome::Needs(Role::Maintainer), ..add(reason) }));
    }
    findings
}

/// Refuses an invalid result, and notes one that is unofficial.
fn check_verdict(path: &str, record: &Value) -> Option<ReviewFinding> {
    let verdict = record["validity"]["verdict"].as_str()?;
    let reasons = record["validity"]["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let message = format!("the result is {verdict}: {}", reasons.collect::<Vec<_>>().join("; "));
    let message = super::keys::shown(&message);
    match verdict {
        "valid" => None,
        "invalid" => Some(finding("record", path, None, message, "add the record of another run".to_owned())),
        _ => Some(ReviewFinding {
            outcome: Outcome::Allowed,
            ..finding("record", path, None, message, "`flagperf run --official` requires a valid result".to_owned())
        }),
    }
}

/// Returns the scripts whose content differs from what the run hashed.
fn different_scripts(record: &Value, after: &dyn Snapshot) -> Vec<String> {
    let hashed = record["provenance"]["scripts_sha256"].as_object();
    let different = hashed.into_iter().flatten().filter_map(|(name, hash)| {
        let file = format!("scripts/{name}");
        let content = after.read(&file).map(|bytes| hash_bytes(&bytes));
        (content.ok().as_deref() != hash.as_str()).then(|| format!("the run used another version of `{file}`"))
    });
    different.collect()
}

/// Checks the row of a record in the table of its case.
fn check_row(rule: &SubmissionRule, record: &NewRecord, after: &dyn Snapshot) -> Vec<ReviewFinding> {
    let file = rule.table.replace("<case>", &record.case);
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let link = record_link(&record.path, folder);
    let tables = ResultTable::find_all(&after.text(&file).unwrap_or_default());
    let row = tables.iter().find_map(|table| Some((table, table.row_of(&record.path, folder)?)));
    let Some((table, (line, row))) = row else {
        // The table of trainings, if there are two, has other columns than that of inference.
        let is_training = record.value["training_key"].is_string();
        let of_kind = tables.iter().find(|table| table.columns.are_of_training() == is_training);
        let (message, hint) = match of_kind.or(tables.first()) {
            Some(table) => (
                format!("the table of results lacks a row for {}", record.path),
                format!("add this row: {}", expected_row(&table.columns, &record.value, &link)),
            ),
            None => (
                "there is no table of results".to_owned(),
                "add one with the columns `vendor` and `record`, as in another case".to_owned(),
            ),
        };
        return vec![finding("result-row", &file, None, message, hint)];
    };
    let different = differences(&table.columns, row, &record.value);
    if different.is_empty() {
        return Vec::new();
    }
    let cell = |(column, cell, expected): &(String, String, String)| format!("{column} is `{cell}`, not `{expected}`");
    let message =
        format!("the row differs from {}: {}", record.path, different.iter().map(cell).collect::<Vec<_>>().join("; "));
    let hint = format!("replace it by this row: {}", expected_row(&table.columns, &record.value, &link));
    vec![finding("result-row", &file, Some(line), message, hint)]
}

fn quoted(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("`{}`", super::keys::shown(&text))
}

fn finding(rule: &str, file: &str, line: Option<usize>, message: String, hint: String) -> ReviewFinding {
    ReviewFinding { outcome: Outcome::Refused, rule: rule.to_owned(), file: FilePath::from(file), line, message, hint }
}
