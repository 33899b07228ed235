//! Probes libraries and sidecars: loads or starts each from a process of its own, because it may crash or hang, and
//! reports what it is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::ProbeTarget;
use super::describe::print_description;
use super::doctor::Row;
use crate::config::{EngineEntry, Vendor};
use crate::description::Delivery;
use crate::engine::backend::Backend;
use crate::engine::{Engine, LoadOptions, Unavailable, describe_sidecar, find, open_plugin};
use crate::host::{Process, ProcessEvent, Program, THIS_PROGRAM, exit_when_input_ends};
use crate::measure::{Clock, MonotonicClock};
use crate::monitor::{self, Monitor};
use crate::text::one_line;
use crate::units::Seconds;

/// Time after which loading a library, or the reply of a sidecar, counts as hung.
pub(super) const TIME_LIMIT: Seconds = Seconds(60.0);

/// A probed engine or monitor, with its row of a table.
pub(super) struct Check {
    /// The name in the table of engines or monitors, or in the vendor's vendor.yaml.
    pub(super) name: String,
    pub(super) works: bool,
    pub(super) row: Row,
}

impl Check {
    fn new(name: &str, shown_name: String, ProbeResult { works, state, about }: ProbeResult) -> Self {
        Check { name: name.to_owned(), works, row: [shown_name, state, about] }
    }
}

/// The result of loading a library; printed as one JSON line.
#[derive(Debug, Serialize, Deserialize)]
struct ProbeResult {
    /// Whether it can be used.
    works: bool,
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
    print_reply(|| probe_target(target))
}

/// Prints a reply as one JSON line. Meanwhile this process ends when the process that started it ends: a thread watches
/// the input, because loading may never return.
pub(super) fn print_reply<T: Serialize>(examine: impl FnOnce() -> T) -> anyhow::Result<ExitCode> {
    if input_is_a_pipe()? {
        exit_when_input_ends(io::stdin());
    }
    let reply = examine();
    // On a line of its own, even after unfinished output of the library.
    writeln!(io::stdout().lock(), "\n{}", serde_json::to_string(&reply)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether standard input is a pipe, whose other end may close.
fn input_is_a_pipe() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.file_type().is_fifo())
}

impl ProbeResult {
    /// Returns the result of a library that can be used. The version comes from the library, so it is kept on one line:
    /// it must not begin a row of its own in the table.
    fn working(version: &str, about: impl Into<String>) -> Self {
        ProbeResult { works: true, state: format!("works, {}", one_line(version)), about: about.into() }
    }

    fn missing(reason: &str, remedy: impl Into<String>) -> Self {
        ProbeResult { works: false, state: format!("missing: {reason}"), about: remedy.into() }
    }
}

fn probe_target(target: &ProbeTarget) -> ProbeResult {
    let unavailable = |Unavailable { reason, remedy }: Unavailable| ProbeResult::missing(&reason, remedy);
    if let Some(name) = &target.monitor {
        let Some(monitor) = monitor::find(name) else { return ProbeResult::missing("unknown monitor", "") };
        return match monitor.check() {
            Ok(version) => ProbeResult::working(&version, monitor.about()),
            Err(reason) => ProbeResult::missing(&reason, monitor.about()),
        };
    }
    if let Some(name) = &target.engine {
        let checked = find(name).map_err(|error| ProbeResult::missing(&error.to_string(), ""));
        let checked = checked.and_then(|engine| Ok((engine, engine.check().map_err(unavailable)?)));
        return match checked {
            Ok((engine, version)) => ProbeResult::working(&version, engine.description().about),
            Err(missing) => missing,
        };
    }
    if let [folder, command @ ..] = target.sidecar.as_slice() {
        return probe_sidecar(folder, command);
    }
    let library = target.library.as_deref().unwrap_or(Path::new(""));
    match open_plugin(library).and_then(|engine| Ok((engine, engine.check()?))) {
        Ok((engine, version)) => {
            ProbeResult::working(&format!("{} {version}", engine.name()), engine.description().about)
        }
        Err(error) => unavailable(error),
    }
}

/// Starts a sidecar in the vendor's folder and exchanges `hello` with it.
fn probe_sidecar(folder: &str, command: &[String]) -> ProbeResult {
    let options = LoadOptions { command: command.to_vec(), folder: folder.into(), ..LoadOptions::default() };
    match describe_sidecar(&options) {
        Ok((description, version)) => {
            ProbeResult::working(&format!("{} {version}", description.name), description.capabilities())
        }
        Err(error) => ProbeResult::missing(&error.to_string(), error.hint()),
    }
}

/// Probes an engine of this program.
pub(super) fn check_engine(engine: &dyn Engine) -> Check {
    let result = probe_in_own_process(&["--engine".into(), engine.name().into()]);
    Check::new(engine.name(), engine.name().to_owned(), result)
}

/// Probes a monitor of this program.
pub(super) fn check_monitor(monitor: &dyn Monitor) -> Check {
    let result = probe_in_own_process(&["--monitor".into(), monitor.name().into()]);
    Check::new(monitor.name(), monitor.name().to_owned(), result)
}

/// Probes each plug-in and sidecar of the vendor. One that the vendor lists both as a framework and as a compiler is
/// probed once.
pub(super) fn check_vendor_engines(root: &Path, vendor: &Vendor) -> Vec<Check> {
    let listed_twice = |name: &String, entry: &EngineEntry| vendor.frameworks.get(name) == Some(entry);
    let compilers = vendor.compilers.iter().filter(|(name, entry)| !listed_twice(name, entry));
    let checks = vendor.frameworks.iter().chain(compilers).filter_map(|(name, entry)| {
        let result = probe_entry(root, vendor, entry)?;
        Some(Check::new(name, format!("{}.{name}", vendor.name), result))
    });
    checks.collect()
}

/// Probes the plug-in or sidecar of an entry; returns `None` for an engine of this program.
fn probe_entry(root: &Path, vendor: &Vendor, entry: &EngineEntry) -> Option<ProbeResult> {
    let delivery = find(&entry.engine).ok()?.description().delivery;
    match (&entry.library, entry.command.as_slice()) {
        (Some(library), _) if delivery == Delivery::Library => Some(probe_plugin(root, vendor, entry, library)),
        (_, command @ [_, ..]) if delivery == Delivery::Command => {
            let words = command.iter().map(OsString::from);
            let arguments = ["--sidecar".into(), vendor.folder.clone().into()].into_iter().chain(words);
            Some(probe_in_own_process(&arguments.collect::<Vec<_>>()))
        }
        _ => None,
    }
}

fn probe_plugin(root: &Path, vendor: &Vendor, entry: &EngineEntry, library: &Path) -> ProbeResult {
    let place = match entry.backend() {
        None => vendor.folder.join(library),
        Some(backend) => match Backend::find(root, backend).and_then(|row| row.installed()) {
            Some(installed) => installed,
            None => {
                return ProbeResult::missing("not installed", format!("run `flagperf backend install {backend}`"));
            }
        },
    };
    probe_in_own_process(&[place.into()])
}

/// Probes a library in a process of its own, and describes how that process failed.
fn probe_in_own_process(arguments: &[OsString]) -> ProbeResult {
    let program = [THIS_PROGRAM.into(), "probe".into()];
    run_probe([&program, arguments].concat(), TIME_LIMIT).unwrap_or_else(|reason| {
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        let about = format!("run `flagperf probe {}` to see its output", words.join(" "));
        ProbeResult::missing(&reason, about)
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
    fn a_version_cannot_begin_a_row_of_its_own_in_the_table() {
        let result = ProbeResult::working("1.0\nrten  missing\x1b[2J", "");
        assert_eq!(result.state, "works, 1.0\\nrten  missing\\u{1b}[2J");
    }

    #[test]
    fn a_probe_without_an_answer_is_abandoned_at_the_time_limit() {
        let argv = |script: &str| ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let hangs = run_probe::<ProbeResult>(argv("trap '' TERM; while :; do sleep 1; done"), Seconds(0.2));
        assert_eq!(hangs.unwrap_err(), "loading took longer than 0.2 s");
        let crashes = run_probe::<ProbeResult>(argv("kill -SEGV $$"), Seconds(60.0));
        assert_eq!(crashes.unwrap_err(), "loading failed: killed by signal 11 (SIGSEGV): a fault in native code");
        let answers = run_probe::<ProbeResult>(
            argv("echo; echo '{\"works\":true,\"state\":\"works\",\"about\":\"x\"}'"),
            Seconds(60.0),
        );
        assert_eq!(answers.unwrap().state, "works");
    }
}
