//! Constants: values that are the same in every run.

use std::collections::HashMap;

use crate::{Graph, Tensor, Weight, check};

/// Adds a constant to a graph. An existing one keeps its value.
pub(super) fn add_constant(graph: &mut Graph, name: &str, tensor: Tensor) {
    graph.values.shift_remove(name);
    graph.weights.entry(name.to_owned()).or_insert_with(|| Weight::constant(tensor));
}

/// Returns the values of nodes that are integers known from shapes alone, such as the sizes that `Shape` returns. Outputs of
/// the graph are not among them.
pub fn known_integers(graph: &Graph) -> Vec<(String, Tensor)> {
    let mut inference = check::start_inference(graph);
    let mut known = Vec::new();
    let is_output = |name: &&String| graph.outputs.iter().any(|output| output.name == **name);
    for node in &graph.nodes {
        // The inference records what it learns about a node's outputs even if it cannot infer all of them.
        let _ = inference.node(node);
        let names = node.outputs.iter().filter(|name| !name.is_empty() && !is_output(name));
        let integers = names.filter_map(|name| Some((name.clone(), inference.integers(name)?)));
        known.extend(integers);
    }
    known
}

/// Replaces values, which are not outputs of the graph, by constants, and removes what only they needed.
pub fn replace_by_constants(graph: &mut Graph, constants: Vec<(String, Tensor)>) {
    let constants: HashMap<String, Tensor> = constants.into_iter().collect();
    for node in &mut graph.nodes {
        // A node of several outputs keeps the others.
        node.outputs.iter_mut().filter(|output| constants.contains_key(*output)).for_each(String::clear);
    }
    graph.nodes.retain(|node| node.outputs.iter().any(|output| !output.is_empty()));
    constants.into_iter().for_each(|(name, tensor)| add_constant(graph, &name, tensor));
    super::edit::remove_unused(graph);
}
