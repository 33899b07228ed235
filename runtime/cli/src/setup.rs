//! The common first step of the commands: finds the checkout, and prints what is wrong with a configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use super::output::print_message;
use super::selection::Selection;
use flagperf_config::{Finding, Findings, find_root};
use flagperf_core::event::Level;
use flagperf_core::exit_code;
use flagperf_host::adopt_orphans;
use flagperf_prepare::Checkout;
use flagperf_run::ExitOnSignal;

/// Returns the checkout that contains the current directory, or else the one that contains the program, which a message
/// on standard error then names.
pub(super) fn find_checkout() -> anyhow::Result<PathBuf> {
    Ok(announce(locate_checkout()?))
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

/// Finds the checkout that contains the current directory, or else the one that contains the program.
pub(super) fn locate_checkout() -> anyhow::Result<Checkout> {
    flagperf_prepare::locate_checkout().context("the current directory is gone")
}

/// Returns the folder of a checkout, after a message on standard error if it is the program's.
pub(super) fn announce(checkout: Checkout) -> PathBuf {
    if let Some(here) = &checkout.outside {
        let (here, root) = (here.display(), checkout.root.display());
        print_message(&format!("note: `{here}` is not in a checkout; using `{root}`, which contains this program"));
    }
    checkout.root
}

/// Checks that the user has named what to run. Outside a checkout, the cases of the program's own checkout are not
/// what anyone can be sure to have meant.
pub(super) fn check_choice(checkout: &Checkout, selection: &Selection) -> Result<(), String> {
    let Some(here) = checkout.outside.as_ref().filter(|_| !selection.names_cases()) else { return Ok(()) };
    let (here, root) = (here.display(), checkout.root.display());
    Err(format!(
        "error: `{here}` is not in a checkout, and no case is given\n  hint: change to a checkout, or give --case NAME \
         to run a case of `{root}`, which contains this program"
    ))
}

/// Prints the findings on standard error and returns the exit code for a mistake.
pub(super) fn report_mistakes(findings: &Findings) -> ExitCode {
    print_findings(findings.0.iter());
    ExitCode::from(exit_code::MISTAKE)
}

/// Prints errors and warnings on standard error.
pub(super) fn print_findings<'a>(findings: impl Iterator<Item = &'a Finding>) {
    for finding in findings {
        match finding.level {
            Level::Error => print_message(&format!("error: {finding}")),
            Level::Warning => print_message(&format!("warning: {finding}")),
            Level::Info | Level::Debug => {}
        }
    }
}

/// Prints notes on standard error: the normal course of events that is still worth knowing before a run.
pub(super) fn print_notes<'a>(findings: impl Iterator<Item = &'a Finding>) {
    for finding in findings.filter(|finding| finding.level == Level::Info) {
        print_message(&format!("note: {finding}"));
    }
}

/// Prepares this process for starting others: those that a probed library or a worker leaves behind become its children,
/// and until the value is dropped a signal ends it with [`flagperf_core::exit_code::INTERRUPTED`].
pub(super) fn prepare_process() -> anyhow::Result<ExitOnSignal> {
    adopt_orphans().context("cannot adopt orphaned processes")?;
    ExitOnSignal::install().context("cannot install signal handlers")
}
