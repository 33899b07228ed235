//! The engine `program`: the row of the table for cases that a training program of their own trains. The worker starts the program,
//! so that no model is loaded here.

use super::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_core::description::{EngineDescription, PROGRAM_ENGINE, Roles};

/// The engine that starts a training program.
#[derive(Debug)]
pub struct Program;

impl Engine for Program {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: true, compiler: false },
            compiles: false,
            loads_compiled: false,
            uses_threads: false,
            ..EngineDescription::unrestricted(
                PROGRAM_ENGINE,
                "starts the training program of a case and reads what it prints; runs no model itself",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    fn load(&self, _: Artifact<'_>, _: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let reason = "it starts a training program and runs no model".to_owned();
        Err(Unavailable { reason, remedy: "use it for a training, or choose another framework".to_owned() }.into())
    }
}
