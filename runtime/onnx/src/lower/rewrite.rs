//! Replaces nodes of a graph by others, or adds nodes, and infers the shapes of what it adds.
//!
//! Knows no operators.

use std::collections::HashMap;

use super::{Decomposition, NodeList};
use crate::shape_inference::ShapeInference;
use crate::{Graph, LowerError, Node, TensorSpec, check};

/// Returns the graph with each node for which `rule` has a decomposition replaced. `failed` makes the error of a node.
pub(crate) fn rewrite(
    graph: &Graph,
    rule: impl Fn(&Node) -> Option<Decomposition>,
    failed: impl Fn(&Node, String) -> LowerError,
) -> Result<Graph, LowerError> {
    let mut rewriting = Rewriting::without_nodes(graph);
    for node in &graph.nodes {
        match rule(node) {
            None => rewriting.keep(node.clone()),
            Some(decompose) => {
                rewriting.extend(&node.name, |nodes| decompose(nodes, node)).map_err(|reason| failed(node, reason))?
            }
        }
    }
    Ok(rewriting.finish())
}

/// A graph to which nodes are added, with the shapes and types of its values.
pub(crate) struct Rewriting {
    graph: Graph,
    inference: ShapeInference,
    specs: HashMap<String, TensorSpec>,
    /// How many names were added with each prefix.
    counts: HashMap<String, usize>,
}

impl Rewriting {
    /// Starts with the inputs, weights and outputs of a graph, but without its nodes.
    pub fn without_nodes(graph: &Graph) -> Self {
        let (inference, specs) = (check::start_inference(graph), graph.specs());
        Rewriting { graph: Graph { nodes: Vec::new(), ..graph.clone() }, inference, specs, counts: HashMap::new() }
    }

    /// Starts with a whole graph.
    pub fn new(graph: &Graph) -> Self {
        let mut rewriting = Rewriting::without_nodes(graph);
        graph.nodes.iter().for_each(|node| rewriting.keep(node.clone()));
        rewriting
    }

    /// Adds a node as it is.
    pub fn keep(&mut self, node: Node) {
        let node_count = self.graph.nodes.len();
        self.graph.nodes.push(node);
        self.infer_new(node_count, self.graph.weights.len());
    }

    /// Adds nodes whose names begin with `prefix`.
    pub fn extend<T>(&mut self, prefix: &str, add: impl FnOnce(&mut NodeList<'_>) -> T) -> T {
        let (node_count, weight_count) = (self.graph.nodes.len(), self.graph.weights.len());
        let count = self.counts.entry(prefix.to_owned()).or_default();
        let mut list = NodeList::new(&mut self.graph, &self.specs, prefix, *count);
        let added = add(&mut list);
        *count = list.count();
        self.infer_new(node_count, weight_count);
        added
    }

    /// Returns the graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// Adds the specifications of the values that the nodes from `node_count` on define.
    fn infer_new(&mut self, node_count: usize, weight_count: usize) {
        for (name, weight) in self.graph.weights.iter().skip(weight_count) {
            if let Some(tensor) = weight.tensor() {
                self.inference.constant(name, tensor);
                self.specs.insert(name.clone(), weight.spec.clone());
            }
        }
        for node in &self.graph.nodes[node_count..] {
            let inferred = self.inference.node(node).unwrap_or_else(|_| vec![None; node.outputs.len()]);
            for (name, spec) in node.outputs.iter().zip(inferred) {
                match spec {
                    Some(spec) => drop(self.specs.insert(name.clone(), spec)),
                    None => {
                        self.specs.get(name).into_iter().for_each(|declared| self.inference.declare(name, declared));
                    }
                }
            }
        }
    }
}
