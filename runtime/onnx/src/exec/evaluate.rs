//! Applies an operator to its operands: ONNX's conventions in, the plain operations of [`TensorOps`] out.

use super::OpError;
use super::attention::attention;
use super::heads::heads;
use super::movement::{axes, axis};
use super::op::{Op, ReduceDefault};
use super::operands::Operands;
use super::ops::{After, Binary, Reduce, TensorOps, Unary};
use super::rearrange::rearrange;
use super::reference::Array;
use super::window::Window;

/// The outputs of one operator.
pub(super) fn evaluate<O: TensorOps>(op: &Op, given: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let ops = given.ops;
    let one = match op {
        Op::Identity => given.tensor(0)?,
        Op::Unary(kind) => ops.unary(*kind, &given.tensor(0)?)?,
        Op::Clip { min, max } => {
            let min = min.map_or_else(|| given.number(1), |min| Ok(Some(min)))?.unwrap_or(f64::NEG_INFINITY);
            let max = max.map_or_else(|| given.number(2), |max| Ok(Some(max)))?.unwrap_or(f64::INFINITY);
            ops.unary(Unary::Clip { min, max }, &given.tensor(0)?)?
        }
        Op::Binary(kind) => binary(*kind, given)?,
        Op::Select => ops.select(&given.tensor(0)?, &given.tensor(1)?, &given.tensor(2)?)?,
        Op::MatMul => matmul(given)?,
        Op::Attention { key_order, scaling } => attention(given, key_order, scaling)?,
        Op::Heads { counts, scale, causal } => heads(given, *counts, *scale, *causal)?,
        Op::Gemm { alpha, beta, trans_a, trans_b } => gemm(given, [*alpha, *beta], [*trans_a, *trans_b])?,
        Op::Conv { window, groups, residual, activation } => conv(given, window, *groups, *residual, *activation)?,
        Op::BatchNormalization { epsilon } => batch_normalization(given, *epsilon)?,
        Op::MaxPool(window) => pooled(given, |x, size| ops.max_pool(x, &window.pool(size, false)?))?,
        Op::AveragePool { window, include_pad } => {
            pooled(given, |x, size| ops.average_pool(x, &window.pool(size, *include_pad)?))?
        }
        Op::Reduce { kind, axes, default, keep } => reduce(given, *kind, axes.as_deref(), *default, *keep)?,
        Op::ArgMax { axis: wanted, keep, last } => {
            let x = given.tensor(0)?;
            let along = axis(*wanted, ops.shape(&x).len())?;
            let place = ops.arg_max(&x, along, *last)?;
            if *keep { place } else { drop_axes(ops, &place, &[along])? }
        }
        Op::Softmax { axis: wanted, log, flat } => softmax(given, *wanted, *log, *flat)?,
        Op::LayerNormalization { axis: wanted, epsilon } => {
            let x = given.tensor(0)?;
            let from = axis(*wanted, ops.shape(&x).len())?;
            ops.layer_norm(&x, &given.tensor(1)?, given.optional_tensor(2)?.as_ref(), from, *epsilon)?
        }
        moving => return rearrange(moving, given),
    };
    Ok(vec![one])
}

fn binary<O: TensorOps>(kind: Binary, given: &Operands<O>) -> Result<O::Tensor, OpError> {
    let first = given.tensor(0)?;
    if kind == Binary::Pow && given.ops.dtype(&first).is_float() {
        match given.host_number(1) {
            Some(2.0) => return given.ops.binary(Binary::Mul, &first, &first),
            Some(0.5) => return given.ops.unary(Unary::Sqrt, &first),
            _ => {}
        }
    }
    (1..given.len()).try_fold(first, |a, i| given.ops.binary(kind, &a, &given.tensor(i)?))
}

/// A tensor of one dimension is a row on the left and a column on the right, and that dimension goes again.
fn matmul<O: TensorOps>(given: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, mut a, mut b) = (given.ops, given.tensor(0)?, given.tensor(1)?);
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
    given: &Operands<O>,
    [alpha, beta]: [f64; 2],
    transposed: [bool; 2],
) -> Result<O::Tensor, OpError> {
    let ops = given.ops;
    let oriented = |i: usize| {
        let x = given.tensor(i)?;
        if transposed[i] { ops.permute(&x, &[1, 0]) } else { Ok(x) }
    };
    let mut product = ops.matmul(&oriented(0)?, &oriented(1)?)?;
    if alpha != 1.0 {
        product = ops.binary(Binary::Mul, &product, &scalar(ops, alpha, &product)?)?;
    }
    let Some(mut summand) = given.optional_tensor(2)? else { return Ok(product) };
    if beta != 1.0 {
        summand = ops.binary(Binary::Mul, &summand, &scalar(ops, beta, &summand)?)?;
    }
    ops.binary(Binary::Add, &product, &summand)
}

/// A number as a tensor of the element type of `like`.
pub(super) fn scalar<O: TensorOps + ?Sized>(ops: &O, number: f64, like: &O::Tensor) -> Result<O::Tensor, OpError> {
    ops.upload(&crate::Tensor::scalar(number).cast(ops.dtype(like)))
}

fn conv<O: TensorOps>(
    given: &Operands<O>,
    window: &Window,
    groups: usize,
    residual: bool,
    activation: Option<Unary>,
) -> Result<O::Tensor, OpError> {
    let (ops, bias) = (given.ops, given.optional_tensor(2)?);
    let weight = planes(ops, given.tensor(1)?)?;
    let [.., height, width] = ops.shape(&weight)[..] else { return Err(OpError::operands("the weight has no kernel")) };
    let residual = if residual { Some(planes(ops, given.tensor(3)?)?) } else { None };
    pooled(given, |x, size| {
        let after = After { residual: residual.as_ref(), activation };
        ops.conv_fused(x, &weight, bias.as_ref(), &window.conv(size, [height, width], groups), after)
    })
}

/// Runs a two-dimensional operation on input 0, which has one spatial dimension or two.
fn pooled<O: TensorOps>(
    given: &Operands<O>,
    operation: impl Fn(&O::Tensor, [usize; 2]) -> Result<O::Tensor, OpError>,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (given.ops, given.tensor(0)?);
    let linear = ops.shape(&x).len() == 3;
    let x = planes(ops, x)?;
    let [_, _, height, width] = ops.shape(&x)[..] else { return Err(OpError::operands("the input has no planes")) };
    let y = operation(&x, [height, width])?;
    if linear { drop_axes(ops, &y, &[2]) } else { Ok(y) }
}

/// Images of one spatial dimension as images of height 1.
fn planes<O: TensorOps>(ops: &O, x: O::Tensor) -> Result<O::Tensor, OpError> {
    match ops.shape(&x)[..] {
        [_, _, _, _] => Ok(x),
        [batch, channels, width] => ops.reshape(&x, &[batch, channels, 1, width]),
        ref shape => Err(OpError::lacks(format!("{} spatial dimensions", shape.len().saturating_sub(2)))),
    }
}

fn batch_normalization<O: TensorOps>(given: &Operands<O>, epsilon: f64) -> Result<O::Tensor, OpError> {
    let (ops, x) = (given.ops, given.tensor(0)?);
    let (weight, bias, mean, variance) = (given.tensor(1)?, given.tensor(2)?, given.tensor(3)?, given.tensor(4)?);
    let deviation = ops.binary(Binary::Add, &variance, &scalar(ops, epsilon, &variance)?)?;
    let scale = ops.binary(Binary::Div, &weight, &ops.unary(Unary::Sqrt, &deviation)?)?;
    let shift = ops.binary(Binary::Sub, &bias, &ops.binary(Binary::Mul, &mean, &scale)?)?;
    let mut per_channel = vec![1; ops.shape(&x).len()];
    *per_channel.get_mut(1).ok_or_else(|| OpError::operands("the input has no channels"))? = ops.shape(&scale)[0];
    let scaled = ops.binary(Binary::Mul, &x, &ops.reshape(&scale, &per_channel)?)?;
    ops.binary(Binary::Add, &scaled, &ops.reshape(&shift, &per_channel)?)
}

fn reduce<O: TensorOps>(
    given: &Operands<O>,
    kind: Reduce,
    attribute: Option<&[i64]>,
    default: ReduceDefault,
    keep: bool,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (given.ops, given.tensor(0)?);
    let rank = ops.shape(&x).len();
    let wanted = match attribute {
        Some(axes) => axes.to_vec(),
        None => given.ints(1)?.unwrap_or_default(),
    };
    let axes = match default {
        _ if !wanted.is_empty() => axes(&wanted, rank)?,
        ReduceDefault::All => (0..rank).collect(),
        ReduceDefault::Spatial => (2..rank).collect(),
        ReduceDefault::None => return Ok(x),
    };
    let reduced = ops.reduce(kind, &x, &axes)?;
    if keep { Ok(reduced) } else { drop_axes(ops, &reduced, &axes) }
}

fn softmax<O: TensorOps>(given: &Operands<O>, wanted: i64, log: bool, flat: bool) -> Result<O::Tensor, OpError> {
    let (ops, x) = (given.ops, given.tensor(0)?);
    let shape = ops.shape(&x);
    let along = axis(wanted, shape.len())?;
    if !flat || along + 1 == shape.len() {
        return ops.softmax(&x, along, log);
    }
    let rows = [shape[..along].iter().product(), shape[along..].iter().product()];
    ops.reshape(&ops.softmax(&ops.reshape(&x, &rows)?, 1, log)?, &shape)
}

/// The tensor without these dimensions, each of size 1.
pub(super) fn drop_axes<O: TensorOps>(ops: &O, x: &O::Tensor, dropped: &[usize]) -> Result<O::Tensor, OpError> {
    let kept = ops.shape(x).into_iter().enumerate().filter(|(i, _)| !dropped.contains(i));
    ops.reshape(x, &kept.map(|(_, size)| size).collect::<Vec<_>>())
}

/// The part of a shape that the operator Shape gives.
pub(super) fn shape_of(shape: &[usize], start: i64, end: i64) -> Array {
    let rank = shape.len() as i64;
    let place = |i: i64| if i < 0 { i.saturating_add(rank) } else { i }.clamp(0, rank) as usize;
    let part = shape.get(place(start)..place(end)).unwrap_or_default();
    Array::from_ints(part.iter().map(|size| *size as i64))
}
