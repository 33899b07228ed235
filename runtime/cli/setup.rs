//! The common first step of the commands: finds the checkout, reads the catalogue, and plans the selected cases.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::arguments::Selection;
use super::describe::describe;
use super::output::print_message;
use crate::config::{Findings, find_root};
use crate::engine::backend::Backend;
use crate::engine::{self, EngineError, LoadOptions, TABLE};
use crate::event::Level;
use crate::monitor;
use crate::plan::{Catalogue, EngineChoice, RefusedOption};
use crate::tensor::DType;

/// Exit code for wrong arguments or a mistake in the configuration; nothing was run.
pub(super) const EXIT_MISTAKE: u8 = 2;

/// Returns the checkout that contains the current directory, or else the one that contains the program.
pub(super) fn find_checkout() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let program = std::env::current_exe().ok();
    let found = find_root(&here).or_else(|| find_root(program.as_deref().and_then(Path::parent)?));
    Ok(found.unwrap_or(here))
}

/// Returns the catalogue of the checkout at `root` and of this program.
pub(super) fn catalogue(root: &Path) -> Catalogue {
    let engines = TABLE.iter().map(|engine| engine.description());
    let backends = Backend::all(root).iter().map(|row| (row.name.to_owned(), row.installed())).collect();
    let monitors = monitor::TABLE.iter().map(|monitor| monitor.name()).collect();
    let check_options = Box::new(check_options);
    let describe = Box::new(describe);
    Catalogue { backends, monitors, check_options, describe, ..Catalogue::read(root, engines.collect()) }
}

fn check_options(choice: &EngineChoice, precision: DType) -> Result<(), RefusedOption> {
    let Ok(engine) = engine::find(&choice.engine) else { return Ok(()) };
    let options = LoadOptions {
        threads: choice.threads as usize,
        precision,
        extra: choice.options.clone(),
        ..LoadOptions::default()
    };
    engine::check_options(engine, &options).map_err(|error| {
        let option = if let EngineError::Option { option, .. } = &error { option.clone() } else { String::new() };
        RefusedOption { option, message: error.to_string() }
    })
}

/// Prints the findings on standard error and returns the exit code for a mistake.
pub(super) fn report_mistakes(findings: &Findings) -> ExitCode {
    print_findings(findings.0.iter());
    ExitCode::from(EXIT_MISTAKE)
}

/// Prints errors and warnings on standard error.
pub(super) fn print_findings<'a>(findings: impl Iterator<Item = &'a crate::config::Finding>) {
    for finding in findings {
        match finding.level {
            Level::Error => print_message(&format!("error: {finding}")),
            Level::Warning => print_message(&format!("warning: {finding}")),
            Level::Info | Level::Debug => {}
        }
    }
}

/// Prints notes on standard error: the normal course of events that is still worth knowing before a run.
pub(super) fn print_notes<'a>(findings: impl Iterator<Item = &'a crate::config::Finding>) {
    for finding in findings.filter(|finding| finding.level == Level::Info) {
        print_message(&format!("note: {finding}"));
    }
}

/// The plan of the selected cases, with the effective values.
pub(super) struct PreparedPlan {
    pub(super) plan: crate::plan::Plan,
    pub(super) values: Vec<crate::plan::EffectiveValue>,
}

/// Loads the configuration and plans the selected cases.
///
/// # Errors
/// Fails with every mistake in the configuration.
pub(super) fn prepare_plan(root: &Path, selection: &Selection) -> Result<PreparedPlan, Findings> {
    let config = crate::config::load(root, &selection.overrides())?;
    let plan = crate::plan::plan(&config, &catalogue(&config.site.flagperf_path))?;
    Ok(PreparedPlan { plan, values: crate::plan::effective_values(&config) })
}
