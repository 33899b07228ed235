//! Functions with which the layers add nodes.

use indexmap::IndexMap;

use crate::{Attribute, BuildError, GraphBuilder, Tensor, Var};

pub(super) type AttributeMap = IndexMap<String, Attribute>;

/// Returns a map of attributes from names and values.
pub(super) fn attributes<const N: usize>(pairs: [(&str, Attribute); N]) -> AttributeMap {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds a node with one output.
pub(super) fn add_node(
    builder: &mut GraphBuilder,
    layer: &str,
    op: &str,
    inputs: &[Option<&Var>],
    attributes: AttributeMap,
) -> Result<Var, BuildError> {
    let outputs = builder.node(layer, op, inputs, attributes, 1)?;
    Ok(outputs.into_iter().next().expect("one output was requested"))
}

/// Returns the size of a dimension on which a layer's weights depend; `what` describes it in the error.
pub(super) fn fixed_size(layer: &str, x: &Var, axis: usize, what: &str) -> Result<usize, BuildError> {
    x.spec().dims.get(axis).and_then(crate::Dim::fixed).ok_or_else(|| {
        argument_error(layer, format!("{what} (dimension {axis}) must be a fixed size, the input is `{}`", x.spec()))
    })
}

pub(super) fn argument_error(layer: &str, reason: impl Into<String>) -> BuildError {
    BuildError::Argument { layer: layer.to_owned(), reason: reason.into() }
}

pub(super) fn ints(values: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(values.into_iter().map(|value| value as i64).collect())
}

/// Declares a one-dimensional constant of integers: axes, sizes or starts.
pub(super) fn integers(builder: &mut GraphBuilder, name: &str, values: &[i64]) -> Result<Var, BuildError> {
    let tensor = Tensor::from_vec([values.len()], values.to_vec()).expect("the length of the vector is its shape");
    builder.constant(name, tensor)
}

/// Returns the axis counted from the front, for a value of `rank` dimensions.
pub(super) fn axis_from_front(layer: &str, axis: i64, rank: usize) -> Result<usize, BuildError> {
    let from_front = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    from_front.and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < rank).ok_or_else(|| {
        argument_error(
            layer,
            format!("axis {axis} is out of range: there are {rank} dimensions, 0 to {}", rank as i64 - 1),
        )
    })
}
