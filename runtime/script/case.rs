//! The scripts of a case: compiled and checked when they are loaded, then called stage by stage.
//!
//! Knows no engine and no dataset beyond their traits.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf_onnx::Model;
use indexmap::IndexMap;
use rhai::{Dynamic, Scope};
use serde_json::Value as Json;

use crate::data::Pipeline;
use crate::engine::Session;
use crate::hash::hash_bytes;
use crate::plan::Limits;

use super::compiled::Compiled;
use super::error::ScriptError;
use super::forward::{EvaluatorFn, ForwardFn};
use super::packages::data::Pipeline as PipelineValue;
use super::packages::nn::Graph;
use super::packages::session::Model as ModelValue;
use super::sandbox::{ScriptHost, lock};
use super::stage::Stage;

/// The settings as a script sees them.
pub type Config = IndexMap<String, Json>;

/// Loaded models by the name of their graph.
pub type Sessions = IndexMap<String, Arc<Mutex<Box<dyn Session>>>>;

/// Which forward function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// `model_forward`: validation, with the framework.
    Model,
    /// `engine_forward`: inference, with the compiler.
    Engine,
}

/// The compiled scripts of a case.
pub struct CaseScripts {
    dataloader: Compiled,
    pub(super) model: Compiled,
    forward: Arc<Compiled>,
    /// A vendor's own `engine_forward`.
    adapter: Option<Arc<Compiled>>,
    evaluator: Arc<Compiled>,
    pub(super) export: Option<Compiled>,
    dir: PathBuf,
    limits: Limits,
    host: ScriptHost,
}

impl CaseScripts {
    /// Compiles and checks the scripts in `dir`.
    ///
    /// # Errors
    /// When a script is missing, does not compile, calls a function that does not exist, or lacks a function of its
    /// stage; names file, line and column.
    pub fn load(dir: &Path, limits: &Limits, host: ScriptHost) -> Result<Self, ScriptError> {
        let load = |stage: Stage| Compiled::load(stage, &dir.join(stage.file()), *limits, host.clone());
        let export = is_there(&dir.join(Stage::Export.file())).then(|| load(Stage::Export)).transpose()?;
        Ok(CaseScripts {
            dataloader: load(Stage::Dataloader)?,
            model: load(Stage::Model)?,
            forward: Arc::new(load(Stage::Forward)?),
            evaluator: Arc::new(load(Stage::Evaluator)?),
            adapter: None,
            export,
            dir: dir.to_owned(),
            limits: *limits,
            host: host.clone(),
        })
    }

    /// Takes a vendor's adapter: `<vendor>/forward.rhai` below the case's folder, if it is there, replaces
    /// `engine_forward`.
    ///
    /// # Errors
    /// As [`CaseScripts::load`].
    pub fn for_vendor(mut self, vendor: &str) -> Result<Self, ScriptError> {
        let file = self.dir.join(vendor).join(Stage::Adapter.file());
        if !vendor.is_empty() && is_there(&file) {
            let adapter = Compiled::load(Stage::Adapter, &file, self.limits, self.host.clone())?;
            self.adapter = Some(Arc::new(adapter));
        }
        Ok(self)
    }

    /// SHA-256 of every script by its file, hexadecimal.
    pub fn hashes(&self) -> IndexMap<String, String> {
        let parts: [Option<&Compiled>; 6] = [
            Some(&self.dataloader),
            Some(&self.model),
            Some(&self.forward),
            Some(&self.evaluator),
            self.adapter.as_deref(),
            self.export.as_ref(),
        ];
        let hash = |script: &Compiled| (script.host.name.clone(), hash_bytes(script.text().as_bytes()));
        parts.into_iter().flatten().map(hash).collect()
    }

    /// Calls `build_dataloader(config)`.
    ///
    /// # Errors
    /// When the script fails or gives back no pipeline.
    pub fn build_dataloader(&self, config: &Config) -> Result<Pipeline, ScriptError> {
        let script = &self.dataloader;
        call(script, "build_dataloader", config, None, |made| {
            let pipeline = made.read_lock::<PipelineValue>().map(|pipeline| pipeline.0.clone());
            let is = made.type_name();
            pipeline.ok_or_else(|| format!("`build_dataloader` must return a pipeline (`data::...`), not {is}"))
        })
    }

    /// Calls `create_model(config)`; weights lie below `data_dir`.
    ///
    /// # Errors
    /// When the script fails or gives back neither a graph nor a map of graphs.
    pub fn create_model(&self, config: &Config, data_dir: &Path) -> Result<Model, ScriptError> {
        *lock(&self.model.host.data_dir) = data_dir.to_owned();
        call(&self.model, "create_model", config, None, model_of)
    }

    /// Calls `export_model(model, config)`, or gives the model back where the case has none.
    ///
    /// # Errors
    /// As [`CaseScripts::create_model`].
    pub fn export_model(&self, model: Model, config: &Config) -> Result<Model, ScriptError> {
        let Some(script) = &self.export else { return Ok(model) };
        let handed = |graph| Dynamic::from(Graph::complete(graph));
        let single = model.graphs.len() == 1;
        let mut graphs = model.graphs.into_iter().map(|(name, graph)| (name.into(), handed(graph)));
        let model = match graphs.next() {
            Some((_, only)) if single => only,
            first => Dynamic::from(first.into_iter().chain(graphs).collect::<rhai::Map>()),
        };
        call(script, "export_model", config, Some(model), model_of)
    }

    /// The forward function over loaded models. Without an `engine_forward`, the engine is driven by `model_forward`.
    ///
    /// # Errors
    /// Does not fail at present: scripts were checked when they were loaded.
    pub fn forward(&self, which: Forward, sessions: Sessions) -> Result<ForwardFn, ScriptError> {
        let (script, function) = match (which, &self.adapter) {
            (Forward::Engine, Some(adapter)) => (adapter, "engine_forward"),
            (Forward::Engine, None) if self.forward.defines("engine_forward") => (&self.forward, "engine_forward"),
            _ => (&self.forward, "model_forward"),
        };
        let mut rows = Vec::new();
        let mut model = |session| {
            let model = ModelValue::new(session);
            rows.push(model.rows());
            Dynamic::from(model)
        };
        let single = sessions.len() == 1;
        let mut models = sessions.into_iter().map(|(name, session)| (name.into(), model(session)));
        let handed = match models.next() {
            Some((_, only)) if single => only,
            first => Dynamic::from(first.into_iter().chain(models).collect::<rhai::Map>()),
        };
        Ok(ForwardFn::new(script.clone(), function, handed, rows))
    }

    /// The evaluator.
    pub fn evaluator(&self) -> EvaluatorFn {
        EvaluatorFn::new(self.evaluator.clone())
    }
}

/// A model from what a script returned: one graph, or a map of them.
fn model_of(made: &Dynamic) -> Result<Model, String> {
    let graph = |value: &Dynamic| match value.read_lock::<Graph>() {
        Some(graph) => graph.take(),
        None => Err(format!("it must return a graph (`nn::graph`) or a map of graphs, not {}", value.type_name())),
    };
    match made.read_lock::<rhai::Map>() {
        Some(map) if map.is_empty() => Err("it returns a map without graphs".to_owned()),
        Some(map) => {
            let graphs = map.iter().map(|(name, value)| Ok((name.to_string(), graph(value)?)));
            Ok(Model { graphs: graphs.collect::<Result<_, String>>()? })
        }
        None => graph(made).map(Model::single),
    }
}

/// Whether a file is there in any form: a FIFO or a link to nothing in place of a script is an error, not no script.
fn is_there(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

/// Calls a function of the configuration, with `first` before it.
fn call<T>(
    script: &Compiled,
    function: &'static str,
    config: &Config,
    first: Option<Dynamic>,
    convert: impl FnOnce(&Dynamic) -> Result<T, String>,
) -> Result<T, ScriptError> {
    let settings = rhai::serde::to_dynamic(config).map_err(|error| script.error_at(function, error.to_string()))?;
    let arguments = || first.into_iter().chain([settings]).collect::<Vec<Dynamic>>();
    script.call(&mut Scope::new(), function, arguments, || config.keys().cloned().collect(), convert)
}
