//! Applies an operator with ONNX's conventions to its operands, by means of the plain operations of [`TensorOps`].

use super::OpError;
use super::attention::fused_attention;
use super::composed::{evaluate_composed, reduce_composed};
use super::host::elementwise::combine_bits;
use super::normalize::layer_statistics;
use super::op::{Op, ReduceDefault, Reduction};
use super::operands::Operands;
use super::ops::{Binary, ConvEpilogue, TensorOps, Unary, Update};
use super::reference::Array;
use super::shape_arithmetic::{resolve_axes, resolve_axis};
use super::volumes;
use super::window::Window;
use flagperf_onnx::{DType, UPDATE_NUMBERS, UpdateRule};

/// The ratio of a Dropout that states none.
const DROPPED_BY_DEFAULT: f64 = 0.5;

/// Returns the outputs of one operator.
pub(super) fn evaluate<O: TensorOps>(op: &Op, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let ops = operands.ops;
    let output = match op {
        Op::Identity => operands.tensor(0)?,
        Op::Dropout { mask, is_seeded } => return dropout(operands, *mask, *is_seeded),
        Op::Host(host) => return host.evaluate(operands),
        Op::Custom(operator) => return operator.evaluate(operands),
        Op::Unary(kind) => ops.unary(*kind, &operands.tensor(0)?)?,
        Op::Bitwise(kind) => combine_bits(operands, *kind)?,
        Op::Clip => {
            let min = operands.number(1)?.unwrap_or(f64::NEG_INFINITY);
            let max = operands.number(2)?.unwrap_or(f64::INFINITY);
            ops.unary(Unary::Clip { min, max }, &operands.tensor(0)?)?
        }
        Op::Binary(kind) => binary(*kind, operands)?,
        Op::Select => ops.select(&operands.tensor(0)?, &operands.tensor(1)?, &operands.tensor(2)?)?,
        Op::MultiplyAdd { subtract } => multiply_add(operands, *subtract)?,
        Op::SiluProduct => ops.silu_product(&operands.tensor(0)?, &operands.tensor(1)?)?,
        Op::Fused(function) => ops.elementwise(function, &operands.tensors(operands.len())?)?,
        Op::MatMul => matmul(operands)?,
        Op::IntegerProduct => ops.integer_product(&operands.tensor(0)?, &operands.tensor(1)?)?,
        Op::Float8Product => ops.float8_product(&operands.tensor(0)?, &operands.tensor(1)?)?,
        Op::Linear { relu } => {
            let [x, weight, bias] = [operands.tensor(0)?, operands.tensor(1)?, operands.tensor(2)?];
            if *relu { ops.linear_relu(&x, &weight, &bias)? } else { ops.linear(&x, &weight, &bias)? }
        }
        Op::FusedAttention { key_order, scaling } => fused_attention(operands, key_order, scaling)?,
        Op::Gemm { alpha, beta, trans_a, trans_b } => gemm(operands, [*alpha, *beta], [*trans_a, *trans_b])?,
        Op::Conv { window, groups, residual, activation } => conv(operands, window, *groups, *residual, *activation)?,
        Op::BatchNormalization { epsilon } => batch_normalization(operands, *epsilon)?,
        Op::BatchNormalizationInTraining { epsilon, momentum } => {
            return batch_normalization_in_training(operands, *epsilon, *momentum);
        }
        Op::Record => return ops.record(&operands.tensors(operands.len())?),
        Op::Gradient { reduced } => {
            let leaves = operands.len() - 1;
            return ops.gradients(&operands.tensor(leaves)?, &operands.tensors(leaves)?, reduced);
        }
        Op::MeanOverProcesses { root } => return ops.all_reduce(&operands.tensors(operands.len())?, *root),
        Op::Broadcast { root } => return ops.broadcast(&operands.tensors(operands.len())?, *root),
        Op::Norm => ops.norm(&operands.tensors(operands.len())?)?,
        Op::Update(rule) => return update(rule, operands),
        Op::MaxPool(window) => max_pool(operands, window)?,
        Op::AveragePool { window, include_pad } => pool(ops, operands.tensor(0)?, window, |x, window, size| {
            ops.average_pool(x, &window.pool(size, *include_pad)?)
        })?,
        Op::Reduce { kind, axes, default, keep } => reduce(operands, *kind, axes.as_deref(), *default, *keep)?,
        Op::ArgMax { axis: wanted, keep, last, smallest } => {
            let x = operands.tensor(0)?;
            let along = resolve_axis(*wanted, ops.shape(&x).len())?;
            let indices = if *smallest { ops.arg_min(&x, along, *last)? } else { ops.arg_max(&x, along, *last)? };
            if *keep { indices } else { drop_axes(ops, &indices, &[along])? }
        }
        Op::Softmax { axis: wanted, log } => {
            let x = operands.tensor(0)?;
            let along = resolve_axis(*wanted, ops.shape(&x).len())?;
            ops.softmax(&x, along, *log)?
        }
        Op::LayerNormalization { axis: wanted, epsilon, statistics } => {
            let x = operands.tensor(0)?;
            let from = resolve_axis(*wanted, ops.shape(&x).len())?;
            let y = ops.layer_norm(&x, &operands.tensor(1)?, operands.optional_tensor(2)?.as_ref(), from, *epsilon)?;
            if *statistics {
                let [mean, deviation] = layer_statistics(ops, &x, from, *epsilon)?;
                return Ok(vec![y, mean, deviation]);
            }
            y
        }
        composed => return evaluate_composed(composed, operands),
    };
    Ok(vec![output])
}

/// Updates parameters in place, and returns them and what the optimizer remembers of them.
fn update<O: TensorOps>(rule: &UpdateRule, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let numbers = [operands.tensor(0)?, operands.tensor(1)?, operands.tensor(2)?, operands.tensor(3)?];
    let changes = operands.optional_tensor(4)?;
    let tensors = (UPDATE_NUMBERS..operands.len()).map(|i| operands.tensor(i)).collect::<Result<Vec<_>, _>>()?;
    let lists = 2 + rule.memory_count();
    if !tensors.len().is_multiple_of(lists) {
        return Err(OpError::invalid_operands("parameters, gradients and memory are not equally many"));
    }
    let count = tensors.len() / lists;
    let (parameters, rest) = tensors.split_at(count);
    let (gradients, memory) = rest.split_at(count);
    let [learning_rate, mean_correction, square_correction, number] = &numbers;
    operands.ops.update(&Update {
        rule,
        learning_rate,
        mean_correction,
        square_correction,
        number,
        changes: changes.as_ref(),
        parameters,
        gradients,
        memory,
    })?;
    Ok(parameters.iter().chain(memory).cloned().collect())
}

/// Returns input 0 and, if needed, a mask that keeps every element; in training, input 0 without the elements that are dropped.
fn dropout<O: TensorOps>(operands: &Operands<O>, mask: bool, is_seeded: bool) -> Result<Vec<O::Tensor>, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    if let Some(ratio) = dropped_share(operands, mask || is_seeded)? {
        return Ok(vec![ops.drop_elements(&x, ratio)?]);
    }
    if !mask {
        return Ok(vec![x]);
    }
    let shape = ops.shape(&x);
    let kept = flagperf_onnx::Tensor::from_bools(&shape[..], &vec![true; shape.iter().product()]);
    Ok(vec![x, ops.upload(&kept.map_err(OpError::library)?)?])
}

/// Returns the share of elements that a Dropout drops; `None` if it keeps all. Refuses one that drops elements for a library that draws no
/// random numbers, and one whose elements have to be known: it returns which it dropped, or has a seed.
pub(super) fn dropped_share<O: TensorOps>(operands: &Operands<O>, is_known: bool) -> Result<Option<f64>, OpError> {
    let trains = operands.number(2)?.is_some_and(|mode| mode != 0.0);
    let ratio = if trains { operands.number(1)?.unwrap_or(DROPPED_BY_DEFAULT) } else { 0.0 };
    match ratio {
        0.0 => Ok(None),
        ratio if operands.ops.draws() && !is_known => Ok(Some(ratio)),
        _ => Err(OpError::unsupported("`training_mode` (the executor only runs inference)")),
    }
}

fn binary<O: TensorOps>(kind: Binary, operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let first = operands.tensor(0)?;
    if kind == Binary::Pow && operands.ops.dtype(&first).is_float() {
        match operands.host_number(1) {
            Some(2.0) => return operands.ops.binary(Binary::Mul, &first, &first),
            Some(0.5) => return operands.ops.unary(Unary::Sqrt, &first),
            _ => {}
        }
    }
    (1..operands.len()).try_fold(first, |a, i| operands.ops.binary(kind, &a, &operands.tensor(i)?))
}

/// Returns input 0 plus or minus the product of the others, of which one may be a number on the host.
fn multiply_add<O: TensorOps>(operands: &Operands<O>, subtract: bool) -> Result<O::Tensor, OpError> {
    let (ops, a) = (operands.ops, operands.tensor(0)?);
    for (number, factor) in [(1, 2), (2, 1)] {
        let Some(scale) = operands.host_number(number).filter(|_| operands.shape(number).is_ok_and(|s| s.is_empty()))
        else {
            continue;
        };
        return ops.add_scaled(&a, &operands.tensor(factor)?, if subtract { -scale } else { scale });
    }
    ops.multiply_add(&a, &operands.tensor(1)?, &operands.tensor(2)?, subtract)
}

/// Returns the matrix product. A one-dimensional tensor is a row on the left and a column on the right; that dimension
/// is removed from the result.
fn matmul<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, mut a, mut b) = (operands.ops, operands.tensor(0)?, operands.tensor(1)?);
    let (shape_a, shape_b) = (ops.shape(&a), ops.shape(&b));
    if shape_a.len() == 1 {
        a = ops.reshape(&a, &[1, shape_a[0]])?;
    }
    if shape_b.len() == 1 {
        b = ops.reshape(&b, &[shape_b[0], 1])?;
    }
    let product = ops.matmul(&a, &b)?;
    let rank = ops.shape(&product).len();
    let dropped: Vec<usize> = [(shape_a.len() == 1).then_some(rank - 2), (shape_b.len() == 1).then_some(rank - 1)]
        .into_iter()
        .flatten()
        .collect();
    if dropped.is_empty() { Ok(product) } else { drop_axes(ops, &product, &dropped) }
}

fn gemm<O: TensorOps>(
    operands: &Operands<O>,
    [alpha, beta]: [f64; 2],
    transposed: [bool; 2],
) -> Result<O::Tensor, OpError> {
    let ops = operands.ops;
    let oriented = |i: usize| {
        let x = operands.tensor(i)?;
        if transposed[i] { ops.permute(&x, &[1, 0]) } else { Ok(x) }
    };
    let mut product = ops.matmul(&oriented(0)?, &oriented(1)?)?;
    if alpha != 1.0 {
        product = ops.binary(Binary::Mul, &product, &scalar(ops, alpha, &product)?)?;
    }
    let Some(mut summand) = operands.optional_tensor(2)? else { return Ok(product) };
    if beta != 1.0 {
        summand = ops.binary(Binary::Mul, &summand, &scalar(ops, beta, &summand)?)?;
    }
    ops.binary(Binary::Add, &product, &summand)
}

/// Returns a number as a tensor with the element type of `like`.
pub(super) fn scalar<O: TensorOps + ?Sized>(ops: &O, number: f64, like: &O::Tensor) -> Result<O::Tensor, OpError> {
    ops.upload(&flagperf_onnx::Tensor::scalar(number).cast(ops.dtype(like)))
}

fn conv<O: TensorOps>(
    operands: &Operands<O>,
    window: &Window,
    groups: usize,
    residual: bool,
    activation: Option<Unary>,
) -> Result<O::Tensor, OpError> {
    let (ops, bias) = (operands.ops, operands.optional_tensor(2)?);
    if operands.shape(0)?.len() == 5 {
        return volumes::conv(operands, window, groups, residual, activation);
    }
    let weight = as_planes(ops, operands.tensor(1)?)?;
    let [.., height, width] = ops.shape(&weight)[..] else {
        return Err(OpError::invalid_operands("the weight has no kernel dimensions"));
    };
    let residual = if residual { Some(as_planes(ops, operands.tensor(3)?)?) } else { None };
    apply_planar(ops, operands.tensor(0)?, |x, size| {
        let after = ConvEpilogue { residual: residual.as_ref(), activation };
        ops.conv_fused(x, &weight, bias.as_ref(), &window.conv(size, [height, width], groups), after)
    })
}

/// Pools input 0. Integers of 8 and 16 bits are pooled in f32, which represents all of them.
fn max_pool<O: TensorOps>(operands: &Operands<O>, window: &Window) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let dtype = ops.dtype(&x);
    let is_narrow = matches!(dtype, DType::I16 | DType::I8 | DType::U16 | DType::U8);
    let wide = if is_narrow { ops.cast(&x, DType::F32)? } else { x };
    let pooled = pool(ops, wide, window, |x, window, size| ops.max_pool(x, &window.pool(size, false)?))?;
    if is_narrow { ops.cast(&pooled, dtype) } else { Ok(pooled) }
}

/// Pools images of one, two or three spatial dimensions.
fn pool<O: TensorOps>(
    ops: &O,
    x: O::Tensor,
    window: &Window,
    pool: impl Fn(&O::Tensor, &Window, [usize; 2]) -> Result<O::Tensor, OpError>,
) -> Result<O::Tensor, OpError> {
    match ops.shape(&x).len() {
        5 => volumes::pool(ops, &x, window, pool),
        _ => apply_planar(ops, x, |x, size| pool(x, window, size)),
    }
}

/// Applies a two-dimensional operation to images of one or two spatial dimensions.
fn apply_planar<O: TensorOps>(
    ops: &O,
    x: O::Tensor,
    operation: impl Fn(&O::Tensor, [usize; 2]) -> Result<O::Tensor, OpError>,
) -> Result<O::Tensor, OpError> {
    let is_linear = ops.shape(&x).len() == 3;
    let x = as_planes(ops, x)?;
    let [_, _, height, width] = ops.shape(&x)[..] else {
        return Err(OpError::invalid_operands("the input has no spatial dimensions"));
    };
    let y = operation(&x, [height, width])?;
    if is_linear { drop_axes(ops, &y, &[2]) } else { Ok(y) }
}

/// Returns images of one spatial dimension as images of height 1, and those of two unchanged.
pub(super) fn as_planes<O: TensorOps>(ops: &O, x: O::Tensor) -> Result<O::Tensor, OpError> {
    match ops.shape(&x)[..] {
        [_, _, _, _] => Ok(x),
        [batch, channels, width] => ops.reshape(&x, &[batch, channels, 1, width]),
        ref shape => Err(OpError::unsupported(format!("{} spatial dimensions", shape.len().saturating_sub(2)))),
    }
}

fn batch_normalization<O: TensorOps>(operands: &Operands<O>, epsilon: f64) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let (weight, bias, mean, variance) =
        (operands.tensor(1)?, operands.tensor(2)?, operands.tensor(3)?, operands.tensor(4)?);
    let deviation = ops.binary(Binary::Add, &variance, &scalar(ops, epsilon, &variance)?)?;
    let scale = ops.binary(Binary::Div, &weight, &ops.unary(Unary::Sqrt, &deviation)?)?;
    let shift = ops.binary(Binary::Sub, &bias, &ops.binary(Binary::Mul, &mean, &scale)?)?;
    let mut per_channel = vec![1; ops.shape(&x).len()];
    *per_channel.get_mut(1).ok_or_else(|| OpError::invalid_operands("the input has no channel dimension"))? =
        ops.shape(&scale)[0];
    let scaled = ops.binary(Binary::Mul, &x, &ops.reshape(&scale, &per_channel)?)?;
    ops.binary(Binary::Add, &scaled, &ops.reshape(&shift, &per_channel)?)
}

/// Returns the normalized input and the running mean and variance, of which the share `momentum` is kept.
fn batch_normalization_in_training<O: TensorOps>(
    operands: &Operands<O>,
    epsilon: f64,
    momentum: f64,
) -> Result<Vec<O::Tensor>, OpError> {
    let ops = operands.ops;
    let [y, mean, variance] =
        ops.batch_norm(&operands.tensor(0)?, &operands.tensor(1)?, &operands.tensor(2)?, epsilon)?;
    let follow = |input: usize, batch: O::Tensor| {
        let running = operands.tensor(input)?;
        let batch = ops.cast(&batch, ops.dtype(&running))?;
        if momentum == 0.0 {
            return Ok(batch);
        }
        let kept = ops.binary(Binary::Mul, &running, &scalar(ops, momentum, &running)?)?;
        let added = ops.binary(Binary::Mul, &batch, &scalar(ops, 1.0 - momentum, &running)?)?;
        ops.binary(Binary::Add, &kept, &added)
    };
    Ok(vec![y, follow(3, mean)?, follow(4, variance)?])
}

fn reduce<O: TensorOps>(
    operands: &Operands<O>,
    kind: Reduction,
    attribute: Option<&[i64]>,
    default: ReduceDefault,
    keep: bool,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let rank = ops.shape(&x).len();
    let wanted = match attribute {
        Some(axes) => axes.to_vec(),
        None => operands.ints(1)?.unwrap_or_default(),
    };
    let axes = match default {
        _ if !wanted.is_empty() => resolve_axes(&wanted, rank)?,
        ReduceDefault::All => (0..rank).collect(),
        ReduceDefault::Spatial => (2..rank).collect(),
        ReduceDefault::None => return Ok(x),
    };
    let reduced = reduce_composed(ops, kind, &x, &axes)?;
    if keep { Ok(reduced) } else { drop_axes(ops, &reduced, &axes) }
}

/// Returns the tensor without some dimensions, each of which has size 1.
pub(super) fn drop_axes<O: TensorOps>(ops: &O, x: &O::Tensor, dropped: &[usize]) -> Result<O::Tensor, OpError> {
    let kept = ops.shape(x).into_iter().enumerate().filter(|(i, _)| !dropped.contains(i));
    ops.reshape(x, &kept.map(|(_, size)| size).collect::<Vec<_>>())
}

/// Returns the part of a shape that the operator `Shape` selects.
pub(super) fn shape_of(shape: &[usize], start: i64, end: i64) -> Array {
    let rank = shape.len() as i64;
    let index = |i: i64| if i < 0 { i.saturating_add(rank) } else { i }.clamp(0, rank) as usize;
    let part = shape.get(index(start)..index(end)).unwrap_or_default();
    Array::from_ints(part.iter().map(|size| *size as i64))
}

/// Returns the number of elements of a shape, as the operator `Size` does.
pub(super) fn element_count(shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    Array::new(ndarray::arr0(count as f64).into_dyn(), DType::I64)
}
