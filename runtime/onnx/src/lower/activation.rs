//! Decompositions of elementwise functions and of Hardmax. 16-bit floats are computed in f32 where an intermediate result
//! would lose digits.

use super::node_list::{NodeList, float, int, required};
use crate::{Attribute, DType, Node};

/// Celu: Elu of `x / alpha`, times alpha.
pub(crate) fn celu(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, alpha) = (required(node, 0)?, float(node, "alpha", 1.0));
    let dtype = nodes.spec(x)?.dtype;
    let wide = nodes.widen(x, dtype);
    let factor = nodes.number(alpha, widened(dtype));
    let scaled = nodes.add("Div", &[&wide, &factor]);
    let curve = nodes.add("Elu", &[&scaled]);
    let result = nodes.add("Mul", &[&curve, &factor]);
    nodes.define_as(&result, dtype, &node.outputs[0]);
    Ok(())
}

/// Returns the type in which numbers of a type are computed.
pub(super) fn widened(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// Shrink: numbers beyond ±`lambd` move towards zero by `bias`, all others become zero.
pub(crate) fn shrink(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, bias, bound) = (required(node, 0)?, float(node, "bias", 0.0), float(node, "lambd", 0.5));
    let dtype = nodes.spec(x)?.dtype;
    let [bias, upper, lower, zero] = [bias, bound, -bound, 0.0].map(|number| nodes.number(number, dtype));
    let is_high = nodes.add("Greater", &[x, &upper]);
    let high = nodes.add("Sub", &[x, &bias]);
    let positive = nodes.add("Where", &[&is_high, &high, &zero]);
    let is_low = nodes.add("Less", &[x, &lower]);
    let low = nodes.add("Add", &[x, &bias]);
    nodes.define("Where", &[&is_low, &low, &positive], &node.outputs[0]);
    Ok(())
}

/// Softsign: `x / (1 + |x|)`.
pub(crate) fn softsign(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let one = nodes.number(1.0, nodes.spec(x)?.dtype);
    let size = nodes.add("Abs", &[x]);
    let sum = nodes.add("Add", &[&size, &one]);
    nodes.define("Div", &[x, &sum], &node.outputs[0]);
    Ok(())
}

/// ThresholdedRelu: numbers up to `alpha` become zero.
pub(crate) fn thresholded_relu(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, alpha) = (required(node, 0)?, float(node, "alpha", 1.0));
    let dtype = nodes.spec(x)?.dtype;
    let [alpha, zero] = [alpha, 0.0].map(|number| nodes.number(number, dtype));
    let is_kept = nodes.add("Greater", &[x, &alpha]);
    nodes.define("Where", &[&is_kept, x, &zero], &node.outputs[0]);
    Ok(())
}

/// Swish: `x * Sigmoid(alpha * x)`.
pub(crate) fn swish(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let gate = swish_gate(nodes, node, x)?;
    nodes.define("Mul", &[x, &gate], &node.outputs[0]);
    Ok(())
}

/// SwiGLU: Swish of input 0, times input 1.
pub(crate) fn swiglu(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, value) = (required(node, 0)?, required(node, 1)?);
    let gate = swish_gate(nodes, node, x)?;
    let swish = nodes.add("Mul", &[x, &gate]);
    nodes.define("Mul", &[&swish, value], &node.outputs[0]);
    Ok(())
}

fn swish_gate(nodes: &mut NodeList<'_>, node: &Node, x: &str) -> Result<String, String> {
    let alpha = float(node, "alpha", 1.0);
    let scaled = if alpha == 1.0 { x.to_owned() } else { nodes.scale(x, alpha, nodes.spec(x)?.dtype) };
    Ok(nodes.add("Sigmoid", &[&scaled]))
}

/// Hardmax: 1 at the first largest number along an axis, 0 elsewhere.
pub(crate) fn hardmax(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, axis) = (required(node, 0)?, int(node, "axis").unwrap_or(-1));
    let dtype = nodes.spec(x)?.dtype;
    let along = [("axis", Attribute::Int(axis)), ("keepdims", Attribute::Int(0))];
    let largest = nodes.add_with("ArgMax", &[x], along);
    let shape = nodes.add("Shape", &[x]);
    let place = nodes.ints(&[axis]);
    let depth = nodes.add("Gather", &[&shape, &place]);
    let numbers = nodes.numbers(&[0.0, 1.0], dtype);
    nodes.define_with("OneHot", &[&largest, &depth, &numbers], &node.outputs[0], [("axis", Attribute::Int(axis))]);
    Ok(())
}
