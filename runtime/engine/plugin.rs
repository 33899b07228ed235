//! The plug-in row: an engine in a shared library that a vendor brings, through the C interface of `flagperf-plugin`.
//!
//! Knows no vendor: the library is named in `vendor.yaml`. What a plug-in says and gives is checked; what it does to
//! this process's memory is not, which is why a phase is a process.

mod calls;
mod given;
mod library;
mod session;
mod table;
mod tensor;

use flagperf_plugin::abi::FLAGPERF_ABI_VERSION;

pub use library::open_plugin;

use super::{Artifact, Engine, EngineError, Options, Roles, Session, Unavailable};
use crate::tensor::DType;

/// Engines in shared libraries. What one of them can do, it says itself when it is loaded.
#[derive(Debug)]
pub struct Plugin;

impl Engine for Plugin {
    fn name(&self) -> &'static str {
        "plugin"
    }

    fn about(&self) -> &'static str {
        "an engine in a shared library that the vendor brings, named by `library` in its vendor.yaml"
    }

    fn roles(&self) -> Roles {
        Roles { framework: true, compiler: true }
    }

    fn precisions(&self) -> &'static [DType] {
        &[DType::F64, DType::F32, DType::F16, DType::BF16]
    }

    fn opset_max(&self) -> i64 {
        i64::MAX
    }

    fn takes_library(&self) -> bool {
        true
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(format!("{FLAGPERF_ABI_VERSION} (of the plug-in interface)"))
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let library = options.library.as_ref().ok_or_else(no_library)?;
        open_plugin(&options.folder.join(library))?.load(artifact, options)
    }
}

fn no_library() -> Unavailable {
    Unavailable {
        reason: "engine `plugin` was given no library".to_owned(),
        remedy: "name it in vendor.yaml: `{engine: plugin, library: engines/libmychip.so}`".to_owned(),
    }
}
