//! Decompositions of losses over classes.

use super::node_list::{NodeList, input, int, output, required};
use crate::{Attribute, Node};

/// NegativeLogLikelihoodLoss of log-probabilities `batch,classes,…`.
pub(crate) fn negative_log_likelihood(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    loss(nodes, node, required(node, 0)?)
}

/// SoftmaxCrossEntropyLoss: the loss of the logarithm of the softmax over the classes, which is the second output.
pub(crate) fn softmax_cross_entropy(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let logarithms = nodes.add_with("LogSoftmax", &[required(node, 0)?], [("axis", Attribute::Int(1))]);
    if let Some(name) = output(node, 1) {
        nodes.define("Identity", &[&logarithms], name);
    }
    loss(nodes, node, &logarithms)
}

/// Adds the weighted loss of each target, and its sum or mean.
fn loss(nodes: &mut NodeList<'_>, node: &Node, x: &str) -> Result<(), String> {
    let (targets, weights) = (required(node, 1)?, input(node, 2));
    let (dtype, index_dtype) = (nodes.spec(required(node, 0)?)?.dtype, nodes.spec(targets)?.dtype);
    let rows = nodes.unsqueeze(targets, &[1]);
    let ignored = int(node, "ignore_index").map(|class| {
        let class = nodes.number(class as f64, index_dtype);
        nodes.add("Equal", &[&rows, &class])
    });
    let mut classes = rows;
    if let Some(ignored) = &ignored {
        let zero = nodes.number(0.0, index_dtype);
        classes = nodes.add("Where", &[ignored, &zero, &classes]);
    }
    let chosen = nodes.add_with("GatherElements", &[x, &classes], [("axis", Attribute::Int(1))]);
    let mut losses = nodes.add("Neg", &[&chosen]);
    let mut factors = weights.map(|weights| nodes.add("Gather", &[weights, &classes]));
    if let Some(ignored) = &ignored {
        let [zero, one] = [0.0, 1.0].map(|number| nodes.number(number, dtype));
        factors = Some(nodes.add("Where", &[ignored, &zero, factors.as_deref().unwrap_or(&one)]));
    }
    if let Some(factors) = &factors {
        losses = nodes.add("Mul", &[&losses, factors]);
    }
    match node.attributes.get("reduction") {
        Some(Attribute::String(kind)) if kind == "none" => {
            let axis = nodes.ints(&[1]);
            nodes.define("Squeeze", &[&losses, &axis], &node.outputs[0]);
        }
        Some(Attribute::String(kind)) if kind == "sum" => define_total(nodes, "ReduceSum", &losses, &node.outputs[0]),
        Some(Attribute::String(kind)) if kind != "mean" => return Err(format!("`reduction` is `{kind}`")),
        _ => match &factors {
            None => define_total(nodes, "ReduceMean", &losses, &node.outputs[0]),
            Some(factors) => {
                let [losses, factors] = [&losses, factors]
                    .map(|values| nodes.add_with("ReduceSum", &[values], [("keepdims", Attribute::Int(0))]));
                nodes.define("Div", &[&losses, &factors], &node.outputs[0]);
            }
        },
    }
    Ok(())
}

fn define_total(nodes: &mut NodeList<'_>, op: &str, x: &str, output: &str) {
    nodes.define_with(op, &[x], output, [("keepdims", Attribute::Int(0))]);
}
