//! The table row of plug-ins: engines in shared libraries of vendors, called by the C interface of `flagperf-plugin`.
//!
//! A plug-in is not trusted, but it is not isolated either. The host reads the model first, and checks every table,
//! shape, type, stride and pointer that a plug-in returns. It cannot check what a plug-in does to the memory of this
//! process, which is why each phase is a process of its own: a memory error ends only that worker. Buffers and outputs
//! of a plug-in keep its session alive, so nothing outlives what it depends on.
//!
//! Knows no vendor: `vendor.yaml` names the library.

mod calls;
mod model_file;
mod library;
mod questions;
mod session;
mod table;
mod tensor;

use flagperf_plugin::abi::FLAGPERF_ABI_VERSION;

pub use library::open_plugin;

use super::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_core::description::{Delivery, EngineDescription};

/// The row for every engine in a shared library. What one plug-in supports is known only after its library is loaded.
#[derive(Debug)]
pub struct Plugin;

impl Engine for Plugin {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            delivery: Delivery::Library,
            options: None,
            ..EngineDescription::unrestricted(
                "plugin",
                "an engine in a shared library that the vendor brings, named by `library` in its vendor.yaml",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(format!("{FLAGPERF_ABI_VERSION} (plug-in interface)"))
    }

    fn differentiates(&self, options: &LoadOptions) -> Result<bool, EngineError> {
        open(options)?.differentiates(options)
    }

    fn has_option(&self, name: &str, options: &LoadOptions) -> Result<bool, EngineError> {
        open(options)?.has_option(name, options)
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        open(options)?.load(artifact, options)
    }
}

fn open(options: &LoadOptions) -> Result<&'static dyn Engine, EngineError> {
    let library = options.library.as_ref().ok_or_else(missing_library)?;
    Ok(open_plugin(&options.folder.join(library))?)
}

fn missing_library() -> Unavailable {
    Unavailable {
        reason: "engine `plugin` has no `library`".to_owned(),
        remedy: "set it in vendor.yaml: `{engine: plugin, library: engines/libmychip.so}`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn load_error(library: Option<&str>) -> EngineError {
        let options =
            LoadOptions { library: library.map(Into::into), folder: "vendors/chip".into(), ..LoadOptions::default() };
        Plugin.load(Artifact::Onnx(Path::new("model.onnx")), &options).err().unwrap()
    }

    #[test]
    fn a_missing_library_is_named_with_a_hint() {
        let error = load_error(Some("engines/libchip.so"));
        let reason = "the library `vendors/chip/engines/libchip.so` cannot be read: No such file or directory";
        assert!(error.to_string().starts_with(reason), "{error}");
        assert!(error.hint().starts_with("build it first: "), "{}", error.hint());
    }

    #[test]
    fn a_plug_in_without_a_library_has_a_hint_about_vendor_yaml() {
        let error = load_error(None);
        assert_eq!(error.to_string(), "engine `plugin` has no `library`");
        assert!(error.hint().contains("vendor.yaml"), "{}", error.hint());
    }
}
