//! Normalizations that are composed of the operations of a tensor library.

use super::OpError;
use super::evaluate::scalar;
use super::operands::Operands;
use super::ops::{Binary, Reduce, TensorOps, Unary};
use super::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor};

/// Returns the tensor in f32 if it has 16 bits, so that an operator composed of several operations rounds once.
pub(super) fn widen<O: TensorOps + ?Sized>(ops: &O, x: &O::Tensor) -> Result<O::Tensor, OpError> {
    match ops.dtype(x) {
        DType::F16 | DType::BF16 => ops.cast(x, DType::F32),
        _ => Ok(x.clone()),
    }
}

/// The parameters of a GroupNormalization.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupNorm {
    pub groups: usize,
    pub epsilon: f64,
    /// Whether scale and bias have one element per group instead of one per channel, as before operator set 21.
    pub per_group: bool,
}

/// Normalizes each group of channels of each image, then multiplies by input 1 and adds input 2. Without a group count,
/// each channel is a group.
pub(super) fn group_normalization<O: TensorOps>(
    operands: &Operands<O>,
    norm: Option<GroupNorm>,
    epsilon: f64,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let [batch, channels, ref spatial @ ..] = shape[..] else {
        return Err(OpError::invalid_operands("the input has no channel dimension"));
    };
    let groups = norm.map_or(channels, |norm| norm.groups);
    if groups == 0 || channels % groups != 0 {
        return Err(OpError::invalid_operands(format!("{channels} channels cannot be split into {groups} groups")));
    }
    let length = channels / groups * spatial.iter().product::<usize>();
    let grouped = ops.reshape(&widen(ops, &x)?, &[batch, groups, length])?;
    let one = ops.upload(&Tensor::scalar(1.0).cast(ops.dtype(&grouped)))?;
    let normal =
        ops.layer_norm(&grouped, &ops.reshape(&one, &[1])?, None, 2, norm.map_or(epsilon, |norm| norm.epsilon))?;
    let per_group = norm.is_some_and(|norm| norm.per_group);
    let normal = if per_group { normal } else { ops.reshape(&normal, &shape)? };
    let mut along = vec![1; ops.shape(&normal).len()];
    along[1] = if per_group { groups } else { channels };
    let factor = |i: usize| ops.reshape(&widen(ops, &operands.tensor(i)?)?, &along);
    let scaled = ops.binary(Binary::Mul, &normal, &factor(1)?)?;
    let shifted = ops.binary(Binary::Add, &scaled, &factor(2)?)?;
    ops.cast(&ops.reshape(&shifted, &shape)?, ops.dtype(&x))
}

/// Divides input 0 by the root of the mean of its squares over the dimensions from `axis` on, then multiplies by input 1:
/// Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
pub(super) fn rms_normalization<O: TensorOps>(
    operands: &Operands<O>,
    axis: i64,
    epsilon: f64,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let axis = resolve_axis(axis, ops.shape(&x).len())?;
    ops.rms_norm(&x, &operands.tensor(1)?, axis, epsilon)
}

/// Composes [`TensorOps::rms_norm`] of other operations.
pub(super) fn rms_norm_from_primitives<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    scale: &O::Tensor,
    axis: usize,
    epsilon: f64,
) -> Result<O::Tensor, OpError> {
    let wide = widen(ops, x)?;
    let axes: Vec<usize> = (axis..ops.shape(x).len()).collect();
    let mean = ops.reduce(Reduce::Mean, &ops.binary(Binary::Mul, &wide, &wide)?, &axes)?;
    let root = ops.unary(Unary::Sqrt, &ops.binary(Binary::Add, &mean, &scalar(ops, epsilon, &mean)?)?)?;
    // The normalized numbers are rounded before they are scaled, as the operator's definition does.
    let normal = ops.cast(&ops.binary(Binary::Div, &wide, &root)?, ops.dtype(x))?;
    ops.binary(Binary::Mul, &normal, scale)
}

/// Returns the mean over the dimensions from `axis` on, and the inverse of the deviation, both in f32.
pub(super) fn layer_statistics<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    axis: usize,
    epsilon: f64,
) -> Result<[O::Tensor; 2], OpError> {
    let wide = widen(ops, x)?;
    let axes: Vec<usize> = (axis..ops.shape(x).len()).collect();
    let mean = ops.reduce(Reduce::Mean, &wide, &axes)?;
    let centred = ops.binary(Binary::Sub, &wide, &mean)?;
    let variance = ops.reduce(Reduce::Mean, &ops.binary(Binary::Mul, &centred, &centred)?, &axes)?;
    let sum = ops.binary(Binary::Add, &variance, &scalar(ops, epsilon, &variance)?)?;
    let inverse = ops.unary(Unary::Reciprocal, &ops.unary(Unary::Sqrt, &sum)?)?;
    Ok([ops.cast(&mean, DType::F32)?, ops.cast(&inverse, DType::F32)?])
}

/// Composes [`TensorOps::batch_norm`] of other operations.
pub(super) fn batch_norm_from_primitives<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    scale: &O::Tensor,
    bias: &O::Tensor,
    epsilon: f64,
) -> Result<[O::Tensor; 3], OpError> {
    let (wide, dtype) = (widen(ops, x)?, ops.dtype(scale));
    let shape = ops.shape(x);
    let [_, channels, ..] = shape[..] else {
        return Err(OpError::invalid_operands("the input has no channel dimension"));
    };
    let axes: Vec<usize> = (0..shape.len()).filter(|axis| *axis != 1).collect();
    let mut along = vec![1; shape.len()];
    along[1] = channels;
    let mean = ops.reduce(Reduce::Mean, &wide, &axes)?;
    let centred = ops.binary(Binary::Sub, &wide, &mean)?;
    let variance = ops.reduce(Reduce::Mean, &ops.binary(Binary::Mul, &centred, &centred)?, &axes)?;
    let root = ops.unary(Unary::Sqrt, &ops.binary(Binary::Add, &variance, &scalar(ops, epsilon, &variance)?)?)?;
    let factor = |factor: &O::Tensor| ops.reshape(&ops.cast(factor, ops.dtype(&wide))?, &along);
    let scaled = ops.binary(Binary::Mul, &ops.binary(Binary::Div, &centred, &root)?, &factor(scale)?)?;
    let y = ops.cast(&ops.binary(Binary::Add, &scaled, &factor(bias)?)?, ops.dtype(x))?;
    let statistic = |values: &O::Tensor| ops.cast(&ops.reshape(values, &[channels])?, dtype);
    Ok([y, statistic(&mean)?, statistic(&variance)?])
}
