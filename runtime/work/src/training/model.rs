//! The model of a training: its step, and the graph that is evaluated with the parameters as inputs.

use std::fs;

use flagperf_core::event::Failure;
use flagperf_core::file::write_hint;
use flagperf_core::process_group::PROCESS_GROUP_OPTION;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Bytes;
use flagperf_onnx::{
    Accumulation, Graph, Model, Optimizer, Schedule, State, StateKind, StepScalars, TrainingStep, ValueInfo,
    WeightReader, without_exchange,
};
use flagperf_plan::{CaseSettings, Job, ModelInput, TrainingSettings};
use flagperf_script::{CaseScripts, ScriptedTraining, Sessions};

use super::super::export::write_model;
use super::super::load::{differentiates, load_model, load_model_input};
use super::super::phase::failure;
use super::group::Group;
use super::labels::ClassRange;
use super::state_reader::StateReader;
use super::step_parts::StepParts;
use super::transfer::Transfer;

/// A model that can be trained.
pub struct TrainingModel {
    /// The model as the case's script builds it.
    pub model: Model,
    /// One step: batch, numbers of the step and states to loss and next states.
    pub step: TrainingStep,
    /// The step as the vendor's adapter converts it for its engine. Other engines compute the standard one.
    converted: Option<TrainingStep>,
    /// The states before the first step, in the order of [`TrainingStep::states`].
    pub first_states: Vec<Tensor>,
    /// The model with its parameters and running statistics as inputs after its own.
    pub evaluated: Graph,
    /// For each of these inputs, the index of the state.
    pub evaluated_states: Vec<usize>,
    /// The classes that the loss admits.
    pub classes: Vec<ClassRange>,
    /// Whether a step whose gradients are not finite changes the scale of the loss only.
    pub scales_loss: bool,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
}

/// The name of the session for batches that are not the last one of an update.
pub const ACCUMULATION: &str = "accumulation";

/// The sessions of a training step, and the processes that train together.
pub struct LoadedStep {
    /// That of the step, and [`ACCUMULATION`] if gradients of several batches make an update.
    pub sessions: Sessions,
    pub transfer: Option<Transfer>,
    pub reader: StateReader,
    pub group: Group,
}

impl TrainingModel {
    /// Builds the training step from the case's scripts, for the batch size of the job.
    ///
    /// # Errors
    /// When a script fails, the model has several graphs, or the loss cannot be differentiated.
    pub fn build(scripts: &CaseScripts, job: &Job, settings: &TrainingSettings) -> Result<Self, Failure> {
        let model = scripts.create_model(&job.config, &job.data_dir).map_err(|e| failure(&e, ""))?;
        let CaseSettings { batch_size, precision, .. } = job.settings;
        let rank = job.process_group.as_ref().map_or(0, |group| group.rank);
        let ScriptedTraining { with_loss, step, converted, optimizer, schedule, scales_loss } = scripts
            .build_training(&model, &job.config, precision, &settings.batches(batch_size, rank))
            .map_err(|e| failure(&e, ""))?;
        let graph = model.graphs.values().next().expect("a model that is trained has one graph");
        let first_states = first_states(&with_loss, &step.states)?;
        let (evaluated, evaluated_states) = evaluated_graph(graph, &step.states);
        let classes = ClassRange::of(&with_loss);
        Ok(TrainingModel {
            scales_loss,
            classes,
            step,
            converted,
            first_states,
            evaluated,
            evaluated_states,
            optimizer,
            schedule,
            model,
        })
    }

    /// Returns the inputs of the step that are fields of a batch.
    pub fn fields(&self) -> &[ValueInfo] {
        let inputs = &self.step.graph.inputs;
        &inputs[..inputs.len() - StepScalars::NAMES.len() - self.step.kept.len()]
    }

    /// Returns the states that the step takes, of all states.
    pub fn kept_states(&self, all: &[Tensor]) -> Vec<Tensor> {
        self.step.kept.iter().map(|index| all[*index].clone()).collect()
    }

    /// Returns the size of the states.
    pub fn state_bytes(&self) -> Bytes {
        Bytes(self.first_states.iter().map(|state| state.bytes().len() as u64).sum())
    }

    /// Loads the training step into the engine that trains: as the vendor's adapter converts it, if it does.
    ///
    /// # Errors
    /// When the engine refuses the step.
    pub fn load_step(&self, job: &Job, role: EngineRole) -> Result<Sessions, Failure> {
        self.load_graphs(&with_group(job), role, Graph::clone)
    }

    /// Loads the training step without any exchange with other processes.
    ///
    /// # Errors
    /// When the engine refuses the step.
    pub fn load_local_step(&self, job: &Job, role: EngineRole) -> Result<Sessions, Failure> {
        self.load_graphs(job, role, without_exchange)
    }

    /// Loads the graphs of a step, as `change` returns them.
    fn load_graphs(&self, job: &Job, role: EngineRole, change: fn(&Graph) -> Graph) -> Result<Sessions, Failure> {
        let step = self.converted.as_ref().unwrap_or(&self.step);
        let differentiates = differentiates(job)?;
        let graph = if differentiates { &step.undifferentiated } else { &step.graph };
        let mut sessions = load_graph(&change(graph), "step", job, role)?;
        if let Some(Accumulation { graph, undifferentiated, .. }) = &step.accumulation {
            let graph = if differentiates { undifferentiated } else { graph };
            let accumulation = load_graph(&change(graph), ACCUMULATION, job, role)?;
            sessions.extend(accumulation.into_values().map(|session| (ACCUMULATION.to_owned(), session)));
        }
        Ok(sessions)
    }

    /// Loads the parts of the standard case's training step into another engine.
    ///
    /// # Errors
    /// When the engine refuses one.
    pub fn load_parts(&self, job: &Job, role: EngineRole) -> Result<StepParts, Failure> {
        let TrainingStep { gradients, perturbed, update, joins_processes, .. } = &self.step;
        Ok(StepParts {
            gradients: load_graph(gradients, "gradients", job, role)?,
            perturbed: load_graph(perturbed, "perturbed", job, role)?,
            update: load_graph(update, "update", job, role)?,
            joins_processes: *joins_processes,
        })
    }

    /// Loads the model whose parameters are inputs into the engine of a job.
    ///
    /// # Errors
    /// When the engine refuses the model.
    pub fn load_evaluated(&self, job: &Job, role: EngineRole) -> Result<Sessions, Failure> {
        load_graph(&self.evaluated, "evaluated", job, role)
    }
}

/// Returns the job whose engine learns of the processes that train together.
pub fn with_group(job: &Job) -> Job {
    let mut job = job.clone();
    let group = job.process_group.as_ref().filter(|group| group.size > 1);
    job.engine.options.extend(group.map(|group| (PROCESS_GROUP_OPTION.to_owned(), group.option())));
    job
}

/// Loads a graph into the engine of a job: a compiler is given a file.
pub fn load_graph(graph: &Graph, name: &str, job: &Job, role: EngineRole) -> Result<Sessions, Failure> {
    let model = Model::single(graph.clone());
    match role {
        EngineRole::Framework => load_model(&model, job),
        EngineRole::Compiler => {
            let folder = job.scratch();
            let failed = |e: std::io::Error| failure(&format!("`{}`: {e}", folder.display()), write_hint(&e));
            fs::create_dir_all(&folder).map_err(failed)?;
            let path = folder.join(format!("{name}.onnx"));
            write_model(&model, &path)?;
            load_model_input(&ModelInput::Onnx(path), None, job)
        }
    }
}

fn first_states(graph: &Graph, states: &[State]) -> Result<Vec<Tensor>, Failure> {
    let mut reader = WeightReader::new(graph);
    let first = |state: &State| match state.first_value() {
        Some(value) => Ok(value),
        None => reader.tensor(&state.name).map_err(|e| failure(&e, "")),
    };
    states.iter().map(first).collect()
}

/// Returns whether a state is a weight of the model.
pub fn is_of_model(kind: StateKind) -> bool {
    matches!(kind, StateKind::Parameter | StateKind::Statistic)
}

/// Returns the graph with the states among its weights as inputs after its own, and their indices.
fn evaluated_graph(graph: &Graph, states: &[State]) -> (Graph, Vec<usize>) {
    let mut evaluated = graph.clone();
    let mut indices = Vec::new();
    for (index, state) in states.iter().enumerate().filter(|(_, state)| is_of_model(state.kind)) {
        if let Some(weight) = evaluated.weights.shift_remove(&state.name) {
            evaluated.inputs.push(ValueInfo { name: state.name.clone(), spec: weight.spec });
            indices.push(index);
        }
    }
    (evaluated, indices)
}
