//! Probes engines, libraries and sidecars: loads or starts each in a process of its own, because it may crash or hang,
//! and reports what it is.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::own_process::{NoReply, TIME_LIMIT, run_for_reply};
use flagperf_core::description::{ConfigRead, Delivery, DescriptionMessage};
use flagperf_core::text::truncate;
use flagperf_core::units::Seconds;
use flagperf_engine::{
    Engine, HELLO_TIME_LIMIT, LoadOptions, SidecarReply, Unavailable, describe_sidecar, find, open_plugin,
};
use flagperf_host::{Ending, THIS_PROGRAM};
use flagperf_sampling::SourceContext;

/// How long the probe of a sidecar that exceeded the time limit of `hello` may take to end it.
const ENDING_TIME: Seconds = Seconds(10.0);

/// The reply of a probe; one JSON line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ProbeReply {
    /// It can be used.
    Works {
        /// Name and version.
        version: String,
        /// One line about it.
        about: String,
        /// The description that a vendor's engine gives of itself.
        description: Option<Box<DescriptionMessage>>,
        /// The keys of `config` that the class of a sidecar reads.
        #[serde(default)]
        config_reads: Vec<ConfigRead>,
    },
    /// It cannot be used.
    Fails {
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
}

impl ProbeReply {
    /// Returns the reply about something that works and does not describe itself.
    pub fn works(version: String, about: impl Into<String>) -> Self {
        ProbeReply::Works { version, about: about.into(), description: None, config_reads: Vec::new() }
    }

    /// Returns the reply about something that cannot be used.
    pub fn fails(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        ProbeReply::Fails { reason: reason.into(), remedy: remedy.into() }
    }
}

/// What a probe examines.
#[derive(Clone, Debug)]
pub enum ProbeTarget {
    /// An engine of this program, which opens its own library, with options of a case.
    Engine { name: String, options: IndexMap<String, Value> },
    /// The shared library of a plug-in.
    Plugin(PathBuf),
    /// A sidecar.
    Sidecar {
        /// The vendor's folder, in which it starts.
        folder: PathBuf,
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// A monitor of this program, which opens its own library.
    Monitor(String),
}

impl ProbeTarget {
    /// Returns the engine with the library or the command of its entry in vendor.yaml; for an engine of this program, with
    /// the options of a case.
    pub(super) fn of_engine(
        engine: &dyn Engine,
        folder: &Path,
        library: Option<&Path>,
        command: &[String],
        options: &IndexMap<String, Value>,
    ) -> Self {
        match engine.description().delivery {
            Delivery::BuiltIn | Delivery::Installed | Delivery::Server => {
                ProbeTarget::Engine { name: engine.name().to_owned(), options: options.clone() }
            }
            Delivery::Library => ProbeTarget::Plugin(folder.join(library.unwrap_or(Path::new("")))),
            Delivery::Command => ProbeTarget::Sidecar { folder: folder.to_owned(), command: command.to_vec() },
        }
    }

    /// Returns the arguments of `flagperf probe`.
    fn arguments(&self) -> Vec<OsString> {
        match self {
            ProbeTarget::Engine { name, options } => {
                let given =
                    (!options.is_empty()).then(|| serde_json::to_string(options).expect("a map has text keys").into());
                ["--engine".into(), name.into()].into_iter().chain(given).collect()
            }
            ProbeTarget::Plugin(library) => vec![library.into()],
            ProbeTarget::Sidecar { folder, command } => {
                ["--sidecar".into(), folder.into()].into_iter().chain(command.iter().map(OsString::from)).collect()
            }
            ProbeTarget::Monitor(name) => vec!["--monitor".into(), name.into()],
        }
    }

    /// Returns how long its probe may take, unless a phase may take less.
    fn time_max(&self) -> Seconds {
        match self {
            // Until it has exceeded the time limit of `hello`.
            ProbeTarget::Sidecar { .. } => HELLO_TIME_LIMIT + ENDING_TIME,
            _ => TIME_LIMIT,
        }
    }
}

/// Examines a target in this process, which it may crash or block.
pub fn probe(target: &ProbeTarget) -> ProbeReply {
    match target {
        ProbeTarget::Engine { name, options } => match find(name) {
            Ok(engine) => probe_engine(engine, options),
            Err(error) => ProbeReply::fails(error.to_string(), ""),
        },
        ProbeTarget::Plugin(library) => probe_plugin(library),
        ProbeTarget::Sidecar { folder, command } => probe_sidecar(folder, command),
        ProbeTarget::Monitor(name) => probe_monitor(name),
    }
}

/// Checks an engine of this program with options.
fn probe_engine(engine: &dyn Engine, options: &IndexMap<String, Value>) -> ProbeReply {
    match engine.check_with(&LoadOptions { extra: options.clone(), ..LoadOptions::default() }) {
        Ok(version) => ProbeReply::works(version, engine.description().about),
        Err(error) => ProbeReply::fails(error.to_string(), error.hint()),
    }
}

/// Checks an engine of this program in this process.
pub(super) fn check_engine(engine: &dyn Engine) -> ProbeReply {
    match engine.check() {
        Ok(version) => ProbeReply::works(version, engine.description().about),
        Err(Unavailable { reason, remedy }) => ProbeReply::fails(reason, remedy),
    }
}

fn probe_monitor(name: &str) -> ProbeReply {
    if let Some(monitor) = flagperf_monitor::find(name) {
        return match monitor.check() {
            Ok(version) => ProbeReply::works(version, monitor.about()),
            Err(reason) => ProbeReply::fails(reason, monitor.about()),
        };
    }
    let Some(source) = flagperf_sampling::find(name) else { return ProbeReply::fails("unknown monitor", "") };
    match flagperf_sampling::check(source, &SourceContext::of_machine()) {
        Ok(_) => ProbeReply::works("read once".to_owned(), source.about()),
        Err(reason) => ProbeReply::fails(reason, source.about()),
    }
}

fn probe_plugin(library: &Path) -> ProbeReply {
    match open_plugin(library).and_then(|engine| Ok((engine, engine.check()?))) {
        Ok((engine, version)) => ProbeReply::Works {
            version: format!("{} {version}", engine.name()),
            about: engine.description().about.to_owned(),
            description: Some(Box::new(DescriptionMessage::from(&engine.description()))),
            config_reads: Vec::new(),
        },
        Err(Unavailable { reason, remedy }) => ProbeReply::fails(reason, remedy),
    }
}

/// Starts a sidecar in the vendor's folder and exchanges `hello` with it.
fn probe_sidecar(folder: &Path, command: &[String]) -> ProbeReply {
    let options = LoadOptions { command: command.to_vec(), folder: folder.to_owned(), ..LoadOptions::default() };
    match describe_sidecar(&options) {
        Ok(SidecarReply { description, version, config_reads }) => ProbeReply::Works {
            version: format!("{} {version}", description.name),
            about: description.capabilities(),
            description: Some(Box::new(DescriptionMessage::from(&description))),
            config_reads,
        },
        Err(error) => ProbeReply::fails(error.to_string(), error.hint()),
    }
}

/// Runs probes and keeps their replies, so that each engine is started once, however many cases use it.
#[derive(Debug)]
pub struct Probes {
    phase_limit: Seconds,
    replies: RefCell<IndexMap<Vec<OsString>, ProbeReply>>,
}

impl Default for Probes {
    fn default() -> Self {
        Probes::new(TIME_LIMIT)
    }
}

impl Probes {
    /// Creates probes that wait for as long as a phase may take (`phase_limit`), at most 60 seconds, or for a sidecar
    /// until it has exceeded the time limit of `hello`.
    pub fn new(phase_limit: Seconds) -> Self {
        Probes { phase_limit, replies: RefCell::default() }
    }

    /// Returns the reply of `flagperf probe` about a target, in a process of its own at the first call.
    pub(super) fn reply(&self, target: &ProbeTarget) -> ProbeReply {
        let arguments = target.arguments();
        if let Some(known) = self.replies.borrow().get(&arguments) {
            return known.clone();
        }
        let limit = Seconds(target.time_max().0.min(self.phase_limit.0));
        let reply = run_probe(&arguments, limit);
        self.replies.borrow_mut().insert(arguments, reply.clone());
        reply
    }
}

fn run_probe(arguments: &[OsString], limit: Seconds) -> ProbeReply {
    let program = [THIS_PROGRAM.into(), "probe".into()];
    run_for_reply([&program, arguments].concat(), String::new(), limit).unwrap_or_else(|no_reply| {
        let reason = match no_reply {
            NoReply::NotStarted(error) => error.to_string(),
            // An engine that calls `exit` leaves no trace but this.
            NoReply::Ended { ending: Ending::Exited(0), .. } => "it ended the process while it was loaded".to_owned(),
            NoReply::Ended { ending, .. } => format!("loading failed: {ending}"),
            NoReply::TimedOut(limit) => format!("loading took longer than {} s", limit.0),
        };
        let words: Vec<_> = arguments.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
        ProbeReply::fails(reason, format!("run `flagperf probe {}` to see its output", words.join(" ")))
    })
}

/// Returns a word as it is typed in a shell, in quotation marks if it has other characters than those of names and paths.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Largest number of bytes of a reason in a table or in a finding.
const REASON_BYTES: usize = 300;

/// Shortens a reason to one line: its first line; if that ends with a colon, also the last, which in a traceback is the one
/// that says what failed.
pub fn short_reason(reason: &str) -> String {
    let mut lines = reason.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let last = lines.next_back().filter(|_| first.ends_with(':'));
    let whole = last.map_or_else(|| first.to_owned(), |last| format!("{first} {last}"));
    truncate(&whole, REASON_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_type_has_its_options_in_quotation_marks() {
        assert_eq!(shell_word("--engine"), "--engine");
        assert_eq!(shell_word(r#"{"a":"it's"}"#), r#"'{"a":"it'\''s"}'"#);
    }

    #[test]
    fn of_a_traceback_the_first_and_the_last_line_remain() {
        let traceback = "the sidecar ended:\n  Traceback (most recent call last):\n    import x\n  ImportError: no x\n";
        assert_eq!(short_reason(traceback), "the sidecar ended: ImportError: no x");
        let reply = "`engines/x.py:1`: ModuleNotFoundError: No module named 'numpy'\n  Traceback:\n    import numpy\n";
        assert_eq!(short_reason(reply), "`engines/x.py:1`: ModuleNotFoundError: No module named 'numpy'");
        assert_eq!(short_reason("one line"), "one line");
        assert_eq!(short_reason(""), "");
        assert!(short_reason(&"x".repeat(10_000)).len() < 400);
    }
}
