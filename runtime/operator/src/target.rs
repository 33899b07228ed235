//! The engine and the device on which an operator runs.

use std::path::{Path, PathBuf};

use flagperf_config::OperatorDescription;
use flagperf_core::suggestion::list_names;
use flagperf_core::tensor::DType;
use flagperf_engine::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable, find, open_plugin};
use flagperf_onnx::{Graph, write_onnx};
use serde_json::Value;

/// Where the tensors of an operator lie, as an engine's option `operator_memory` names it: first where writing outside of the
/// outputs is found, which otherwise may damage the process.
const MEMORIES: [&str; 3] = ["guarded", "shifted", "plain"];
/// The engines of this program that run operators of vendors.
const OWN_ENGINES: [&str; 1] = ["onnxruntime"];

/// The engine and the device on which an operator runs.
#[derive(Clone, Debug)]
pub struct Target {
    /// The library of a plug-in, or the name of an engine of this program.
    pub engine: EngineName,
    /// `cpu`, or a device such as `cuda:0`.
    pub device: String,
}

/// An engine.
#[derive(Clone, Debug)]
pub enum EngineName {
    /// The library of a plug-in.
    Library(PathBuf),
    /// An engine of this program.
    Own(String),
}

impl Target {
    /// Returns the kind of device for which the operator's library has to be built.
    pub fn device_kind(&self) -> &str {
        self.device.split(':').next().unwrap_or_default()
    }

    /// Returns why the target cannot run an operator at all; `None` if nothing is known to be missing.
    pub fn obstacle(&self, operator: &OperatorDescription) -> Option<String> {
        if let EngineName::Own(name) = &self.engine {
            if !OWN_ENGINES.contains(&name.as_str()) {
                return Some(format!(
                    "engine `{name}` runs no operators of vendors (those that do: libtorch, onnxruntime)"
                ));
            }
            if let Some(Unavailable { reason, remedy }) = find(name).ok().and_then(|engine| engine.check().err()) {
                return Some(format!("{reason}\n  hint: {remedy}"));
            }
        }
        let kind = self.device_kind();
        let (vendor, name) = operator.name();
        let build = format!("run `flagperf operator build {vendor}/{name} --device {kind}`");
        match operator.library(kind) {
            _ if !operator.build.contains_key(kind) => {
                let known = list_names(operator.build.keys().map(String::as_str));
                Some(format!("operator.yaml has no `build` for devices of the kind `{kind}` (known: {known})"))
            }
            Some(library) if library.is_file() => None,
            Some(library) => Some(format!("`{}` does not exist\n  hint: {build}", library.display())),
            None => Some("there is no folder for caches; set XDG_CACHE_HOME".to_owned()),
        }
    }

    /// Returns where the engine can place the tensors of an operator.
    pub fn memories(&self) -> &'static [&'static str] {
        match self.engine {
            EngineName::Library(_) => &MEMORIES,
            EngineName::Own(_) => &MEMORIES[2..],
        }
    }

    fn engine(&self) -> Result<&'static dyn Engine, EngineError> {
        match &self.engine {
            EngineName::Library(path) => Ok(open_plugin(path)?),
            EngineName::Own(name) => find(name).map_err(|unknown| EngineError::Failed(unknown.to_string())),
        }
    }

    /// Loads a graph with operators of the vendor.
    pub(crate) fn load(
        &self,
        operator: &OperatorDescription,
        graph: &Graph,
        dtype: DType,
        options: &[(&str, Value)],
        scratch: &Path,
    ) -> Result<Box<dyn Session>, EngineError> {
        let file = scratch.join("model.onnx");
        write_onnx(graph, &file).map_err(|error| EngineError::Failed(error.to_string()))?;
        let vendor = operator.folder.parent().and_then(Path::parent).unwrap_or(&operator.folder);
        let mut load = LoadOptions {
            folder: vendor.to_owned(),
            scratch: scratch.to_owned(),
            precision: if dtype.is_float() { dtype } else { DType::F32 },
            ..LoadOptions::default()
        };
        let (name, value) = match self.engine {
            EngineName::Library(_) => ("device", self.device.as_str()),
            EngineName::Own(_) => ("provider", self.device_kind()),
        };
        load.extra.insert(name.to_owned(), value.into());
        load.extra.extend(options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self.engine()?.load(Artifact::Onnx(&file), &load)
    }
}
