//! `flagperf backend`: installs and lists the libraries that engines open at run time.

use std::path::Path;
use std::process::ExitCode;

use super::output::{print_message, print_result};
use super::setup::find_checkout;
use clap::{Subcommand, ValueHint};
use flagperf_config::list_known;
use flagperf_core::exit_code;
use flagperf_core::file::write_hint;
use flagperf_engine::backend::{Backend, InstallError};
use flagperf_report::{columns, plain_table};

#[derive(Debug, Subcommand)]
pub(super) enum BackendCommand {
    /// Install a library through pip into the user's cache, after verifying its checksum
    Install {
        /// Name of the library in `flagperf backend list`
        #[arg(value_hint = ValueHint::Other)]
        name: String,
        /// Python interpreter whose pip downloads the library
        #[arg(long, default_value = "python3", value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
        python: String,
        /// Only download the library; whoever changes the plug-in builds it with cargo
        #[arg(long)]
        without_plugin: bool,
    },
    /// List the libraries and whether they are installed
    List,
}

/// Lists the libraries, or installs one.
pub(super) fn backend(command: &BackendCommand) -> anyhow::Result<ExitCode> {
    match command {
        BackendCommand::List => {
            Ok(print_result(&plain_table(backend_rows(&find_checkout()?), columns()), exit_code::OK))
        }
        BackendCommand::Install { name, python, without_plugin } => {
            Ok(install(name, python, *without_plugin, &find_checkout()?))
        }
    }
}

fn backend_rows(root: &Path) -> Vec<[String; 4]> {
    let state = |row: &Backend| row.installed().map_or("not installed".to_owned(), |at| at.display().to_string());
    Backend::all(root)
        .iter()
        .map(|row| [row.name.to_owned(), row.version.to_owned(), row.about.to_owned(), state(row)])
        .collect()
}

fn install(name: &str, python: &str, without_plugin: bool, checkout: &Path) -> ExitCode {
    let all = Backend::all(checkout);
    let Some(backend) = all.iter().find(|row| row.name == name) else {
        let names = all.iter().map(|row| row.name);
        print_message(&format!("error: unknown backend `{name}` (known: {})", list_known(name, names)));
        return ExitCode::from(exit_code::MISTAKE);
    };
    let installed = if without_plugin { backend.download(python) } else { backend.install(python, checkout) };
    match installed {
        Ok(library) => {
            print_result(&format!("{} {}: {}\n", backend.name, backend.version, library.display()), exit_code::OK)
        }
        Err(error) => {
            print_message(&format!("error: {error}\n  hint: {}", hint(&error)));
            ExitCode::from(exit_code::FAILED)
        }
    }
}

fn hint(error: &InstallError) -> String {
    let hint = match error {
        InstallError::Processor { .. } => "build the library yourself and set the option `library_path`",
        InstallError::NoCacheFolder => "set XDG_CACHE_HOME",
        InstallError::NotWritable { source, .. } => {
            return format!("{}; XDG_CACHE_HOME selects another folder", write_hint(source));
        }
        InstallError::Program(_) => "give a Python with pip as `--python PROGRAM`; plug-ins also need `cargo`",
        InstallError::Pip { .. } => "see pip's output above; pip uses your own settings",
        InstallError::Cargo { .. } => {
            "see cargo's output above; the build needs a checkout of flagperf and what `flagperf backend list` says about it"
        }
        InstallError::NoLibrary { .. } => "this is a bug in flagperf; please report it",
    };
    hint.to_owned()
}
