//! The plug-ins of a vendor, each loaded in a process of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arguments::Selection;
use super::doctor::Row;
use crate::config::{EngineEntry, Vendor};
use crate::engine::backend::Backend;
use crate::engine::{Unavailable, find, open_plugin};
use crate::host::{Next, Process, Program};
use crate::measure::{Clock, MonotonicClock};
use crate::units::Seconds;

/// A plug-in that takes longer to load hangs.
const LIMIT: Seconds = Seconds(60.0);

/// What came of loading a plug-in; travels as one JSON line.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// Its name and version, or why it cannot be used.
    state: String,
    /// What it is, or what to do.
    about: String,
}

/// Loads a plug-in and prints what it is.
pub(super) fn probe(library: &Path) -> anyhow::Result<ExitCode> {
    let answer = match open_plugin(library).and_then(|engine| Ok((engine, engine.check()?))) {
        Ok((engine, version)) => {
            Answer { state: format!("works, {} {version}", engine.name()), about: engine.facts().about.to_owned() }
        }
        Err(Unavailable { reason, remedy }) => Answer { state: format!("missing: {reason}"), about: remedy },
    };
    // By itself on its line, whatever the library writes.
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{}", serde_json::to_string(&answer)?)?;
    Ok(ExitCode::SUCCESS)
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
    let asked = |place: PathBuf| {
        ask(&place).unwrap_or_else(|reason| Answer {
            state: format!("missing: {reason}"),
            about: "run `flagperf probe LIBRARY` to see what it writes".to_owned(),
        })
    };
    let Answer { state, about } = place.map_or_else(|missing| missing, asked);
    [format!("{}.{name}", vendor.name), state, about]
}

/// What a plug-in says in a process of its own, or how that ended.
fn ask(library: &Path) -> Result<Answer, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = Program {
        argv: vec![program.into(), "probe".into(), library.into()],
        input: String::new(),
        stderr: "/dev/null".into(),
    };
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    let mut process = Process::start(&program, clock.clone()).map_err(|error| error.to_string())?;
    let began = clock.now();
    let mut answer = None;
    while clock.now().since(began) < LIMIT {
        match process.next(Duration::from_millis(50)) {
            Next::Line(_, line) => answer = serde_json::from_str(&line).ok().or(answer),
            Next::Silence => {}
            Next::Ended(ending) => return answer.ok_or_else(|| format!("loading it ended: {ending}")),
        }
    }
    Err(format!("it did not load within {} s", LIMIT.0))
}
