//! Layers that change the shape, repeat elements and keep their order.

use super::node::{axis_from_front, integers};
use super::{add_node, argument_error, attributes, ints};
use crate::{Attribute, BuildError, GraphBuilder, Var};

/// A size in the target shape of a layer.
#[derive(Clone, Debug)]
pub enum Size {
    /// A number. What 0 and -1 mean depends on the layer.
    Number(i64),
    /// The size of a named dimension of the graph's inputs.
    Named(String),
    /// One integer that the graph computes: `i64` or `1,i64`.
    Value(Var),
}

/// Returns a shape as a value: a constant if all sizes are numbers.
fn shape_value(builder: &mut GraphBuilder, name: &str, sizes: &[Size]) -> Result<Var, BuildError> {
    let numbers = |sizes: &[Size]| {
        let number = |size: &Size| if let Size::Number(number) = size { Some(*number) } else { None };
        sizes.iter().map(number).collect::<Option<Vec<i64>>>()
    };
    if let Some(numbers) = numbers(sizes) {
        return integers(builder, name, &numbers);
    }
    let mut parts = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let part = format!("{name}.{index}");
        parts.push(match size {
            Size::Number(number) => integers(builder, &part, &[*number])?,
            Size::Named(dimension) => builder.dimension(dimension)?,
            Size::Value(value) if value.spec().dims.is_empty() => {
                let axes = integers(builder, &format!("{part}.axes"), &[0])?;
                add_node(builder, &part, "Unsqueeze", &[Some(value), Some(&axes)], attributes([]))?
            }
            Size::Value(value) => value.clone(),
        });
    }
    let parts: Vec<Option<&Var>> = parts.iter().map(Some).collect();
    add_node(builder, name, "Concat", &parts, attributes([("axis", Attribute::Int(0))]))
}

/// Flattens to two dimensions: the product of the dimensions before `axis`, and the product of the rest.
///
/// # Errors
/// When the axis is out of range.
pub fn flatten(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64) -> Result<Var, BuildError> {
    add_node(builder, name, "Flatten", &[Some(x)], attributes([("axis", Attribute::Int(axis))]))
}

/// Changes the shape. A 0 keeps the input's size at that position; one -1 stands for the size that remains.
///
/// # Errors
/// When the number of elements differs, or exceeds 2^63 - 1.
pub fn reshape(builder: &mut GraphBuilder, name: &str, x: &Var, shape: &[i64]) -> Result<Var, BuildError> {
    reshape_to(builder, name, x, &numbers(shape))
}

/// Changes the shape as [`reshape`] does, to sizes that may be those of named dimensions or be computed by the graph.
///
/// # Errors
/// Those of [`reshape`], and when a named dimension is unknown.
pub fn reshape_to(builder: &mut GraphBuilder, name: &str, x: &Var, shape: &[Size]) -> Result<Var, BuildError> {
    let size = |size: &Size| if let Size::Number(number @ 1..) = size { *number } else { 1 };
    let product = shape.iter().map(size).try_fold(1, i64::checked_mul);
    if product.is_none() {
        let text = |size: &Size| match size {
            Size::Number(number) => number.to_string(),
            Size::Named(name) => name.clone(),
            Size::Value(value) => value.name().to_owned(),
        };
        let sizes = shape.iter().map(text).collect::<Vec<_>>().join(", ");
        return Err(argument_error(name, format!("the shape [{sizes}] has more than 2^63 - 1 elements")));
    }
    let target = shape_value(builder, &format!("{name}.shape"), shape)?;
    add_node(builder, name, "Reshape", &[Some(x), Some(&target)], attributes([]))
}

/// Returns sizes that are all numbers.
fn numbers(sizes: &[i64]) -> Vec<Size> {
    sizes.iter().map(|size| Size::Number(*size)).collect()
}

/// Repeats dimensions of size 1 up to `shape`, as PyTorch's `expand`: -1 keeps a size, and further dimensions may be
/// added in front.
///
/// # Errors
/// When a size is neither that of the input nor can replace a 1.
pub fn expand(builder: &mut GraphBuilder, name: &str, x: &Var, shape: &[Size]) -> Result<Var, BuildError> {
    // ONNX broadcasts, so that a size of 1 keeps that of the input.
    let kept = |size: &Size| if let Size::Number(-1) = size { Size::Number(1) } else { size.clone() };
    let target = shape_value(builder, &format!("{name}.shape"), &shape.iter().map(kept).collect::<Vec<_>>())?;
    add_node(builder, name, "Expand", &[Some(x), Some(&target)], attributes([]))
}

/// Repeats the whole tensor `repeats[i]` times along dimension `i`.
///
/// # Errors
/// When there is not one number for each dimension.
pub fn tile(builder: &mut GraphBuilder, name: &str, x: &Var, repeats: &[i64]) -> Result<Var, BuildError> {
    let repeats = integers(builder, &format!("{name}.repeats"), repeats)?;
    add_node(builder, name, "Tile", &[Some(x), Some(&repeats)], attributes([]))
}

/// Inserts dimensions of size 1 at `axes`, which are places in the result.
///
/// # Errors
/// When an axis is out of range.
pub fn unsqueeze(builder: &mut GraphBuilder, name: &str, x: &Var, axes: &[i64]) -> Result<Var, BuildError> {
    let axes = integers(builder, &format!("{name}.axes"), axes)?;
    add_node(builder, name, "Unsqueeze", &[Some(x), Some(&axes)], attributes([]))
}

/// Removes the dimensions `axes`, which have size 1.
///
/// # Errors
/// When an axis is out of range or has another size.
pub fn squeeze(builder: &mut GraphBuilder, name: &str, x: &Var, axes: &[i64]) -> Result<Var, BuildError> {
    let axes = integers(builder, &format!("{name}.axes"), axes)?;
    add_node(builder, name, "Squeeze", &[Some(x), Some(&axes)], attributes([]))
}

/// Permutes the dimensions: dimension `i` of the output is dimension `order[i]` of the input.
///
/// # Errors
/// When `order` is not a permutation of the dimensions.
pub fn transpose(builder: &mut GraphBuilder, name: &str, x: &Var, order: &[usize]) -> Result<Var, BuildError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted != (0..x.spec().dims.len()).collect::<Vec<_>>() {
        return Err(argument_error(
            name,
            format!("order {order:?} is not a permutation of the dimensions of `{}`", x.spec()),
        ));
    }
    add_node(builder, name, "Transpose", &[Some(x)], attributes([("perm", ints(order.iter().copied()))]))
}

/// Exchanges two dimensions; a negative axis counts from the end.
///
/// # Errors
/// When an axis is out of range.
pub fn swap_axes(builder: &mut GraphBuilder, name: &str, x: &Var, a: i64, b: i64) -> Result<Var, BuildError> {
    let rank = x.spec().dims.len();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(axis_from_front(name, a, rank)?, axis_from_front(name, b, rank)?);
    transpose(builder, name, x, &order)
}

/// Returns the shape as integers, one for each dimension.
///
/// # Errors
/// When the name is already used.
pub fn shape_of(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    add_node(builder, name, "Shape", &[Some(x)], attributes([]))
}
