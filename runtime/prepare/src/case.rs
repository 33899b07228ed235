//! The check of one case: the steps of a worker up to the point where it would load a model into an engine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::regular_file::open_regular;
use flagperf_onnx::{Graph, Model, find_unknown_operator, find_weights_file, read_onnx};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::dataset_hint;
use super::fault::{Fault, FaultPlace};
use super::signature::find_difference;
use flagperf_config::{Parameters, QUERIES_MAX, SettingsFile, is_case_key, overlay_keys};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::limits::Limits;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::precision::Precision;
use flagperf_core::step::Phase;
use flagperf_core::tensor::DType;
use flagperf_data::drawn::{self, Preview};
use flagperf_data::{DataCheck, DataError, DataRoot, Pipeline};
use flagperf_load::read_recorded_times;
use flagperf_plan::{
    CasePlan, CaseSettings, EngineChoice, Manifest, ModelInput, Task, TrainingSettings, graph_name_fault,
};
use flagperf_script::{
    CaseScripts, HostServices, ScriptChoice, ScriptConfig, ScriptError, limit_worker_memory, run_on_script_stack,
};

/// What is checked of a case; the process that checks it reads it as one JSON line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRequest {
    scripts: PathBuf,
    vendor: String,
    data_dir: PathBuf,
    config: ScriptConfig,
    parameters: Parameters,
    precision: Precision,
    limits: Limits,
    /// Whether the case validates or trains, so that its scripts build a model.
    builds_model: bool,
    /// The settings of a case that trains.
    training: Option<(CaseSettings, Box<TrainingSettings>)>,
    /// Whether the case exports that model.
    exports_model: bool,
    /// The ONNX file or manifest of `exist_onnx_path`, if inference opens it.
    onnx: Option<PathBuf>,
    /// Whether an engine of this program opens that file. One that a vendor brings may have operators of its own.
    onnx_is_for_own_engine: bool,
}

impl CheckRequest {
    /// Returns what to check of a planned case; `None` for a case without jobs, and for one whose job is a program, not scripts.
    pub fn new(case: &CasePlan) -> Option<Self> {
        let first = case.jobs.first().filter(|job| job.engine.engine != PROGRAM_ENGINE)?;
        let validation = case.jobs.iter().find_map(|job| match &job.task {
            Task::Validate { export } => Some(export),
            Task::Infer { .. } | Task::Train { .. } => None,
        });
        let onnx = case.jobs.iter().find_map(|job| match &job.task {
            Task::Infer { model: ModelInput::Onnx(path) } => Some((path.clone(), &job.engine)),
            _ => None,
        });
        let is_own = |engine: &EngineChoice| engine.library.is_none() && engine.command.is_empty();
        Some(CheckRequest {
            scripts: first.scripts.clone(),
            vendor: first.vendor.clone(),
            data_dir: first.data_dir.clone(),
            config: first.config.clone(),
            parameters: first.parameters.clone(),
            precision: first.value_precision(),
            training: match &first.task {
                Task::Train { training, .. } => Some((first.settings.clone(), training.clone())),
                _ => None,
            },
            limits: first.limits,
            builds_model: validation.is_some() || first.phase() == Phase::Train,
            exports_model: validation.is_some_and(Option::is_some),
            onnx_is_for_own_engine: onnx.as_ref().is_some_and(|(_, engine)| is_own(engine)),
            onnx: onnx.map(|(path, _)| path),
        })
    }
}

/// Checks cases of one site and returns what is wrong with each. Requests for the same scripts follow each other, because
/// scripts stay compiled until a request is for others.
///
/// Runs the cases' scripts with the limits of a worker: a script that exceeds its memory or its stack ends this process.
pub fn check(requests: &[CheckRequest]) -> Vec<Vec<Fault>> {
    let Some(CheckRequest { limits, .. }) = requests.first() else { return Vec::new() };
    limit_worker_memory(limits.worker_memory_bytes.0);
    let check_all = || {
        let mut compiled = None;
        let mut check = |request| {
            let (compiled_before, faults) = (compiled.take(), Vec::new());
            let mut checker =
                Checker { request, compiled: compiled_before, faults, training_fields: None, model: None };
            checker.check_all();
            compiled = checker.compiled;
            checker.faults
        };
        requests.iter().map(&mut check).collect()
    };
    run_on_script_stack(limits.script_memory_bytes.0, check_all).unwrap_or_else(|reason| {
        let fault = Fault { place: FaultPlace::Case, reason: format!("checking the case {reason}") };
        vec![vec![fault]; requests.len()]
    })
}

/// The compiled scripts of a case, and what they were compiled from.
struct CompiledCase {
    folder: PathBuf,
    choice: ScriptChoice,
    limits: Limits,
    scripts: CaseScripts,
}

struct Checker<'r> {
    request: &'r CheckRequest,
    /// The scripts of the request before.
    compiled: Option<CompiledCase>,
    faults: Vec<Fault>,
    /// The fields of the training data, if they are known.
    training_fields: Option<Vec<String>>,
    /// The model that the scripts build, in the form in which it would be exported.
    model: Option<Model>,
}

impl Checker<'_> {
    /// Checks the file with the times at which queries arrive.
    fn check_schedule(&mut self) {
        let schedule = self.request.parameters.scenario.schedule.as_ref();
        let read = schedule.map(|schedule| read_recorded_times(&self.request.data_dir.join(schedule), QUERIES_MAX));
        if let Some(Err(error)) = read {
            self.add(FaultPlace::Parameter("scenario".to_owned()), error.to_string());
        }
    }

    fn check_all(&mut self) {
        let data_dir = &self.request.data_dir;
        if data_dir.exists() && !data_dir.is_dir() {
            let reason = format!("data directory `{}` is not a directory", data_dir.display());
            return self.add(FaultPlace::DataDirectory { hint: "give a folder".to_owned() }, reason);
        }
        let has_weights = !self.request.builds_model || self.check_weights();
        self.check_schedule();
        if let Some(compiled) = self.compile_scripts() {
            self.check_dataset(&compiled.scripts);
            if self.request.builds_model {
                self.check_model(&compiled.scripts, has_weights);
            }
            self.check_keys(&compiled.scripts);
            self.compiled = Some(compiled);
        }
        self.check_onnx();
    }

    fn add(&mut self, place: FaultPlace, reason: impl ToString) {
        self.faults.push(Fault { place, reason: reason.to_string() });
    }

    /// Checks the file that the parameter `weights` names, and returns whether it can be opened.
    fn check_weights(&mut self) -> bool {
        let Some(weights) = &self.request.parameters.weights else { return true };
        match open_weights(&self.request.data_dir, weights) {
            Ok(()) => true,
            Err((is_missing, reason)) => {
                self.add(FaultPlace::Weights { is_missing }, reason);
                false
            }
        }
    }

    /// Compiles the scripts as a worker does. If one has an error, reports the first error of each.
    fn compile_scripts(&mut self) -> Option<CompiledCase> {
        let CheckRequest { scripts: folder, vendor, limits, parameters, builds_model, .. } = self.request;
        let services = HostServices { log: Arc::new(|_, _, _| {}), clock: Arc::new(MonotonicClock::start()) };
        let choice = ScriptChoice::new(parameters, !builds_model);
        let is_same = |known: &CompiledCase| (&known.folder, &known.choice, &known.limits) == (folder, &choice, limits);
        let loaded = match self.compiled.take().filter(is_same) {
            Some(known) => Ok(known.scripts),
            None => CaseScripts::load(folder, &choice, limits, services.clone()),
        };
        if let Ok(scripts) = loaded.and_then(|loaded| loaded.for_vendor(vendor)) {
            return Some(CompiledCase { folder: folder.clone(), choice, limits: *limits, scripts });
        }
        let errors = CaseScripts::find_errors(folder, vendor, &choice, limits, services);
        self.faults.extend(errors.into_iter().map(Fault::from));
        None
    }

    fn check_dataset(&mut self, scripts: &CaseScripts) {
        let at = |error: &str| scripts.dataset_error(error);
        self.check_pipeline(scripts.build_dataloader(&self.request.config), Pipeline::check, at);
        if let Some((settings, training)) = &self.request.training {
            let pipeline = scripts.build_training_dataloader(&self.request.config);
            let at = |error: &str| scripts.training_data_error(error);
            let DataCheck { samples, fields } = self.check_pipeline(pipeline, Pipeline::check_for_training, at);
            if let Some(samples) = samples {
                self.check_steps(samples as u64, settings, training);
            }
            self.training_fields = fields;
        }
    }

    /// Checks that the data suffice for a batch, and the training for an update.
    fn check_steps(&mut self, samples: u64, settings: &CaseSettings, training: &TrainingSettings) {
        let batch = u64::from(settings.batch_size) * u64::from(training.processes);
        let (steps, per_update) = (samples / batch, u64::from(training.gradient_accumulation_steps));
        let all = training.length.in_steps(steps).all;
        if steps == 0 {
            let of_all =
                if training.processes > 1 { format!(" for {} devices", training.processes) } else { String::new() };
            let reason = format!("the training data has {samples} samples, fewer than a batch of {batch}{of_all}");
            self.add(FaultPlace::Setting("batch_size".to_owned()), &reason);
        } else if all < per_update {
            let reason = format!("an update takes {per_update} steps, and the whole training has {all}");
            self.add(FaultPlace::Setting("gradient_accumulation_steps".to_owned()), &reason);
        }
    }

    /// Checks the data of a dataloader; `at` returns an error at the line of the script that describes them.
    fn check_pipeline(
        &mut self,
        pipeline: Result<Pipeline, ScriptError>,
        check: fn(&Pipeline, &Path, DType) -> Result<DataCheck, DataError>,
        at: impl Fn(&str) -> ScriptError,
    ) -> DataCheck {
        let CheckRequest { data_dir, precision, .. } = self.request;
        let pipeline = match pipeline {
            Ok(pipeline) => pipeline,
            Err(error) => {
                self.faults.push(error.into());
                return DataCheck::default();
            }
        };
        // Files that are drawn on first use do not exist yet. If their preview cannot be drawn, the run says why it cannot draw them.
        let preview = drawn::preview(data_dir).ok().flatten();
        let folder = preview.as_ref().map_or_else(|| data_dir.clone(), Preview::folder);
        match check(&pipeline, &folder, precision.dtype()) {
            Ok(found) => DataCheck { samples: found.samples.filter(|_| preview.is_none()), ..found },
            Err(error) => {
                let text = error.to_string();
                let text = if let Some(preview) = preview { preview.name_in(&text) } else { text };
                self.add_dataset_fault(at, &error, text);
                DataCheck::default()
            }
        }
    }

    /// Adds a fault of the dataset at the line of the script that describes it; a case without a data directory has to get
    /// one where the site lists its cases.
    fn add_dataset_fault(&mut self, at: impl Fn(&str) -> ScriptError, error: &DataError, text: String) {
        let hint = dataset_hint::hint(error, &self.request.data_dir);
        let place = match error {
            DataError::NoDirectory { .. } => FaultPlace::DataDirectory { hint },
            _ => {
                let ScriptError { file, line, column, .. } = at("");
                FaultPlace::Dataset { file, line, column, is_mistake: error.is_mistake(), hint }
            }
        };
        self.add(place, text);
    }

    /// Builds the model, converts it and prepares its export. Weights stay specifications, so none are read or drawn.
    /// Without its weights file, the model gets random ones: the script would only report the file again.
    fn check_model(&mut self, scripts: &CaseScripts, has_weights: bool) {
        let CheckRequest { data_dir, config, .. } = self.request;
        let mut config = config.clone();
        if !has_weights {
            config.insert("weights".to_owned(), serde_json::Value::Null);
        }
        let config = &config;
        let model = match scripts.create_model(config, data_dir) {
            Ok(model) => model,
            Err(error) => return self.faults.push(error.into()),
        };
        let model = match self.convert(model) {
            Ok(model) => model,
            Err(reason) => return self.add(FaultPlace::Parameter("keep_f32".to_owned()), reason),
        };
        if let Some((settings, training)) = &self.request.training {
            let built =
                scripts.build_training(&model, config, settings.precision, &training.batches(settings.batch_size, 0));
            match built {
                Ok(built) => self.check_inputs(scripts, &built.with_loss),
                Err(error) => self.faults.push(error.into()),
            }
            return;
        }
        // A function of the case for its engines may run a model with other inputs and outputs.
        let is_compared = self.request.onnx.is_some() && !scripts.has_engine_forward();
        if !self.request.exports_model && !is_compared {
            return;
        }
        match scripts.export_model(model, config, None).map(|exported| exported.model) {
            Ok(exported) if self.request.exports_model => {
                let place = || FaultPlace::Script { file: self.request.scripts.clone(), line: 0, column: 0 };
                let fault = exported.graphs.keys().find_map(|name| graph_name_fault(name));
                let reason = fault.map(|fault| format!("the model has a graph {fault}"));
                self.faults.extend(reason.map(|reason| Fault { place: place(), reason }));
            }
            Ok(exported) => self.model = Some(exported),
            // A case that does not export does not need the function.
            Err(_) if !self.request.exports_model => {}
            Err(error) => self.faults.push(error.into()),
        }
    }

    /// Checks that each input of a model with its loss is a field of the training data, if these are known.
    fn check_inputs(&mut self, scripts: &CaseScripts, model: &Graph) {
        let Some(fields) = &self.training_fields else { return };
        let mut names = model.inputs.iter().map(|input| &input.name);
        if let Some(unknown) = names.find(|name| !fields.contains(name)) {
            let known = fields.join(", ");
            let reason = format!(
                "the model with its loss has the input `{unknown}`, which is no field of these data (known: {known})"
            );
            self.faults.push(scripts.training_data_error(&reason).into());
        }
    }

    /// Finds keys of `config` that a script reads although no file sets them, and parameters that nobody reads.
    fn check_keys(&mut self, scripts: &CaseScripts) {
        let CheckRequest { config, scripts: folder, .. } = self.request;
        let unset = scripts.unset_keys(config);
        let elsewhere = if unset.is_empty() { BTreeSet::new() } else { overlay_keys(folder) };
        // training.rhai reads keys of training.yaml, also in a case that is checked for inference.
        let is_of_other_file = |key: &String| elsewhere.contains(key) || SettingsFile::of_key(key).is_some();
        for (_, error) in unset.into_iter().filter(|(key, _)| !is_of_other_file(key)) {
            // What ran has reported its first error with the calls that led to it.
            let is_same_line = |fault: &Fault| match &fault.place {
                FaultPlace::Script { file, line, .. } => (file, *line) == (&error.file, error.line),
                _ => false,
            };
            if !self.faults.iter().any(is_same_line) {
                self.faults.push(error.into());
            }
        }
        // A misspelled key is reported where it is read.
        if self.faults.iter().any(|fault| matches!(fault.place, FaultPlace::Script { .. })) {
            return;
        }
        let own: Vec<&String> = config.keys().filter(|key| !is_case_key(key)).collect();
        let Some(read) = scripts.read_keys().filter(|_| !own.is_empty()) else { return };
        for key in own.into_iter().filter(|key| !read.contains(*key)) {
            self.add(FaultPlace::UnreadKey(key.clone()), "no script of the case reads it, and neither does the host");
        }
    }

    fn convert(&self, model: Model) -> Result<Model, String> {
        let CheckRequest { precision, parameters, .. } = self.request;
        flagperf_onnx::to_precision(model, *precision, &parameters.keep_f32).map_err(|error| error.to_string())
    }

    /// Reads the graphs of an existing model without their weights, and checks that inference can run them in place of
    /// the model that the scripts build.
    fn check_onnx(&mut self) {
        let Some(path) = &self.request.onnx else { return };
        let place = || FaultPlace::Setting("exist_onnx_path".to_owned());
        let files = match entry_files(path) {
            Ok(files) => files,
            Err(reason) => return self.add(place(), reason),
        };
        let mut graphs = IndexMap::new();
        for (name, file) in &files {
            match read_onnx(file) {
                Ok(graph) => drop(graphs.insert(name.clone(), graph)),
                Err(error) => self.add(place(), error),
            }
        }
        let unknown = graphs.iter().filter(|_| self.request.onnx_is_for_own_engine).find_map(|(name, graph)| {
            let (file, node) = (files[name].display(), find_unknown_operator(graph)?);
            Some(format!("`{file}`: node `{}` has the operator `{}`, which is not one of ONNX", node.name, node.op))
        });
        let is_complete = graphs.len() == files.len();
        let built = self.model.as_ref().filter(|_| is_complete);
        let difference = built.and_then(|built| find_difference(&built.graphs, &graphs));
        let difference = difference.map(|difference| format!("`{}`: {difference}", path.display()));
        for reason in unknown.into_iter().chain(difference) {
            self.add(place(), reason);
        }
    }
}

/// Opens a weights file of the data directory, or that of a folder. An error says also whether the directory lacks the file.
fn open_weights(data_dir: &Path, weights: &str) -> Result<(), (bool, String)> {
    let root = DataRoot::open(data_dir).map_err(|error| (true, error.to_string()))?;
    let file = root.resolve(Path::new(weights)).map_err(|error| match error {
        DataError::Missing { .. } => {
            let reason =
                format!("weights file `{weights}` does not exist in the data directory `{}`", data_dir.display());
            (true, reason)
        }
        error => (false, format!("weights file {error}")),
    })?;
    let file = find_weights_file(&file).map_err(|error| (false, error.to_string()))?;
    open_regular(&file).map(drop).map_err(|error| (false, format!("weights file `{}`: {error}", file.display())))
}

/// Returns the ONNX files that a path refers to, by graph: itself, or the first file of each graph of a manifest.
fn entry_files(path: &Path) -> Result<IndexMap<String, PathBuf>, String> {
    if !Manifest::has_manifest_name(path) {
        return Ok(IndexMap::from([(Model::SINGLE.to_owned(), path.to_owned())]));
    }
    let manifest = Manifest::read(path).map_err(|error| error.to_string())?;
    let graphs = manifest.graphs.iter();
    Ok(graphs.filter_map(|graph| Some((graph.name.clone(), path.with_file_name(&graph.files.first()?.path)))).collect())
}
