//! Differentiates a graph in reverse mode: adds nodes that compute the gradients of a loss with respect to inputs and
//! weights. An operator without a derivative of its own is decomposed first, if the table has a decomposition.
//!
//! Knows no optimizer, no engine and no scripts.

mod all_reduce;
mod backward;
mod conv_weight;
mod elementwise;
mod error;
mod matrix;
mod reduction;
mod resize;
mod selection;
mod shape;
mod softmax;
mod window;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use all_reduce::all_reduce;
pub(crate) use backward::{Backward, Derivative};
pub use error::GradientError;
pub(crate) use {
    elementwise::*, matrix::*, reduction::*, resize::resize, selection::*, shape::*, softmax::*, window::*,
};

use crate::check::infer_shapes;
use crate::lower::{Rewriting, replace_nodes};
use crate::{ALL_REDUCE, Graph, Node, OWN_DOMAIN, TensorSpec, find_operator, upgrade};

/// A graph that also computes gradients.
#[derive(Clone, Debug)]
pub struct Differentiated {
    /// The graph, with the outputs that it had before. Operators that were decomposed stay so.
    pub graph: Graph,
    /// The value that contains the gradient, by the name of the input or weight. A value that the loss does not depend on
    /// is missing.
    pub gradients: IndexMap<String, String>,
}

/// Adds the gradients of `loss`, a value with one element, with respect to floating-point inputs and weights. The gradient
/// of a value has the value's shape and type.
///
/// # Errors
/// When `loss` is unknown or has more than one element, or a node on the way has no derivative.
pub fn differentiate(graph: &Graph, loss: &str, with_respect_to: &[&str]) -> Result<Differentiated, GradientError> {
    let mut graph = upgrade(graph)?;
    infer_shapes(&mut graph);
    let graph = decompose(&graph, loss, with_respect_to)?;
    let specs = graph.specs();
    let spec = specs.get(loss).ok_or_else(|| GradientError::UnknownValue(loss.to_owned()))?;
    if !spec.dtype.is_float() || spec.fixed_shape().is_none_or(|shape| shape.iter().product::<usize>() != 1) {
        return Err(GradientError::NotScalar { loss: loss.to_owned(), spec: spec.clone() });
    }
    let path = Path::between(&graph, &specs, loss, with_respect_to);
    let nodes = graph.nodes.clone();
    let mut rewriting = Rewriting::new(&graph);
    let mut gradients = HashMap::new();
    rewriting.extend(&format!("gradient.{loss}"), |list| {
        let one = list.number(1.0, spec.dtype);
        let shape: Vec<i64> = spec.dims.iter().map(|_| 1).collect();
        gradients.insert(loss.to_owned(), if shape.is_empty() { one } else { list.reshape(&one, &shape) });
    });
    for node in nodes.iter().rev().filter(|node| path.has_node(node)) {
        add_derivative(&mut rewriting, &path, node, &mut gradients)?;
    }
    let mut finished = rewriting.finish();
    infer_shapes(&mut finished);
    let found = with_respect_to.iter().filter_map(|name| Some(((*name).to_owned(), gradients.remove(*name)?)));
    Ok(Differentiated { gradients: found.collect(), graph: finished })
}

/// Adds the derivative of one node: what its inputs contribute to the gradients.
fn add_derivative(
    rewriting: &mut Rewriting,
    path: &Path,
    node: &Node,
    gradients: &mut HashMap<String, String>,
) -> Result<(), GradientError> {
    let outputs: Vec<Option<String>> = node.outputs.iter().map(|output| gradients.get(output).cloned()).collect();
    if outputs.iter().all(Option::is_none) {
        return Ok(());
    }
    let derivative = match (node.domain.as_str(), node.op.as_str()) {
        (OWN_DOMAIN, ALL_REDUCE) => Some(all_reduce as Derivative),
        ("", op) => find_operator(op).and_then(|row| row.derivative),
        _ => None,
    };
    let derivative = derivative.ok_or_else(|| GradientError::no_derivative(node))?;
    let needed = node.inputs.iter().map(|input| path.values.contains(input)).collect();
    rewriting
        .extend(&format!("gradient.{}", node.name), |list| {
            let mut backward = Backward::new(list, outputs, needed);
            derivative(&mut backward, node)?;
            for (input, contribution) in node.inputs.iter().zip(backward.finish()) {
                let Some(contribution) = contribution else { continue };
                let sum = match gradients.remove(input) {
                    None => contribution,
                    Some(earlier) => list.add("Add", &[&earlier, &contribution]),
                };
                gradients.insert(input.clone(), sum);
            }
            Ok(())
        })
        .map_err(|reason: String| GradientError::Node { node: node.name.clone(), op: node.op.clone(), reason })
}

/// Decomposes operators between the values and the loss that have no derivative, until none is left that can be decomposed.
fn decompose(graph: &Graph, loss: &str, with_respect_to: &[&str]) -> Result<Graph, GradientError> {
    let mut graph = graph.clone();
    loop {
        let path = Path::between(&graph, &graph.specs(), loss, with_respect_to);
        let decomposition = |node: &Node| {
            let operator = find_operator(&node.op).filter(|_| node.domain.is_empty() && path.has_node(node))?;
            operator.decomposition.filter(|_| operator.derivative.is_none())
        };
        if !graph.nodes.iter().any(|node| decomposition(node).is_some()) {
            return Ok(graph);
        }
        graph = replace_nodes(&graph, decomposition)?;
    }
}

/// The floating-point values that depend on the chosen values and that the loss depends on.
struct Path {
    values: HashSet<String>,
}

impl Path {
    fn between(graph: &Graph, specs: &HashMap<String, TensorSpec>, loss: &str, start: &[&str]) -> Self {
        // A value of unknown type counts: a derivative that cannot be computed is an error, a gradient that ends is not.
        let is_float = |name: &str| specs.get(name).is_none_or(|spec| spec.dtype.is_float());
        let mut reached: HashSet<&str> = start.iter().copied().filter(|name| is_float(name)).collect();
        for node in &graph.nodes {
            if node.inputs.iter().any(|input| reached.contains(input.as_str())) {
                reached.extend(node.outputs.iter().map(String::as_str).filter(|output| is_float(output)));
            }
        }
        let mut read: HashSet<&str> = HashSet::from([loss]);
        for node in graph.nodes.iter().rev() {
            if node.outputs.iter().any(|output| read.contains(output.as_str())) {
                read.extend(node.inputs.iter().map(String::as_str));
            }
        }
        Path { values: reached.intersection(&read).map(|name| (*name).to_owned()).collect() }
    }

    /// Returns whether a node passes a gradient on.
    fn has_node(&self, node: &Node) -> bool {
        let has = |names: &[String]| names.iter().any(|name| self.values.contains(name));
        has(&node.outputs) && has(&node.inputs)
    }
}
