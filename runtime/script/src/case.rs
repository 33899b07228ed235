//! The scripts of one case: compiled and checked when they are loaded, then called stage by stage.
//!
//! Knows engines and datasets only through their traits.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf_onnx::Model;
use flagperf_onnx_exec::ProofLimits;
use indexmap::IndexMap;
use rhai::{Dynamic, Scope};
use serde_json::Value as Json;

use flagperf_config::Parameters;
use flagperf_core::limits::Limits;
use flagperf_data::Pipeline;
use flagperf_engine::Session;

use super::compiled::{CompiledScript, ScriptPlace};
use super::error::{ScriptError, file_error};
use super::exported::{Exported, ModelRewrite};
use super::forward::{EvaluatorFn, ForwardFn, settings};
use super::names::script_type;
use super::packages::data::Pipeline as ScriptPipeline;
use super::packages::nn::Graph;
use super::packages::session::Model as ScriptModel;
use super::sandbox::{HostServices, lock};
use super::stage::Stage;

/// The settings of a case as scripts see them: `config`.
pub type ScriptConfig = IndexMap<String, Json>;

/// Loaded models by the name of their graph.
pub type Sessions = IndexMap<String, Arc<Mutex<Box<dyn Session>>>>;

/// The two kinds of forward function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardKind {
    /// `model_forward`: validation with the framework.
    Model,
    /// `engine_forward`: inference with the compiler.
    Engine,
}

/// Which scripts of a case are loaded, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptChoice {
    /// The shared script that replaces `forward.rhai`: `lib/classification`.
    pub forward: Option<String>,
    /// The shared script that replaces `evaluator.rhai`.
    pub evaluator: Option<String>,
    /// Whether the case may lack `model.rhai`, because no model is built.
    pub without_model: bool,
}

impl ScriptChoice {
    /// Returns the choice that the parameters of a case make.
    pub fn new(parameters: &Parameters, without_model: bool) -> Self {
        let Parameters { forward, evaluator, .. } = parameters.clone();
        ScriptChoice { forward, evaluator, without_model }
    }
}

/// The compiled scripts of a case.
pub struct CaseScripts {
    dataloader: CompiledScript,
    /// `None` when the case has none and needs none.
    pub(super) model: Option<CompiledScript>,
    forward: Arc<CompiledScript>,
    /// A vendor's `engine_forward`, which replaces the one of the case.
    adapter: Option<Arc<CompiledScript>>,
    evaluator: Arc<CompiledScript>,
    pub(super) export: Option<CompiledScript>,
    /// What a vendor changes of the exported model for its compiler.
    export_adapter: Option<CompiledScript>,
    /// `None` when the case cannot be trained.
    pub(super) training: Option<CompiledScript>,
    /// What a vendor changes of the training step for its engine.
    pub(super) training_adapter: Option<CompiledScript>,
    pub(super) dir: PathBuf,
    limits: Limits,
    services: HostServices,
}

impl CaseScripts {
    /// Compiles and checks the scripts in `dir`, the folder of a case; `lib`, with the shared scripts, lies beside it.
    ///
    /// # Errors
    /// When a script is missing, does not compile, calls an unknown function, or lacks a required function of its
    /// stage. The error has the file, line and column.
    pub fn load(
        dir: &Path,
        choice: &ScriptChoice,
        limits: &Limits,
        services: HostServices,
    ) -> Result<Self, ScriptError> {
        let folder = ScriptFolder { dir, vendor: "", choice, limits: *limits, services: services.clone() };
        Ok(CaseScripts {
            dataloader: folder.load_required(Stage::Dataloader)?,
            model: folder.load(Stage::Model)?,
            forward: Arc::new(folder.load_required(Stage::Forward)?),
            evaluator: Arc::new(folder.load_required(Stage::Evaluator)?),
            adapter: None,
            export: folder.load(Stage::Export)?,
            export_adapter: None,
            training: folder.load(Stage::Training)?,
            training_adapter: None,
            dir: dir.to_owned(),
            limits: *limits,
            services,
        })
    }

    /// Returns the first error of each script of a case, for a report of all mistakes at once. Every script is loaded
    /// as [`CaseScripts::load`] and [`CaseScripts::for_vendor`] load it.
    pub fn find_errors(
        dir: &Path,
        vendor: &str,
        choice: &ScriptChoice,
        limits: &Limits,
        services: HostServices,
    ) -> Vec<ScriptError> {
        let folder = ScriptFolder { dir, vendor, choice, limits: *limits, services };
        let mut errors = Vec::new();
        for error in Stage::ALL.into_iter().filter_map(|stage| folder.load(stage).err()) {
            // Several stages may import the same shared script.
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        errors
    }

    /// Adds the vendor's adapters in the folder of the case, as far as they exist: `<vendor>/forward.rhai` replaces
    /// `engine_forward`, `<vendor>/export.rhai` changes the exported model, and `<vendor>/training.rhai` changes how the
    /// engine gets the training step.
    ///
    /// # Errors
    /// The same as for [`CaseScripts::load`].
    pub fn for_vendor(mut self, vendor: &str) -> Result<Self, ScriptError> {
        let choice = ScriptChoice::default();
        let (limits, services) = (self.limits, self.services.clone());
        let folder = ScriptFolder { dir: &self.dir, vendor, choice: &choice, limits, services };
        self.adapter = folder.load(Stage::Adapter)?.map(Arc::new);
        self.export_adapter = folder.load(Stage::ExportAdapter)?;
        self.training_adapter = folder.load(Stage::TrainingAdapter)?;
        if let (Some(script), Some(root)) = (&self.export_adapter, self.dir.ancestors().nth(2)) {
            *lock(&script.state.vendor) = Some(root.join("vendors").join(vendor));
        }
        Ok(self)
    }

    /// Calls `build_dataloader(config)`.
    ///
    /// # Errors
    /// When the script fails or does not return a pipeline.
    pub fn build_dataloader(&self, config: &ScriptConfig) -> Result<Pipeline, ScriptError> {
        call_with_config(&self.dataloader, "build_dataloader", config, None, to_pipeline)
    }

    /// Returns an error of the dataset at the call in dataloader.rhai that describes it, once
    /// [`CaseScripts::build_dataloader`] has returned the pipeline.
    pub fn dataset_error(&self, reason: impl Into<String>) -> ScriptError {
        self.dataloader.error_at_source("build_dataloader", reason)
    }

    /// Calls `create_model(config)`. Paths of weights are relative to `data_dir`.
    ///
    /// # Errors
    /// When the script fails or returns neither a graph nor a map of graphs.
    pub fn create_model(&self, config: &ScriptConfig, data_dir: &Path) -> Result<Model, ScriptError> {
        let missing =
            || file_error(&self.dir.join(Stage::Model.file()), "does not exist, so there is no model to build");
        let script = self.model.as_ref().ok_or_else(missing)?;
        *lock(&script.state.data_dir) = data_dir.to_owned();
        lock(&script.state.model_files).clear();
        call_with_config(script, "create_model", config, None, to_model)
    }

    /// Calls `export_model(model, config)` of the case and then that of the vendor, as far as they exist. With limits, each
    /// replaced place is compared with what replaces it.
    ///
    /// # Errors
    /// The same as for [`CaseScripts::create_model`], and when the script of the vendor changes the inputs or outputs.
    pub fn export_model(
        &self,
        model: Model,
        config: &ScriptConfig,
        limits: Option<ProofLimits>,
    ) -> Result<Exported, ScriptError> {
        let mut exported = Exported { model, rewrites: Vec::new() };
        for script in [&self.export, &self.export_adapter].into_iter().flatten() {
            let before = exported.model.clone();
            script.state.changes.start(limits);
            exported.model = call_export(script, exported.model, config)?;
            if self.export_adapter.as_ref().is_some_and(|adapter| std::ptr::eq(adapter, script)) {
                check_interface(&before, &exported.model).map_err(|reason| script.function_error(EXPORT, reason))?;
            }
            let (changes, script) = (script.state.changes.take(), script.state.name.clone());
            exported.rewrites.push(ModelRewrite { script, before, after: exported.model.clone(), changes });
        }
        Ok(exported)
    }

    /// Returns the keys of `config` that a script reads and that are not set, each with the error at its position.
    pub fn unset_keys(&self, config: &ScriptConfig) -> Vec<(String, ScriptError)> {
        let known: Vec<&str> = config.keys().map(String::as_str).collect();
        let mut unset: Vec<(String, ScriptError)> = Vec::new();
        for (key, error) in self.scripts().flat_map(|script| script.unset_keys(&known)) {
            // Several stages may import the same shared script.
            let error = explain_config(error, config);
            if !unset.iter().any(|(_, known)| *known == error) {
                unset.push((key, error));
            }
        }
        unset
    }

    /// Returns the keys of `config` that the scripts of the case read, with any vendor; `None` if they may read any.
    pub fn read_keys(&self) -> Option<BTreeSet<String>> {
        let entries = std::fs::read_dir(&self.dir).ok()?.flatten();
        let vendors = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
        let choice = ScriptChoice::default();
        let load = |vendor: std::ffi::OsString| {
            let (limits, services) = (self.limits, self.services.clone());
            let vendor = vendor.to_str()?;
            let folder = ScriptFolder { dir: &self.dir, vendor, choice: &choice, limits, services };
            let adapters = [Stage::Adapter, Stage::ExportAdapter, Stage::TrainingAdapter];
            adapters.into_iter().map(|stage| folder.load(stage).ok()).collect::<Option<Vec<_>>>()
        };
        let adapters: Vec<Vec<Option<CompiledScript>>> = vendors.map(load).collect::<Option<_>>()?;
        let scripts = self.scripts().chain(adapters.iter().flatten().flatten());
        let keys: Vec<BTreeSet<String>> = scripts.map(|script| script.config_reads().names()).collect::<Option<_>>()?;
        Some(keys.into_iter().flatten().collect())
    }

    fn scripts(&self) -> impl Iterator<Item = &CompiledScript> {
        let always = [&self.dataloader, &*self.forward, &*self.evaluator];
        let training = self.training.iter().chain(&self.training_adapter);
        let export = self.export.iter().chain(&self.export_adapter);
        always.into_iter().chain(&self.model).chain(export).chain(training).chain(self.adapter.as_deref())
    }

    /// Returns whether the case has a forward function of its own for inference.
    pub fn has_engine_forward(&self) -> bool {
        self.adapter.is_some() || self.forward.defines("engine_forward")
    }

    /// Returns the forward function for the loaded models. A case without `engine_forward` runs `model_forward` with
    /// the engine.
    pub fn forward(&self, kind: ForwardKind, sessions: Sessions) -> ForwardFn {
        let (script, function) = match (kind, &self.adapter) {
            (ForwardKind::Engine, Some(adapter)) => (adapter, "engine_forward"),
            (ForwardKind::Engine, None) if self.forward.defines("engine_forward") => (&self.forward, "engine_forward"),
            _ => (&self.forward, "model_forward"),
        };
        let mut runs = IndexMap::new();
        let mut model = |name: &str, session| {
            let model = ScriptModel::new(session);
            runs.insert(name.to_owned(), model.run_counter());
            Dynamic::from(model)
        };
        let single = sessions.len() == 1;
        let mut models = sessions.into_iter().map(|(name, session)| {
            let model = model(&name, session);
            (name.into(), model)
        });
        let model = match models.next() {
            Some((_, only)) if single => only,
            first => Dynamic::from(first.into_iter().chain(models).collect::<rhai::Map>()),
        };
        ForwardFn::new(script.clone(), function, model, runs)
    }

    pub fn evaluator(&self) -> EvaluatorFn {
        EvaluatorFn::new(self.evaluator.clone())
    }
}

/// Compiles and checks the evaluator of the case in `dir` alone.
///
/// # Errors
/// The same as for [`CaseScripts::load`].
pub fn load_evaluator(
    dir: &Path,
    choice: &ScriptChoice,
    limits: &Limits,
    services: HostServices,
) -> Result<EvaluatorFn, ScriptError> {
    let folder = ScriptFolder { dir, vendor: "", choice, limits: *limits, services };
    folder.load_required(Stage::Evaluator).map(|script| EvaluatorFn::new(Arc::new(script)))
}

/// The folder of a case, with everything that loading one of its scripts needs.
struct ScriptFolder<'c> {
    dir: &'c Path,
    /// The vendor with the adapter; empty for none.
    vendor: &'c str,
    choice: &'c ScriptChoice,
    limits: Limits,
    services: HostServices,
}

impl ScriptFolder<'_> {
    /// Loads the script of a stage; `None` when the case has none and needs none.
    fn load(&self, stage: Stage) -> Result<Option<CompiledScript>, ScriptError> {
        let may_lack = match stage {
            Stage::Adapter | Stage::ExportAdapter | Stage::TrainingAdapter if self.vendor.is_empty() => {
                return Ok(None);
            }
            // It belongs to a vendor.
            Stage::Monitor => return Ok(None),
            Stage::Adapter | Stage::Export | Stage::ExportAdapter | Stage::Training | Stage::TrainingAdapter => true,
            Stage::Model => self.choice.without_model,
            Stage::Dataloader | Stage::Forward | Stage::Evaluator => false,
        };
        if may_lack && !path_exists(&self.file(stage)) { Ok(None) } else { self.load_required(stage).map(Some) }
    }

    /// Loads the script of a stage from the folder, or the shared script that replaces it.
    fn load_required(&self, stage: Stage) -> Result<CompiledScript, ScriptError> {
        let shared = match stage {
            Stage::Forward => self.choice.forward.as_deref(),
            Stage::Evaluator => self.choice.evaluator.as_deref(),
            _ => None,
        };
        let file = self.file(stage);
        let place = shared.map_or(ScriptPlace::Own(&file), ScriptPlace::Shared);
        let scripts = self.dir.parent().unwrap_or(self.dir);
        CompiledScript::load(stage, scripts, &place, self.limits, self.services.clone())
    }

    fn file(&self, stage: Stage) -> PathBuf {
        let is_adapter = matches!(stage, Stage::Adapter | Stage::ExportAdapter | Stage::TrainingAdapter);
        let vendor = if is_adapter { self.vendor } else { "" };
        self.dir.join(vendor).join(stage.file())
    }
}

/// The function of `export.rhai`.
const EXPORT: &str = "export_model";

fn call_export(script: &CompiledScript, model: Model, config: &ScriptConfig) -> Result<Model, ScriptError> {
    let to_dynamic = |graph| Dynamic::from(Graph::from_complete(graph));
    let single = model.graphs.len() == 1;
    let mut graphs = model.graphs.into_iter().map(|(name, graph)| (name.into(), to_dynamic(graph)));
    let model = match graphs.next() {
        Some((_, only)) if single => only,
        first => Dynamic::from(first.into_iter().chain(graphs).collect::<rhai::Map>()),
    };
    call_with_config(script, EXPORT, config, Some(model), to_model)
}

/// Checks that a model has the graphs, inputs and outputs of another.
fn check_interface(before: &Model, after: &Model) -> Result<(), String> {
    let names = |model: &Model| model.graphs.keys().cloned().collect::<Vec<_>>().join(", ");
    for (name, graph) in &before.graphs {
        let changed = after.graphs.get(name).ok_or_else(|| {
            format!("the graph `{name}` is missing: the script of a vendor keeps the graphs ({})", names(before))
        })?;
        let values = [("input", &graph.inputs, &changed.inputs), ("output", &graph.outputs, &changed.outputs)];
        for (kind, expected, actual) in values {
            if let Some((expected, _)) = expected.iter().zip(actual).find(|(expected, actual)| expected != actual) {
                let expected = format!("`{}` ({})", expected.name, expected.spec);
                return Err(format!(
                    "graph `{name}` no longer has the {kind} {expected}: the script of a vendor keeps inputs and outputs"
                ));
            }
            if expected.len() != actual.len() {
                let counts = (actual.len(), expected.len());
                return Err(format!("graph `{name}` has {} {kind}s instead of {}", counts.0, counts.1));
            }
        }
    }
    if after.graphs.len() == before.graphs.len() {
        Ok(())
    } else {
        Err(format!("the graphs are no longer {}", names(before)))
    }
}

/// Converts the return value of a script function to a model: one graph, or a map of graphs.
pub(super) fn to_model(returned: &Dynamic) -> Result<Model, String> {
    let graph = |value: &Dynamic| match value.read_lock::<Graph>() {
        Some(graph) => graph.take(),
        None => Err(format!(
            "the function must return a graph (`nn::graph`) or a map of graphs, not {}",
            script_type(value)
        )),
    };
    match returned.read_lock::<rhai::Map>() {
        Some(map) if map.is_empty() => Err("the function returned an empty map, without a graph".to_owned()),
        Some(map) => {
            let graphs = map.iter().map(|(name, value)| Ok((name.to_string(), graph(value)?)));
            Ok(Model { graphs: graphs.collect::<Result<_, String>>()? })
        }
        None => graph(returned).map(Model::single),
    }
}

/// Returns whether anything exists at `file`: a FIFO or a dangling link in place of a script must be reported as an
/// error, not treated as a missing script.
fn path_exists(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

/// Returns the pipeline that a `build_dataloader` returned.
pub(super) fn to_pipeline(returned: &Dynamic) -> Result<Pipeline, String> {
    let pipeline = returned.read_lock::<ScriptPipeline>().map(|pipeline| pipeline.0.clone());
    let actual = script_type(returned);
    pipeline.ok_or_else(|| format!("`build_dataloader` must return a pipeline (`data::...`), not {actual}"))
}

/// Calls `function` with the configuration as its last argument, after `first` if there is one.
pub(super) fn call_with_config<T>(
    script: &CompiledScript,
    function: &'static str,
    config: &ScriptConfig,
    first: Option<Dynamic>,
    convert: impl FnOnce(&Dynamic) -> Result<T, String>,
) -> Result<T, ScriptError> {
    let settings = settings(script, function, config)?;
    let arguments = || first.into_iter().chain([settings]).collect::<Vec<Dynamic>>();
    let called = script.call(&mut Scope::new(), function, arguments, || config.keys().cloned().collect(), convert);
    called.map_err(|error| explain_config(error, config))
}

/// Adds to an error about an unknown property where the properties of `config` are set.
fn explain_config(error: ScriptError, config: &ScriptConfig) -> ScriptError {
    let case = config.get("case").and_then(Json::as_str);
    match case.filter(|_| error.is_strange_property) {
        Some(case) => {
            let reason = format!("{}: `config` has what configs/{case}/parameters.yaml sets", error.reason);
            ScriptError { reason, ..error }
        }
        None => error,
    }
}
