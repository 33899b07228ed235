//! The graph of a training step.

use indexmap::IndexMap;

use super::TrainingError;
use super::batch_norm::use_batch_statistics;
use super::clip::{clip, total_norm};
use super::optimizer::{Optimizer, StepScalars};
use crate::lower::Rewriting;
use crate::operator_set::set_version;
use crate::{
    DType, Differentiated, Dim, Graph, TensorSpec, ValueInfo, Weight, WeightRole, check, differentiate, upgrade,
};

/// How a model is trained.
#[derive(Clone, Debug)]
pub struct TrainingOptions {
    /// The update rule of the parameters.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients together; larger ones are scaled down. `None` does not limit them.
    pub clip_norm: Option<f64>,
    /// The sizes of the named dimensions, of which the batch is one.
    pub sizes: IndexMap<String, usize>,
}

/// A model with its loss as one graph for each step.
///
/// The inputs are those of the model, then the numbers of [`StepScalars`], then the states; the outputs are the loss, the
/// norm of the gradients before clipping, then the next states in the same order.
#[derive(Clone, Debug)]
pub struct TrainingStep {
    /// The graph.
    pub graph: Graph,
    /// The states, in the order of their inputs.
    pub states: Vec<State>,
    /// The parameters that the loss does not depend on: they stay as they are.
    pub untrained: Vec<String>,
}

/// A tensor that lives from step to step.
#[derive(Clone, Debug)]
pub struct State {
    /// The name of the input: that of the weight, or the parameter's name with what the optimizer remembers after a colon.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// The value that the next step begins with.
    pub next: String,
    /// Shape, type and first value.
    pub initial: Weight,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A learned parameter.
    Parameter,
    /// A running statistic.
    Statistic,
    /// What the optimizer remembers of a parameter.
    Memory,
}

/// Makes the training step of a model that has the loss as its output `loss`.
///
/// # Errors
/// When a size is unknown, an operator has no derivative, or the loss depends on no parameter.
pub fn training_step(model: &Graph, loss: &str, options: &TrainingOptions) -> Result<TrainingStep, TrainingError> {
    let model = upgrade(&with_sizes(model, &options.sizes)?)?;
    refuse_dropout(&model)?;
    let decays = Decays::of(&model, &options.optimizer);
    let (model, statistics) = use_batch_statistics(&model)?;
    let parameters: Vec<&str> = model
        .weights
        .iter()
        .filter(|(_, weight)| weight.role == WeightRole::Parameter && weight.spec.dtype.is_float())
        .map(|(name, _)| name.as_str())
        .collect();
    let Differentiated { graph, mut gradients } = differentiate(&model, loss, &parameters)?;
    if gradients.is_empty() {
        return Err(TrainingError::NoParameter(loss.to_owned()));
    }
    let is_untrained = |name: &&&str| !gradients.contains_key(**name);
    let untrained = parameters.iter().filter(is_untrained).map(|name| (*name).to_owned()).collect();
    let mut states = Vec::new();
    let mut rewriting = Rewriting::new(&graph);
    let norm = rewriting.extend("optimizer", |nodes| {
        for (name, gradient) in &mut gradients {
            let dtype = graph.weights[name.as_str()].spec.dtype;
            *gradient = if dtype == DType::F32 { gradient.clone() } else { nodes.cast(gradient, DType::F32) };
        }
        let norm = total_norm(nodes, gradients.values());
        if let Some(largest) = options.clip_norm {
            clip(nodes, &mut gradients, &norm, largest);
        }
        norm
    });
    for (name, gradient) in &gradients {
        let weight = &graph.weights[name.as_str()];
        let decay = decays.of_parameter(name);
        let (next, memory) = rewriting.extend(&format!("optimizer.{name}"), |nodes| {
            let memory = options.optimizer.memory();
            let names: Vec<String> = memory.iter().map(|kind| format!("{name}:{kind}")).collect();
            let mut values = names.clone();
            let next = options.optimizer.update(nodes, [name, gradient], decay, &mut values);
            (next, names.into_iter().zip(values).collect::<Vec<_>>())
        });
        let state = |name: String, kind, next, initial| State { name, kind, next, initial };
        states.push(state(name.clone(), StateKind::Parameter, next, weight.clone()));
        states.extend(memory.into_iter().map(|(name, next)| state(name, StateKind::Memory, next, zeros_like(weight))));
    }
    for (name, next) in statistics {
        let initial = graph.weights[name.as_str()].clone();
        states.push(State { name, kind: StateKind::Statistic, next, initial });
    }
    Ok(TrainingStep { graph: assemble(rewriting.finish(), [loss, &norm], &states), states, untrained })
}

/// Makes states inputs, and the results and the next states outputs.
fn assemble(mut graph: Graph, results: [&str; 2], states: &[State]) -> Graph {
    let scalar = |name: &str| ValueInfo { name: name.to_owned(), spec: TensorSpec::new(Vec::<Dim>::new(), DType::F32) };
    graph.inputs.extend(StepScalars::NAMES.map(scalar));
    for state in states {
        graph.weights.shift_remove(&state.name);
        graph.inputs.push(ValueInfo { name: state.name.clone(), spec: state.initial.spec.clone() });
    }
    let opset = graph.opset;
    set_version(&mut graph, opset);
    check::infer_shapes(&mut graph);
    let result = |name: &str| {
        (name.to_owned(), graph.values.get(name).cloned().expect("operators with derivatives have shapes"))
    };
    let next = |state: &State| (state.next.clone(), state.initial.spec.clone());
    let outputs = results.into_iter().map(result).chain(states.iter().map(next));
    graph.outputs = outputs.map(|(name, spec)| ValueInfo { name, spec }).collect();
    graph
}

/// Returns the graph with the sizes of named dimensions.
fn with_sizes(graph: &Graph, sizes: &IndexMap<String, usize>) -> Result<Graph, TrainingError> {
    let mut sized = graph.clone();
    sized.values.clear();
    for input in &mut sized.inputs {
        for dim in &mut input.spec.dims {
            if let Dim::Named(name) = dim
                && let Some(size) = sizes.get(name.as_str())
            {
                *dim = Dim::Fixed(*size);
            }
        }
        if input.spec.fixed_shape().is_none() {
            return Err(TrainingError::UnknownSize { input: input.name.clone(), spec: input.spec.clone() });
        }
    }
    check::infer_shapes(&mut sized);
    Ok(sized)
}

/// Dropout outside training is the identity. As long as a training step draws no masks, a model with dropout would be
/// trained without it, and faster.
fn refuse_dropout(graph: &Graph) -> Result<(), TrainingError> {
    match graph.nodes.iter().find(|node| node.op == "Dropout") {
        None => Ok(()),
        Some(node) => Err(TrainingError::Node {
            node: node.name.clone(),
            op: node.op.clone(),
            reason: "a training step draws no dropout masks yet; set the probability to 0".to_owned(),
        }),
    }
}

fn zeros_like(weight: &Weight) -> Weight {
    let source = crate::WeightSource::Seed { seed: 0, init: crate::Init::Constant(0.0) };
    Weight { role: WeightRole::Buffer, source, spec: TensorSpec { dtype: DType::F32, ..weight.spec.clone() } }
}

/// The weight decay of each parameter.
struct Decays<'a> {
    optimizer: &'a Optimizer,
    /// The scales and biases of normalizations.
    of_norms: Vec<String>,
}

impl<'a> Decays<'a> {
    fn of(graph: &Graph, optimizer: &'a Optimizer) -> Self {
        let norms = graph.nodes.iter().filter(|node| node.op.ends_with("Normalization"));
        let of_norms = norms.flat_map(|node| node.inputs.iter().skip(1).take(2).cloned()).collect();
        Decays { optimizer, of_norms }
    }

    fn of_parameter(&self, name: &str) -> f64 {
        let own = match () {
            () if self.of_norms.iter().any(|norm| norm == name) => self.optimizer.norm_weight_decay,
            () if name.ends_with("bias") => self.optimizer.bias_weight_decay,
            () => None,
        };
        own.unwrap_or(self.optimizer.weight_decay)
    }
}
