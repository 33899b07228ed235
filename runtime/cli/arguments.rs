//! The arguments, their help, and the table of exit codes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Environment, Overrides};

/// Exit codes: the code, and when.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "every case is well"),
    (1, "a case failed: its record says why"),
    (2, "wrong arguments, or a mistake in the configuration: nothing was run"),
    (3, "results could not be written"),
    (130, "interrupted (Ctrl-C, SIGTERM, SIGQUIT, SIGHUP): records say so"),
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
    /// Print every effective value with the file and line it comes from, and run nothing
    Plan(Selection),
    /// List what there is
    List {
        /// What to list
        what: Listed,
    },
    /// Say what works on this machine, what is missing, and how to get it
    Doctor(Selection),
    /// Get a library that an engine opens at run time, or list them
    Backend {
        #[command(subcommand)]
        command: BackendCommand,
    },
    /// The worker: reads one job as a line of JSON on standard input, writes events as lines of JSON, and ends when its
    /// input ends
    Work,
    /// Load a library and say what it is: what `doctor` does in a process of its own, because a library may crash or hang
    #[command(hide = true)]
    Probe(Subject),
}

/// What is probed.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Subject {
    /// The shared library of a plug-in
    #[arg(value_name = "LIBRARY")]
    pub(super) library: Option<PathBuf>,
    /// An engine of this program, with the library that it opens
    #[arg(long, value_name = "NAME")]
    pub(super) engine: Option<String>,
    /// A monitor of this program, with the library that it opens
    #[arg(long, value_name = "NAME")]
    pub(super) monitor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum BackendCommand {
    /// Get a library through pip, checked against its sum, into the user's cache
    Install {
        /// Its name, as `flagperf backend list` says
        name: String,
        /// The Python whose pip gets it
        #[arg(long, default_value = "python3", value_name = "PROGRAM")]
        python: String,
    },
    /// List what can be got, and what is there
    List,
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// Print the record alone, as JSON, on standard output; of several cases, one after the other
    #[arg(long)]
    pub(super) json: bool,
    /// Plain lines instead of progress bars
    #[arg(long)]
    pub(super) plain: bool,
}

/// Which cases, with which values.
#[derive(Debug, Default, Args)]
pub(super) struct Selection {
    /// The case, with its framework where there are several; by default every case of host.yaml
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
    /// Change a setting for this run; the record says that it departs from the standard configuration
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

/// What `list` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Listed {
    /// Cases that this checkout has
    Cases,
    /// Vendors that this checkout has
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
    use crate::run::Outcome;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_exit_code_of_a_run_is_in_the_table() {
        for code in [Outcome::OK, Outcome::FAILED, Outcome::UNWRITTEN, Outcome::INTERRUPTED] {
            assert!(EXIT_CODES.iter().any(|(known, _)| *known == code), "{code}");
        }
    }
}
