//! Reductions along axes, and sums of all preceding elements.

use super::node::{axis_from_front, integers};
use super::{add_node, argument_error, attributes};
use crate::{Attribute, BuildError, DType, GraphBuilder, Tensor, Var, find_operator};

/// How elements are reduced to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum divided by their number.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Reduces over `axes`; without any, over all. If `keep` is true, they remain as dimensions of size 1.
///
/// # Errors
/// When an axis is out of range.
pub fn reduce(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    reduction: Reduction,
    (axes, keep): (&[i64], bool),
) -> Result<Var, BuildError> {
    let rank = x.spec().dims.len();
    axes.iter().try_for_each(|axis| axis_from_front(name, *axis, rank).map(drop))?;
    let op = match reduction {
        Reduction::Sum => "ReduceSum",
        Reduction::Mean => "ReduceMean",
        Reduction::Max => "ReduceMax",
        Reduction::Min => "ReduceMin",
    };
    let mut attributes = attributes([("keepdims", Attribute::Int(i64::from(keep)))]);
    if axes.is_empty() {
        return add_node(builder, name, op, &[Some(x)], attributes);
    }
    let input_since = find_operator(op).and_then(|operator| operator.axes_input_since);
    if input_since.is_some_and(|version| builder.opset() >= version) {
        let axes = integers(builder, &format!("{name}.axes"), axes)?;
        return add_node(builder, name, op, &[Some(x), Some(&axes)], attributes);
    }
    attributes.insert("axes".to_owned(), Attribute::Ints(axes.to_vec()));
    add_node(builder, name, op, &[Some(x)], attributes)
}

/// The mean over `axes`. If `keep` is true, they remain as dimensions of size 1.
///
/// # Errors
/// When an axis is out of range.
pub fn mean(builder: &mut GraphBuilder, name: &str, x: &Var, axes: &[i64], keep: bool) -> Result<Var, BuildError> {
    reduce(builder, name, x, Reduction::Mean, (axes, keep))
}

/// The index (i64) of the largest element along `axis`, the first of equal ones; of the smallest if `smallest` is true.
///
/// # Errors
/// When the axis is out of range.
pub fn arg_max(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    (axis, keep): (i64, bool),
    smallest: bool,
) -> Result<Var, BuildError> {
    let attributes = attributes([("axis", Attribute::Int(axis)), ("keepdims", Attribute::Int(i64::from(keep)))]);
    add_node(builder, name, if smallest { "ArgMin" } else { "ArgMax" }, &[Some(x)], attributes)
}

/// The sum of each element and all before it along `axis`.
///
/// # Errors
/// When the axis is out of range or the elements are bools.
pub fn cumulative_sum(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64) -> Result<Var, BuildError> {
    axis_from_front(name, axis, x.spec().dims.len())?;
    if x.spec().dtype == DType::Bool {
        return Err(argument_error(name, "bools have no sum: cast them to i64"));
    }
    let axis = builder.constant(&format!("{name}.axis"), Tensor::scalar(axis))?;
    add_node(builder, name, "CumSum", &[Some(x), Some(&axis)], attributes([]))
}
