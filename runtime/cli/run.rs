//! `flagperf run` and `flagperf plan`.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::answer::{planned, print_findings, print_notes, refuse, root};
use super::arguments::{RunArguments, Selection};
use crate::measure::MonotonicClock;
use crate::report::{Bars, Lines, Screen, columns, plain_table, record_table};
use crate::result::Record;
use crate::run::{Interrupt, Notice, Options, Outcome, RunError, conduct};

/// Prints the effective values of a plan by section, then its findings.
pub(super) fn plan(selection: &Selection) -> anyhow::Result<ExitCode> {
    let planned = match planned(&root()?, selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(refuse(&findings)),
    };
    let mut out = stdout().lock();
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
    print_findings(planned.plan.findings.iter());
    print_notes(planned.plan.findings.iter());
    Ok(ExitCode::SUCCESS)
}

/// Runs what was selected and prints the results.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let planned = match planned(&root()?, &arguments.selection) {
        Ok(planned) => planned,
        Err(findings) => return Ok(refuse(&findings)),
    };
    print_findings(planned.plan.findings.iter());
    let bars = !arguments.plain && stderr().is_terminal() && (arguments.json || stdout().is_terminal());
    let program = std::env::current_exe().context("the program's own file is gone")?;
    let options = Options {
        watched: bars,
        worker: vec![program.into(), "work".into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let interrupt = Interrupt::install().context("signals cannot be handled")?;
    let mut show: Box<dyn FnMut(&Notice<'_>)> = if bars {
        let mut bars = Bars::default();
        Box::new(move |notice| bars.notice(notice))
    } else {
        let mut lines = Lines::new(stderr());
        Box::new(move |notice| lines.notice(notice))
    };
    let mut watch = |notice: &Notice<'_>| {
        show(notice);
        if let Notice::CaseEnds { record, unwritten } = notice {
            print_record(record, arguments.json, unwritten.is_some());
        }
    };
    Ok(match conduct(&planned.plan, &planned.rows, &options, &interrupt, &mut watch) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error @ RunError::Folder { .. }) => {
            eprintln!(
                "error: {error}\n  hint: FLAGPERF_LOG_PATH in host.yaml says where results go; is it writable, and the disk not full?"
            );
            ExitCode::from(Outcome::UNWRITTEN)
        }
    })
}

/// The result of a case on standard output: a table, or the record. A record that is not on disk is printed whatever
/// was asked, so that nothing measured is lost. That nobody reads standard output is no reason to stop.
fn print_record(record: &Record, json: bool, unwritten: bool) {
    let text = serde_json::to_string_pretty(record).expect("a record is plain data");
    let _ = if json {
        writeln!(stdout(), "{text}")
    } else {
        writeln!(stdout(), "{}", record_table(record, Screen::stdout()))
    };
    if unwritten {
        eprintln!("  hint: free some space, or set FLAGPERF_LOG_PATH in host.yaml to another disk");
        if !json {
            eprintln!("the record that could not be written:\n{text}");
        }
    }
}
