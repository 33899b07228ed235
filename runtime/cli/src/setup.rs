//! The common first step of the commands: finds the checkout, reads the catalogue, and plans the selected cases.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::Context as _;

use super::check::check_cases;
use super::describe::describe_with;
use super::monitor_check::check_monitor_script;
use super::output::print_message;
use super::probe::Probes;
use super::selection::Selection;
use flagperf_config::{Cause, Config, Findings, Overrides, find_root};
use flagperf_container::{ContainerEngine, ContainerError};
use flagperf_core::event::Level;
use flagperf_core::tensor::DType;
use flagperf_engine::backend::Backend;
use flagperf_engine::{EngineError, LoadOptions, TABLE};
use flagperf_fleet::uses_other_hosts;
use flagperf_host::adopt_orphans;
use flagperf_plan::{Catalogue, EngineChoice, RefusedOption, UnavailableEngine};
use flagperf_run::ExitOnSignal;

/// Exit code for invalid arguments or configuration; nothing was run.
pub(super) const EXIT_MISTAKE: u8 = 2;

/// Returns the checkout that contains the current directory, or else the one that contains the program, which a message
/// on standard error then names.
pub(super) fn find_checkout() -> anyhow::Result<PathBuf> {
    Ok(locate_checkout()?.announce())
}

/// Returns the checkout that contains the current directory; an error message if there is none, because the program's own
/// checkout is not where anyone would look for new files.
pub(super) fn find_own_checkout() -> anyhow::Result<Result<PathBuf, String>> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    Ok(find_root(&here).ok_or_else(|| {
        let here = here.display();
        format!("error: `{here}` is not in a checkout\n  hint: change to a checkout of flagperf, in which the files are created")
    }))
}

/// The checkout that a command uses.
pub(super) struct Checkout {
    root: PathBuf,
    /// The current directory, when it is in no checkout and `root` is the checkout that contains the program.
    outside: Option<PathBuf>,
}

/// Finds the checkout that contains the current directory, or else the one that contains the program.
pub(super) fn locate_checkout() -> anyhow::Result<Checkout> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    if let Some(root) = find_root(&here) {
        return Ok(Checkout { root, outside: None });
    }
    let program = std::env::current_exe().ok();
    Ok(match program.as_deref().and_then(Path::parent).and_then(find_root) {
        Some(root) => Checkout { root, outside: Some(here) },
        None => Checkout { root: here, outside: None },
    })
}

impl Checkout {
    /// Returns the folder, after a message on standard error if it is the program's.
    pub(super) fn announce(self) -> PathBuf {
        if let Some(here) = &self.outside {
            let (here, root) = (here.display(), self.root.display());
            print_message(&format!("note: `{here}` is not in a checkout; using `{root}`, which contains this program"));
        }
        self.root
    }

    /// Checks that the user has named what to run. Outside a checkout, the cases of the program's own checkout are not
    /// what anyone can be sure to have meant.
    pub(super) fn check_choice(&self, selection: &Selection) -> Result<(), String> {
        let Some(here) = self.outside.as_ref().filter(|_| !selection.names_cases()) else { return Ok(()) };
        let (here, root) = (here.display(), self.root.display());
        Err(format!(
            "error: `{here}` is not in a checkout, and no case is given\n  hint: change to a checkout, or give --case NAME \
             to run a case of `{root}`, which contains this program"
        ))
    }
}

/// Returns the catalogue of the checkout at `root` and of this program.
pub(super) fn catalogue(root: &Path) -> Catalogue {
    let engines = TABLE.iter().map(|engine| engine.description());
    let backends = Backend::all(root).iter().map(|row| (row.name.to_owned(), row.installed())).collect();
    let monitors = flagperf_monitor::TABLE.iter().map(|monitor| monitor.name()).collect();
    let of_devices = flagperf_monitor::TABLE.iter().filter(|monitor| monitor.reads_devices());
    let device_monitors = of_devices.map(|monitor| monitor.name()).collect();
    let check_options = Box::new(check_options);
    let check_container_engine = Box::new(check_container_engine);
    Catalogue {
        backends,
        monitors,
        device_monitors,
        check_options,
        check_container_engine,
        ..Catalogue::read(root, engines.collect())
    }
}

fn check_container_engine() -> Result<(), UnavailableEngine> {
    let unavailable = |error: ContainerError| UnavailableEngine { reason: error.to_string(), remedy: error.hint() };
    ContainerEngine::connect().map(drop).map_err(unavailable)
}

fn check_options(choice: &EngineChoice, precision: DType) -> Result<(), RefusedOption> {
    let Ok(engine) = flagperf_engine::find(&choice.engine) else { return Ok(()) };
    let options = LoadOptions {
        threads: choice.threads as usize,
        precision,
        extra: choice.options.clone(),
        ..LoadOptions::default()
    };
    flagperf_engine::check_options(engine, &options).map_err(|error| {
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
pub(super) fn print_findings<'a>(findings: impl Iterator<Item = &'a flagperf_config::Finding>) {
    for finding in findings {
        match finding.level {
            Level::Error => print_message(&format!("error: {finding}")),
            Level::Warning => print_message(&format!("warning: {finding}")),
            Level::Info | Level::Debug => {}
        }
    }
}

/// Prints notes on standard error: the normal course of events that is still worth knowing before a run.
pub(super) fn print_notes<'a>(findings: impl Iterator<Item = &'a flagperf_config::Finding>) {
    for finding in findings.filter(|finding| finding.level == Level::Info) {
        print_message(&format!("note: {finding}"));
    }
}

/// The plan of the selected cases, with the effective values.
pub(super) struct PreparedPlan {
    pub(super) plan: flagperf_plan::Plan,
    pub(super) values: Vec<flagperf_plan::EffectiveValue>,
}

/// Prepares this process for starting others: those that a probed library or a worker leaves behind become its children,
/// and until the value is dropped a signal ends it with [`flagperf_run::RunOutcome::INTERRUPTED`].
pub(super) fn prepare_process() -> anyhow::Result<ExitOnSignal> {
    adopt_orphans().context("cannot adopt orphaned processes")?;
    ExitOnSignal::install().context("cannot install signal handlers")
}

/// Loads the configuration and plans the selected cases.
///
/// # Errors
/// Fails with every mistake in the configuration.
pub(super) fn prepare_plan(root: &Path, overrides: &Overrides) -> Result<PreparedPlan, Findings> {
    let config = flagperf_config::load(root, overrides)?;
    let probes = Rc::new(Probes::new(config.site.phase_timeout));
    plan_config(&config, probes)
}

/// Plans the cases of a configuration, and checks their scripts and files.
///
/// # Errors
/// Fails with every mistake in the configuration; if there is none, with every fault of scripts and files.
pub(super) fn plan_config(config: &Config, probes: Rc<Probes>) -> Result<PreparedPlan, Findings> {
    let own = catalogue(&config.site.flagperf_path);
    // Other machines check what they have when a case begins.
    let is_here = config.replica.is_some() || config.knows_hosts && !(config.in_job || uses_other_hosts(&config.site));
    let catalogue = match is_here {
        true => Catalogue { describe: describe_with(probes), ..own },
        false => own.with_every_machine_part(),
    };
    let mut plan = flagperf_plan::plan(config, &catalogue)?;
    plan.findings.extend(check_monitor_script(&plan.vendor, &config.site.flagperf_path));
    let checked = check_cases(config, &plan.cases).into_iter();
    plan.findings.extend(checked.filter(|finding| is_here || finding.cause == Cause::Configuration));
    let findings = Findings(plan.findings);
    if findings.has_errors() {
        return Err(findings);
    }
    let plan = flagperf_plan::Plan { findings: findings.0, ..plan };
    Ok(PreparedPlan { plan, values: flagperf_plan::effective_values(config) })
}
