//! The engine and the device on which an operator runs.

use std::path::{Path, PathBuf};

use flagperf_config::OperatorDescription;
use flagperf_core::tensor::DType;
use flagperf_engine::{Artifact, Engine, EngineError, LoadOptions, Session, find, open_plugin};
use flagperf_onnx::{Graph, write_onnx};
use serde_json::Value;

/// Where the tensors of an operator lie, as an engine's option `operator_memory` names it.
pub const MEMORIES: [&str; 3] = ["plain", "guarded", "shifted"];

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

    /// Returns where the engine can place the tensors of an operator.
    pub fn memories(&self) -> &'static [&'static str] {
        match self.engine {
            EngineName::Library(_) => &MEMORIES,
            EngineName::Own(_) => &MEMORIES[..1],
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
