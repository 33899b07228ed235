//! Describes the engines of a plan as this machine has them. A vendor's library or sidecar is asked in a process of its
//! own, because it may crash or hang.

use std::rc::Rc;

use super::probe::{ProbeReply, ProbeTarget, Probes, check_engine, short_reason};
use flagperf_core::description::Delivery;
use flagperf_plan::{DescribeEngine, EngineChoice, EngineOnMachine, UnavailableEngine};

/// Returns the function that describes the engines of a plan.
pub(super) fn describe_with(probes: Rc<Probes>) -> DescribeEngine {
    Box::new(move |choice| describe(choice, &probes))
}

/// Describes the engine of a choice as this machine has it, with the options of the case.
///
/// # Errors
/// When the engine does not work on this machine.
fn describe(choice: &EngineChoice, probes: &Probes) -> Result<EngineOnMachine, UnavailableEngine> {
    let Ok(engine) = flagperf_engine::find(&choice.engine) else { return Ok(EngineOnMachine::default()) };
    let delivery = engine.description().delivery;
    let reply = match delivery {
        Delivery::BuiltIn => check_engine(engine),
        _ => {
            let library = choice.library.as_deref();
            probes.reply(&ProbeTarget::of_engine(engine, &choice.folder, library, &choice.command, &choice.options))
        }
    };
    match reply {
        ProbeReply::Works { version, description, config_reads, .. } => {
            let description = description.map(|message| message.into_description(delivery));
            // A vendor's engine gives its version after its name.
            let own = description.and_then(|own| version.strip_prefix(own.name)?.strip_prefix(' ').map(str::to_owned));
            Ok(EngineOnMachine { description, version: own.or(Some(version)), config_reads })
        }
        ProbeReply::Fails { reason, remedy } => Err(UnavailableEngine { reason: short_reason(&reason), remedy }),
    }
}
