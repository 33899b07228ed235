//! What `run`, `plan` and `doctor` need first: the checkout, the configuration, the catalogue.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::arguments::Selection;
use super::output::say;
use crate::config::{Findings, find_root};
use crate::engine::backend::Backend;
use crate::engine::{self, EngineError, Options, TABLE};
use crate::event::Level;
use crate::monitor;
use crate::plan::{Catalogue, EngineChoice, KnownEngine, RefusedOption};
use crate::tensor::DType;

/// Arguments or configuration are wrong; nothing was run.
pub(super) const MISTAKE: u8 = 2;

/// The checkout: around the current directory, or else around the program.
pub(super) fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let program = std::env::current_exe().ok();
    let found = find_root(&here).or_else(|| find_root(program.as_deref().and_then(Path::parent)?));
    Ok(found.unwrap_or(here))
}

/// What exists in the checkout at `root`, and in this program.
pub(super) fn catalogue(root: &Path) -> Catalogue {
    let engines = TABLE.iter().map(|engine| KnownEngine {
        name: engine.name().to_owned(),
        about: engine.facts().about.to_owned(),
        framework: engine.roles().framework,
        compiler: engine.roles().compiler,
        precisions: engine.precisions().to_vec(),
        takes_command: engine.facts().takes_command,
        takes_library: engine.facts().takes_library,
        takes_compiled: engine.facts().takes_compiled,
    });
    let backends = Backend::all(root).iter().map(|row| (row.name.to_owned(), row.installed())).collect();
    let monitors = monitor::TABLE.iter().map(|monitor| monitor.name()).collect();
    let check_options = Box::new(check_options);
    Catalogue { backends, monitors, check_options, ..Catalogue::read(root, engines.collect()) }
}

fn check_options(choice: &EngineChoice, precision: DType) -> Result<(), RefusedOption> {
    let Ok(engine) = engine::find(&choice.engine) else { return Ok(()) };
    let options =
        Options { threads: choice.threads as usize, precision, extra: choice.options.clone(), ..Options::default() };
    engine.check_options(&options).map_err(|error| {
        let option = if let EngineError::Option { option, .. } = &error { option.clone() } else { String::new() };
        RefusedOption { option, message: error.to_string() }
    })
}

/// Prints findings on standard error; the code is that of a mistake.
pub(super) fn refuse(findings: &Findings) -> ExitCode {
    print_findings(findings.0.iter());
    ExitCode::from(MISTAKE)
}

/// Prints errors and warnings on standard error.
pub(super) fn print_findings<'a>(findings: impl Iterator<Item = &'a crate::config::Finding>) {
    for finding in findings {
        match finding.level {
            Level::Error => say(&format!("error: {finding}")),
            Level::Warning => say(&format!("warning: {finding}")),
            Level::Info | Level::Debug => {}
        }
    }
}

/// Prints notes on standard error: what is the normal course, and still worth knowing before a run.
pub(super) fn print_notes<'a>(findings: impl Iterator<Item = &'a crate::config::Finding>) {
    for finding in findings.filter(|finding| finding.level == Level::Info) {
        say(&format!("note: {finding}"));
    }
}

/// Configuration and plan of what was selected, with the effective values.
pub(super) struct Planned {
    pub(super) plan: crate::plan::Plan,
    pub(super) rows: Vec<crate::plan::Row>,
}

/// Plans what was selected.
///
/// # Errors
/// Everything that is wrong.
pub(super) fn planned(root: &Path, selection: &Selection) -> Result<Planned, Findings> {
    let config = crate::config::load(root, &selection.overrides())?;
    let plan = crate::plan::plan(&config, &catalogue(&config.site.flagperf_path))?;
    Ok(Planned { plan, rows: crate::plan::rows(&config) })
}
