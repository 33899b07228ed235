//! The step of a batch before the last one of an update.

use std::collections::HashSet;

use super::step::{State, assemble, next_states};
use crate::{Graph, ValueInfo};

/// A step that adds the gradients of a batch to those of earlier ones, and changes no parameter.
///
/// Inputs and outputs are those of the step of the last batch, without the states that this one does not read and those that it does not
/// change. The gradients are those of one process. The norm is that of the sum so far, its mean over the processes if they are several.
#[derive(Clone, Debug)]
pub struct Accumulation {
    /// The graph.
    pub graph: Graph,
    /// The same step for an engine that computes gradients itself, as [`TrainingStep::undifferentiated`].
    pub undifferentiated: Graph,
    /// The inputs that are states, as places among those of the step of the last batch.
    pub inputs: Vec<usize>,
    /// The same of the outputs.
    pub outputs: Vec<usize>,
}

/// A graph with its outputs before the states, and the states that it changes.
type BatchStep = (Graph, [ValueInfo; 2], Vec<State>);

impl Accumulation {
    /// Makes the step from its two forms; `own` are the states of the step of the last batch.
    pub(super) fn new(graph: BatchStep, undifferentiated: BatchStep, own: &[State]) -> Self {
        let nodes = graph.0.nodes.iter().chain(&undifferentiated.0.nodes);
        let read: HashSet<&str> = nodes.flat_map(|node| &node.inputs).map(String::as_str).collect();
        let inputs: Vec<usize> = (0..own.len()).filter(|index| read.contains(own[*index].name.as_str())).collect();
        let states: Vec<State> = inputs.iter().map(|index| own[*index].clone()).collect();
        let place = |state: &State| own.iter().position(|own| own.name == state.name);
        let outputs = graph.2.iter().filter_map(place).collect();
        let [graph, undifferentiated] = [graph, undifferentiated].map(|(mut graph, first, changed)| {
            own.iter().for_each(|state| drop(graph.weights.shift_remove(&state.name)));
            assemble(graph, &states, first.into_iter().chain(next_states(&changed)))
        });
        Accumulation { graph, undifferentiated, inputs, outputs }
    }
}
