//! What the layers make nodes with.

use indexmap::IndexMap;

use crate::{Attribute, BuildError, GraphBuilder, Var};

pub(super) type Attributes = IndexMap<String, Attribute>;

/// Attributes from names and values.
pub(super) fn attributes<const N: usize>(pairs: [(&str, Attribute); N]) -> Attributes {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A node with one output.
pub(super) fn one(
    builder: &mut GraphBuilder,
    layer: &str,
    op: &str,
    inputs: &[Option<&Var>],
    attributes: Attributes,
) -> Result<Var, BuildError> {
    let outputs = builder.node(layer, op, inputs, attributes, 1)?;
    Ok(outputs.into_iter().next().expect("one output was asked for"))
}

/// The size of a dimension that a layer's weights depend on.
pub(super) fn fixed_size(layer: &str, x: &Var, axis: usize, what: &str) -> Result<usize, BuildError> {
    x.spec().dims.get(axis).and_then(crate::Dim::fixed).ok_or_else(|| {
        argument(layer, format!("{what} (dimension {axis}) must be a known size, the input is `{}`", x.spec()))
    })
}

pub(super) fn argument(layer: &str, reason: impl Into<String>) -> BuildError {
    BuildError::Argument { layer: layer.to_owned(), reason: reason.into() }
}

pub(super) fn ints(values: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(values.into_iter().map(|value| value as i64).collect())
}
