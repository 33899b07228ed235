//! Layers that change the shape and keep the elements.

use super::{add_node, argument_error, attributes, ints};
use crate::{Attribute, BuildError, GraphBuilder, Tensor, Var};

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
    let sizes = shape.iter().filter(|size| **size > 0);
    if sizes.copied().try_fold(1i64, i64::checked_mul).is_none() {
        return Err(argument_error(name, format!("the shape {shape:?} has more than 2^63 - 1 elements")));
    }
    let target = Tensor::from_vec([shape.len()], shape.to_vec()).map_err(|e| argument_error(name, e.to_string()))?;
    let target = builder.constant(&format!("{name}.shape"), target)?;
    add_node(builder, name, "Reshape", &[Some(x), Some(&target)], attributes([]))
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
