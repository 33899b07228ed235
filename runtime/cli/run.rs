//! `flagperf run` and `flagperf plan`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::arguments::{RunArguments, Selection};
use super::output::{StderrDisplay, print_message, print_result, stdout_error, write_result};
use super::setup::{find_checkout, prepare_plan, print_findings, print_notes, report_mistakes};
use crate::config::display_value;
use crate::host::{THIS_PROGRAM, adopt_orphans};
use crate::measure::MonotonicClock;
use crate::report::{BarDisplay, LineDisplay, Screen, columns, plain_table, record_table};
use crate::result::Record;
use crate::run::{Interrupt, Notice, RunError, RunOptions, RunOutcome, conduct};
use crate::text::escape_json;

/// Prints the effective values of a plan by section, then its findings.
pub(super) fn plan(selection: &Selection) -> anyhow::Result<ExitCode> {
    let planned = match prepare_plan(&find_checkout()?, selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    let mut out = String::new();
    let mut rows = planned.values.as_slice();
    while let Some(first) = rows.first() {
        let (section, rest) = rows.split_at(rows.iter().take_while(|row| row.section == first.section).count());
        let cells = section.iter().map(|row| [row.key.clone(), display_value(&row.value), row.origin.clone()]);
        writeln!(out, "{}\n{}", first.section, plain_table(cells, columns()))?;
        rows = rest;
    }
    for case in &planned.plan.cases {
        let phases: Vec<&str> = case.jobs.iter().map(|job| job.phase.name()).collect();
        writeln!(out, "{} runs {} on {}", case.key, phases.join(", then "), case.host)?;
    }
    let code = print_result(&out, RunOutcome::OK);
    print_findings(planned.plan.findings.iter());
    print_notes(planned.plan.findings.iter());
    Ok(code)
}

/// Runs the selected cases and prints their results.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let planned = match prepare_plan(&find_checkout()?, &arguments.selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    print_findings(planned.plan.findings.iter());
    let bars = !arguments.plain && stderr().is_terminal() && (arguments.json || stdout().is_terminal());
    let options = RunOptions {
        watched: bars,
        worker: vec![THIS_PROGRAM.into(), "work".into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let interrupt = Interrupt::install().context("cannot install signal handlers")?;
    adopt_orphans().context("cannot adopt orphaned processes")?;
    let mut show: Box<dyn FnMut(&Notice<'_>)> = if bars {
        let mut bars = BarDisplay::default();
        Box::new(move |notice| bars.show(notice))
    } else {
        let mut lines = LineDisplay::new(StderrDisplay::default());
        Box::new(move |notice| lines.show(notice))
    };
    let mut results = ResultPrinter { json: arguments.json, folder: PathBuf::new(), unprinted: None };
    let mut watch = |notice: &Notice<'_>| {
        show(notice);
        results.notice(notice);
    };
    Ok(match conduct(&planned.plan, &planned.values, &options, &interrupt, &mut watch) {
        Ok(outcome) => results.exit_code(&outcome),
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
    /// Folder of the run.
    folder: PathBuf,
    /// The first error of printing a result.
    unprinted: Option<io::Error>,
}

impl ResultPrinter {
    fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::RunBegins { folder } => self.folder = folder.to_path_buf(),
            Notice::CaseEnds { record, unwritten } => self.print_record(record, unwritten.is_some()),
            _ => {}
        }
    }

    /// Prints a table, or the record as JSON. A record that could not be written to disk is always printed, so that no
    /// measurement is lost.
    fn print_record(&mut self, record: &Record, unwritten: bool) {
        let json = serde_json::to_string_pretty(record).expect("a record is plain data");
        let json = escape_json(&json);
        let result =
            if self.json { format!("{json}\n") } else { format!("{}\n", record_table(record, Screen::stdout())) };
        let printed = write_result(&result);
        if unwritten {
            print_message("  hint: free some space, or set FLAGPERF_LOG_PATH in host.yaml to another disk");
            if !self.json || printed.is_err() {
                print_message(&format!("the record that could not be written:\n{json}"));
            }
        }
        if let Err(error) = printed {
            self.unprinted.get_or_insert(error);
        }
    }

    /// Returns the exit code of the run; a result that could not be printed counts as unwritten.
    fn exit_code(&self, outcome: &RunOutcome) -> ExitCode {
        let code = outcome.exit_code();
        let Some(error) = &self.unprinted else { return ExitCode::from(code) };
        print_message(&format!("error: {}\n  hint: records are in {}", stdout_error(error), self.folder.display()));
        ExitCode::from(if code == RunOutcome::INTERRUPTED { code } else { RunOutcome::UNWRITTEN })
    }
}
