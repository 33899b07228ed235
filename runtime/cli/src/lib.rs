//! The command line: parses the arguments, runs the command, and returns its exit code.
//!
//! Decides nothing about a measurement.

mod ablate;
mod ablate_page;
mod ablate_text;
mod agent;
mod argument_errors;
mod argument_values;
mod arguments;
mod backend;
mod blocks;
mod check;
mod closed_stdout;
mod compare;
mod compare_page;
mod compare_text;
mod completions;
mod dataset;
mod decoder;
mod doctor;
mod doctor_hosts;
mod exit_codes;
mod graph;
mod graph_page;
mod graph_text;
mod history;
mod history_text;
mod import;
mod key;
mod lint;
mod lint_pairs;
mod lint_report;
mod list;
mod measured_peaks;
mod microbenchmark;
mod microbenchmark_bench;
mod microbenchmark_hosts;
mod microbenchmark_page;
mod microbenchmark_processes;
mod microbenchmark_results;
mod microbenchmark_selection;
mod microbenchmark_text;
mod new;
mod operator;
mod operator_page;
mod operator_text;
mod output;
mod pareto;
mod pareto_text;
mod plan;
mod probe;
mod read_devices;
#[cfg(test)]
mod reference_pages;
mod reply;
mod report;
mod result_printer;
mod review;
mod review_markdown;
mod review_text;
mod resume;
mod run;
mod scaling;
mod selection;
mod serve;
mod setup;
mod site;
mod sweep;
mod sweep_page;
mod sweep_text;
mod trace;
mod verify;
mod work;

use std::process::ExitCode;

use anyhow::Context as _;
pub use arguments::Arguments;
use clap::Parser;

use arguments::Command;
use flagperf_config::env;
use flagperf_core::diagnostics::write_to_stderr;
use flagperf_core::exit_code;
use flagperf_host::{hold_files, launch_companion};

/// Prints the help that was asked for, or an error about the arguments, and returns the exit code.
fn refused_arguments(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return output::print_result(&argument_errors::rendered(&error), exit_code::OK);
    }
    argument_errors::suggest_case(&mut error);
    argument_errors::suggest_command(&mut error);
    error.exit()
}

/// Runs the program with the process's own arguments.
///
/// # Errors
/// Fails when standard output or a system call fails; every other result is an exit code of [`EXIT_CODES`](flagperf_core::exit_code::EXIT_CODES).
pub fn main() -> anyhow::Result<ExitCode> {
    // Beyond the limit a write then fails, as on a full disk, and the writer reports it.
    flagperf_run::survive_file_size_limit().context("cannot install signal handlers")?;
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return Ok(refused_arguments(error)),
    };
    // A server writes its access log.
    let level = env::log_level().or_else(|| matches!(arguments.command, Command::Serve(_)).then(|| "info".to_owned()));
    write_to_stderr(level.as_deref());
    match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Resume(arguments) => resume::resume(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Lint(arguments) => lint::lint(&arguments),
        Command::Review(arguments) => review::review(&arguments),
        Command::List { what } => list::list(what),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Backend { command } => backend::backend(&command),
        Command::Dataset { command } => dataset::dataset(&command),
        Command::Import { what } => import::import(&what),
        Command::New { what } => new::new(&what),
        Command::Verify(arguments) => verify::verify(&arguments),
        Command::Sign(arguments) => verify::sign(&arguments),
        Command::Show(arguments) => report::show(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Site(arguments) => site::site(&arguments),
        Command::Compare(arguments) => compare::compare_sides(&arguments),
        Command::Scaling(arguments) => scaling::scaling(&arguments),
        Command::Pareto(arguments) => pareto::pareto(&arguments),
        Command::History(arguments) => history::history(&arguments),
        Command::Ablate(arguments) => ablate::ablate(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Graph { command } => graph::graph(&command),
        Command::Peak(arguments) => microbenchmark::peak(&arguments),
        Command::Microbenchmark { results } => microbenchmark_processes::measure_job(&results),
        Command::Operator { command } => operator::operator(&command),
        Command::Decoder { command } => decoder::decoder(&command),
        Command::Key { command } => key::key(&command),
        Command::Completions { shell } => Ok(completions::completions(shell)),
        Command::Work { socket } => work::work(socket.as_deref()),
        Command::Agent => agent::agent(),
        Command::Session { folder } => agent::session(&folder),
        Command::LaunchCompanion { status, holder, argv } => {
            Ok(ExitCode::from(u8::try_from(launch_companion(status, holder, &argv)).unwrap_or(u8::MAX)))
        }
        Command::HoldFiles => Ok(hold_files().map(|()| ExitCode::SUCCESS)?),
        Command::Probe(subject) => probe::probe(&subject),
        Command::Check => check::check(),
        Command::ServeWorker => serve::serve_worker(),
        Command::ReadDevices { script } => read_devices::read_devices(&script),
    }
}
