//! The nodes that update the states of a training from the gradients of a batch.

use indexmap::IndexMap;

use super::all_reduce::{Bucket, buckets};
use super::clip::{clip, total_norm};
use super::decay::Decays;
use super::list_operators::{NORM, OWN_DOMAIN, UpdateRule, mean_over_processes, reduce_node};
use super::loss_scale::{is_finite, next_scale, unscale};
use super::shard::exchange;
use super::step::{State, StateKind};
use super::{OptimizerKind, StepScalars, TrainingOptions};
use crate::lower::{NodeList, Rewriting};
use crate::{DType, Graph, Node, TensorSpec, Weight, WeightRole};

/// What the update of a training depends on.
pub(super) struct Update<'a> {
    /// The graph with its gradients.
    pub graph: &'a Graph,
    pub options: &'a TrainingOptions,
    pub decays: &'a Decays<'a>,
    /// Whether the operators [`super::UPDATE`], where it can express the update, and [`NORM`] are used.
    pub uses_lists: bool,
    /// The process that updates its part of the parameters, and the processes of all; `None` if each updates all.
    pub shard: Option<(u32, &'a IndexMap<String, u32>)>,
    pub batch: BatchOfUpdate,
}

/// For which of the batches that make an update a graph is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOfUpdate {
    /// For each: the input `update` states whether it is the last one. The sums of gradients are those of all processes.
    Any,
    /// For those before the last one. A process adds up its own gradients.
    Earlier,
    /// For the last one, with which processes exchange the sums of their gradients.
    Last,
}

impl Update<'_> {
    /// Adds the update, with the gradient of each parameter and the next value of each statistic by name. Returns the norm of the
    /// gradients and the states.
    pub fn add(
        &self,
        rewriting: &mut Rewriting,
        gradients: &mut IndexMap<String, String>,
        statistics: IndexMap<String, String>,
    ) -> (String, Vec<State>) {
        let mut states = Vec::new();
        let parameters: Vec<String> = gradients.keys().cloned().collect();
        let (norm, condition) = rewriting.extend("optimizer", |n| self.prepare(n, gradients, &mut states));
        states.extend(match self.shard {
            _ if self.batch == BatchOfUpdate::Earlier => Vec::new(),
            None => self.update_all(rewriting, gradients, &condition),
            Some((_, owners)) => {
                let own = self.update_all(rewriting, gradients, &condition);
                exchange(rewriting, self.graph, owners, &parameters, &own)
            }
        });
        states.extend(rewriting.extend("statistics", |n| {
            let state = |(name, next): (String, String)| {
                let initial = self.graph.weights[name.as_str()].clone();
                condition.limit(n, State { name, kind: StateKind::Statistic, next, initial })
            };
            statistics.into_iter().map(state).collect::<Vec<_>>()
        }));
        if let (Some(scale), Some(is_finite)) = (self.options.loss_scale, &condition.is_finite)
            && self.batch != BatchOfUpdate::Earlier
        {
            let next = |n: &mut NodeList<'_>| next_scale(n, scale, is_finite).map(|state| condition.limit(n, state));
            states.extend(rewriting.extend("loss_scale", next));
        }
        (norm, states)
    }

    /// Adds the update of parameters, and returns their states in the order of the parameters.
    fn update_all(
        &self,
        rewriting: &mut Rewriting,
        gradients: &IndexMap<String, String>,
        condition: &Condition,
    ) -> Vec<State> {
        if self.uses_lists && self.is_expressible(condition) {
            return rewriting.extend("update", |n| self.by_operator(n, gradients, condition));
        }
        let mut states = Vec::new();
        for (name, gradient) in gradients {
            let updated = |n: &mut NodeList<'_>| {
                let states = self.parameter(n, name, gradient);
                states.into_iter().map(|state| condition.limit(n, state)).collect::<Vec<_>>()
            };
            states.extend(rewriting.extend(&format!("optimizer.{name}"), updated));
        }
        states
    }

    /// Returns whether the operator can express the update. Libraries have kernels that skip an update for three rules only.
    fn is_expressible(&self, condition: &Condition) -> bool {
        let is_f32 = |weight: &Weight| weight.role != WeightRole::Parameter || weight.spec.dtype == DType::F32;
        let skips = matches!(
            self.options.optimizer.kind,
            OptimizerKind::Sgd { .. } | OptimizerKind::Adam(_) | OptimizerKind::AdamW(_)
        );
        self.graph.weights.values().all(is_f32) && (skips || condition.is_always())
    }

    /// Adds the update of all parameters, one node for each weight decay, and returns their states in the order of the parameters.
    fn by_operator(
        &self,
        n: &mut NodeList<'_>,
        gradients: &IndexMap<String, String>,
        condition: &Condition,
    ) -> Vec<State> {
        let kind = self.options.optimizer.kind;
        let mut names_by_decay: IndexMap<u64, Vec<&str>> = IndexMap::new();
        for name in gradients.keys() {
            names_by_decay.entry(self.decays.of_parameter(name).to_bits()).or_default().push(name);
        }
        let changes = condition.combined(n).unwrap_or_default();
        let mut next: IndexMap<String, String> = IndexMap::new();
        for (decay, names) in names_by_decay {
            let mut inputs: Vec<String> = StepScalars::NAMES[..4].iter().map(|name| (*name).to_owned()).collect();
            inputs.push(changes.clone());
            let memory = kind.memory().iter().flat_map(|kind| names.iter().map(|name| memory_name(name, kind)));
            let states: Vec<String> = names.iter().map(|name| (*name).to_owned()).chain(memory).collect();
            let (parameters, memory) = states.split_at(names.len());
            let gradients = names.iter().map(|name| gradients[*name].clone());
            inputs.extend(parameters.iter().cloned().chain(gradients).chain(memory.iter().cloned()));
            let outputs: Vec<String> = states.iter().map(|_| n.name("next")).collect();
            let rule = UpdateRule { kind, weight_decay: f64::from_bits(decay) };
            let name = n.name("update");
            n.keep(rule.node(name, inputs, outputs.clone()));
            next.extend(states.into_iter().zip(outputs));
        }
        gradients.keys().flat_map(|name| self.states_of(name, |state| next[state].clone())).collect()
    }

    /// Adds the update of a parameter, and returns its state and those of what the optimizer remembers of it.
    fn parameter(&self, n: &mut NodeList<'_>, name: &str, gradient: &str) -> Vec<State> {
        let optimizer = &self.options.optimizer;
        let names: Vec<String> = optimizer.kind.memory().iter().map(|kind| memory_name(name, kind)).collect();
        let mut values = names.clone();
        let next = optimizer.update(n, [name, gradient], self.decays.of_parameter(name), &mut values);
        let next: IndexMap<String, String> = names.into_iter().zip(values).chain([(name.to_owned(), next)]).collect();
        self.states_of(name, |state| next[state].clone())
    }

    /// Returns the states of a parameter: itself, and what the optimizer remembers of it. `next` returns the next value of a state.
    fn states_of(&self, name: &str, next: impl Fn(&str) -> String) -> Vec<State> {
        let weight = &self.graph.weights[name];
        let parameter =
            State { name: name.to_owned(), kind: StateKind::Parameter, next: next(name), initial: weight.clone() };
        let memory = self.options.optimizer.kind.memory().iter().map(|kind| {
            let name = memory_name(name, kind);
            State::memory(name.clone(), next(&name), weight)
        });
        [parameter].into_iter().chain(memory).collect()
    }

    /// Makes gradients those of an update: f32, without the scale of the loss, added to those of earlier batches, and clipped. A process
    /// that updates its part of the parameters is left with the gradients of these. Returns the norm of all before clipping, and when
    /// states change.
    fn prepare(
        &self,
        n: &mut NodeList<'_>,
        gradients: &mut IndexMap<String, String>,
        states: &mut Vec<State>,
    ) -> (String, Condition) {
        let Update { graph, options, batch, .. } = *self;
        let batches = options.accumulated_batches.max(1);
        let (accumulates, is_group) = (batches > 1, options.processes > 1);
        let is_update = (accumulates && batch != BatchOfUpdate::Earlier).then(|| {
            let half = n.number(0.5, DType::F32);
            n.add("Greater", &["update", &half])
        });
        let own_shard = self.shard.filter(|_| batch != BatchOfUpdate::Earlier);
        let is_own = |name: &str| own_shard.is_none_or(|(rank, owners)| owners[name] == rank);
        if !accumulates {
            gradients.retain(|name, _| is_own(name));
        }
        for (name, gradient) in gradients.iter_mut() {
            let weight = &graph.weights[name.as_str()];
            if weight.spec.dtype != DType::F32 {
                *gradient = n.cast(gradient, DType::F32);
            }
            if options.loss_scale.is_some() {
                *gradient = unscale(n, gradient);
            }
            if accumulates {
                let (sum, zero) = (memory_name(name, SUM), n.number(0.0, DType::F32));
                let share = n.scale(gradient, 1.0 / f64::from(batches), DType::F32);
                *gradient = n.add("Add", &[&sum, &share]);
                let next = match &is_update {
                    Some(is_update) => n.add("Where", &[is_update, &zero, gradient]),
                    None => gradient.clone(),
                };
                states.push(State::memory(sum, next, weight));
            }
        }
        if accumulates && is_group && batch == BatchOfUpdate::Last {
            self.reduce_sums(n, gradients);
            gradients.retain(|name, _| is_own(name));
        }
        let norm = match self.uses_lists {
            // A process without parameters. A constant would not be computed on the device, where the processes exchange it.
            _ if gradients.is_empty() => n.scale("learning_rate", 0.0, DType::F32),
            true => norm_by_operator(n, gradients),
            false => total_norm(n, gradients.values()),
        };
        let norm = if own_shard.is_some() { self.norm_of_processes(n, &norm) } else { norm };
        if batch == BatchOfUpdate::Earlier {
            // All processes decide by it whether gradients are finite, and which steps they keep.
            let norm = if is_group { mean_over_processes(n, &norm) } else { norm };
            let is_finite = options.loss_scale.map(|_| is_finite(n, &norm));
            return (norm, Condition { is_finite, is_update: None });
        }
        let is_finite = options.loss_scale.map(|_| is_finite(n, &norm));
        if let Some(largest) = options.clip_norm {
            clip(n, gradients, &norm, largest);
        }
        (norm, Condition { is_finite, is_update: is_update.filter(|_| batch == BatchOfUpdate::Any) })
    }

    /// Returns the norm of the gradients of all processes from that of the gradients of each.
    fn norm_of_processes(&self, n: &mut NodeList<'_>, own: &str) -> String {
        let square = n.add("Mul", &[own, own]);
        let mean = mean_over_processes(n, &square);
        let sum = n.scale(&mean, self.options.processes.into(), DType::F32);
        n.add("Sqrt", &[&sum])
    }

    /// Replaces the sums of gradients by their means over the processes, each for its owner alone if the parameters have owners.
    fn reduce_sums(&self, n: &mut NodeList<'_>, sums: &mut IndexMap<String, String>) {
        let spec = |name: &String| {
            let spec = TensorSpec { dtype: DType::F32, ..self.graph.weights[name.as_str()].spec.clone() };
            (name.clone(), spec)
        };
        let owners = self.shard.map(|(_, owners)| owners);
        for Bucket { root, names } in buckets(&sums.keys().map(spec).collect(), owners) {
            let means: Vec<String> = names.iter().map(|_| n.name("mean")).collect();
            let own = names.iter().map(|name| sums[name].clone()).collect();
            n.keep(reduce_node(root, own, means.clone()));
            sums.extend(names.into_iter().zip(means));
        }
    }
}

/// When states change: always, unless gradients are added up over several batches or an update may be skipped.
struct Condition {
    /// The value that states whether the gradients are finite, if a step whose gradients are not is skipped.
    is_finite: Option<String>,
    /// The value that states whether the batch is the last one before an update.
    is_update: Option<String>,
}

impl Condition {
    fn is_always(&self) -> bool {
        self.is_finite.is_none() && self.is_update.is_none()
    }

    /// Adds the value that states whether parameters change; `None` if they always do.
    fn combined(&self, n: &mut NodeList<'_>) -> Option<String> {
        match (&self.is_finite, &self.is_update) {
            (Some(is_finite), Some(is_update)) => Some(n.add("And", &[is_finite, is_update])),
            (condition, other) => condition.clone().or(other.clone()),
        }
    }

    /// Lets a state keep its value where it does not change.
    fn limit(&self, n: &mut NodeList<'_>, mut state: State) -> State {
        let (waits, may_skip) = match state.kind {
            StateKind::Parameter | StateKind::Memory => (true, true),
            StateKind::Statistic => (false, true),
            StateKind::LossScale => (true, false),
        };
        let conditions = [(waits, &self.is_update), (may_skip, &self.is_finite)];
        for condition in conditions.into_iter().filter_map(|(counts, condition)| condition.as_ref().filter(|_| counts))
        {
            state.next = n.add("Where", &[condition, &state.next, &state.name]);
        }
        state
    }
}

/// What is remembered of a parameter besides what its optimizer remembers: the sum of its gradients of earlier batches.
pub(super) const SUM: &str = "gradient";

/// Returns the name of what an optimizer remembers of a parameter.
pub(super) fn memory_name(parameter: &str, kind: &str) -> String {
    format!("{parameter}:{kind}")
}

/// Adds the norm of all gradients together as one node.
fn norm_by_operator(n: &mut NodeList<'_>, gradients: &IndexMap<String, String>) -> String {
    let name = n.name(NORM);
    n.keep(Node {
        name: name.clone(),
        op: NORM.to_owned(),
        domain: OWN_DOMAIN.to_owned(),
        inputs: gradients.values().cloned().collect(),
        outputs: vec![name.clone()],
        ..Node::default()
    });
    name
}
