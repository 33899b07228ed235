//! The plug-in row: an engine in a shared library that a vendor brings, through the C interface of `flagperf-plugin`.
//!
//! Knows no vendor: the library is named in `vendor.yaml`. What a plug-in says and gives is checked; what it does to
//! this process's memory is not, which is why a phase is a process.

mod calls;
mod given;
mod library;
mod questions;
mod session;
mod table;
mod tensor;

use flagperf_plugin::abi::FLAGPERF_ABI_VERSION;

pub use library::open_plugin;

use super::{Artifact, Engine, EngineError, Facts, Options, Session, Unavailable};

/// Engines in shared libraries. What one of them can do, it says itself when it is loaded.
#[derive(Debug)]
pub struct Plugin;

impl Engine for Plugin {
    fn facts(&self) -> Facts {
        Facts {
            takes_library: true,
            ..Facts::widest(
                "plugin",
                "an engine in a shared library that the vendor brings, named by `library` in its vendor.yaml",
            )
        }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn refusal(library: Option<&str>) -> EngineError {
        let options = Options { library: library.map(Into::into), folder: "vendors/chip".into(), ..Options::default() };
        Plugin.load(Artifact::Onnx(Path::new("model.onnx")), &options).err().unwrap()
    }

    #[test]
    fn a_library_that_went_missing_is_named_with_what_to_do() {
        let error = refusal(Some("engines/libchip.so"));
        let reason = "the library `vendors/chip/engines/libchip.so` cannot be read: No such file or directory";
        assert!(error.to_string().starts_with(reason), "{error}");
        assert!(error.hint().starts_with("build it first: "), "{}", error.hint());
    }

    #[test]
    fn a_plug_in_without_a_library_says_where_it_is_named() {
        let error = refusal(None);
        assert_eq!(error.to_string(), "engine `plugin` was given no library");
        assert!(error.hint().contains("vendor.yaml"), "{}", error.hint());
    }
}
