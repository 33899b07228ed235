//! Normalisation and dropout.

use super::{add_node, argument_error, attributes, fixed_size};
use crate::{Attribute, BuildError, DType, GraphBuilder, Init, Tensor, TensorSpec, Var, WeightRole};

/// A batch normalisation; the fields are those of `torch.nn.BatchNorm2d`.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Weight of the new batch in the running statistics, as PyTorch defines it; ONNX stores one minus this value.
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
    let spec = TensorSpec::new([fixed_size(name, x, 1, "the number of channels")?], x.spec().dtype);
    let mut weight = |suffix: &str, role, value| {
        builder.weight(&format!("{name}.{suffix}"), spec.clone(), role, Init::Constant(value))
    };
    let scale = weight("weight", WeightRole::Parameter, 1.0)?;
    let bias = weight("bias", WeightRole::Parameter, 0.0)?;
    let mean = weight("running_mean", WeightRole::Buffer, 0.0)?;
    let var = weight("running_var", WeightRole::Buffer, 1.0)?;
    let attributes =
        attributes([("epsilon", Attribute::Float(norm.eps)), ("momentum", Attribute::Float(1.0 - norm.momentum))]);
    let inputs = [Some(x), Some(&scale), Some(&bias), Some(&mean), Some(&var)];
    add_node(builder, name, "BatchNormalization", &inputs, attributes)
}

/// Layer normalisation of the last `dimensions` dimensions with `<name>.weight` and `<name>.bias`.
///
/// # Errors
/// When one of those dimensions is unknown, or the input has fewer dimensions.
pub fn layer_norm(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    dimensions: usize,
    eps: f32,
) -> Result<Var, BuildError> {
    let rank = x.spec().dims.len();
    if dimensions == 0 || dimensions > rank {
        return Err(argument_error(
            name,
            format!("cannot normalise the last {dimensions} dimensions of `{}`", x.spec()),
        ));
    }
    let first = rank - dimensions;
    let sizes: Vec<usize> =
        (first..rank).map(|axis| fixed_size(name, x, axis, "a normalised dimension")).collect::<Result<_, _>>()?;
    let spec = TensorSpec::new(sizes, x.spec().dtype);
    let weight = builder.weight(&format!("{name}.weight"), spec.clone(), WeightRole::Parameter, Init::Constant(1.0))?;
    let bias = builder.weight(&format!("{name}.bias"), spec, WeightRole::Parameter, Init::Constant(0.0))?;
    let attributes = attributes([("axis", Attribute::Int(first as i64)), ("epsilon", Attribute::Float(eps))]);
    add_node(builder, name, "LayerNormalization", &[Some(x), Some(&weight), Some(&bias)], attributes)
}

/// Dropout. Outside training it returns its input unchanged; it stays in the graph because the same graph may be
/// trained.
///
/// # Errors
/// When `probability` is not in 0..1.
pub fn dropout(builder: &mut GraphBuilder, name: &str, x: &Var, probability: f32) -> Result<Var, BuildError> {
    if !(0.0..1.0).contains(&probability) {
        return Err(argument_error(name, format!("probability {probability} is out of range (from 0 to below 1)")));
    }
    let ratio = Tensor::scalar(probability).cast(if x.spec().dtype.is_float() { x.spec().dtype } else { DType::F32 });
    let ratio = builder.constant(&format!("{name}.ratio"), ratio)?;
    add_node(builder, name, "Dropout", &[Some(x), Some(&ratio)], attributes([]))
}
