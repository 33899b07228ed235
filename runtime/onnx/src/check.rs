//! Checks and infers whole graphs: those read from a file, or rewritten.
//!
//! Knows no file.

use std::collections::{HashMap, HashSet};

use crate::inference::{InferError, Inference};
use crate::{Graph, Source, TensorSpec};

/// A node whose outputs could not be inferred, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninferred {
    /// The node.
    pub node: String,
    /// The reason.
    pub reason: InferError,
}

/// Infers the shape and type of every value and notes them in the graph. What an unknown operator makes keeps the
/// specification that the file declares, if any. Returns the nodes that could not be inferred.
pub fn infer(graph: &mut Graph) -> Vec<Uninferred> {
    let (values, uninferred) = run(graph, begin(graph));
    graph.values.extend(values);
    uninferred
}

/// Checks that every value is made once and before it is read, and that shapes and types fit every operator that this
/// crate knows.
///
/// # Errors
/// The first contradiction.
pub fn check(graph: &Graph) -> Result<(), CheckError> {
    let mut known: HashSet<&str> = graph.weights.keys().map(String::as_str).collect();
    for input in &graph.inputs {
        if !known.insert(&input.name) {
            return Err(CheckError::MadeTwice(input.name.clone()));
        }
    }
    for node in &graph.nodes {
        if let Some(input) = node.inputs.iter().find(|input| !input.is_empty() && !known.contains(input.as_str())) {
            return Err(CheckError::NotMade { node: node.name.clone(), value: input.clone() });
        }
        if let Some(output) = node.outputs.iter().find(|output| !output.is_empty() && !known.insert(output)) {
            return Err(CheckError::MadeTwice(output.clone()));
        }
    }
    if let Some(output) = graph.outputs.iter().find(|output| !known.contains(output.name.as_str())) {
        return Err(CheckError::NoOutput(output.name.clone()));
    }
    let (values, uninferred) = run(graph, begin(graph));
    if let Some(Uninferred { node, reason }) =
        uninferred.into_iter().find(|uninferred| !matches!(uninferred.reason, InferError::UnknownOperator(_)))
    {
        return Err(CheckError::Node { node, reason });
    }
    let made: HashMap<&str, &TensorSpec> = values.iter().map(|(name, spec)| (name.as_str(), spec)).collect();
    let contradicts = |name: &str, declared: &TensorSpec| {
        let inferred = *made.get(name)?;
        (!compatible(declared, inferred)).then(|| CheckError::Declared {
            value: name.to_owned(),
            declared: declared.clone(),
            inferred: inferred.clone(),
        })
    };
    graph.outputs.iter().find_map(|output| contradicts(&output.name, &output.spec)).map_or(Ok(()), Err)
}

/// An inference that knows the inputs and the weights.
pub(crate) fn begin(graph: &Graph) -> Inference {
    let mut inference = Inference::default();
    for (name, weight) in &graph.weights {
        match &weight.source {
            Source::Value(tensor) if tensor.dtype() == weight.spec.dtype => inference.constant(name, tensor),
            _ => inference.declare(name, &weight.spec),
        }
    }
    for input in &graph.inputs {
        inference.declare(&input.name, &input.spec);
    }
    inference
}

/// Infers node by node: what became known, and what did not.
pub(crate) fn run(graph: &Graph, mut inference: Inference) -> (Vec<(String, TensorSpec)>, Vec<Uninferred>) {
    let mut values = Vec::new();
    let mut uninferred = Vec::new();
    for node in &graph.nodes {
        let specs = match inference.node(node) {
            Ok(specs) => specs,
            Err(reason) => {
                uninferred.push(Uninferred { node: node.name.clone(), reason });
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

/// Same type and number of dimensions, and no known size contradicts another.
fn compatible(a: &TensorSpec, b: &TensorSpec) -> bool {
    let fits = |(a, b): (&crate::Dim, &crate::Dim)| a.fixed().zip(b.fixed()).is_none_or(|(a, b)| a == b);
    a.dtype == b.dtype && a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(fits)
}

/// A graph that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// Two nodes, inputs or weights share a name.
    #[error("the value `{0}` is made twice")]
    MadeTwice(String),
    /// A node reads what nothing before it makes.
    #[error("node `{node}` reads `{value}`, which nothing before it makes")]
    NotMade {
        /// The node.
        node: String,
        /// The value.
        value: String,
    },
    /// Nothing makes an output.
    #[error("nothing makes the output `{0}`")]
    NoOutput(String),
    /// Shapes or types do not fit an operator.
    #[error("node `{node}`: {reason}")]
    Node {
        /// The node.
        node: String,
        /// What does not fit.
        reason: InferError,
    },
    /// An output is declared as something else than what is made.
    #[error("the output `{value}` is declared `{declared}` and made as `{inferred}`")]
    Declared {
        /// The output.
        value: String,
        /// What the graph says.
        declared: TensorSpec,
        /// What follows from its nodes.
        inferred: TensorSpec,
    },
}
