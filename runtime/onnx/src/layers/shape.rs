//! Other shapes of the same elements.

use super::{argument, attributes, ints, one};
use crate::{Attribute, BuildError, GraphBuilder, Tensor, Var};

/// Two dimensions: the product of those before `axis`, and of the rest.
///
/// # Errors
/// When there is no such axis.
pub fn flatten(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64) -> Result<Var, BuildError> {
    one(builder, name, "Flatten", &[Some(x)], attributes([("axis", Attribute::Int(axis))]))
}

/// Another shape; 0 keeps the dimension at its place, one -1 takes what is left.
///
/// # Errors
/// When the number of elements differs, or is more than can be counted.
pub fn reshape(builder: &mut GraphBuilder, name: &str, x: &Var, shape: &[i64]) -> Result<Var, BuildError> {
    let sizes = shape.iter().filter(|size| **size > 0);
    if sizes.copied().try_fold(1i64, i64::checked_mul).is_none() {
        return Err(argument(name, format!("the shape {shape:?} has more elements than can be counted")));
    }
    let target = Tensor::from_vec([shape.len()], shape.to_vec()).map_err(|e| argument(name, e.to_string()))?;
    let target = builder.constant(&format!("{name}.shape"), target)?;
    one(builder, name, "Reshape", &[Some(x), Some(&target)], attributes([]))
}

/// The dimensions in another order.
///
/// # Errors
/// When `order` does not name every dimension once.
pub fn transpose(builder: &mut GraphBuilder, name: &str, x: &Var, order: &[usize]) -> Result<Var, BuildError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted != (0..x.spec().dims.len()).collect::<Vec<_>>() {
        return Err(argument(name, format!("order {order:?} does not name every dimension of `{}` once", x.spec())));
    }
    one(builder, name, "Transpose", &[Some(x)], attributes([("perm", ints(order.iter().copied()))]))
}
