//! tract: a compiler in pure Rust, behind the cargo feature `tract`. Loads ONNX files.
//!
//! Knows no graph of ours: it is given files.

use super::{Artifact, Engine, EngineError, Facts, Options, Roles, Session, Unavailable};
use crate::tensor::DType;

/// The compiler tract. It compiles for the exact shapes of its inputs: once for a full batch while loading, and again
/// at the first submit of each other shape.
#[derive(Debug)]
pub struct Tract;

impl Tract {
    /// Version of the crate `tract-onnx`, as in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.23.9";
}

impl Engine for Tract {
    fn facts(&self) -> Facts {
        Facts {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32],
            opset_max: 18,
            takes_compiled: false,
            ..Facts::widest(
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
            reason: "this build is without tract".to_owned(),
            remedy: "cargo build --release --features tract (compiles for minutes)".to_owned(),
        })
    }

    #[cfg(feature = "tract")]
    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        session::load(self, artifact, options)
    }

    #[cfg(not(feature = "tract"))]
    fn load(&self, _: Artifact<'_>, _: &Options) -> Result<Box<dyn Session>, EngineError> {
        Err(self.check().err().map_or_else(|| EngineError::Failed(String::new()), EngineError::Unavailable))
    }
}

#[cfg(feature = "tract")]
mod session;
