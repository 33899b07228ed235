//! The graph of a training step.

use indexmap::IndexMap;

use super::TrainingError;
use super::accumulation::Accumulation;
use super::all_reduce::{mean_of_number, reduce_gradients, reduce_results};
use super::autocast::autocast;
use super::batch_norm::use_batch_statistics;
use super::decay::Decays;
use super::dropout::draw_masks;
use super::gradient_operator::gradient_operator;
use super::join_processes::join_processes;
use super::list_operators::OWN_DOMAIN;
use super::loss_scale::{LossScale, scale_loss};
use super::optimizer::{Optimizer, StepScalars};
use super::parts::BatchResults;
use super::perturbed::Perturbed;
use super::shard::{Shard, owners};
use super::state_exchange::StateExchange;
use super::update::{BatchOfUpdate, Update};
use crate::lower::Rewriting;
use crate::operator_set::set_version;
use crate::{
    DType, Differentiated, Dim, Graph, HalfPrecision, Init, Tensor, TensorSpec, ValueInfo, Weight, WeightRole,
    WeightSource, check, differentiate, upgrade,
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
    /// The type of products in mixed precision; `None` computes everything in the types of the model.
    pub half: Option<HalfPrecision>,
    /// The dynamic scale of the loss, without which small gradients in fp16 become 0. `None` does not scale it.
    pub loss_scale: Option<LossScale>,
    /// The batches whose mean gradient makes an update. [`StepScalars::update`] states which of them is the last one.
    pub accumulated_batches: u32,
    /// The processes that train the model together, each on a batch of its own; their mean gradient makes an update.
    pub processes: u32,
    /// Whether batch normalizations use the statistics of the batches of all processes.
    pub sync_batch_norm: bool,
    /// The number of this process, if each remembers what belongs to its part of the parameters only.
    pub shard: Option<u32>,
}

/// The batches of which a training makes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingBatches {
    /// The samples of a batch.
    pub size: u32,
    /// The batches of a process that make an update.
    pub accumulated: u32,
    /// The processes that train together, each on batches of its own.
    pub processes: u32,
    /// Whether batch normalizations use the statistics of the batches of all processes.
    pub sync_batch_norm: bool,
    /// The number of this process, if each remembers what belongs to its part of the parameters only.
    pub shard: Option<u32>,
}

impl TrainingOptions {
    /// Returns the options of a training in the model's types with an update for each batch.
    pub fn new(optimizer: Optimizer) -> Self {
        TrainingOptions {
            optimizer,
            clip_norm: None,
            sizes: IndexMap::new(),
            half: None,
            loss_scale: None,
            accumulated_batches: 1,
            processes: 1,
            sync_batch_norm: false,
            shard: None,
        }
    }

    /// Returns how many processes share the statistics of batch normalizations.
    fn normalized_processes(&self) -> u32 {
        if self.sync_batch_norm { self.processes.max(1) } else { 1 }
    }
}

/// A model with its loss as one graph for each step.
///
/// The inputs are those of the model, then the numbers of [`StepScalars`], then the states; the outputs are the loss, the
/// norm of the gradients before clipping, then the next states in the same order. If the memory of the optimizer is divided among
/// processes, the step has the states of its process. With several processes, the first two and the next
/// statistics are those of all batches together, as the gradients are.
///
/// If gradients of several batches make an update, this is the step of the last one.
#[derive(Clone, Debug)]
pub struct TrainingStep {
    /// The graph.
    pub graph: Graph,
    /// The same step for an engine that computes gradients itself: they are the outputs of one [`super::GRADIENT`]; attentions and
    /// batch normalizations, the latter in training mode, are single operators, and parameters are updated by [`super::UPDATE`].
    pub undifferentiated: Graph,
    /// The first part of `graph`, with the same inputs: its outputs are the loss, the gradient of each parameter for this batch, and the
    /// next value of each running statistic. If batch normalizations use the statistics of all processes, it computes the means over
    /// them: its inputs before the states are then those of each process in turn.
    pub gradients: Graph,
    /// Whether `gradients` and `perturbed` take the inputs of all processes.
    pub joins_processes: bool,
    /// `gradients` with errors of the size of rounding in the results on which its outputs depend, from which an engine may differ.
    pub perturbed: Graph,
    /// The second part of `graph`: its inputs are the outputs of `gradients` but the loss, then those of `graph` after the model's own;
    /// its outputs are those of `graph` but the loss.
    pub update: Graph,
    /// The states. All are inputs of `gradients`, `perturbed` and `update`, in this order.
    pub states: Vec<State>,
    /// The indices of those that are inputs of `graph` and `undifferentiated`.
    pub kept: Vec<usize>,
    /// How the processes read states of which their values differ, or which only one of them has.
    pub exchanges: Vec<StateExchange>,
    /// The step of a batch that is not the last one of an update, if gradients of several batches make one.
    pub accumulation: Option<Accumulation>,
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
    /// What the optimizer remembers of a parameter, or its gradients of earlier batches.
    Memory,
    /// The scale of the loss, and the number of updates since it changed.
    LossScale,
}

impl State {
    /// Returns a state of a parameter that begins with zeros.
    pub(super) fn memory(name: String, next: String, parameter: &Weight) -> Self {
        let source = WeightSource::Seed { seed: 0, init: Init::Constant(0.0) };
        let spec = TensorSpec { dtype: DType::F32, ..parameter.spec.clone() };
        State { name, kind: StateKind::Memory, next, initial: Weight { role: WeightRole::Buffer, source, spec } }
    }

    /// Returns the first value of a state that the model does not have; `None` if the model has it.
    pub fn first_value(&self) -> Option<Tensor> {
        let own = matches!(self.kind, StateKind::Memory | StateKind::LossScale);
        let (WeightSource::Seed { init: Init::Constant(value), .. }, true) = (&self.initial.source, own) else {
            return None;
        };
        let shape = self.initial.spec.fixed_shape()?;
        let elements = shape.iter().product();
        Tensor::from_vec(shape, vec![*value; elements]).ok()
    }
}

/// Makes the training step of a model that has the loss as its output `loss`.
///
/// # Errors
/// When a size is unknown, an operator has no derivative, or the loss depends on no parameter.
pub fn training_step(model: &Graph, loss: &str, options: &TrainingOptions) -> Result<TrainingStep, TrainingError> {
    let model = upgrade(&with_sizes(model, &options.sizes)?)?;
    let decays = Decays::of(&model, &options.optimizer);
    let model = with_scalars(model);
    let is_parameter = |weight: &Weight| weight.role == WeightRole::Parameter && weight.spec.dtype.is_float();
    let parameters = model.weights.iter().filter(|(_, weight)| is_parameter(weight)).map(|(name, _)| name.as_str());
    let parameters: Vec<&str> = parameters.collect();
    let written_out = TrainedModel::new(&model, loss, options, false)?;
    let differentiated = differentiate(&written_out.graph, &written_out.loss, &parameters)?;
    if differentiated.gradients.is_empty() {
        return Err(TrainingError::NoParameter(loss.to_owned()));
    }
    let (trained, untrained): (Vec<&str>, Vec<&str>) =
        parameters.into_iter().partition(|name| differentiated.gradients.contains_key(*name));
    let untrained = untrained.into_iter().map(str::to_owned).collect();
    let owners = options.shard.map(|rank| (rank, owners(&model, &trained, options.processes)));
    let own_shard = owners.as_ref().map(|(rank, owners)| (*rank, owners));
    let with_operators = TrainedModel::new(&model, loss, options, true)?;
    let updated = |graph: Graph, model: &Graph, mut results: BatchResults, uses_lists, shard, batch| {
        let mut rewriting = Rewriting::new(&graph);
        let update = Update { graph: model, options, decays: &decays, uses_lists, shard, batch };
        let (norm, states) = update.add(&mut rewriting, &mut results.gradients, results.statistics);
        (rewriting.finish(), ValueInfo { name: norm, spec: number() }, states)
    };
    let together = options.normalized_processes();
    let loss_spec = differentiated.graph.specs().remove(loss).expect("operators with derivatives have shapes");
    let loss_info = |name: String| ValueInfo { name, spec: loss_spec.clone() };
    let (is_group, accumulates) = (options.processes > 1, options.accumulated_batches > 1);
    let batch_step = |model: &Graph, mut results: BatchResults, uses_lists, batch| {
        let mut reduced = model.clone();
        if is_group && !accumulates {
            reduce_gradients(&mut reduced, &mut results.gradients, own_shard.map(|(_, owners)| owners));
        }
        let loss = match is_group {
            false => loss.to_owned(),
            true => reduce_results(&mut reduced, &mut results, loss, together > 1),
        };
        let (mut graph, mut norm, states) = updated(reduced, model, results, uses_lists, own_shard, batch);
        if is_group && own_shard.is_none() && batch == BatchOfUpdate::Last {
            // All processes decide by it which steps they keep, and another kind of device may round it differently.
            norm.name = mean_of_number(&mut graph, &norm.name);
        }
        (graph, [loss_info(loss), norm], states)
    };
    let whole = |model: &Graph, results: BatchResults, uses_lists| {
        let (graph, first, states) = batch_step(model, results, uses_lists, BatchOfUpdate::Last);
        let outputs = first.into_iter().chain(next_states(&states));
        (assemble(graph, &states, outputs), states)
    };
    let Differentiated { graph: mut model, gradients } =
        gradient_operator(&with_operators.graph, &with_operators.loss, &trained);
    model.domains.insert(OWN_DOMAIN.to_owned(), 1);
    let results = BatchResults { gradients, statistics: with_operators.statistics };
    let (undifferentiated, _) = whole(&model, results.clone(), true);
    let earlier = accumulates.then(|| batch_step(&model, results, true, BatchOfUpdate::Earlier));

    let Differentiated { graph: model, gradients } = differentiated;
    let results = BatchResults { gradients, statistics: written_out.statistics };
    let (graph, own_states) = whole(&model, results.clone(), false);
    let accumulation = earlier.map(|undifferentiated| {
        let graph = batch_step(&model, results.clone(), false, BatchOfUpdate::Earlier);
        Accumulation::new(graph, undifferentiated, &own_states)
    });
    let (states, kept, mut exchanges) = match own_shard {
        None => {
            let kept = (0..own_states.len()).collect();
            (own_states, kept, Vec::new())
        }
        Some((rank, owners)) => {
            let (_, _, states) = updated(model.clone(), &model, results.clone(), false, None, BatchOfUpdate::Any);
            let shard = Shard::of(rank, owners, &states, options.optimizer.kind);
            let exchanges = shard.exchanges(&states);
            (states, shard.kept(), exchanges)
        }
    };
    if accumulates && is_group {
        exchanges.push(StateExchange::of_sums(&states));
    }
    let named = results.with_own_names();
    let (part, results, loss) = match together {
        1 => (model.clone(), results, loss.to_owned()),
        _ => {
            let (mut reduced, mut results) = (model.clone(), results);
            reduce_gradients(&mut reduced, &mut results.gradients, None);
            let loss = reduce_results(&mut reduced, &mut results, loss, true);
            (join_processes(&reduced, together)?, results, loss)
        }
    };
    let first_part = |mut graph: Graph, name_of: &dyn Fn(&str) -> String| {
        results.copy(&named, name_of, &mut graph);
        let outputs = [loss_info(name_of(&loss))].into_iter().chain(named.infos(&model));
        assemble(graph, &states, outputs)
    };
    let mut perturbed = Perturbed::new(&part, results.values().chain([&*loss]), options.half.is_some());
    let perturbed = first_part(std::mem::take(&mut perturbed.graph), &|value| perturbed.name(value));
    let gradients = first_part(part.clone(), &str::to_owned);
    let (update, norm, updated_states) =
        updated(named.before_update(&model, &states), &model, named.clone(), false, None, BatchOfUpdate::Any);
    let update = assemble(update, &states, [norm].into_iter().chain(next_states(&updated_states)));
    Ok(TrainingStep {
        graph,
        undifferentiated,
        gradients,
        joins_processes: together > 1,
        perturbed,
        update,
        states,
        kept,
        exchanges,
        accumulation,
        untrained,
    })
}

pub(super) fn next_states(states: &[State]) -> impl Iterator<Item = ValueInfo> {
    states.iter().map(|state| ValueInfo { name: state.next.clone(), spec: state.initial.spec.clone() })
}

/// A model as it computes in training.
struct TrainedModel {
    graph: Graph,
    /// The loss that is differentiated.
    loss: String,
    /// The next value of each running statistic, by its name.
    statistics: IndexMap<String, String>,
}

impl TrainedModel {
    /// `keep_operators` states whether batch normalizations and attentions stay operators.
    fn new(model: &Graph, loss: &str, options: &TrainingOptions, keep_operators: bool) -> Result<Self, TrainingError> {
        let model = options.half.map_or(Ok(model.clone()), |half| autocast(model, half, keep_operators))?;
        let (graph, statistics) =
            use_batch_statistics(&draw_masks(&model)?, keep_operators, options.normalized_processes())?;
        let (graph, loss) = match options.loss_scale {
            Some(_) => scale_loss(&graph, loss),
            None => (graph, loss.to_owned()),
        };
        Ok(TrainedModel { graph, loss, statistics })
    }
}

/// Returns the graph with the states as inputs after its own, and these outputs.
pub(super) fn assemble(mut graph: Graph, states: &[State], outputs: impl Iterator<Item = ValueInfo>) -> Graph {
    for state in states {
        graph.weights.shift_remove(&state.name);
        graph.inputs.push(ValueInfo { name: state.name.clone(), spec: state.initial.spec.clone() });
    }
    let opset = graph.opset;
    set_version(&mut graph, opset);
    check::infer_shapes(&mut graph);
    graph.outputs = outputs.collect();
    graph
}

/// Returns the graph with the numbers of the step as inputs.
fn with_scalars(mut graph: Graph) -> Graph {
    let scalar = |name: &str| ValueInfo { name: name.to_owned(), spec: number() };
    graph.inputs.extend(StepScalars::NAMES.map(scalar));
    graph
}

/// Returns the specification of one f32 number.
fn number() -> TensorSpec {
    TensorSpec::new(Vec::<Dim>::new(), DType::F32)
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
