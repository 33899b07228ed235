//! The dynamic scale of a loss in fp16, with the rule and the defaults of PyTorch's `GradScaler`: doubled after a number of updates
//! whose gradients are finite, halved after one whose gradients are not, which is skipped.

use super::step::{State, StateKind};
use crate::lower::{NodeList, Rewriting};
use crate::{DType, Dim, Graph, Init, TensorSpec, Weight, WeightRole, WeightSource};

/// A dynamic scale of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The first scale.
    pub initial: f32,
    /// Updates with finite gradients after which the scale is doubled.
    pub growth_interval: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale { initial: 65_536.0, growth_interval: 2000 }
    }
}

/// The states of the scale.
const SCALE: &str = "loss_scale";
const FINITE_UPDATES: &str = "loss_scale:finite_updates";

/// Returns the graph with a scaled loss, and the name of that loss.
pub(super) fn scale_loss(graph: &Graph, loss: &str) -> (Graph, String) {
    let mut graph = graph.clone();
    graph.weights.insert(SCALE.to_owned(), number(0.0));
    let dtype = graph.values.get(loss).map_or(DType::F32, |spec| spec.dtype);
    let mut rewriting = Rewriting::new(&graph);
    let scaled = rewriting.extend(SCALE, |n| {
        let loss = n.widen(loss, dtype);
        n.add("Mul", &[&loss, SCALE])
    });
    (rewriting.finish(), scaled)
}

/// Adds the gradient without the scale.
pub(super) fn unscale(n: &mut NodeList<'_>, gradient: &str) -> String {
    n.add("Div", &[gradient, SCALE])
}

/// Adds whether all gradients are finite: their norm is less than the largest number.
pub(super) fn is_finite(n: &mut NodeList<'_>, norm: &str) -> String {
    let largest = n.number(f64::from(f32::MAX), DType::F32);
    n.add("Less", &[norm, &largest])
}

/// Adds the next scale and returns its states.
pub(super) fn next_scale(n: &mut NodeList<'_>, scale: LossScale, is_finite: &str) -> [State; 2] {
    let [zero, half, one, two] = [0.0, 0.5, 1.0, 2.0].map(|number| n.number(number, DType::F32));
    let more = n.add("Add", &[FINITE_UPDATES, &one]);
    let count = n.add("Where", &[is_finite, &more, &zero]);
    let last = n.number(f64::from(scale.growth_interval) - 0.5, DType::F32);
    let grows = n.add("Greater", &[&count, &last]);
    let growth = n.add("Where", &[&grows, &two, &one]);
    let factor = n.add("Where", &[is_finite, &growth, &half]);
    let next = n.add("Mul", &[SCALE, &factor]);
    let count = n.add("Where", &[&grows, &zero, &count]);
    [(SCALE, next, scale.initial), (FINITE_UPDATES, count, 0.0)].map(|(name, next, initial)| State {
        name: name.to_owned(),
        kind: StateKind::LossScale,
        next,
        initial: number(initial),
    })
}

fn number(value: f32) -> Weight {
    let source = WeightSource::Seed { seed: 0, init: Init::Constant(value) };
    Weight { role: WeightRole::Buffer, source, spec: TensorSpec::new(Vec::<Dim>::new(), DType::F32) }
}
