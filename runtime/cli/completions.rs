//! `flagperf completions`: a script that completes the commands and options in a shell.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::arguments::Arguments;
use super::output::print_result;
use crate::run::RunOutcome;

/// Prints the script for a shell.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "flagperf", &mut script);
    print_result(&String::from_utf8_lossy(&script), RunOutcome::OK)
}
