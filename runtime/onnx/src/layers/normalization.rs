//! Normalisation and dropout.

use super::{add_node, argument_error, attributes, fixed_size, shape};
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

/// Instance normalisation, without weights: each channel of each sample has mean 0 and variance 1.
///
/// # Errors
/// When the number of channels is unknown.
pub fn instance_norm(builder: &mut GraphBuilder, name: &str, x: &Var, eps: f32) -> Result<Var, BuildError> {
    let channels = fixed_size(name, x, 1, "the number of channels")?;
    let mut filled = |part: &str, value: f32| {
        let tensor = Tensor::from_vec([channels], vec![value; channels]).expect("the length is the shape");
        builder.constant(&format!("{name}.{part}"), tensor.cast(x.spec().dtype))
    };
    let (ones, zeros) = (filled("ones", 1.0)?, filled("zeros", 0.0)?);
    let attributes = attributes([("epsilon", Attribute::Float(eps))]);
    add_node(builder, name, "InstanceNormalization", &[Some(x), Some(&ones), Some(&zeros)], attributes)
}

/// Group normalisation of `N,C,..` with `<name>.weight` and `<name>.bias` (`C`), composed of other operators: in
/// `GroupNormalization`, the weights have one element for each channel only since operator set 21.
///
/// # Errors
/// When the channels are unknown or cannot be split into the groups.
pub fn group_norm(builder: &mut GraphBuilder, name: &str, x: &Var, groups: usize, eps: f32) -> Result<Var, BuildError> {
    let channels = fixed_size(name, x, 1, "the number of channels")?;
    if channels.checked_rem(groups) != Some(0) {
        return Err(argument_error(name, format!("{channels} channels cannot be split into {groups} groups")));
    }
    let spec = TensorSpec::new([channels], x.spec().dtype);
    let weight = builder.weight(&format!("{name}.weight"), spec.clone(), WeightRole::Parameter, Init::Constant(1.0))?;
    let bias = builder.weight(&format!("{name}.bias"), spec, WeightRole::Parameter, Init::Constant(0.0))?;
    let grouped = shape::reshape(builder, &format!("{name}.groups"), x, &[0, groups as i64, -1])?;
    let normal = instance_norm(builder, &format!("{name}.norm"), &grouped, eps)?;
    let shape = shape::shape_of(builder, &format!("{name}.shape"), x)?;
    let normal =
        add_node(builder, &format!("{name}.normal"), "Reshape", &[Some(&normal), Some(&shape)], attributes([]))?;
    let per_channel: Vec<i64> =
        (0..x.spec().dims.len() - 1).map(|axis| if axis == 0 { channels as i64 } else { 1 }).collect();
    let weight = shape::reshape(builder, &format!("{name}.scale"), &weight, &per_channel)?;
    let bias = shape::reshape(builder, &format!("{name}.shift"), &bias, &per_channel)?;
    let scaled = add_node(builder, &format!("{name}.scaled"), "Mul", &[Some(&normal), Some(&weight)], attributes([]))?;
    add_node(builder, name, "Add", &[Some(&scaled), Some(&bias)], attributes([]))
}

/// Root mean square normalisation of the last dimension, `x / √(mean(x²) + eps) · weight`, with `<name>.weight`:
/// equation 4 of Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
///
/// # Errors
/// When the last dimension is unknown.
pub fn rms_norm(builder: &mut GraphBuilder, name: &str, x: &Var, eps: f32) -> Result<Var, BuildError> {
    let rank = x.spec().dims.len();
    let spec = TensorSpec::new([fixed_size(name, x, rank.wrapping_sub(1), "the number of features")?], x.spec().dtype);
    let weight = builder.weight(&format!("{name}.weight"), spec, WeightRole::Parameter, Init::Constant(1.0))?;
    let attributes = attributes([("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(eps))]);
    add_node(builder, name, "RMSNormalization", &[Some(x), Some(&weight)], attributes)
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
