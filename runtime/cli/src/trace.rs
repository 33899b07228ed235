//! `flagperf trace`: writes the times of a result as a trace for the viewers of Chrome and Perfetto.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};

use super::output::{TRACE, check_replaceable, print_message, print_mistake, print_result, write_file};
use super::result_printer::relative_path;
use flagperf_core::exit_code;
use flagperf_core::regular_file::open_regular;
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_report::TraceBuilder;
use flagperf_result::{ChainReader, Record};
use flagperf_verify::find_results;

#[derive(Debug, Args)]
pub(super) struct TraceArguments {
    /// Folder of a case
    #[arg(value_hint = ValueHint::DirPath)]
    result: PathBuf,
    /// The file of the trace, which ui.perfetto.dev and chrome://tracing open
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// The key with which a run traces some batches.
pub(super) const TRACE_KEY: &str = "trace";

/// Writes the trace of a case that has just been traced beside its folder, whose files never change again, and prints its path.
/// A trace that cannot be written is no failure of the run: `flagperf trace` writes it again.
pub(super) fn write_trace_beside(record: &Record, folder: &Path) {
    if record.settings.get(TRACE_KEY).is_none_or(|setting| setting.value != true) {
        return;
    }
    let mut file = folder.as_os_str().to_owned();
    file.push(".trace.json");
    let file = PathBuf::from(file);
    print_message(&match write_trace(folder, &file) {
        Ok(()) => format!("trace: {}", relative_path(&file).display()),
        Err(message) => format!("warning: no trace: {message}"),
    });
}

/// Writes the trace of a result.
pub(super) fn trace(arguments: &TraceArguments) -> anyhow::Result<ExitCode> {
    let written = write_trace(&arguments.result, &arguments.file);
    Ok(match written {
        Ok(()) => print_result(&format!("trace  {}\n", arguments.file.display()), exit_code::OK),
        Err(message) => print_mistake(&message),
    })
}

fn write_trace(result: &Path, file: &Path) -> Result<(), String> {
    let found = find_results(result).map_err(|error| format!("`{}`: {error}", result.display()))?;
    let [folder] = &found[..] else {
        return Err(format!("`{}` has {} results: give the folder of one", result.display(), found.len()));
    };
    // A device or a pipe is written to as it is.
    if file.metadata().map_or(true, |known| known.is_file()) {
        check_replaceable(file, &TRACE)?;
    }
    let path = folder.join(EVENTS_FILE);
    let unreadable = |error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
    let events = open_regular(&path).map_err(|error| unreadable(&error))?;
    let mut reader = ChainReader::new(BufReader::new(events));
    let mut builder = TraceBuilder::default();
    let mut is_empty = true;
    while let Some(event) = reader.read().map_err(|error| unreadable(&error))? {
        is_empty = false;
        builder.add(&event);
    }
    if is_empty {
        return Err(unreadable(&"it has no events"));
    }
    if !builder.is_complete() {
        print_message(&format!("warning: `{}` ends before the end of the case", path.display()));
    }
    write_file(file, &builder.finish().to_string())
}
