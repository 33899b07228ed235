//! Normalisation and dropout.

use super::{argument, attributes, fixed_size, one};
use crate::{Attribute, BuildError, DType, GraphBuilder, Init, Role, Tensor, TensorSpec, Var};

/// A batch normalisation; the fields are those of `torch.nn.BatchNorm2d`.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Share of the new batch in the running statistics (PyTorch's sense; ONNX keeps one minus it).
    pub momentum: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm { eps: 1e-5, momentum: 0.1 }
    }
}

/// Batch normalisation of dimension 1 with `<name>.weight`, `.bias`, `.running_mean` and `.running_var`.
///
/// # Errors
/// When the number of channels is unknown.
pub fn batch_norm(builder: &mut GraphBuilder, name: &str, x: &Var, norm: BatchNorm) -> Result<Var, BuildError> {
    let spec = TensorSpec::new([fixed_size(name, x, 1, "channels")?], x.spec().dtype);
    let mut weight = |suffix: &str, role, value| {
        builder.weight(&format!("{name}.{suffix}"), spec.clone(), role, Init::Constant(value))
    };
    let scale = weight("weight", Role::Parameter, 1.0)?;
    let bias = weight("bias", Role::Parameter, 0.0)?;
    let mean = weight("running_mean", Role::Buffer, 0.0)?;
    let var = weight("running_var", Role::Buffer, 1.0)?;
    let attributes =
        attributes([("epsilon", Attribute::Float(norm.eps)), ("momentum", Attribute::Float(1.0 - norm.momentum))]);
    let inputs = [Some(x), Some(&scale), Some(&bias), Some(&mean), Some(&var)];
    one(builder, name, "BatchNormalization", &inputs, attributes)
}

/// Layer normalisation of the last `dimensions` dimensions with `<name>.weight` and `<name>.bias`.
///
/// # Errors
/// When one of those dimensions is unknown, or there are fewer.
pub fn layer_norm(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    dimensions: usize,
    eps: f32,
) -> Result<Var, BuildError> {
    let rank = x.spec().dims.len();
    if dimensions == 0 || dimensions > rank {
        return Err(argument(name, format!("{dimensions} dimensions to normalise, the input is `{}`", x.spec())));
    }
    let first = rank - dimensions;
    let sizes: Vec<usize> =
        (first..rank).map(|axis| fixed_size(name, x, axis, "what is normalised")).collect::<Result<_, _>>()?;
    let spec = TensorSpec::new(sizes, x.spec().dtype);
    let weight = builder.weight(&format!("{name}.weight"), spec.clone(), Role::Parameter, Init::Constant(1.0))?;
    let bias = builder.weight(&format!("{name}.bias"), spec, Role::Parameter, Init::Constant(0.0))?;
    let attributes = attributes([("axis", Attribute::Int(first as i64)), ("epsilon", Attribute::Float(eps))]);
    one(builder, name, "LayerNormalization", &[Some(x), Some(&weight), Some(&bias)], attributes)
}

/// Dropout: passes its input through outside training; kept in the graph because the same graph may be trained.
///
/// # Errors
/// When `probability` is not in 0..1.
pub fn dropout(builder: &mut GraphBuilder, name: &str, x: &Var, probability: f32) -> Result<Var, BuildError> {
    if !(0.0..1.0).contains(&probability) {
        return Err(argument(name, format!("probability {probability} is not in 0..1")));
    }
    let ratio = Tensor::scalar(probability).cast(if x.spec().dtype.is_float() { x.spec().dtype } else { DType::F32 });
    let ratio = builder.constant(&format!("{name}.ratio"), ratio)?;
    one(builder, name, "Dropout", &[Some(x), Some(&ratio)], attributes([]))
}
