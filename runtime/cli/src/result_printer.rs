//! Prints the results of a run on standard output: a report for each case, then an overview.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::arguments::RunOutput;
use super::output::{print_message, stdout_error, write_result};
use super::trace::write_trace_beside;
use flagperf_config::CaseKey;
use flagperf_core::exit_code;
use flagperf_core::file::write_hint;
use flagperf_core::text::escape_json;
use flagperf_page::terminal_charts;
use flagperf_report::{Extent, OverviewRow, SavedResult, Screen, case_report, overview, summary_report};
use flagperf_result::{FailureRecord, Record, Summary, Validity};
use flagperf_run::{Notice, RunOutcome};

/// Prints the results of the cases on standard output.
pub(super) struct ResultPrinter {
    /// Whether to print the record as JSON instead of a table.
    json: bool,
    /// How much of a record to print.
    extent: Extent,
    /// Whether to draw charts.
    has_charts: bool,
    /// Whether every result must be valid.
    official: bool,
    /// Folder of the run.
    folder: PathBuf,
    /// The cases so far.
    rows: Vec<OverviewRow>,
    /// The hint of each replica of the current case; empty for one without a failure.
    hints: Vec<String>,
    /// The results that are not valid although they had to be.
    not_valid: Vec<String>,
    /// The first error of printing a result.
    unprinted: Option<io::Error>,
}

impl ResultPrinter {
    pub(super) fn new(output: RunOutput, official: bool) -> Self {
        let extent = if output.details { Extent::Details } else { Extent::Summary };
        let (folder, rows, hints, not_valid, unprinted) = (PathBuf::new(), Vec::new(), Vec::new(), Vec::new(), None);
        let (json, has_charts) = (output.json, !output.plain);
        ResultPrinter { json, extent, has_charts, official, folder, rows, hints, not_valid, unprinted }
    }

    pub(super) fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::RunBegins { folder } => self.folder = folder.to_path_buf(),
            Notice::CaseEnds { record, place, is_part, path, unwritten, digest, .. } => {
                // Another program may have taken the name of the record, which then has another one.
                let path = unwritten.map_or(Some(*path), |error| error.kept.as_deref());
                if !is_part {
                    self.note_verdict(record);
                }
                if let Some(folder) = path.and_then(Path::parent) {
                    write_trace_beside(record, folder);
                }
                self.rows.push(OverviewRow::new(record, *place, path.map(relative_path), self.official));
                let hint = |failure: &FailureRecord| failure.hint.clone();
                self.hints.extend(is_part.then(|| record.failures.first().map(hint).unwrap_or_default()));
                // The summary has the figures of a replica; one that is not on disk is printed in any case.
                if !is_part || self.json || self.extent == Extent::Details || path.is_none() {
                    let saved = SavedResult { path, digest: *digest, place: *place, is_official_run: self.official };
                    self.print_record(record, saved, unwritten.map(|error| &error.source));
                }
            }
            Notice::FinishedBefore { record, place, path } => {
                if place.is_none() {
                    self.note_verdict(record);
                }
                self.rows.push(OverviewRow::finished_before(record, *place, relative_path(path), self.official));
                if self.json || self.extent == Extent::Details {
                    let (path, is_official_run) = (Some(*path), self.official);
                    self.print_record(record, SavedResult { path, digest: None, place: *place, is_official_run }, None);
                }
            }
            Notice::SummaryEnds { summary, path } => self.print_summary(summary, path),
            _ => {}
        }
    }

    /// Remembers a result that is not valid, if every result must be.
    fn note_verdict(&mut self, record: &Record) {
        if self.official && record.validity.verdict != Validity::Valid {
            self.not_valid.push(format!("`{}` is {}", record.key(), record.validity.line()));
        }
    }

    /// Prints a report, or the record as JSON. A record that could not be written to disk (`path` is `None`) is always
    /// printed, so that no measurement is lost; `cause` is why.
    fn print_record(&mut self, record: &Record, saved: SavedResult<'_>, cause: Option<&io::Error>) {
        let json = serde_json::to_string_pretty(record).expect("a record is plain data");
        let json = escape_json(&json);
        let result = match self.json {
            true => format!("{json}\n"),
            false => {
                let (shown, screen) = (SavedResult { path: saved.path.map(relative_path), ..saved }, Screen::stdout());
                let folder = saved.path.and_then(Path::parent).filter(|_| self.has_charts);
                let charts = folder.map(|folder| terminal_charts(folder, record, self.extent, screen.columns));
                format!("{}\n", case_report(record, shown, self.extent, &charts.unwrap_or_default(), screen))
            }
        };
        if let (true, Some(digest)) = (self.json, saved.digest) {
            let place = saved.place.map(|place| format!(" on {place}")).unwrap_or_default();
            print_message(&format!("digest of {}{place}: {digest}", record.key()));
        }
        let printed = write_result(&result);
        if saved.path.is_none() {
            let hint = cause.map(|cause| format!("{}; ", write_hint(cause))).unwrap_or_default();
            print_message(&format!("  hint: {hint}FLAGPERF_LOG_PATH in host.yaml selects another folder"));
            if !self.json || printed.is_err() {
                print_message(&format!("the record that could not be written:\n{json}"));
            }
        }
        if let Err(error) = printed {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Prints the summary of the replicas of a case.
    fn print_summary(&mut self, summary: &Summary, path: &Path) {
        let hints = std::mem::take(&mut self.hints);
        if self.official && summary.validity != Validity::Valid {
            let (case, validity) = (&summary.case, summary.validity.name());
            self.not_valid.push(format!("`{case}` is {validity}; its summary lists the reasons"));
        }
        let text = match self.json {
            true => {
                format!("{}\n", escape_json(&serde_json::to_string_pretty(summary).expect("a summary is plain data")))
            }
            false => {
                format!("{}\n", summary_report(summary, &hints, relative_path(path), self.official, Screen::stdout()))
            }
        };
        if let Err(error) = write_result(&text) {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Prints a line for each case if there are several, also for those that were not run. As JSON, only records are
    /// printed, and the others are named on standard error.
    pub(super) fn print_overview(&mut self, not_run: &[CaseKey]) {
        if self.json {
            for key in not_run {
                print_message(&format!("note: case `{key}` was not run: the run was interrupted"));
            }
            return;
        }
        self.rows.extend(not_run.iter().map(OverviewRow::not_run));
        if self.rows.len() < 2 {
            return;
        }
        if let Err(error) = write_result(&overview(&self.rows, Screen::stdout().columns)) {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Returns the exit code of the run; a result that could not be printed counts as unwritten.
    pub(super) fn exit_code(&self, outcome: &RunOutcome) -> ExitCode {
        let code = outcome.exit_code(self.official);
        for result in &self.not_valid {
            print_message(&format!("error: `--official` requires a valid result, but {result}"));
        }
        if !self.not_valid.is_empty() {
            print_message("  hint: docs/reference/verdicts.md lists the rules of an official result");
        }
        let Some(error) = &self.unprinted else { return ExitCode::from(code) };
        print_message(&format!("error: {}\n  hint: records are in {}", stdout_error(error), self.folder.display()));
        ExitCode::from(if code == exit_code::INTERRUPTED { code } else { exit_code::UNWRITTEN })
    }
}

/// Returns `path` relative to the current directory if it lies in it.
pub(super) fn relative_path(path: &Path) -> &Path {
    let relative = std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok());
    relative.unwrap_or(path)
}
