//! Derivatives of reductions. Elements that share an extreme get equal shares, as `torch.amax` has it.

use super::Backward;
use super::backward::sum;
use super::shape::known_ints;
use crate::lower::{NodeList, int, required};
use crate::{Attribute, DType, Node};

/// Returns the reduced axes, counted from the front.
fn reduced_axes(b: &Backward<'_, '_>, node: &Node) -> Result<Vec<i64>, String> {
    let rank = b.spec(node, 0)?.dims.len() as i64;
    let axes = match node.attributes.get("axes") {
        Some(Attribute::Ints(axes)) => axes.clone(),
        _ if node.inputs.get(1).is_some_and(|name| !name.is_empty()) => known_ints(b, node, 1)?,
        _ => Vec::new(),
    };
    if axes.is_empty() && int(node, "noop_with_empty_axes").unwrap_or(0) == 0 {
        return Ok((0..rank).collect());
    }
    Ok(axes.into_iter().map(|axis| if axis < 0 { axis + rank } else { axis }).collect())
}

/// Gives a reduced value its reduced dimensions back, with size 1.
fn with_axes(b: &mut Backward<'_, '_>, node: &Node, reduced: &str, axes: &[i64]) -> String {
    let is_kept = int(node, "keepdims").unwrap_or(1) != 0;
    if is_kept || axes.is_empty() { reduced.to_owned() } else { b.nodes.unsqueeze(reduced, axes) }
}

/// Repeats the gradient over what was summed.
fn spread(b: &mut Backward<'_, '_>, node: &Node, g: &str) -> Result<(), String> {
    let axes = reduced_axes(b, node)?;
    let (g, sizes) = (with_axes(b, node, g, &axes), b.sizes(node, 0)?);
    let shape = b.nodes.ints(&sizes);
    let gradient = b.nodes.add("Expand", &[&g, &shape]);
    b.set(0, gradient);
    Ok(())
}

/// Sets the gradient of the input to that of the output times a factor, which is made from the input and the output.
fn multiply(
    b: &mut Backward<'_, '_>,
    node: &Node,
    factor: impl FnOnce(&mut NodeList<'_>, &str, &str, DType) -> String,
) -> Result<(), String> {
    let (g, dtype, axes) = (b.first()?, b.dtype(node)?, reduced_axes(b, node)?);
    let (g, y) = (with_axes(b, node, &g, &axes), with_axes(b, node, &node.outputs[0], &axes));
    let factor = factor(b.nodes, required(node, 0)?, &y, dtype);
    let gradient = b.nodes.add("Mul", &[&g, &factor]);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn reduce_sum(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    spread(b, node, &g)
}

pub(crate) fn reduce_mean(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dtype, sizes) = (b.first()?, b.dtype(node)?, b.sizes(node, 0)?);
    let count: i64 = reduced_axes(b, node)?.iter().map(|axis| sizes[*axis as usize]).product();
    let share = b.nodes.scale(&g, 1.0 / count as f64, dtype);
    spread(b, node, &share)
}

pub(crate) fn reduce_sum_square(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, dtype| n.scale(x, 2.0, dtype))
}

pub(crate) fn reduce_l1(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, _, _| n.add("Sign", &[x]))
}

pub(crate) fn reduce_l2(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, y, dtype| {
        // The norm of zeros has the gradient 0.
        let [zero, one] = [0.0, 1.0].map(|number| n.number(number, dtype));
        let is_zero = n.add("Equal", &[y, &zero]);
        let safe = n.add("Where", &[&is_zero, &one, y]);
        n.add("Div", &[x, &safe])
    })
}

/// `1 / Σx`, which is `exp(-y)`.
pub(crate) fn reduce_log_sum(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let sizes = b.sizes(node, 0)?;
    multiply(b, node, |n, _, y, _| {
        let negative = n.add("Neg", &[y]);
        let inverse = n.add("Exp", &[&negative]);
        let shape = n.ints(&sizes);
        n.add("Expand", &[&inverse, &shape])
    })
}

/// The softmax of the inputs.
pub(crate) fn reduce_log_sum_exp(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    multiply(b, node, |n, x, y, _| {
        let difference = n.add("Sub", &[x, y]);
        n.add("Exp", &[&difference])
    })
}

pub(crate) fn reduce_extreme(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let axes = reduced_axes(b, node)?;
    multiply(b, node, |n, x, y, dtype| shares(n, [x, y], &axes, dtype))
}

/// GlobalMaxPool: the maximum over the dimensions after the channels.
pub(crate) fn global_max_pool(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dtype, rank) = (b.first()?, b.dtype(node)?, b.spec(node, 0)?.dims.len() as i64);
    let axes: Vec<i64> = (2..rank).collect();
    let shares = shares(b.nodes, [required(node, 0)?, &node.outputs[0]], &axes, dtype);
    let gradient = b.nodes.add("Mul", &[&g, &shares]);
    b.set(0, gradient);
    Ok(())
}

/// Adds the share of each element in an extreme along axes.
fn shares(n: &mut NodeList<'_>, [x, extreme]: [&str; 2], axes: &[i64], dtype: DType) -> String {
    let equal = n.add("Equal", &[x, extreme]);
    let mask = n.cast(&equal, dtype);
    let count = sum(n, &mask, axes, true);
    n.add("Div", &[&mask, &count])
}
