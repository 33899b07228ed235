//! Asks the engine of a plan for its description, in a process of its own: its library may crash or hang.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::probe::{exit_with_parent, run_probe};
use crate::description::{Delivery, DescriptionMessage, EngineDescription};
use crate::engine::{self, EngineError, LoadOptions, Unavailable, describe_sidecar, open_plugin};
use crate::host::THIS_PROGRAM;
use crate::plan::{EngineChoice, UnavailableEngine};
use crate::units::Seconds;

/// Time after which an engine that does not describe itself counts as hung, unless a phase may take less.
const TIME_LIMIT: Seconds = Seconds(60.0);

/// The option of an engine for a library other than the installed one.
const LIBRARY_PATH: &str = "library_path";

/// The reply of the process that describes an engine; one JSON line.
#[derive(Debug, Serialize, Deserialize)]
enum DescribeReply {
    Described(Box<DescriptionMessage>),
    Available,
    Unavailable { reason: String, remedy: String },
}

/// Describes the engine of a choice as this machine has it; `None` if its row of the table says everything.
///
/// Waits for as long as a phase may take (`phase_limit`), at most 60 seconds.
///
/// # Errors
/// When the engine does not work on this machine.
pub(super) fn describe(
    choice: &EngineChoice,
    phase_limit: Seconds,
) -> Result<Option<EngineDescription>, UnavailableEngine> {
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
    exit_with_parent()?;
    let choice: EngineChoice = serde_json::from_str(choice)?;
    let reply = describe_here(&choice);
    // On a line of its own, even after unfinished output of the library.
    writeln!(io::stdout().lock(), "\n{}", serde_json::to_string(&reply)?)?;
    Ok(ExitCode::SUCCESS)
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
