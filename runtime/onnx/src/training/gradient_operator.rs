//! The operator `Gradient` of ONNX's training operators, for engines that differentiate themselves.

use indexmap::IndexMap;

use crate::{Attribute, Differentiated, Graph, Node};

/// The domain of [`GRADIENT`].
pub const TRAINING_DOMAIN: &str = "ai.onnx.preview.training";

/// The operator whose outputs are the gradients of the value in its attribute `y` with respect to its inputs, the values in its
/// attribute `xs`.
pub const GRADIENT: &str = "Gradient";

/// Adds the gradients of a loss with respect to weights and inputs as one node, for an engine that computes it. A value of unknown
/// name has no gradient.
pub fn gradient_operator(graph: &Graph, loss: &str, values: &[&str]) -> Differentiated {
    let specs = graph.specs();
    let known = values.iter().filter(|name| specs.contains_key(**name));
    let gradients: IndexMap<String, String> =
        known.map(|name| ((*name).to_owned(), format!("gradient.{name}"))).collect();
    let names: Vec<String> = gradients.keys().cloned().collect();
    let mut graph = graph.clone();
    for (value, gradient) in &gradients {
        graph.values.insert(gradient.clone(), specs[value].clone());
    }
    let attributes = [("xs", Attribute::Strings(names.clone())), ("y", Attribute::String(loss.to_owned()))];
    graph.nodes.push(Node {
        name: format!("gradient.{loss}"),
        op: GRADIENT.to_owned(),
        domain: TRAINING_DOMAIN.to_owned(),
        inputs: names,
        outputs: gradients.values().cloned().collect(),
        attributes: attributes.map(|(name, attribute)| (name.to_owned(), attribute)).into_iter().collect(),
    });
    graph.domains.insert(TRAINING_DOMAIN.to_owned(), 1);
    Differentiated { graph, gradients }
}
