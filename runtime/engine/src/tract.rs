//! tract: a compiler in pure Rust, behind the cargo feature `tract`. Loads ONNX files.
//!
//! Accepts no graphs in memory: it loads files.

use super::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_core::description::{EngineDescription, Roles};
use flagperf_core::tensor::DType;

/// The compiler tract. It compiles for the exact shapes of the inputs: for a full batch while loading, and for any
/// other shape at its first submit.
#[derive(Debug)]
pub struct Tract;

impl Tract {
    /// The version of the crate `tract-onnx` in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.23.9";
}

impl Engine for Tract {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32],
            opset_max: 18,
            loads_compiled: false,
            ..EngineDescription::unrestricted(
                "tract",
                "compiler in pure Rust for the processor, loads ONNX files and compiles for each batch shape",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        if cfg!(feature = "tract") {
            return Ok(Tract::VERSION.to_owned());
        }
        Err(Unavailable {
            reason: "this build does not include tract".to_owned(),
            remedy: "cargo build --release --features tract (takes several minutes)".to_owned(),
        })
    }

    #[cfg(feature = "tract")]
    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        session::load(self, artifact, options)
    }

    #[cfg(not(feature = "tract"))]
    fn load(&self, _: Artifact<'_>, _: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        Err(self.check().err().map_or_else(|| EngineError::Failed(String::new()), EngineError::Unavailable))
    }
}

#[cfg(feature = "tract")]
mod session;
