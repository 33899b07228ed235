//! `flagperf run`.

use std::io::{self, IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::arguments::RunArguments;
use super::output::{StderrDisplay, print_message, stdout_error, write_result};
use super::setup::{EXIT_MISTAKE, locate_checkout, prepare_plan, prepare_process, print_findings, report_mistakes};
use crate::config::CaseKey;
use crate::host::THIS_PROGRAM;
use crate::measure::MonotonicClock;
use crate::report::{BarDisplay, Extent, LineDisplay, OverviewRow, SavedResult, Screen, case_report, overview};
use crate::result::Record;
use crate::run::{Interrupt, Notice, RunError, RunOptions, RunOutcome, conduct};
use crate::text::escape_json;

/// Runs the selected cases and prints their results.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let checkout = locate_checkout()?;
    if let Err(message) = checkout.check_choice(&arguments.selection) {
        print_message(&message);
        return Ok(ExitCode::from(EXIT_MISTAKE));
    }
    let exits = prepare_process()?;
    let planned = match prepare_plan(&checkout.announce(), &arguments.selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    print_findings(planned.plan.findings.iter());
    let bars = !arguments.plain && stderr().is_terminal() && (arguments.json || stdout().is_terminal());
    let options = RunOptions {
        has_live_display: bars,
        audit: arguments.audit,
        worker: vec![THIS_PROGRAM.into(), "work".into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let interrupt = Interrupt::install().context("cannot install signal handlers")?;
    drop(exits);
    let mut show: Box<dyn FnMut(&Notice<'_>)> = if bars {
        let mut bars = BarDisplay::default();
        Box::new(move |notice| bars.show(notice))
    } else {
        let mut lines = LineDisplay::new(StderrDisplay::default());
        Box::new(move |notice| lines.show(notice))
    };
    let extent = if arguments.details { Extent::Details } else { Extent::Summary };
    let mut results = ResultPrinter {
        json: arguments.json,
        extent,
        official: arguments.official,
        folder: PathBuf::new(),
        rows: Vec::new(),
        unprinted: None,
    };
    let mut watch = |notice: &Notice<'_>| {
        show(notice);
        results.notice(notice);
    };
    Ok(match conduct(&planned.plan, &planned.values, &options, &interrupt, &mut watch) {
        Ok(outcome) => {
            results.print_overview(&outcome.not_run);
            results.exit_code(&outcome)
        }
        Err(error @ RunError::Folder { .. }) => {
            print_message(&format!(
                "error: {error}\n  hint: is FLAGPERF_LOG_PATH in host.yaml, the folder for results, writable, and \
                 is there space on its disk?"
            ));
            ExitCode::from(RunOutcome::UNWRITTEN)
        }
    })
}

/// Prints the results of the cases on standard output.
struct ResultPrinter {
    /// Whether to print the record as JSON instead of a table.
    json: bool,
    /// How much of a record to print.
    extent: Extent,
    /// Whether every result must be valid.
    official: bool,
    /// Folder of the run.
    folder: PathBuf,
    /// The cases so far.
    rows: Vec<OverviewRow>,
    /// The first error of printing a result.
    unprinted: Option<io::Error>,
}

impl ResultPrinter {
    fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::RunBegins { folder } => self.folder = folder.to_path_buf(),
            Notice::CaseEnds { record, path, unwritten, digest, .. } => {
                // Another program may have taken the name of the record, which then has another one.
                let path = unwritten.map_or(Some(*path), |error| error.kept.as_deref());
                self.rows.push(OverviewRow::new(record, path.map(relative_path)));
                self.print_record(record, SavedResult { path, digest: *digest });
            }
            _ => {}
        }
    }

    /// Prints a report, or the record as JSON. A record that could not be written to disk (`path` is `None`) is always
    /// printed, so that no measurement is lost.
    fn print_record(&mut self, record: &Record, saved: SavedResult<'_>) {
        let json = serde_json::to_string_pretty(record).expect("a record is plain data");
        let json = escape_json(&json);
        let result = match self.json {
            true => format!("{json}\n"),
            false => {
                let shown = SavedResult { path: saved.path.map(relative_path), ..saved };
                format!("{}\n", case_report(record, shown, self.extent, Screen::stdout()))
            }
        };
        if let (true, Some(digest)) = (self.json, saved.digest) {
            print_message(&format!("digest of {}: {digest}", record.key()));
        }
        let printed = write_result(&result);
        if saved.path.is_none() {
            print_message("  hint: free some space, or set FLAGPERF_LOG_PATH in host.yaml to another disk");
            if !self.json || printed.is_err() {
                print_message(&format!("the record that could not be written:\n{json}"));
            }
        }
        if let Err(error) = printed {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Prints a line for each case if there are several, also for those that were not run. As JSON, only records are
    /// printed, and the others are named on standard error.
    fn print_overview(&mut self, not_run: &[CaseKey]) {
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
    fn exit_code(&self, outcome: &RunOutcome) -> ExitCode {
        let code = outcome.exit_code(self.official);
        let Some(error) = &self.unprinted else { return ExitCode::from(code) };
        print_message(&format!("error: {}\n  hint: records are in {}", stdout_error(error), self.folder.display()));
        ExitCode::from(if code == RunOutcome::INTERRUPTED { code } else { RunOutcome::UNWRITTEN })
    }
}

/// Returns `path` relative to the current directory if it lies in it.
fn relative_path(path: &Path) -> &Path {
    let relative = std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok());
    relative.unwrap_or(path)
}
