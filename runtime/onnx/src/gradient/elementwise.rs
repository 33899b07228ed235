//! Derivatives of operators that compute each element on its own. Where a function has no derivative, the value is
//! PyTorch's: 0 for Relu, Abs and Sign at 0, equal shares for inputs that share a maximum.

use std::f64::consts::PI;

use super::Backward;
use crate::lower::{NodeList, float, int, required};
use crate::{DType, Node};

/// Sets the gradient of the only input: that of the output times a factor.
fn multiply(
    b: &mut Backward<'_, '_>,
    node: &Node,
    factor: impl FnOnce(&mut NodeList<'_>, &str, &str, DType) -> String,
) -> Result<(), String> {
    let (g, dtype) = (b.first()?, b.dtype(node)?);
    let factor = factor(b.nodes, required(node, 0)?, &node.outputs[0], dtype);
    let gradient = b.nodes.add("Mul", &[&g, &factor]);
    b.set(0, gradient);
    Ok(())
}

/// Adds one minus a value.
fn one_minus(n: &mut NodeList<'_>, x: &str, dtype: DType) -> String {
    let one = n.number(1.0, dtype);
    n.add("Sub", &[&one, x])
}

/// The output does not change with the input: Floor, Sign and others whose derivative is 0 almost everywhere.
pub(crate) fn zero(_: &mut Backward<'_, '_>, _: &Node) -> Result<(), String> {
    Ok(())
}

pub(crate) fn identity(b: &mut Backward<'_, '_>, _: &Node) -> Result<(), String> {
    let g = b.first()?;
    b.set(0, g);
    Ok(())
}

/// Dropout outside training is the identity; dropout in training is drawn by the training step.
pub(crate) fn dropout(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    match node.inputs.get(2).filter(|name| !name.is_empty()) {
        Some(_) => Err("`training_mode` is an input; a training step draws its own masks".to_owned()),
        None => identity(b, node),
    }
}

pub(crate) fn cast(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dtype) = (b.first()?, b.dtype(node)?);
    let gradient = b.nodes.cast(&g, dtype);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn neg(b: &mut Backward<'_, '_>, _: &Node) -> Result<(), String> {
    let g = b.first()?;
    let gradient = b.nodes.add("Neg", &[&g]);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn abs(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| n.add("Sign", &[x]))
}

pub(crate) fn exp(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |_, _, y, _| y.to_owned())
}

pub(crate) fn log(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| n.add("Reciprocal", &[x]))
}

pub(crate) fn sqrt(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, _, y, dtype| {
        let half = n.number(0.5, dtype);
        n.add("Div", &[&half, y])
    })
}

pub(crate) fn reciprocal(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, _, y, _| {
        let square = n.add("Mul", &[y, y]);
        n.add("Neg", &[&square])
    })
}

/// `2/√π · exp(-x²)`.
pub(crate) fn erf(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, dtype| {
        let square = n.add("Mul", &[x, x]);
        let negative = n.add("Neg", &[&square]);
        let bell = n.add("Exp", &[&negative]);
        n.scale(&bell, 2.0 / PI.sqrt(), dtype)
    })
}

pub(crate) fn sin(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| n.add("Cos", &[x]))
}

pub(crate) fn cos(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| {
        let sine = n.add("Sin", &[x]);
        n.add("Neg", &[&sine])
    })
}

pub(crate) fn sigmoid(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, _, y, dtype| {
        let rest = one_minus(n, y, dtype);
        n.add("Mul", &[y, &rest])
    })
}

pub(crate) fn tanh(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, _, y, dtype| {
        let square = n.add("Mul", &[y, y]);
        one_minus(n, &square, dtype)
    })
}

pub(crate) fn softplus(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| n.add("Sigmoid", &[x]))
}

/// `t + x · σ(x) · (1 - t²)` with `t = tanh(softplus(x))`.
pub(crate) fn mish(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, dtype| {
        let soft = n.add("Softplus", &[x]);
        let t = n.add("Tanh", &[&soft]);
        let square = n.add("Mul", &[&t, &t]);
        let rest = one_minus(n, &square, dtype);
        let sigmoid = n.add("Sigmoid", &[x]);
        let gate = n.add("Mul", &[x, &sigmoid]);
        let slope = n.add("Mul", &[&gate, &rest]);
        n.add("Add", &[&t, &slope])
    })
}

/// Sets the gradient of the only input to that of the output where `condition` holds, and to `otherwise` elsewhere.
fn choose(
    b: &mut Backward<'_, '_>,
    node: &Node,
    condition: impl FnOnce(&mut NodeList<'_>, &str, DType) -> String,
    otherwise: impl FnOnce(&mut NodeList<'_>, &str, DType) -> String,
) -> Result<(), String> {
    let (g, dtype) = (b.first()?, b.dtype(node)?);
    let condition = condition(b.nodes, required(node, 0)?, dtype);
    let otherwise = otherwise(b.nodes, &g, dtype);
    let gradient = b.nodes.add("Where", &[&condition, &g, &otherwise]);
    b.set(0, gradient);
    Ok(())
}

/// Adds whether a value exceeds a number.
fn exceeds(n: &mut NodeList<'_>, x: &str, number: f64, dtype: DType) -> String {
    let number = n.number(number, dtype);
    n.add("Greater", &[x, &number])
}

pub(crate) fn relu(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    choose(b, node, |n, x, dtype| exceeds(n, x, 0.0, dtype), |n, _, dtype| n.number(0.0, dtype))
}

pub(crate) fn leaky_relu(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let alpha = float(node, "alpha", 0.01);
    choose(b, node, |n, x, dtype| exceeds(n, x, 0.0, dtype), |n, g, dtype| n.scale(g, alpha, dtype))
}

/// `α·eˣ`, which is the output plus α, for negative inputs.
pub(crate) fn elu(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (alpha, y) = (float(node, "alpha", 1.0), node.outputs[0].clone());
    choose(
        b,
        node,
        |n, x, dtype| exceeds(n, x, 0.0, dtype),
        |n, g, dtype| {
            let alpha = n.number(alpha, dtype);
            let slope = n.add("Add", &[&y, &alpha]);
            n.add("Mul", &[g, &slope])
        },
    )
}

pub(crate) fn hard_sigmoid(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (alpha, y) = (float(node, "alpha", 0.2), node.outputs[0].clone());
    multiply(b, node, |n, _, _, dtype| {
        let above = exceeds(n, &y, 0.0, dtype);
        let one = n.number(1.0, dtype);
        let below = n.add("Less", &[&y, &one]);
        let inside = n.add("And", &[&above, &below]);
        let (alpha, zero) = (n.number(alpha, dtype), n.number(0.0, dtype));
        n.add("Where", &[&inside, &alpha, &zero])
    })
}

/// 0 up to -3, 1 from 3 on, `x/3 + 1/2` between.
pub(crate) fn hard_swish(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, dtype| {
        let third = n.scale(x, 1.0 / 3.0, dtype);
        let half = n.number(0.5, dtype);
        let slope = n.add("Add", &[&third, &half]);
        let [zero, one, three] = [0.0, 1.0, 3.0].map(|number| n.number(number, dtype));
        let above = exceeds(n, x, -3.0, dtype);
        let below = n.add("Less", &[x, &three]);
        let upper = n.add("Where", &[&below, &slope, &one]);
        n.add("Where", &[&above, &upper, &zero])
    })
}

/// The gradient passes where the input is within the bounds, which are inputs that may be omitted.
pub(crate) fn clip(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (mut gradient, dtype) = (b.first()?, b.dtype(node)?);
    let x = required(node, 0)?;
    for (i, op) in [(1, "GreaterOrEqual"), (2, "LessOrEqual")] {
        if b.needs(i) {
            return Err("a bound depends on what is learned".to_owned());
        }
        if let Some(bound) = node.inputs.get(i).filter(|name| !name.is_empty()) {
            let (inside, zero) = (b.nodes.add(op, &[x, bound]), b.nodes.number(0.0, dtype));
            gradient = b.nodes.add("Where", &[&inside, &gradient, &zero]);
        }
    }
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn add(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims) = (b.first()?, b.output_dims(node)?);
    (0..node.inputs.len()).try_for_each(|i| b.set_broadcast(node, i, &g, dims))
}

pub(crate) fn mean_of(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, dtype) = (b.first()?, b.output_dims(node)?, b.dtype(node)?);
    let share = b.nodes.scale(&g, 1.0 / node.inputs.len() as f64, dtype);
    (0..node.inputs.len()).try_for_each(|i| b.set_broadcast(node, i, &share, dims))
}

pub(crate) fn sub(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims) = (b.first()?, b.output_dims(node)?);
    b.set_broadcast(node, 0, &g, dims)?;
    if b.needs(1) {
        let negative = b.nodes.add("Neg", &[&g]);
        b.set_broadcast(node, 1, &negative, dims)?;
    }
    Ok(())
}

pub(crate) fn mul(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims) = (b.first()?, b.output_dims(node)?);
    for i in (0..2).filter(|i| b.needs(*i)).collect::<Vec<_>>() {
        let product = b.nodes.add("Mul", &[&g, required(node, 1 - i)?]);
        b.set_broadcast(node, i, &product, dims)?;
    }
    Ok(())
}

/// `1/b` and `-y/b`.
pub(crate) fn div(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, divisor) = (b.first()?, b.output_dims(node)?, required(node, 1)?);
    let quotient = b.nodes.add("Div", &[&g, divisor]);
    b.set_broadcast(node, 0, &quotient, dims)?;
    if b.needs(1) {
        let product = b.nodes.add("Mul", &[&quotient, &node.outputs[0]]);
        let negative = b.nodes.add("Neg", &[&product]);
        b.set_broadcast(node, 1, &negative, dims)?;
    }
    Ok(())
}

/// `p · x^(p-1)` and `y · ln x`, which is 0 where x is 0.
pub(crate) fn pow(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, dtype) = (b.first()?, b.output_dims(node)?, b.dtype(node)?);
    let (x, exponent) = (required(node, 0)?, required(node, 1)?);
    if b.needs(0) {
        let exponent = b.nodes.cast(exponent, dtype);
        let one = b.nodes.number(1.0, dtype);
        let lower = b.nodes.add("Sub", &[&exponent, &one]);
        let power = b.nodes.add("Pow", &[x, &lower]);
        let slope = b.nodes.add("Mul", &[&exponent, &power]);
        let product = b.nodes.add("Mul", &[&g, &slope]);
        b.set_broadcast(node, 0, &product, dims)?;
    }
    if b.needs(1) {
        let [zero, one] = [0.0, 1.0].map(|number| b.nodes.number(number, dtype));
        let is_zero = b.nodes.add("Equal", &[x, &zero]);
        let safe = b.nodes.add("Where", &[&is_zero, &one, x]);
        let logarithm = b.nodes.add("Log", &[&safe]);
        let slope = b.nodes.add("Mul", &[&node.outputs[0], &logarithm]);
        let product = b.nodes.add("Mul", &[&g, &slope]);
        b.set_broadcast(node, 1, &product, dims)?;
    }
    Ok(())
}

/// The gradient goes to the inputs that equal the output, in equal shares.
pub(crate) fn extreme(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, dtype) = (b.first()?, b.output_dims(node)?, b.dtype(node)?);
    let mut shares = Vec::new();
    for input in &node.inputs {
        let equal = b.nodes.add("Equal", &[input, &node.outputs[0]]);
        shares.push(b.nodes.cast(&equal, dtype));
    }
    let names: Vec<&str> = shares.iter().map(String::as_str).collect();
    let count = b.nodes.add("Sum", &names);
    let share = b.nodes.add("Div", &[&g, &count]);
    for (i, mask) in shares.iter().enumerate() {
        let product = b.nodes.add("Mul", &[&share, mask]);
        b.set_broadcast(node, i, &product, dims)?;
    }
    Ok(())
}

pub(crate) fn select(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, condition) = (b.first()?, b.output_dims(node)?, required(node, 0)?);
    let dtype = b.spec(node, 1)?.dtype;
    let zero = b.nodes.number(0.0, dtype);
    let parts = [(1, [condition, &g, &zero]), (2, [condition, &zero, &g])];
    for (i, inputs) in parts {
        if b.needs(i) {
            let part = b.nodes.add("Where", &inputs);
            b.set_broadcast(node, i, &part, dims)?;
        }
    }
    Ok(())
}

pub(crate) fn parametric_relu(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims, dtype) = (b.first()?, b.output_dims(node)?, b.dtype(node)?);
    let (x, slope) = (required(node, 0)?, required(node, 1)?);
    let (positive, zero) = (exceeds(b.nodes, x, 0.0, dtype), b.nodes.number(0.0, dtype));
    let scaled = b.nodes.add("Mul", &[&g, slope]);
    let gradient = b.nodes.add("Where", &[&positive, &g, &scaled]);
    b.set(0, gradient);
    if b.needs(1) {
        let product = b.nodes.add("Mul", &[&g, x]);
        let negative = b.nodes.add("Where", &[&positive, &zero, &product]);
        b.set_broadcast(node, 1, &negative, dims)?;
    }
    Ok(())
}

/// The cumulative sum of the gradient in the other direction.
pub(crate) fn cumulative_sum(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let mut attributes = node.attributes.clone();
    let reverse = 1 - int(node, "reverse").unwrap_or(0);
    attributes.insert("reverse".to_owned(), crate::Attribute::Int(reverse));
    let gradient = b.nodes.add_from("CumSum", &[&g, required(node, 1)?], attributes);
    b.set(0, gradient);
    Ok(())
}
