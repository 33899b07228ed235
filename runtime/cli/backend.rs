//! `flagperf backend`: libraries that engines open at run time.

use std::path::Path;
use std::process::ExitCode;

use super::answer::{MISTAKE, root};
use super::arguments::BackendCommand;
use super::output::{print, say};
use crate::config::{known, nearest};
use crate::engine::backend::{Backend, InstallError};
use crate::report::{columns, plain_table};
use crate::run::Outcome;

/// Lists the libraries, or gets one.
pub(super) fn backend(command: &BackendCommand) -> anyhow::Result<ExitCode> {
    match command {
        BackendCommand::List => Ok(print(&plain_table(rows(&root()?), columns()), Outcome::OK)),
        BackendCommand::Install { name, python } => Ok(install(name, python, &root()?)),
    }
}

fn rows(root: &Path) -> Vec<[String; 4]> {
    let state = |row: &Backend| row.installed().map_or("not installed".to_owned(), |at| at.display().to_string());
    Backend::all(root)
        .iter()
        .map(|row| [row.name.to_owned(), row.version.to_owned(), row.about.to_owned(), state(row)])
        .collect()
}

fn install(name: &str, python: &str, checkout: &Path) -> ExitCode {
    let all = Backend::all(checkout);
    let Some(backend) = all.iter().find(|row| row.name == name) else {
        let names = || all.iter().map(|row| row.name);
        let near = nearest(name, names()).map(|near| format!("; nearest: {near}")).unwrap_or_default();
        say(&format!("error: unknown backend `{name}` (known: {}{near})", known(names())));
        return ExitCode::from(MISTAKE);
    };
    match backend.install(python, checkout) {
        Ok(library) => print(&format!("{} {}: {}\n", backend.name, backend.version, library.display()), Outcome::OK),
        Err(error) => {
            say(&format!("error: {error}\n  hint: {}", hint(&error)));
            ExitCode::from(Outcome::FAILED)
        }
    }
}

fn hint(error: &InstallError) -> &'static str {
    match error {
        InstallError::Processor { .. } => "build it yourself, and name it in the option `library_path`",
        InstallError::NoHome => "set XDG_CACHE_HOME",
        InstallError::Unwritten { .. } => "is the disk full? XDG_CACHE_HOME takes it elsewhere",
        InstallError::Program(_) => "`--python PROGRAM` names one that has pip; plug-ins need `cargo`",
        InstallError::Pip { .. } => "pip says above what is wrong; it uses your own settings of pip",
        InstallError::Cargo { .. } => {
            "cargo says above what is wrong; it needs a C++ compiler (TensorRT libclang too), and a checkout around it"
        }
        InstallError::NoLibrary { .. } => "report it: the table of backends is wrong",
    }
}
