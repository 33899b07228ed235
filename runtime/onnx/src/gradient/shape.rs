//! Derivatives of operators that move elements without changing them.

use super::Backward;
use super::backward::sum;
use crate::lower::{int, required};
use crate::{Attribute, Node};

/// Reshape, Flatten, Squeeze and Unsqueeze: the gradient in the input's shape.
pub(crate) fn reshape(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let gradient = b.reshape_to_input(node, 0, &g)?;
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn transpose(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, rank) = (b.first()?, b.spec(node, 0)?.dims.len());
    let order: Vec<i64> = match node.attributes.get("perm") {
        Some(Attribute::Ints(order)) => order.clone(),
        _ => (0..rank as i64).rev().collect(),
    };
    let mut inverse = vec![0; rank];
    order.iter().enumerate().for_each(|(to, from)| inverse[*from as usize] = to as i64);
    let gradient = b.nodes.transpose(&g, &inverse);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn expand(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, dims) = (b.first()?, b.output_dims(node)?);
    b.set_broadcast(node, 0, &g, dims)
}

/// Splits each repeated dimension into repetitions and size, and sums over the repetitions.
pub(crate) fn tile(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, sizes) = (b.first()?, b.sizes(node, 0)?);
    let tiled = b.nodes.spec(&node.outputs[0])?.fixed_shape().ok_or("the tiled shape is not known")?;
    let split: Vec<i64> =
        sizes.iter().zip(tiled).flat_map(|(size, tiled)| [tiled as i64 / (*size).max(1), *size]).collect();
    let repetitions: Vec<i64> = (0..sizes.len() as i64).map(|axis| 2 * axis).collect();
    let apart = b.nodes.reshape(&g, &split);
    let gradient = if repetitions.is_empty() { apart } else { sum(b.nodes, &apart, &repetitions, false) };
    b.set(0, gradient);
    Ok(())
}

/// The axis of a node, counted from the front.
pub(super) fn axis(b: &Backward<'_, '_>, node: &Node, default: i64) -> Result<usize, String> {
    let rank = b.spec(node, 0)?.dims.len() as i64;
    let axis = int(node, "axis").unwrap_or(default);
    usize::try_from(if axis < 0 { axis + rank } else { axis }).map_err(|_| format!("`axis` is {axis}"))
}

pub(crate) fn concat(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis) = (b.first()?, axis(b, node, 0)?);
    let mut start = 0;
    for i in 0..node.inputs.len() {
        let size = b.spec(node, i)?.dims[axis].fixed();
        let end = start + size.ok_or_else(|| format!("the size of input {i} is not known"))? as i64;
        if b.needs(i) {
            let part = b.nodes.slice(&g, axis as i64, [start, end, 1]);
            b.set(i, part);
        }
        start = end;
    }
    Ok(())
}

/// The gradients of the parts, with zeros for those that the loss does not depend on.
pub(crate) fn split(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let axis = axis(b, node, 0)?;
    let mut parts = Vec::new();
    for (i, output) in node.outputs.iter().enumerate() {
        let spec = b.nodes.spec(output)?;
        parts.push(match b.output(i) {
            Some(gradient) => gradient,
            None => {
                let sizes = spec.fixed_shape().ok_or_else(|| format!("the shape of `{output}` is not known"))?;
                let sizes: Vec<i64> = sizes.into_iter().map(|size| size as i64).collect();
                b.zeros_of(&sizes, spec.dtype)
            }
        });
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let gradient = b.nodes.add_with("Concat", &parts, [("axis", Attribute::Int(axis as i64))]);
    b.set(0, gradient);
    Ok(())
}

/// Reads a constant list of integers that a node has as an input.
pub(super) fn known_ints(b: &Backward<'_, '_>, node: &Node, i: usize) -> Result<Vec<i64>, String> {
    let tensor = b.nodes.known(required(node, i)?).ok_or_else(|| format!("input {i} is not a constant"))?;
    Ok(tensor.to_f64().into_iter().map(|number| number as i64).collect())
}

/// One axis of a slice: the axis, the first index, the number of indices and the step.
struct Cut {
    axis: usize,
    start: i64,
    count: i64,
    step: i64,
}

/// Puts the gradient back in its place among zeros: by padding where the step is 1, else by scattering.
pub(crate) fn slice(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (mut gradient, dtype, sizes) = (b.first()?, b.dtype(node)?, b.sizes(node, 0)?);
    let output = b.nodes.spec(&node.outputs[0])?.fixed_shape().ok_or("the shape of the slice is not known")?;
    let mut shape: Vec<i64> = output.iter().map(|size| *size as i64).collect();
    let (mut before, mut after) = (vec![0; sizes.len()], vec![0; sizes.len()]);
    for cut in cuts(b, node, &sizes, &shape)? {
        if cut.step == 1 {
            before[cut.axis] = cut.start;
            after[cut.axis] = sizes[cut.axis] - cut.start - cut.count;
        } else {
            let indices: Vec<i64> = (0..cut.count).map(|i| cut.start + i * cut.step).collect();
            gradient = scatter_along(b, &gradient, (&mut shape, cut.axis, sizes[cut.axis]), &indices, dtype);
        }
    }
    if before.iter().chain(&after).any(|size| *size != 0) {
        let (pads, zero) = (b.nodes.ints(&[before, after].concat()), b.nodes.number(0.0, dtype));
        gradient = b.nodes.add("Pad", &[&gradient, &pads, &zero]);
    }
    b.set(0, gradient);
    Ok(())
}

/// Returns the axes that a Slice cuts.
fn cuts(b: &Backward<'_, '_>, node: &Node, sizes: &[i64], output: &[i64]) -> Result<Vec<Cut>, String> {
    let rank = sizes.len() as i64;
    let starts = known_ints(b, node, 1)?;
    let has = |i: usize| node.inputs.get(i).is_some_and(|name| !name.is_empty());
    let axes = if has(3) { known_ints(b, node, 3)? } else { (0..starts.len() as i64).collect() };
    let steps = if has(4) { known_ints(b, node, 4)? } else { vec![1; starts.len()] };
    let cut = |((axis, start), step): ((&i64, &i64), &i64)| {
        let axis = (if *axis < 0 { axis + rank } else { *axis }) as usize;
        let (size, last) = (sizes[axis], if *step < 0 { sizes[axis] - 1 } else { sizes[axis] });
        let start = (if *start < 0 { start + size } else { *start }).clamp(0, last);
        Cut { axis, start, count: output[axis], step: *step }
    };
    Ok(axes.iter().zip(&starts).zip(&steps).map(cut).collect())
}

/// Adds a tensor of zeros with the slices of `x` at `indices` of an axis, which then has `size` elements.
fn scatter_along(
    b: &mut Backward<'_, '_>,
    x: &str,
    (shape, axis, size): (&mut [i64], usize, i64),
    indices: &[i64],
    dtype: crate::DType,
) -> String {
    let mut index_shape = vec![1; shape.len()];
    index_shape[axis] = indices.len() as i64;
    let list = b.nodes.ints(indices);
    let column = b.nodes.reshape(&list, &index_shape);
    let full = b.nodes.ints(shape);
    let index = b.nodes.add("Expand", &[&column, &full]);
    shape[axis] = size;
    let zeros = b.zeros_of(shape, dtype);
    b.nodes.add_with("ScatterElements", &[&zeros, &index, x], [("axis", Attribute::Int(axis as i64))])
}

/// Constant padding: the part inside.
pub(crate) fn pad(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (mut gradient, sizes) = (b.first()?, b.sizes(node, 0)?);
    match node.attributes.get("mode") {
        Some(Attribute::String(mode)) if mode != "constant" => return Err(format!("`mode` is `{mode}`")),
        _ if node.inputs.get(3).is_some_and(|axes| !axes.is_empty()) => return Err("`axes` is an input".to_owned()),
        _ => (),
    }
    let pads = known_ints(b, node, 1)?;
    if pads.iter().any(|pad| *pad < 0) {
        return Err("a pad is negative".to_owned());
    }
    for (axis, (before, size)) in pads.iter().zip(&sizes).enumerate() {
        if *before != 0 || pads[axis + sizes.len()] != 0 {
            gradient = b.nodes.slice(&gradient, axis as i64, [*before, before + size, 1]);
        }
    }
    b.set(0, gradient);
    Ok(())
}

/// Trilu of the gradient: what the operator sets to zero has no influence.
pub(crate) fn trilu(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let inputs: Vec<&str> = std::iter::once(g.as_str()).chain(node.inputs.iter().skip(1).map(String::as_str)).collect();
    let gradient = b.nodes.add_from("Trilu", &inputs, node.attributes.clone());
    b.set(0, gradient);
    Ok(())
}

fn block(node: &Node) -> Result<i64, String> {
    int(node, "blocksize").ok_or_else(|| "`blocksize` is missing".to_owned())
}

/// Undoes the rearrangement by its two reshapes and its transposition in reverse.
pub(crate) fn depth_to_space(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, block, sizes) = (b.first()?, block(node)?, b.sizes(node, 0)?);
    let [batch, channels, height, width] = sizes[..] else { return Err("the input is not an image".to_owned()) };
    let is_crd = matches!(node.attributes.get("mode"), Some(Attribute::String(mode)) if mode == "CRD");
    let order = if is_crd { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let apart = b.nodes.reshape(&g, &[batch, channels / (block * block), height, block, width, block]);
    let moved = b.nodes.transpose(&apart, &order);
    let gradient = b.nodes.reshape(&moved, &sizes);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn space_to_depth(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, block) = (b.first()?, block(node)?);
    let gradient = b.nodes.add_with("DepthToSpace", &[&g], [("blocksize", Attribute::Int(block))]);
    b.set(0, gradient);
    Ok(())
}
