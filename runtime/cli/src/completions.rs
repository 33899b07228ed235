//! `flagperf completions`: a script that completes the commands and options in a shell.

use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use super::arguments::Arguments;
use super::output::print_result;
use flagperf_core::exit_code;

/// Prints the script for a shell.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible_command(), "flagperf", &mut script);
    print_result(&String::from_utf8_lossy(&script), exit_code::OK)
}

/// Returns the program's command without the subcommands that are hidden from its help.
fn visible_command() -> Command {
    let whole = Arguments::command();
    let visible = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("flagperf")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(visible)
}
