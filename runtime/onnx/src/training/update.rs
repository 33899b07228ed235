//! The nodes that update the states of a training from the gradients of a batch.

use indexmap::IndexMap;

use super::TrainingOptions;
use super::clip::{clip, total_norm};
use super::decay::Decays;
use super::loss_scale::{is_finite, next_scale, unscale};
use super::step::{State, StateKind};
use crate::lower::{NodeList, Rewriting};
use crate::{DType, Graph};

/// What the update of a training depends on.
pub(super) struct Update<'a> {
    /// The graph with its gradients.
    pub graph: &'a Graph,
    pub options: &'a TrainingOptions,
    pub decays: &'a Decays<'a>,
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
        let (norm, condition) = rewriting.extend("optimizer", |n| self.prepare(n, gradients, &mut states));
        for (name, gradient) in gradients {
            let updated = |n: &mut NodeList<'_>| {
                let states = self.parameter(n, name, gradient);
                states.into_iter().map(|state| condition.limit(n, state)).collect::<Vec<_>>()
            };
            states.extend(rewriting.extend(&format!("optimizer.{name}"), updated));
        }
        states.extend(rewriting.extend("statistics", |n| {
            let state = |(name, next): (String, String)| {
                let initial = self.graph.weights[name.as_str()].clone();
                condition.limit(n, State { name, kind: StateKind::Statistic, next, initial })
            };
            statistics.into_iter().map(state).collect::<Vec<_>>()
        }));
        if let (Some(scale), Some(is_finite)) = (self.options.loss_scale, &condition.is_finite) {
            let next = |n: &mut NodeList<'_>| next_scale(n, scale, is_finite).map(|state| condition.limit(n, state));
            states.extend(rewriting.extend("loss_scale", next));
        }
        (norm, states)
    }

    /// Adds the update of a parameter, and returns its state and those of what the optimizer remembers of it.
    fn parameter(&self, n: &mut NodeList<'_>, name: &str, gradient: &str) -> Vec<State> {
        let (optimizer, weight) = (&self.options.optimizer, &self.graph.weights[name]);
        let names: Vec<String> = optimizer.memory().iter().map(|kind| format!("{name}:{kind}")).collect();
        let mut values = names.clone();
        let next = optimizer.update(n, [name, gradient], self.decays.of_parameter(name), &mut values);
        let memory = names.into_iter().zip(values).map(|(name, next)| State::memory(name, next, weight));
        let parameter = State { name: name.to_owned(), kind: StateKind::Parameter, next, initial: weight.clone() };
        [parameter].into_iter().chain(memory).collect()
    }

    /// Makes gradients those of an update: f32, without the scale of the loss, added to those of earlier batches, and clipped. Returns
    /// their norm before clipping, and when states change.
    fn prepare(
        &self,
        n: &mut NodeList<'_>,
        gradients: &mut IndexMap<String, String>,
        states: &mut Vec<State>,
    ) -> (String, Condition) {
        let Update { graph, options, .. } = *self;
        let batches = options.accumulated_batches.max(1);
        let is_update = (batches > 1).then(|| {
            let half = n.number(0.5, DType::F32);
            n.add("Greater", &["update", &half])
        });
        for (name, gradient) in gradients.iter_mut() {
            let weight = &graph.weights[name.as_str()];
            if weight.spec.dtype != DType::F32 {
                *gradient = n.cast(gradient, DType::F32);
            }
            if options.loss_scale.is_some() {
                *gradient = unscale(n, gradient);
            }
            if let Some(is_update) = &is_update {
                let (sum, zero) = (format!("{name}:gradient"), n.number(0.0, DType::F32));
                let share = n.scale(gradient, 1.0 / f64::from(batches), DType::F32);
                *gradient = n.add("Add", &[&sum, &share]);
                let next = n.add("Where", &[is_update, &zero, gradient]);
                states.push(State::memory(sum, next, weight));
            }
        }
        let norm = total_norm(n, gradients.values());
        let is_finite = options.loss_scale.map(|_| is_finite(n, &norm));
        if let Some(largest) = options.clip_norm {
            clip(n, gradients, &norm, largest);
        }
        (norm, Condition { is_finite, is_update })
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
