//! Layers that select, combine and move elements.

use super::node::{axis_from_front, integers};
use super::{add_node, argument_error, attributes, fixed_size, unsqueeze};
use crate::{Attribute, BuildError, DType, GraphBuilder, Tensor, Var};

/// The elements of one dimension that [`slice`] keeps, as Python's `start:end:step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The dimension; a negative number counts from the end.
    pub axis: i64,
    /// The first element; a negative number counts from the end.
    pub start: i64,
    /// The element before which the slice ends; a negative number counts from the end, `i64::MAX` is the end.
    pub end: i64,
    /// The distance between two elements; a negative one reverses the order.
    pub step: i64,
}

/// Concatenates tensors along `axis`.
///
/// # Errors
/// When the tensors differ in another dimension or in element type.
pub fn concat(builder: &mut GraphBuilder, name: &str, parts: &[&Var], axis: i64) -> Result<Var, BuildError> {
    let parts: Vec<Option<&Var>> = parts.iter().copied().map(Some).collect();
    add_node(builder, name, "Concat", &parts, attributes([("axis", Attribute::Int(axis))]))
}

/// Concatenates tensors of the same shape along a new dimension `axis`.
///
/// # Errors
/// When the tensors differ in shape or element type.
pub fn stack(builder: &mut GraphBuilder, name: &str, parts: &[&Var], axis: i64) -> Result<Var, BuildError> {
    let parts: Vec<Var> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| unsqueeze(builder, &format!("{name}.{index}"), part, &[axis]))
        .collect::<Result<_, _>>()?;
    concat(builder, name, &parts.iter().collect::<Vec<_>>(), axis)
}

/// Splits a dimension into parts of the given sizes.
///
/// # Errors
/// When the sizes do not add up to that of the dimension.
pub fn split(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    sizes: &[usize],
    axis: i64,
) -> Result<Vec<Var>, BuildError> {
    let place = axis_from_front(name, axis, x.spec().dims.len())?;
    let size = fixed_size(name, x, place, "the dimension to split")?;
    let total = sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
    if total != Some(size) {
        return Err(argument_error(
            name,
            format!("the parts {sizes:?} do not add up to {size}, the size of axis {axis}"),
        ));
    }
    let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let count = sizes.len();
    let sizes = integers(builder, &format!("{name}.sizes"), &sizes)?;
    builder.node(name, "Split", &[Some(x), Some(&sizes)], attributes([("axis", Attribute::Int(axis))]), count)
}

/// Keeps a part of some dimensions.
///
/// # Errors
/// When an axis is out of range or a step is 0.
pub fn slice(builder: &mut GraphBuilder, name: &str, x: &Var, slices: &[Slice]) -> Result<Var, BuildError> {
    let mut list = |part: &str, value: fn(&Slice) -> i64| {
        integers(builder, &format!("{name}.{part}"), &slices.iter().map(value).collect::<Vec<_>>())
    };
    let starts = list("starts", |slice| slice.start)?;
    let ends = list("ends", |slice| slice.end)?;
    let axes = list("axes", |slice| slice.axis)?;
    let steps = list("steps", |slice| slice.step)?;
    let inputs = [Some(x), Some(&starts), Some(&ends), Some(&axes), Some(&steps)];
    add_node(builder, name, "Slice", &inputs, attributes([]))
}

/// Keeps one element of a dimension, which is removed, as PyTorch's `select`.
///
/// # Errors
/// When the axis or the index is out of range.
pub fn select(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64, index: i64) -> Result<Var, BuildError> {
    let place = axis_from_front(name, axis, x.spec().dims.len())?;
    if let Some(size) = x.spec().dims[place].fixed() {
        axis_from_front(name, index, size)
            .map_err(|_| argument_error(name, format!("index {index} is out of range: axis {axis} has size {size}")))?;
    }
    let index = builder.constant(&format!("{name}.index"), Tensor::scalar(index))?;
    gather(builder, name, x, &index, axis)
}

/// Selects the entries of `axis` at `indices` (`i64` or `i32`), whose shape replaces the axis.
///
/// # Errors
/// When the indices are not integers or the axis is out of range.
pub fn gather(builder: &mut GraphBuilder, name: &str, x: &Var, indices: &Var, axis: i64) -> Result<Var, BuildError> {
    check_indices(name, indices)?;
    add_node(builder, name, "Gather", &[Some(x), Some(indices)], attributes([("axis", Attribute::Int(axis))]))
}

/// Selects one element for each element of `indices` along `axis`, as PyTorch's `gather`.
///
/// # Errors
/// When the indices are not integers, have another number of dimensions, or the axis is out of range.
pub fn gather_elements(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    indices: &Var,
    axis: i64,
) -> Result<Var, BuildError> {
    check_indices(name, indices)?;
    add_node(builder, name, "GatherElements", &[Some(x), Some(indices)], attributes([("axis", Attribute::Int(axis))]))
}

fn check_indices(name: &str, indices: &Var) -> Result<(), BuildError> {
    if matches!(indices.spec().dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(argument_error(name, format!("the indices must be i64 or i32, not `{}`", indices.spec())))
}

/// Returns `a` where `condition` is true, else `b`, with broadcasting.
///
/// # Errors
/// When the condition is not `bool`, or shapes or types are incompatible.
pub fn choose(builder: &mut GraphBuilder, name: &str, condition: &Var, a: &Var, b: &Var) -> Result<Var, BuildError> {
    if condition.spec().dtype != DType::Bool {
        return Err(argument_error(name, format!("the condition must be bool, not `{}`", condition.spec())));
    }
    add_node(builder, name, "Where", &[Some(condition), Some(a), Some(b)], attributes([]))
}

/// How [`pad`] fills the new elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// With one value.
    Constant(f32),
    /// With the interior, mirrored at the outermost element, which is not repeated.
    Reflect,
    /// With the outermost element.
    Edge,
}

/// Adds `pads[i].0` elements before and `pads[i].1` after dimension `i`.
///
/// # Errors
/// When there is not one pair for each dimension.
pub fn pad(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    pads: &[(usize, usize)],
    fill: Fill,
) -> Result<Var, BuildError> {
    if pads.len() != x.spec().dims.len() {
        return Err(argument_error(name, format!("{} pairs do not fit the dimensions of `{}`", pads.len(), x.spec())));
    }
    let sizes: Vec<i64> = pads.iter().map(|pad| pad.0 as i64).chain(pads.iter().map(|pad| pad.1 as i64)).collect();
    let sizes = integers(builder, &format!("{name}.pads"), &sizes)?;
    let mode = match fill {
        Fill::Constant(value) => {
            let value = super::activation::scalar_like(builder, &format!("{name}.value"), value, x)?;
            return add_node(builder, name, "Pad", &[Some(x), Some(&sizes), Some(&value)], attributes([]));
        }
        Fill::Reflect => "reflect",
        Fill::Edge => "edge",
    };
    let mode = Attribute::String(mode.to_owned());
    add_node(builder, name, "Pad", &[Some(x), Some(&sizes)], attributes([("mode", mode)]))
}

/// Moves the elements of dimensions of fixed size by `shifts`, those beyond the end to the beginning, as PyTorch's
/// `roll`.
///
/// # Errors
/// When an axis is out of range or its size is not fixed.
pub fn roll(builder: &mut GraphBuilder, name: &str, x: &Var, shifts: &[(i64, i64)]) -> Result<Var, BuildError> {
    let mut rolled = x.clone();
    for (number, (axis, shift)) in shifts.iter().enumerate() {
        let place = axis_from_front(name, *axis, x.spec().dims.len())?;
        let size = fixed_size(name, x, place, "the dimension to roll")? as i64;
        let cut = if size == 0 { 0 } else { (-shift).rem_euclid(size) };
        if cut == 0 {
            continue;
        }
        let mut part = |what: &str, start, end| {
            let slice_of = Slice { axis: place as i64, start, end, step: 1 };
            let part = builder.unused_name(&format!("{name}.{number}.{what}"));
            slice(builder, &part, &rolled, &[slice_of])
        };
        let (first, last) = (part("first", cut, size)?, part("last", 0, cut)?);
        let part = builder.unused_name(&format!("{name}.{number}"));
        rolled = concat(builder, &part, &[&first, &last], place as i64)?;
    }
    Ok(rolled)
}

/// Returns the outputs of `TopK`: the `k` largest elements along `axis`, or the smallest, and their indices (i64).
///
/// # Errors
/// When the axis is out of range or has fewer than `k` elements.
pub fn top_k(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    (k, axis): (usize, i64),
    largest: bool,
) -> Result<[Var; 2], BuildError> {
    let place = axis_from_front(name, axis, x.spec().dims.len())?;
    if let Some(size) = x.spec().dims[place].fixed().filter(|size| *size < k) {
        return Err(argument_error(name, format!("axis {axis} has only {size} elements, not {k}")));
    }
    let count = integers(builder, &format!("{name}.k"), &[k as i64])?;
    let attributes = attributes([("axis", Attribute::Int(axis)), ("largest", Attribute::Int(i64::from(largest)))]);
    let outputs = builder.node(name, "TopK", &[Some(x), Some(&count)], attributes, 2)?;
    Ok(<[Var; 2]>::try_from(outputs).expect("two outputs were requested"))
}
