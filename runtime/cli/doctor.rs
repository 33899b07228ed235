//! `flagperf doctor`: shows what works on this machine, what is missing, and how to get it.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::arguments::Selection;
use super::output::write_result;
use super::setup::{find_checkout, prepare_plan, print_findings};
use super::{output, probe};
use crate::config::{Findings, find_root};
use crate::engine::TABLE;
use crate::host::adopt_orphans;
use crate::monitor;
use crate::report::{bytes, columns, plain_table};
use crate::result::Machine;
use crate::run::RunOutcome;

/// A check, its result, and what to do.
pub(super) type Row = [String; 3];

/// Prints the checks. Missing parts do not make the command fail.
pub(super) fn doctor(selection: &Selection) -> anyhow::Result<ExitCode> {
    // A probed library may start processes and leave them behind.
    adopt_orphans().context("cannot adopt orphaned processes")?;
    Ok(match write_sections(selection, &find_checkout()?) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_message(&format!("error: {}", output::stdout_error(&error)));
            ExitCode::from(RunOutcome::UNWRITTEN)
        }
    })
}

/// Writes each section as soon as its rows are known.
fn write_sections(selection: &Selection, root: &Path) -> io::Result<()> {
    let section = |title: &str, table: String| write_result(&format!("{title}\n{table}\n"));
    section("machine", plain_table(machine_rows(), columns()))?;
    let engines = TABLE.iter().map(|engine| probe::engine_row(*engine));
    section("engines", plain_table(engines, columns()))?;
    let monitors = monitor::TABLE.iter().map(|monitor| probe::monitor_row(*monitor));
    section("monitors", plain_table(monitors, columns()))?;
    let planned = prepare_plan(root, selection);
    let plugins = probe::plugin_rows(root, selection);
    if !plugins.is_empty() {
        section("plug-ins", plain_table(plugins, columns()))?;
    }
    section("run", plain_table(run_rows(root, planned.as_ref()), columns()))?;
    match &planned {
        Ok(planned) => print_findings(planned.plan.findings.iter()),
        Err(findings) => print_findings(findings.0.iter()),
    }
    Ok(())
}

fn machine_rows() -> Vec<[String; 2]> {
    let machine = Machine::detect();
    let row = |name: &str, value: String| [name.to_owned(), value];
    vec![
        row("processor", format!("{}, {} cores, {} threads", machine.cpu, machine.cores, machine.threads)),
        row("memory", bytes(machine.memory_bytes)),
        row("system", format!("{}, kernel {}, {}", machine.system, machine.kernel, machine.architecture)),
    ]
}

fn run_rows(root: &Path, planned: Result<&super::setup::PreparedPlan, &Findings>) -> Vec<Row> {
    let row = |name: &str, state: String, remedy: &str| [name.to_owned(), state, remedy.to_owned()];
    let mut rows = vec![match find_root(root) {
        Some(root) => row("checkout", root.display().to_string(), ""),
        None => row("checkout", "missing".to_owned(), "change to a folder with configs/ and scripts/"),
    }];
    let planned = match planned {
        Ok(planned) => planned,
        Err(_) => {
            rows.push(row("plan", "has mistakes".to_owned(), "see below"));
            return rows;
        }
    };
    let results = &planned.plan.site.flagperf_log_path;
    rows.push(match check_writable(results) {
        Ok(()) => row("results", format!("{} is writable", results.display()), ""),
        Err(error) => row(
            "results",
            format!("cannot write in {}: {error}", results.display()),
            "set FLAGPERF_LOG_PATH in host.yaml",
        ),
    });
    for case in &planned.plan.cases {
        for job in case.jobs.iter().take(1) {
            let state = if job.data_dir.is_dir() { "exists" } else { "does not exist" };
            rows.push(row(&format!("data of {}", case.key), format!("{} {state}", job.data_dir.display()), ""));
        }
        let engines: Vec<&str> = case.jobs.iter().map(|job| job.engine.engine.as_str()).collect();
        rows.push(row(&case.key.to_string(), format!("can be planned; uses {}", engines.join(" and ")), ""));
    }
    rows
}

/// Checks that files can be created in `folder`, or in its nearest existing ancestor.
fn check_writable(folder: &Path) -> std::io::Result<()> {
    let existing = folder.ancestors().find(|above| above.exists()).unwrap_or(folder);
    nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)?;
    if existing.is_dir() { Ok(()) } else { Err(std::io::ErrorKind::NotADirectory.into()) }
}
