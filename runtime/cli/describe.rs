//! Describes the engines of a plan as this machine has them.

use std::rc::Rc;

use super::probe::{ProbeReply, Probes, check_engine, probe_arguments, short_reason};
use crate::description::{Delivery, EngineDescription};
use crate::engine;
use crate::plan::{DescribeEngine, EngineChoice, UnavailableEngine};

/// The option of an engine for a library other than the installed one.
const LIBRARY_PATH: &str = "library_path";

/// Returns the function that describes the engines of a plan.
pub(super) fn describe_with(probes: Rc<Probes>) -> DescribeEngine {
    Box::new(move |choice| describe(choice, &probes))
}

/// Describes the engine of a choice as this machine has it; `None` if its row of the table says everything.
///
/// # Errors
/// When the engine does not work on this machine.
fn describe(choice: &EngineChoice, probes: &Probes) -> Result<Option<EngineDescription>, UnavailableEngine> {
    let Ok(engine) = engine::find(&choice.engine) else { return Ok(None) };
    let delivery = engine.description().delivery;
    let reply = match delivery {
        Delivery::BuiltIn => check_engine(engine),
        Delivery::Installed if choice.options.contains_key(LIBRARY_PATH) => return Ok(None),
        _ => probes.reply(&probe_arguments(engine, &choice.folder, choice.library.as_deref(), &choice.command)),
    };
    match reply {
        ProbeReply::Works { description, .. } => Ok(description.map(|message| message.into_description(delivery))),
        ProbeReply::Fails { reason, remedy } => Err(UnavailableEngine { reason: short_reason(&reason), remedy }),
    }
}
