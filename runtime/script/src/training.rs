//! What `training.rhai` states about the training of a case: its data, loss, optimizer and schedule.

use std::path::PathBuf;

use flagperf_core::precision::Precision;
use flagperf_core::tensor::Dim;
use flagperf_data::Pipeline;
use flagperf_onnx::{
    Decay, HalfPrecision, LossScale, Model, Optimizer, Schedule, TrainingBatches, TrainingError, TrainingOptions,
    TrainingStep, training_step,
};
use indexmap::IndexMap;
use rhai::Dynamic;

use super::case::{CaseScripts, ScriptConfig, call_with_config, to_model, to_pipeline};
use super::compiled::CompiledScript;
use super::error::{ScriptError, file_error};
use super::names::script_type;
use super::packages::nn::{Graph, Node, refuse_node};
use super::packages::optim;
use super::sandbox::lock;
use super::stage::Stage;

/// What the scripts of a case state about its training, and the step that follows from it.
pub struct ScriptedTraining {
    /// The model with its loss.
    pub with_loss: flagperf_onnx::Graph,
    /// One step of the standard case.
    pub step: TrainingStep,
    /// The same step as the vendor's adapter converts it for the engine.
    pub converted: Option<TrainingStep>,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    /// Whether a step whose gradients are not finite changes the scale of the loss only.
    pub scales_loss: bool,
}

impl CaseScripts {
    /// Returns the ONNX files and the indices of weights that the last call of [`CaseScripts::create_model`] read.
    pub fn model_files(&self) -> Vec<PathBuf> {
        self.model.as_ref().map(|script| lock(&script.state.model_files).clone()).unwrap_or_default()
    }

    /// Calls the functions of training.rhai that do not concern data, and makes the training step of a model with products of this
    /// precision.
    ///
    /// # Errors
    /// When a function fails, the model has several graphs, or the loss cannot be differentiated.
    pub fn build_training(
        &self,
        model: &Model,
        config: &ScriptConfig,
        precision: Precision,
        batches: &TrainingBatches,
    ) -> Result<ScriptedTraining, ScriptError> {
        let fault = |reason: String| match self.training_script() {
            Ok(script) => script.function_error("compute_loss", reason),
            Err(error) => error,
        };
        let [graph] = &model.graphs.values().collect::<Vec<_>>()[..] else {
            return Err(fault("a model of several graphs cannot be trained".to_owned()));
        };
        let with_loss = self.compute_loss((*graph).clone(), config)?;
        let (optimizer, clip_norm) = self.create_optimizer(config)?;
        let schedule = self.create_scheduler(config)?;
        let half = match precision {
            Precision::Fp16 => Some(HalfPrecision::F16),
            Precision::Bf16 => Some(HalfPrecision::BF16),
            Precision::Fp32 | Precision::Tf32 => None,
        };
        let options = TrainingOptions {
            clip_norm,
            sizes: batch_sizes(&with_loss, batches.size as usize),
            half,
            loss_scale: if half == Some(HalfPrecision::F16) { Some(self.create_grad_scaler(config)?) } else { None },
            accumulated_batches: batches.accumulated,
            processes: batches.processes,
            sync_batch_norm: batches.sync_batch_norm,
            shard: batches.shard,
            ..TrainingOptions::new(optimizer.clone())
        };
        let step = training_step(&with_loss, CaseScripts::LOSS, &options)
            .map_err(|error| self.error_at_node(&error, config).unwrap_or_else(|| fault(error.to_string())))?;
        let converted = self.convert(graph, config, (&step, &options))?;
        let scales_loss = options.loss_scale.is_some();
        Ok(ScriptedTraining { with_loss, step, converted, optimizer, schedule, scales_loss })
    }

    /// Returns the error at the line that adds the node which cannot be trained: the scripts run again and may not add it.
    fn error_at_node(&self, error: &TrainingError, config: &ScriptConfig) -> Option<ScriptError> {
        let data_dir = lock(&self.model.as_ref()?.state.data_dir).clone();
        refuse_node(error.node()?, &error.to_string(), || {
            let model = match self.create_model(config, &data_dir) {
                Ok(model) => model,
                Err(refused) => return Some(refused),
            };
            self.compute_loss(model.graphs.into_values().next()?, config).err()
        })
    }

    /// Returns the training step of the model that the vendor's `convert_model` returns; `None` without this function. It has the
    /// inputs and states of the standard step, so that another engine can compute the standard step from the same states.
    fn convert(
        &self,
        model: &flagperf_onnx::Graph,
        config: &ScriptConfig,
        (standard, options): (&TrainingStep, &TrainingOptions),
    ) -> Result<Option<TrainingStep>, ScriptError> {
        const FUNCTION: &str = "convert_model";
        let Some(script) = self.training_adapter.as_ref().filter(|script| script.defines(FUNCTION)) else {
            return Ok(None);
        };
        let fault = |reason: String| script.function_error(FUNCTION, reason);
        let given = Dynamic::from(Graph::from_complete(model.clone()));
        let converted = call_with_config(script, FUNCTION, config, Some(given), to_model)?;
        let Some(graph) = converted.graphs.into_values().next() else {
            return Err(fault("it returned no graph".to_owned()));
        };
        let with_loss = self.compute_loss(graph, config)?;
        let step = training_step(&with_loss, CaseScripts::LOSS, options).map_err(|error| fault(error.to_string()))?;
        let inputs = |step: &TrainingStep| -> Vec<_> {
            step.graph.inputs.iter().map(|input| (input.name.clone(), input.spec.clone())).collect()
        };
        let (expected, actual) = (inputs(standard), inputs(&step));
        match expected.iter().zip(&actual).find(|(expected, actual)| expected != actual) {
            Some(((name, spec), (other, _))) => Err(fault(format!(
                "the converted model has `{other}` where the model of the case has `{name}` ({spec})"
            ))),
            None if expected.len() != actual.len() => {
                let reason = format!("it has {} inputs and parameters, not {}", actual.len(), expected.len());
                Err(fault(reason))
            }
            None => Ok(Some(step)),
        }
    }

    /// Calls `create_grad_scaler(config)` of the vendor's adapter. Without this function, it is PyTorch's.
    ///
    /// # Errors
    /// When the script fails or does not return a scaler.
    fn create_grad_scaler(&self, config: &ScriptConfig) -> Result<LossScale, ScriptError> {
        const FUNCTION: &str = "create_grad_scaler";
        let Some(script) = self.training_adapter.as_ref().filter(|script| script.defines(FUNCTION)) else {
            return Ok(LossScale::default());
        };
        call_with_config(script, FUNCTION, config, None, |returned| {
            let scaler = returned.read_lock::<optim::GradScaler>().map(|scaler| scaler.0);
            let actual = script_type(returned);
            scaler.ok_or_else(|| format!("`{FUNCTION}` must return a scaler (`optim::grad_scaler`), not {actual}"))
        })
    }

    /// The name of the output that contains the loss.
    pub const LOSS: &'static str = "loss";

    fn training_script(&self) -> Result<&CompiledScript, ScriptError> {
        let file = self.dir.join(Stage::Training.file());
        self.training.as_ref().ok_or_else(|| file_error(&file, "does not exist, so the case cannot be trained"))
    }

    /// Calls `build_dataloader(config)` of training.rhai: the data to train with.
    ///
    /// # Errors
    /// When the case has no training.rhai, the script fails or does not return a pipeline.
    pub fn build_training_dataloader(&self, config: &ScriptConfig) -> Result<Pipeline, ScriptError> {
        call_with_config(self.training_script()?, "build_dataloader", config, None, to_pipeline)
    }

    /// Returns an error of the training data at the call in training.rhai that describes them.
    pub fn training_data_error(&self, reason: impl Into<String>) -> ScriptError {
        match self.training_script() {
            Ok(script) => script.error_at_source("build_dataloader", reason),
            Err(error) => error,
        }
    }

    /// Calls `compute_loss(model, config)` with a graph that continues the model. Returns the graph with the loss as its
    /// only output [`CaseScripts::LOSS`].
    ///
    /// # Errors
    /// When the script fails or does not return a value of the graph.
    pub fn compute_loss(
        &self,
        model: flagperf_onnx::Graph,
        config: &ScriptConfig,
    ) -> Result<flagperf_onnx::Graph, ScriptError> {
        let script = self.training_script()?;
        let graph = Graph::continued(model).map_err(|e| script.function_error("compute_loss", e.to_string()))?;
        let model = Dynamic::from(graph.clone());
        call_with_config(script, "compute_loss", config, Some(model), |returned| {
            let loss = returned.read_lock::<Node>().map(|node| node.clone());
            let loss = loss.ok_or_else(|| {
                format!("`compute_loss` must return a value of the model's graph, not {}", script_type(returned))
            })?;
            graph.take_with_output(CaseScripts::LOSS, &loss)
        })
    }

    /// Calls `create_optimizer(config)`. Returns the optimizer and the largest norm of the gradients.
    ///
    /// # Errors
    /// When the script fails or does not return an optimizer.
    pub fn create_optimizer(&self, config: &ScriptConfig) -> Result<(Optimizer, Option<f64>), ScriptError> {
        call_with_config(self.training_script()?, "create_optimizer", config, None, |returned| {
            let optimizer = returned.read_lock::<optim::Optimizer>().map(|own| (own.rule.clone(), own.clip_norm));
            let actual = script_type(returned);
            optimizer.ok_or_else(|| format!("`create_optimizer` must return an optimizer (`optim::...`), not {actual}"))
        })
    }

    /// Calls `create_scheduler(config)`. Without this function, the learning rate does not change.
    ///
    /// # Errors
    /// When the script fails or does not return a schedule.
    pub fn create_scheduler(&self, config: &ScriptConfig) -> Result<Schedule, ScriptError> {
        let script = self.training_script()?;
        if !script.defines("create_scheduler") {
            return Ok(Schedule { decay: Decay::Constant, warm_up: None, per_step: false });
        }
        call_with_config(script, "create_scheduler", config, None, |returned| {
            let schedule = returned.read_lock::<optim::Schedule>().map(|schedule| schedule.0.clone());
            let actual = script_type(returned);
            schedule.ok_or_else(|| format!("`create_scheduler` must return a schedule (`optim::...`), not {actual}"))
        })
    }
}

/// Returns the sizes of the named first dimensions, all of which are the batch.
fn batch_sizes(graph: &flagperf_onnx::Graph, batch_size: usize) -> IndexMap<String, usize> {
    let first = graph.inputs.iter().filter_map(|input| input.spec.dims.first());
    let names = first.filter_map(|dim| if let Dim::Named(name) = dim { Some(name.clone()) } else { None });
    names.map(|name| (name, batch_size)).collect()
}
