//! How processes that train together get the values of states that differ between them.

use indexmap::IndexMap;

use super::all_reduce::{Bucket, buckets};
use super::list_operators::{OWN_DOMAIN, all_reduce_node};
use super::step::{State, StateKind};
use super::update::{SUM, memory_name};
use crate::{Graph, Node, OPSET, TensorSpec, ValueInfo};

/// How all processes get the same values of some states.
#[derive(Clone, Debug)]
pub struct StateExchange {
    /// Its outputs are these states, its inputs values of the same shapes.
    pub graph: Graph,
    /// The indices of the states that this process gives as inputs.
    pub inputs: Vec<usize>,
    /// The indices of the states that the outputs are.
    pub outputs: Vec<usize>,
}

impl StateExchange {
    /// `nodes` returns the nodes that compute the values with the second names from those with the first ones.
    pub(super) fn new(
        states: &[State],
        inputs: Vec<usize>,
        outputs: Vec<usize>,
        nodes: impl FnOnce(Vec<String>, Vec<String>) -> Vec<Node>,
    ) -> Self {
        let mut graph = Graph { name: "exchange".to_owned(), opset: OPSET, ..Graph::default() };
        graph.domains.insert(OWN_DOMAIN.to_owned(), 1);
        let info = |prefix: &str, index: &usize| {
            let State { name, initial, .. } = &states[*index];
            ValueInfo { name: format!("{prefix}.{name}"), spec: initial.spec.clone() }
        };
        graph.inputs = outputs.iter().map(|index| info("own", index)).collect();
        graph.outputs = outputs.iter().map(|index| info("common", index)).collect();
        graph.values.extend(graph.outputs.iter().map(|output| (output.name.clone(), output.spec.clone())));
        let names = |infos: &[ValueInfo]| infos.iter().map(|info| info.name.clone()).collect();
        graph.nodes = nodes(names(&graph.inputs), names(&graph.outputs));
        StateExchange { graph, inputs, outputs }
    }

    /// Returns the exchange of the sums of gradients, of which each process has those of its own batches, by their mean: the update
    /// depends on nothing else, so that each process may also go on with the mean.
    pub(super) fn of_sums(states: &[State]) -> Self {
        let is_sum = |index: &usize| {
            states[*index].kind == StateKind::Memory && states[*index].name.ends_with(&memory_name("", SUM))
        };
        let sums: Vec<usize> = (0..states.len()).filter(is_sum).collect();
        let specs: IndexMap<String, TensorSpec> =
            sums.iter().map(|index| (states[*index].name.clone(), states[*index].initial.spec.clone())).collect();
        StateExchange::new(states, sums.clone(), sums, |own, common| {
            let name = |names: &[String], bucket: &[String]| -> Vec<String> {
                bucket.iter().map(|name| names[specs.get_index_of(name).expect("it is one of them")].clone()).collect()
            };
            let node = |bucket: Bucket| all_reduce_node(name(&own, &bucket.names), name(&common, &bucket.names));
            buckets(&specs, None).into_iter().map(node).collect()
        })
    }
}
