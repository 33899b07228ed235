//! Asks the engine of a plan for its description, in a process of its own: its library may crash or hang.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::probe::{TIME_LIMIT, print_reply, run_probe};
use crate::description::{Delivery, DescriptionMessage, EngineDescription};
use crate::engine::{self, EngineError, LoadOptions, Unavailable, describe_sidecar, open_plugin};
use crate::host::THIS_PROGRAM;
use crate::plan::{DescribeEngine, EngineChoice, UnavailableEngine};
use crate::units::Seconds;

/// The option of an engine for a library other than the installed one.
const LIBRARY_PATH: &str = "library_path";

type Described = Result<Option<EngineDescription>, UnavailableEngine>;

/// The reply of the process that describes an engine; one JSON line.
#[derive(Debug, Serialize, Deserialize)]
enum DescribeReply {
    Described(Box<DescriptionMessage>),
    Available,
    Unavailable { reason: String, remedy: String },
}

/// Returns the function that describes the engines of a plan. Cases share engines, so that each is examined once.
pub(super) fn describe_once(phase_limit: Seconds) -> DescribeEngine {
    let described = RefCell::new(Vec::<(EngineChoice, Described)>::new());
    Box::new(move |choice| {
        // A description depends on neither options nor threads, apart from the option for another library.
        let library_path = choice.options.get_key_value(LIBRARY_PATH);
        let options = library_path.map(|(key, path)| (key.clone(), path.clone())).into_iter().collect();
        let key = EngineChoice { name: String::new(), version: None, threads: 0, options, ..choice.clone() };
        if let Some((_, known)) = described.borrow().iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let new = describe(&key, phase_limit);
        described.borrow_mut().push((key, new.clone()));
        new
    })
}

/// Describes the engine of a choice as this machine has it; `None` if its row of the table says everything.
///
/// Waits for as long as a phase may take (`phase_limit`), at most 60 seconds.
///
/// # Errors
/// When the engine does not work on this machine.
fn describe(choice: &EngineChoice, phase_limit: Seconds) -> Described {
    let Ok(engine) = engine::find(&choice.engine) else { return Ok(None) };
    let delivery = engine.description().delivery;
    let reply = match delivery {
        Delivery::BuiltIn => check(engine),
        Delivery::Installed if choice.options.contains_key(LIBRARY_PATH) => return Ok(None),
        _ => describe_in_own_process(choice, phase_limit),
    };
    match reply {
        DescribeReply::Described(message) => Ok(Some(message.into_description(delivery))),
        DescribeReply::Available => Ok(None),
        DescribeReply::Unavailable { reason, remedy } => Err(UnavailableEngine { reason, remedy }),
    }
}

fn describe_in_own_process(choice: &EngineChoice, phase_limit: Seconds) -> DescribeReply {
    let choice = serde_json::to_string(choice).expect("a choice has text keys");
    let argv = [THIS_PROGRAM.into(), "probe".into(), "--choice".into(), choice.into()];
    run_probe(argv.to_vec(), Seconds(TIME_LIMIT.0.min(phase_limit.0))).unwrap_or_else(|reason| {
        DescribeReply::Unavailable { reason, remedy: "`flagperf doctor` examines each engine of the vendor".to_owned() }
    })
}

/// `flagperf probe --choice JSON`: describes the engine and prints the reply.
pub(super) fn print_description(choice: &str) -> anyhow::Result<ExitCode> {
    let choice: EngineChoice = serde_json::from_str(choice)?;
    print_reply(|| describe_here(&choice))
}

fn describe_here(choice: &EngineChoice) -> DescribeReply {
    let engine = match engine::find(&choice.engine) {
        Ok(engine) => engine,
        Err(error) => return DescribeReply::Unavailable { reason: error.to_string(), remedy: String::new() },
    };
    let described = match engine.description().delivery {
        Delivery::BuiltIn | Delivery::Installed => return check(engine),
        Delivery::Library => describe_plugin(choice),
        Delivery::Command => describe_command(choice),
    };
    match described {
        Ok(description) => DescribeReply::Described(Box::new(DescriptionMessage::from(&description))),
        Err(error) => {
            let remedy = error.hint().to_owned();
            DescribeReply::Unavailable { reason: error.to_string(), remedy }
        }
    }
}

fn check(engine: &dyn engine::Engine) -> DescribeReply {
    match engine.check() {
        Ok(_) => DescribeReply::Available,
        Err(Unavailable { reason, remedy }) => DescribeReply::Unavailable { reason, remedy },
    }
}

fn describe_plugin(choice: &EngineChoice) -> Result<EngineDescription, EngineError> {
    let library = choice.library.as_deref().unwrap_or(Path::new(""));
    let plugin = open_plugin(&choice.folder.join(library))?;
    plugin.check()?;
    Ok(plugin.description())
}

fn describe_command(choice: &EngineChoice) -> Result<EngineDescription, EngineError> {
    let (folder, command) = (choice.folder.clone(), choice.command.clone());
    describe_sidecar(&LoadOptions { folder, command, ..LoadOptions::default() }).map(|(description, _)| description)
}
