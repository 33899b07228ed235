//! Replaces nodes of a graph by others, in one pass that infers the shapes of what it adds.
//!
//! Knows no operators.

use std::collections::HashMap;

use super::{Decomposition, NodeList};
use crate::shape_inference::ShapeInference;
use crate::{Graph, LowerError, Node, TensorSpec, WeightSource, check};

/// Returns the graph with each node for which `rule` has a decomposition replaced. `failed` makes the error of a node.
pub(crate) fn rewrite(
    graph: &Graph,
    rule: impl Fn(&Node) -> Option<Decomposition>,
    failed: impl Fn(&Node, String) -> LowerError,
) -> Result<Graph, LowerError> {
    let mut inference = check::start_inference(graph);
    let mut specs = value_specs(graph);
    let mut rewritten = Graph { nodes: Vec::new(), ..graph.clone() };
    for node in &graph.nodes {
        let (node_count, weight_count) = (rewritten.nodes.len(), rewritten.weights.len());
        match rule(node) {
            None => rewritten.nodes.push(node.clone()),
            Some(decompose) => {
                let mut nodes = NodeList::new(&mut rewritten, &specs, node);
                decompose(&mut nodes, node).map_err(|reason| failed(node, reason))?;
            }
        }
        infer_new(&rewritten, node_count, weight_count, &mut inference, &mut specs);
    }
    Ok(rewritten)
}

/// Returns the specifications of the values of a graph, as far as they are known.
fn value_specs(graph: &Graph) -> HashMap<String, TensorSpec> {
    let declared = graph.inputs.iter().map(|input| (input.name.clone(), input.spec.clone()));
    let weights = graph.weights.iter().map(|(name, weight)| (name.clone(), weight.spec.clone()));
    let stored = graph.values.iter().map(|(name, spec)| (name.clone(), spec.clone()));
    stored.chain(weights).chain(declared).collect()
}

/// Adds the specifications of the values that the nodes from `node_count` on define.
fn infer_new(
    graph: &Graph,
    node_count: usize,
    weight_count: usize,
    inference: &mut ShapeInference,
    specs: &mut HashMap<String, TensorSpec>,
) {
    for (name, weight) in graph.weights.iter().skip(weight_count) {
        if let WeightSource::Value(tensor) = &weight.source {
            inference.constant(name, tensor);
            specs.insert(name.clone(), weight.spec.clone());
        }
    }
    for node in &graph.nodes[node_count..] {
        let inferred = inference.node(node).unwrap_or_else(|_| vec![None; node.outputs.len()]);
        for (name, spec) in node.outputs.iter().zip(inferred) {
            match spec {
                Some(spec) => drop(specs.insert(name.clone(), spec)),
                None => specs.get(name).into_iter().for_each(|declared| inference.declare(name, declared)),
            }
        }
    }
}
