//! Probes libraries: loads each in a process of its own, because it may crash or hang, and reports what it is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::{ProbeTarget, Selection};
use super::describe::print_description;
use super::doctor::Row;
use crate::config::{EngineEntry, Vendor};
use crate::description::Delivery;
use crate::engine::backend::Backend;
use crate::engine::{Engine, Unavailable, find, open_plugin};
use crate::host::{Process, ProcessEvent, Program, THIS_PROGRAM, exit_when_input_ends};
use crate::measure::{Clock, MonotonicClock};
use crate::monitor::{self, Monitor};
use crate::units::Seconds;

/// Time after which loading a library counts as hung.
const TIME_LIMIT: Seconds = Seconds(60.0);

/// The result of loading a library; printed as one JSON line.
#[derive(Debug, Serialize, Deserialize)]
struct ProbeResult {
    /// Name and version, or why the library cannot be used.
    state: String,
    /// Description, or what to do.
    about: String,
}

/// Loads a library and prints what it is.
pub(super) fn probe(target: &ProbeTarget) -> anyhow::Result<ExitCode> {
    if let Some(choice) = &target.choice {
        return print_description(choice);
    }
    exit_with_parent()?;
    let answer = probe_target(target);
    // On a line of its own, even after unfinished output of the library.
    let mut output = io::stdout().lock();
    writeln!(output, "\n{}", serde_json::to_string(&answer)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends this process when the process that started it ends. A thread watches the input, because loading may never
/// return.
pub(super) fn exit_with_parent() -> io::Result<()> {
    if input_is_a_pipe()? {
        exit_when_input_ends(io::stdin());
    }
    Ok(())
}

/// Returns whether standard input is a pipe, whose other end may close.
fn input_is_a_pipe() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.file_type().is_fifo())
}

fn probe_target(target: &ProbeTarget) -> ProbeResult {
    let missing = |state: String, about: String| ProbeResult { state: format!("missing: {state}"), about };
    let unavailable = |Unavailable { reason, remedy }: Unavailable| missing(reason, remedy);
    if let Some(name) = &target.monitor {
        let Some(monitor) = monitor::find(name) else { return missing("unknown monitor".to_owned(), String::new()) };
        let about = monitor.about().to_owned();
        return match monitor.check() {
            Ok(version) => ProbeResult { state: format!("works, {version}"), about },
            Err(reason) => missing(reason, about),
        };
    }
    if let Some(name) = &target.engine {
        let checked = find(name).map_err(|error| missing(error.to_string(), String::new()));
        let checked = checked.and_then(|engine| Ok((engine, engine.check().map_err(unavailable)?)));
        return match checked {
            Ok((engine, version)) => {
                ProbeResult { state: format!("works, {version}"), about: engine.description().about.to_owned() }
            }
            Err(missing) => missing,
        };
    }
    let library = target.library.as_deref().unwrap_or(Path::new(""));
    match open_plugin(library).and_then(|engine| Ok((engine, engine.check()?))) {
        Ok((engine, version)) => ProbeResult {
            state: format!("works, {} {version}", engine.name()),
            about: engine.description().about.to_owned(),
        },
        Err(error) => unavailable(error),
    }
}

/// Returns the row for an engine of this program.
pub(super) fn engine_row(engine: &dyn Engine) -> Row {
    let ProbeResult { state, about } = probe_in_own_process(&["--engine".into(), engine.name().into()]);
    [engine.name().to_owned(), state, about]
}

/// Returns the row for a monitor of this program.
pub(super) fn monitor_row(monitor: &dyn Monitor) -> Row {
    let ProbeResult { state, about } = probe_in_own_process(&["--monitor".into(), monitor.name().into()]);
    [monitor.name().to_owned(), state, about]
}

/// Returns a row for each plug-in of the chosen vendor; empty when the configuration is invalid, which the caller
/// reports separately.
pub(super) fn plugin_rows(root: &Path, selection: &Selection) -> Vec<Row> {
    let Ok(config) = crate::config::load(root, &selection.overrides()) else { return Vec::new() };
    let Some(vendor) = &config.vendor else { return Vec::new() };
    let entries = vendor.frameworks.iter().chain(&vendor.compilers);
    let plugins = entries.filter(|(_, entry)| {
        find(&entry.engine).is_ok_and(|engine| engine.description().delivery == Delivery::Library)
    });
    plugins.filter_map(|(name, entry)| Some(plugin_row(root, name, vendor, entry, entry.library.as_ref()?))).collect()
}

fn plugin_row(root: &Path, name: &str, vendor: &Vendor, entry: &EngineEntry, library: &Path) -> Row {
    let place = match entry.backend() {
        None => Ok(vendor.folder.join(library)),
        Some(backend) => Backend::find(root, backend).and_then(|row| row.installed()).ok_or_else(|| ProbeResult {
            state: "missing: not installed".to_owned(),
            about: format!("run `flagperf backend install {backend}`"),
        }),
    };
    let ProbeResult { state, about } =
        place.map_or_else(|missing| missing, |place: PathBuf| probe_in_own_process(&[place.into()]));
    [format!("{}.{name}", vendor.name), state, about]
}

/// Probes a library in a process of its own, and describes how that process failed.
fn probe_in_own_process(arguments: &[OsString]) -> ProbeResult {
    let program = [THIS_PROGRAM.into(), "probe".into()];
    run_probe([&program, arguments].concat(), TIME_LIMIT).unwrap_or_else(|reason| {
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        let about = format!("run `flagperf probe {}` to see its output", words.join(" "));
        ProbeResult { state: format!("missing: {reason}"), about }
    })
}

/// Runs a probe and returns the last JSON line that it prints, or why there is none.
pub(super) fn run_probe<T: DeserializeOwned>(argv: Vec<OsString>, limit: Seconds) -> Result<T, String> {
    let (input, environment) = (String::new(), IndexMap::new());
    let program = Program { argv, input, stderr: "/dev/null".into(), environment };
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    let mut process = Process::start(&program, clock.clone()).map_err(|error| error.to_string())?;
    let began = clock.now();
    let mut answer = None;
    while clock.now().since(began) < limit {
        match process.next_event(Duration::from_millis(50)) {
            ProcessEvent::Line(_, line) => answer = serde_json::from_str(&line).ok().or(answer),
            ProcessEvent::Silence => {}
            ProcessEvent::Ended(ending) => return answer.ok_or_else(|| format!("loading failed: {ending}")),
        }
    }
    process.kill();
    Err(format!("loading took longer than {} s", limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_without_an_answer_is_abandoned_at_the_time_limit() {
        let argv = |script: &str| ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let hangs = run_probe::<ProbeResult>(argv("trap '' TERM; while :; do sleep 1; done"), Seconds(0.2));
        assert_eq!(hangs.unwrap_err(), "loading took longer than 0.2 s");
        let crashes = run_probe::<ProbeResult>(argv("kill -SEGV $$"), Seconds(60.0));
        assert_eq!(crashes.unwrap_err(), "loading failed: killed by signal 11 (SIGSEGV): a fault in native code");
        let answers =
            run_probe::<ProbeResult>(argv("echo; echo '{\"state\":\"works\",\"about\":\"x\"}'"), Seconds(60.0));
        assert_eq!(answers.unwrap().state, "works");
    }
}
