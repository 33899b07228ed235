//! The command line: what is asked becomes a plan, a run, a list; the answer is text and an exit code.
//!
//! Decides nothing about a measurement.

mod answer;
mod arguments;
mod backend;
mod doctor;
mod list;
mod plugins;
mod run;
mod work;

use std::process::ExitCode;

pub use arguments::{Arguments, EXIT_CODES};
use clap::Parser;

use arguments::Command;

/// Runs the program with the process's own arguments.
///
/// # Errors
/// When standard output or the system fails; everything else is an exit code of [`EXIT_CODES`].
pub fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Plan(selection) => run::plan(&selection),
        Command::List { what } => list::list(what),
        Command::Doctor(selection) => doctor::doctor(&selection),
        Command::Backend { command } => backend::backend(&command),
        Command::Work => work::work(),
        Command::Probe { library } => plugins::probe(&library),
    }
}
