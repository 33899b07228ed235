//! Libraries that are loaded to see what they are, each in a process of its own: one may crash, or hang.

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
use serde::{Deserialize, Serialize};

use super::arguments::{Selection, Subject};
use super::doctor::Row;
use crate::config::{EngineEntry, Vendor};
use crate::engine::backend::Backend;
use crate::engine::{Engine, Unavailable, find, open_plugin};
use crate::host::{Next, Process, Program, THIS_PROGRAM, end_with_input};
use crate::measure::{Clock, MonotonicClock};
use crate::monitor::{self, Monitor};
use crate::text::one_line;
use crate::units::Seconds;

/// A library that takes longer to load hangs.
const LIMIT: Seconds = Seconds(60.0);

/// What came of loading a library; travels as one JSON line.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// Its name and version, or why it cannot be used.
    state: String,
    /// What it is, or what to do.
    about: String,
}

/// Loads a library and prints what it is.
pub(super) fn probe(subject: &Subject) -> anyhow::Result<ExitCode> {
    if input_is_a_pipe()? {
        // From another thread: loading may never return.
        end_with_input(io::stdin());
    }
    let answer = answer(subject);
    // By itself on its line, whatever the library writes.
    let mut output = io::stdout().lock();
    writeln!(output, "\n{}", serde_json::to_string(&answer)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether somebody holds the other end, who may go away.
fn input_is_a_pipe() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.file_type().is_fifo())
}

fn answer(subject: &Subject) -> Answer {
    let missing = |state: String, about: String| Answer { state: format!("missing: {state}"), about };
    let unavailable = |Unavailable { reason, remedy }: Unavailable| missing(reason, remedy);
    if let Some(name) = &subject.monitor {
        let Some(monitor) = monitor::find(name) else { return missing("unknown monitor".to_owned(), String::new()) };
        let about = monitor.about().to_owned();
        return match monitor.check() {
            Ok(has) => Answer { state: works(&has), about },
            Err(reason) => missing(reason, about),
        };
    }
    if let Some(name) = &subject.engine {
        let checked = find(name).map_err(|error| missing(error.to_string(), String::new()));
        let checked = checked.and_then(|engine| Ok((engine, engine.check().map_err(unavailable)?)));
        return match checked {
            Ok((engine, version)) => Answer { state: works(&version), about: engine.facts().about.to_owned() },
            Err(missing) => missing,
        };
    }
    let library = subject.library.as_deref().unwrap_or(Path::new(""));
    match open_plugin(library).and_then(|engine| Ok((engine, engine.check()?))) {
        Ok((engine, version)) => {
            Answer { state: works(&format!("{} {version}", engine.name())), about: engine.facts().about.to_owned() }
        }
        Err(error) => unavailable(error),
    }
}

/// The state of what can be used; what a library says of itself stays in its row of the table.
fn works(what: &str) -> String {
    format!("works, {}", one_line(what))
}

/// A row for an engine of this program.
pub(super) fn engine(engine: &dyn Engine) -> Row {
    let Answer { state, about } = asked(&["--engine".into(), engine.name().into()]);
    [engine.name().to_owned(), state, about]
}

/// A row for a monitor of this program.
pub(super) fn monitor(monitor: &dyn Monitor) -> Row {
    let Answer { state, about } = asked(&["--monitor".into(), monitor.name().into()]);
    [monitor.name().to_owned(), state, about]
}

/// A row for each plug-in of the chosen vendor; none when there is no such vendor, which is told elsewhere.
pub(super) fn plugins(root: &Path, selection: &Selection) -> Vec<Row> {
    let Ok(config) = crate::config::load(root, &selection.overrides()) else { return Vec::new() };
    let Some(vendor) = &config.vendor else { return Vec::new() };
    let entries = vendor.frameworks.iter().chain(&vendor.compilers);
    let brought = entries.filter(|(_, entry)| find(&entry.engine).is_ok_and(|engine| engine.facts().takes_library));
    brought.filter_map(|(name, entry)| Some(row(root, name, vendor, entry, entry.library.as_ref()?))).collect()
}

fn row(root: &Path, name: &str, vendor: &Vendor, entry: &EngineEntry, library: &Path) -> Row {
    let place = match entry.backend() {
        None => Ok(vendor.folder.join(library)),
        Some(backend) => Backend::named(root, backend).and_then(|row| row.installed()).ok_or_else(|| Answer {
            state: "missing: not installed".to_owned(),
            about: format!("`flagperf backend install {backend}` gets it"),
        }),
    };
    let Answer { state, about } = place.map_or_else(|missing| missing, |place: PathBuf| asked(&[place.into()]));
    [format!("{}.{name}", vendor.name), state, about]
}

/// What a library says in a process of its own, or how that ended.
fn asked(arguments: &[OsString]) -> Answer {
    let program = [THIS_PROGRAM.into(), "probe".into()];
    ask([&program, arguments].concat(), LIMIT).unwrap_or_else(|reason| {
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        let about = format!("run `flagperf probe {}` to see what it writes", words.join(" "));
        Answer { state: format!("missing: {reason}"), about }
    })
}

fn ask(argv: Vec<OsString>, limit: Seconds) -> Result<Answer, String> {
    let (input, environment) = (String::new(), IndexMap::new());
    let program = Program { argv, input, stderr: "/dev/null".into(), environment };
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    let mut process = Process::start(&program, clock.clone()).map_err(|error| error.to_string())?;
    let began = clock.now();
    let mut answer = None;
    while clock.now().since(began) < limit {
        match process.next(Duration::from_millis(50)) {
            Next::Line(_, line) => answer = serde_json::from_str(&line).ok().or(answer),
            Next::Silence => {}
            Next::Ended(ending) => return answer.ok_or_else(|| format!("loading it ended: {ending}")),
        }
    }
    process.kill();
    Err(format!("it did not load within {} s", limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_cannot_begin_a_row_of_its_own() {
        assert_eq!(works("1.0\nrten  missing\x1b[2J"), "works, 1.0\\nrten  missing\\u{1b}[2J");
    }

    #[test]
    fn what_never_answers_is_given_up_at_the_limit() {
        let argv = |script: &str| ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let hangs = ask(argv("trap '' TERM; while :; do sleep 1; done"), Seconds(0.2));
        assert_eq!(hangs.unwrap_err(), "it did not load within 0.2 s");
        let crashes = ask(argv("kill -SEGV $$"), Seconds(60.0));
        assert_eq!(crashes.unwrap_err(), "loading it ended: killed by signal 11 (SIGSEGV): a fault in native code");
        let answers = ask(argv("echo; echo '{\"state\":\"works\",\"about\":\"x\"}'"), Seconds(60.0));
        assert_eq!(answers.unwrap().state, "works");
    }
}
