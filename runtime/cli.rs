//! The command line: what is asked becomes a plan, a run, a list; the answer is text and an exit code.
//!
//! Decides nothing about a measurement.

mod answer;
mod arguments;
mod backend;
mod doctor;
mod list;
mod output;
mod probe;
mod run;
mod work;

use std::process::ExitCode;

use anyhow::Context as _;
pub use arguments::{Arguments, EXIT_CODES};
use clap::Parser;

use arguments::Command;

/// Runs the program with the process's own arguments.
///
/// # Errors
/// When standard output or the system fails; everything else is an exit code of [`EXIT_CODES`].
pub fn main() -> anyhow::Result<ExitCode> {
    // As with a disk that is full: a write fails, and whoever writes says so.
    crate::run::survive_file_size_limit().context("signals cannot be handled")?;
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Plan(selection) => run::plan(&selection),
        Command::List { what } => list::list(what),
        Command::Doctor(selection) => doctor::doctor(&selection),
        Command::Backend { command } => backend::backend(&command),
        Command::Work => work::work(),
        Command::Probe(subject) => probe::probe(&subject),
    }
}
