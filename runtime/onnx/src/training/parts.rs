//! What the first part of a training step, loss and gradients of a batch, gives to the second one, the update.

use indexmap::IndexMap;

use super::step::State;
use crate::{Graph, Node, StepScalars, ValueInfo};

/// The values that a batch gives to an update, by the weight.
#[derive(Clone)]
pub(super) struct BatchResults {
    pub gradients: IndexMap<String, String>,
    /// The next value of each running statistic.
    pub statistics: IndexMap<String, String>,
}

impl BatchResults {
    /// Returns the values: those of the gradients, then those of the statistics.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.gradients.values().chain(self.statistics.values()).map(String::as_str)
    }

    /// Returns the results with names of their own, because two parameters may have the same gradient.
    pub fn with_own_names(&self) -> BatchResults {
        let named = |what: &str, results: &IndexMap<String, String>| {
            results.keys().map(|weight| (weight.clone(), format!("{what} of {weight}"))).collect()
        };
        let (gradients, statistics) = (named("gradient", &self.gradients), named("next value", &self.statistics));
        BatchResults { gradients, statistics }
    }

    /// Returns the values with their shapes and types, which are those of the weights of `graph`.
    pub fn infos(&self, graph: &Graph) -> Vec<ValueInfo> {
        let info = |(weight, value): (&String, &String)| ValueInfo {
            name: value.clone(),
            spec: graph.weights[weight.as_str()].spec.clone(),
        };
        self.gradients.iter().chain(&self.statistics).map(info).collect()
    }

    /// Adds the values under other names to a graph; `name_of` returns the name of a value in it.
    pub fn copy(&self, named: &BatchResults, name_of: impl Fn(&str) -> String, graph: &mut Graph) {
        graph.nodes.extend(self.values().zip(named.values()).map(|(value, name)| Node {
            name: name.to_owned(),
            op: "Identity".to_owned(),
            inputs: vec![name_of(value)],
            outputs: vec![name.to_owned()],
            ..Node::default()
        }));
    }

    /// Returns a graph that has the values as inputs, before the numbers of the step, and the states of `graph` as weights.
    pub fn before_update(&self, graph: &Graph, states: &[State]) -> Graph {
        let numbers = graph.inputs.iter().filter(|input| StepScalars::NAMES.contains(&&*input.name)).cloned();
        let inputs = self.infos(graph).into_iter().chain(numbers).collect();
        let weights = states.iter().map(|state| (state.name.clone(), state.initial.clone())).collect();
        Graph { name: "update".to_owned(), opset: graph.opset, inputs, weights, ..Graph::default() }
    }
}
