//! Functions with which the layers add nodes.

use indexmap::IndexMap;

use crate::{Attribute, BuildError, GraphBuilder, Var};

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
