//! `flagperf run` and `flagperf plan`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::answer::{planned, print_findings, print_notes, refuse, root};
use super::arguments::{RunArguments, Selection};
use super::output::{Display, print, say, unwritten, write};
use crate::host::{THIS_PROGRAM, adopt_orphans};
use crate::measure::MonotonicClock;
use crate::report::{Bars, Lines, Screen, columns, plain_table, record_table};
use crate::result::Record;
use crate::run::{Interrupt, Notice, Options, Outcome, RunError, conduct};
use crate::text::json_text;

/// Prints the effective values of a plan by section, then its findings.
pub(super) fn plan(selection: &Selection) -> anyhow::Result<ExitCode> {
    let planned = match planned(&root()?, selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(refuse(&findings)),
    };
    let mut out = String::new();
    let mut rows = planned.rows.as_slice();
    while let Some(first) = rows.first() {
        let (section, rest) = rows.split_at(rows.iter().take_while(|row| row.section == first.section).count());
        let cells = section.iter().map(|row| [row.key.clone(), row.value.clone(), row.origin.clone()]);
        writeln!(out, "{}\n{}", first.section, plain_table(cells, columns()))?;
        rows = rest;
    }
    for case in &planned.plan.cases {
        let phases: Vec<&str> = case.jobs.iter().map(|job| job.phase.name()).collect();
        writeln!(out, "{} runs {} on {}", case.key, phases.join(", then "), case.host)?;
    }
    let code = print(&out, Outcome::OK);
    print_findings(planned.plan.findings.iter());
    print_notes(planned.plan.findings.iter());
    Ok(code)
}

/// Runs what was selected and prints the results.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let planned = match planned(&root()?, &arguments.selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(refuse(&findings)),
    };
    print_findings(planned.plan.findings.iter());
    let bars = !arguments.plain && stderr().is_terminal() && (arguments.json || stdout().is_terminal());
    let options = Options {
        watched: bars,
        worker: vec![THIS_PROGRAM.into(), "work".into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let interrupt = Interrupt::install().context("signals cannot be handled")?;
    adopt_orphans().context("orphans cannot be adopted")?;
    let mut show: Box<dyn FnMut(&Notice<'_>)> = if bars {
        let mut bars = Bars::default();
        Box::new(move |notice| bars.notice(notice))
    } else {
        let mut lines = Lines::new(Display::default());
        Box::new(move |notice| lines.notice(notice))
    };
    let mut results = Results { json: arguments.json, folder: PathBuf::new(), unprinted: None };
    let mut watch = |notice: &Notice<'_>| {
        show(notice);
        results.notice(notice);
    };
    Ok(match conduct(&planned.plan, &planned.rows, &options, &interrupt, &mut watch) {
        Ok(outcome) => results.exit_code(&outcome),
        Err(error @ RunError::Folder { .. }) => {
            say(&format!(
                "error: {error}\n  hint: FLAGPERF_LOG_PATH in host.yaml says where results go; is it writable, and the disk not full?"
            ));
            ExitCode::from(Outcome::UNWRITTEN)
        }
    })
}

/// The results of the cases on standard output.
struct Results {
    /// The record alone, not a table.
    json: bool,
    /// The run's folder.
    folder: PathBuf,
    /// Why a result could not be printed.
    unprinted: Option<io::Error>,
}

impl Results {
    fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::RunBegins { folder } => self.folder = folder.to_path_buf(),
            Notice::CaseEnds { record, unwritten } => self.print(record, unwritten.is_some()),
            _ => {}
        }
    }

    /// A table, or the record. A record that is not on disk is printed whatever was asked, so that nothing measured is
    /// lost.
    fn print(&mut self, record: &Record, unwritten: bool) {
        let json = serde_json::to_string_pretty(record).expect("a record is plain data");
        let json = json_text(&json);
        let result =
            if self.json { format!("{json}\n") } else { format!("{}\n", record_table(record, Screen::stdout())) };
        let printed = write(&result);
        if unwritten {
            say("  hint: free some space, or set FLAGPERF_LOG_PATH in host.yaml to another disk");
            if !self.json || printed.is_err() {
                say(&format!("the record that could not be written:\n{json}"));
            }
        }
        if let Err(error) = printed {
            self.unprinted.get_or_insert(error);
        }
    }

    /// The exit code of a run whose results had to be printed, too.
    fn exit_code(&self, outcome: &Outcome) -> ExitCode {
        let code = outcome.exit_code();
        let Some(error) = &self.unprinted else { return ExitCode::from(code) };
        say(&format!("error: {}\n  hint: records are in {}", unwritten(error), self.folder.display()));
        ExitCode::from(if code == Outcome::INTERRUPTED { code } else { Outcome::UNWRITTEN })
    }
}
