//! Checks whole graphs and infers their shapes, after they were read from a file or rewritten.
//!
//! Knows nothing about files.

use std::collections::{HashMap, HashSet};

use crate::shape_inference::{InferError, ShapeInference};
use crate::{Graph, TensorSpec, WeightSource};

/// A node whose output shapes or types could not be inferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UninferredNode {
    pub node: String,
    /// Why its outputs could not be inferred.
    pub reason: InferError,
}

/// Infers the shape and type of every value and stores them in the graph. The outputs of an unknown operator keep the
/// specification that the file declares for them, if any. Returns the nodes whose outputs could not be inferred.
pub fn infer_shapes(graph: &mut Graph) -> Vec<UninferredNode> {
    let (values, uninferred) = infer_nodes(graph, start_inference(graph));
    graph.values.extend(values);
    uninferred
}

/// Checks that every value is defined once and before it is read, and that every operator known to this crate accepts
/// the shapes and types of its inputs.
///
/// # Errors
/// The first contradiction found.
pub fn check(graph: &Graph) -> Result<(), CheckError> {
    let mut known: HashSet<&str> = graph.weights.keys().map(String::as_str).collect();
    for input in &graph.inputs {
        if !known.insert(&input.name) {
            return Err(CheckError::DuplicateValue(input.name.clone()));
        }
    }
    for node in &graph.nodes {
        if let Some(input) = node.inputs.iter().find(|input| !input.is_empty() && !known.contains(input.as_str())) {
            return Err(CheckError::UndefinedValue { node: node.name.clone(), value: input.clone() });
        }
        if let Some(output) = node.outputs.iter().find(|output| !output.is_empty() && !known.insert(output)) {
            return Err(CheckError::DuplicateValue(output.clone()));
        }
    }
    if let Some(output) = graph.outputs.iter().find(|output| !known.contains(output.name.as_str())) {
        return Err(CheckError::UndefinedOutput(output.name.clone()));
    }
    let (values, uninferred) = infer_nodes(graph, start_inference(graph));
    if let Some(UninferredNode { node, reason }) =
        uninferred.into_iter().find(|uninferred| !matches!(uninferred.reason, InferError::UnknownOperator(_)))
    {
        return Err(CheckError::Node { node, reason });
    }
    let inferred_specs: HashMap<&str, &TensorSpec> = values.iter().map(|(name, spec)| (name.as_str(), spec)).collect();
    let contradicts = |name: &str, declared: &TensorSpec| {
        let inferred = *inferred_specs.get(name)?;
        (!are_compatible(declared, inferred)).then(|| CheckError::OutputMismatch {
            value: name.to_owned(),
            declared: declared.clone(),
            inferred: inferred.clone(),
        })
    };
    graph.outputs.iter().find_map(|output| contradicts(&output.name, &output.spec)).map_or(Ok(()), Err)
}

/// Returns a shape inference in which the graph's inputs and weights are declared.
pub(crate) fn start_inference(graph: &Graph) -> ShapeInference {
    let mut inference = ShapeInference::default();
    for (name, weight) in &graph.weights {
        match &weight.source {
            WeightSource::Value(tensor) if tensor.dtype() == weight.spec.dtype => inference.constant(name, tensor),
            _ => inference.declare(name, &weight.spec),
        }
    }
    for input in &graph.inputs {
        inference.declare(&input.name, &input.spec);
    }
    inference
}

/// Infers the specifications of the values that nodes define. Returns those that could be inferred, by name, and the nodes
/// whose outputs could not.
pub fn infer_values(graph: &Graph) -> (Vec<(String, TensorSpec)>, Vec<UninferredNode>) {
    infer_nodes(graph, start_inference(graph))
}

/// Infers the graph node by node. Returns the specifications of the values that could be inferred, and the nodes whose
/// outputs could not.
pub(crate) fn infer_nodes(
    graph: &Graph,
    mut inference: ShapeInference,
) -> (Vec<(String, TensorSpec)>, Vec<UninferredNode>) {
    let mut values = Vec::new();
    let mut uninferred = Vec::new();
    for node in &graph.nodes {
        let specs = match inference.node(node) {
            Ok(specs) => specs,
            Err(reason) => {
                uninferred.push(UninferredNode { node: node.name.clone(), reason });
                vec![None; node.outputs.len()]
            }
        };
        for (name, spec) in node.outputs.iter().zip(specs) {
            match (spec, graph.values.get(name)) {
                (Some(spec), _) => values.push((name.clone(), spec)),
                (None, Some(declared)) => inference.declare(name, declared),
                (None, None) => {}
            }
        }
    }
    (values, uninferred)
}

/// Returns whether two specifications have the same type and number of dimensions and no fixed sizes that differ.
pub(crate) fn are_compatible(a: &TensorSpec, b: &TensorSpec) -> bool {
    let fits = |(a, b): (&crate::Dim, &crate::Dim)| a.fixed().zip(b.fixed()).is_none_or(|(a, b)| a == b);
    a.dtype == b.dtype && a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(fits)
}

/// A contradiction within a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// Two nodes, inputs or weights share a name.
    #[error("the value `{0}` is defined twice")]
    DuplicateValue(String),
    /// A node reads a value that is not defined before it.
    #[error("node `{node}` reads the value `{value}`, which no earlier node defines")]
    UndefinedValue { node: String, value: String },
    /// An output of the graph is not defined.
    #[error("no node defines the output `{0}`")]
    UndefinedOutput(String),
    /// An operator does not accept the shapes or types of its inputs.
    #[error("node `{node}`: {reason}")]
    Node {
        node: String,
        /// What the operator does not accept.
        reason: InferError,
    },
    /// An output's declared specification contradicts the inferred one.
    #[error("the output `{value}` is declared as `{declared}`, but inferred as `{inferred}`")]
    OutputMismatch {
        /// The output.
        value: String,
        /// The specification that the graph declares.
        declared: TensorSpec,
        /// The specification inferred from the nodes.
        inferred: TensorSpec,
    },
}
