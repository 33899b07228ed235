//! Layers with PyTorch's meaning, argument defaults and state_dict names, made of standard ONNX operators.
//!
//! Knows no file and no engine.

mod activation;
mod arithmetic;
mod convolution;
mod linear;
mod normalization;
mod pool;
mod shape;

use indexmap::IndexMap;

use crate::{Attribute, BuildError, GraphBuilder, Var};

pub use activation::{
    gelu, hard_sigmoid, hard_swish, leaky_relu, log_softmax, relu, relu6, sigmoid, silu, softmax, tanh,
};
pub use arithmetic::{add, concat, div, matmul, mean, mul, scale, sub};
pub use convolution::{Conv2d, Padding, conv2d};
pub use linear::{Linear, embedding, linear};
pub use normalization::{BatchNorm, batch_norm, dropout, layer_norm};
pub use pool::{Pool2d, avg_pool2d, global_avg_pool, max_pool2d};
pub use shape::{flatten, reshape, transpose};

type Attributes = IndexMap<String, Attribute>;

/// Attributes from names and values.
fn attributes<const N: usize>(pairs: [(&str, Attribute); N]) -> Attributes {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A node with one output.
fn one(
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
fn fixed_size(layer: &str, x: &Var, axis: usize, what: &str) -> Result<usize, BuildError> {
    x.spec().dims.get(axis).and_then(crate::Dim::fixed).ok_or_else(|| {
        argument(layer, format!("{what} (dimension {axis}) must be a known size, the input is `{}`", x.spec()))
    })
}

fn argument(layer: &str, reason: impl Into<String>) -> BuildError {
    BuildError::Argument { layer: layer.to_owned(), reason: reason.into() }
}

fn ints(values: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(values.into_iter().map(|value| value as i64).collect())
}
