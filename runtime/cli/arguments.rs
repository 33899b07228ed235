//! The command-line arguments, their help, and the table of exit codes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Environment, Overrides};

/// The exit codes, each with its meaning.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "every case succeeded"),
    (1, "a case failed: its record states the reason"),
    (2, "wrong arguments or a mistake in the configuration: nothing was run"),
    (3, "results could not be written"),
    (130, "interrupted (Ctrl-C, SIGTERM): the records are marked as interrupted"),
];

/// The arguments of `flagperf`.
#[derive(Debug, Parser)]
#[command(name = "flagperf", version, about, after_help = exit_codes(), disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run cases and print their results
    Run(RunArguments),
    /// Print every effective value with its origin (file and line), without running anything
    Plan(Selection),
    /// List the cases, vendors or engines
    List {
        /// What to list
        what: ListKind,
    },
    /// Show what works on this machine, what is missing, and how to get it
    Doctor(Selection),
    /// Install or list the libraries that engines open at run time
    Backend {
        #[command(subcommand)]
        command: BackendCommand,
    },
    /// Run a worker: read one job as a line of JSON from standard input, write events as lines of JSON to standard
    /// output, and exit when the input ends
    Work,
    /// Load a library and print what it is. `doctor` runs this in a process of its own because a library may crash or
    /// hang
    #[command(hide = true)]
    Probe(ProbeTarget),
}

/// The library, engine or monitor to probe.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ProbeTarget {
    /// The shared library of a plug-in
    #[arg(value_name = "LIBRARY")]
    pub(super) library: Option<PathBuf>,
    /// An engine of this program, which opens its own library
    #[arg(long, value_name = "NAME")]
    pub(super) engine: Option<String>,
    /// A monitor of this program, which opens its own library
    #[arg(long, value_name = "NAME")]
    pub(super) monitor: Option<String>,
    /// The engine of a plan, as JSON: prints its description
    #[arg(long, value_name = "JSON")]
    pub(super) choice: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum BackendCommand {
    /// Install a library through pip into the user's cache, after verifying its checksum
    Install {
        /// Name of the library in `flagperf backend list`
        name: String,
        /// Python interpreter whose pip downloads the library
        #[arg(long, default_value = "python3", value_name = "PROGRAM")]
        python: String,
    },
    /// List the libraries and whether they are installed
    List,
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// Print only the record, as JSON, on standard output; several cases give several records
    #[arg(long)]
    pub(super) json: bool,
    /// Print plain lines instead of progress bars
    #[arg(long)]
    pub(super) plain: bool,
}

/// The cases to run and the values that override their configuration.
#[derive(Debug, Default, Args)]
pub(super) struct Selection {
    /// The case, with its framework if there are several; by default, every case of host.yaml
    #[arg(long, value_name = "NAME[:FRAMEWORK]")]
    case: Option<String>,
    /// The vendor whose device is measured: a folder in vendors/
    #[arg(long, value_name = "VENDOR")]
    vendor: Option<String>,
    /// The folder with datasets and weights
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The folder of the site's host.yaml
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Change a setting for this run; the record marks it as a departure from the standard configuration
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Selection {
    pub(super) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            vendor: self.vendor.clone(),
            case: self.case.clone(),
            data: self.data.clone(),
            set: self.set.clone(),
            environment: Environment::read(),
        }
    }
}

/// The kind of objects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ListKind {
    /// Cases in this checkout
    Cases,
    /// Vendors in this checkout
    Vendors,
    /// Engines of this program
    Engines,
}

fn exit_codes() -> String {
    let lines = EXIT_CODES.iter().map(|(code, when)| format!("  {code:>3}  {when}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::run::RunOutcome;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_exit_code_of_a_run_is_in_the_table() {
        for code in [RunOutcome::OK, RunOutcome::FAILED, RunOutcome::UNWRITTEN, RunOutcome::INTERRUPTED] {
            assert!(EXIT_CODES.iter().any(|(known, _)| *known == code), "{code}");
        }
    }
}
