//! Continues a graph that was read from a file.

use std::collections::HashMap;

use super::{BuildError, GraphBuilder, Var};
use crate::{Graph, check, upgrade};

impl GraphBuilder {
    /// Returns a builder that continues `graph`. Its outputs remain unless an output is declared, which replaces them
    /// all.
    ///
    /// # Errors
    /// When a node of an older operator set cannot be converted to the form in which layers are added.
    pub fn from_graph(graph: Graph) -> Result<Self, BuildError> {
        let mut graph = upgrade(&graph).map_err(|reason| BuildError::Version { graph: graph.name.clone(), reason })?;
        let mut inference = check::start_inference(&graph);
        for node in &graph.nodes {
            let specs = inference.node(node).unwrap_or_default();
            for (index, output) in node.outputs.iter().enumerate() {
                match (specs.get(index).cloned().flatten(), graph.values.get(output)) {
                    (Some(spec), _) => drop(graph.values.insert(output.clone(), spec)),
                    (None, Some(declared)) => inference.declare(output, declared),
                    (None, None) => {}
                }
            }
        }
        let names = graph.nodes.iter().flat_map(|node| node.outputs.iter().chain([&node.name]));
        let reserved = names.filter(|name| !name.is_empty()).cloned().collect();
        let mut builder = GraphBuilder {
            values: HashMap::new(),
            inference,
            final_names: HashMap::new(),
            next_numbers: HashMap::new(),
            reserved,
            replaces_outputs: true,
            graph,
        };
        let Graph { inputs, weights, values, .. } = &builder.graph;
        let inputs = inputs.iter().map(|input| (input.name.clone(), input.spec.clone()));
        let weights = weights.iter().map(|(name, weight)| (name.clone(), weight.spec.clone()));
        let values = values.iter().map(|(name, spec)| (name.clone(), spec.clone()));
        for (name, spec) in inputs.chain(weights).chain(values).collect::<Vec<_>>() {
            builder.add_value(&name, spec);
        }
        Ok(builder)
    }

    /// Returns the value of a name: an input, a weight or a node's output.
    ///
    /// # Errors
    /// When there is none, or its shape is unknown.
    pub fn value(&self, name: &str) -> Result<Var, BuildError> {
        let reason = if self.reserved.contains(name) { " of a known shape" } else { "" };
        let unknown = || BuildError::UnknownValue { name: name.to_owned(), graph: self.graph.name.clone(), reason };
        self.values.get(name).cloned().ok_or_else(unknown)
    }
}
