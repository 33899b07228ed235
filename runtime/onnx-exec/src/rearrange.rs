//! Applies the operators that only move elements.

use super::OpError;
use super::evaluate::{drop_axes, element_count, shape_of};
use super::op::{Op, PadKind};
use super::operands::Operands;
use super::ops::{PadMode, TensorOps};
use super::reference::{Array, ReferenceOps};
use super::shape_arithmetic::{broadcast_shape, resolve_axes, resolve_axis, resolve_reshape, resolve_slice};
use flagperf_onnx::CONSTANT_ELEMENTS_MAX;

/// Returns the outputs of an operator that [`super::evaluate::evaluate`] delegates to this module.
pub(super) fn rearrange<O: TensorOps>(op: &Op, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let ops = operands.ops;
    if let Op::ConstantOfShape { value } = op {
        let shape = to_sizes(&operands.required_ints(0)?)?;
        let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if elements.is_none_or(|count| count > CONSTANT_ELEMENTS_MAX) {
            return Err(OpError::unsupported(format!(
                "a constant of shape {shape:?} (at most {CONSTANT_ELEMENTS_MAX} elements are supported)"
            )));
        }
        let filled = ReferenceOps.expand(value, &shape)?;
        return Ok(vec![upload(ops, &filled)?]);
    }
    if let Op::Shape { start, end } = op {
        return Ok(vec![upload(ops, &shape_of(&operands.shape(0)?, *start, *end))?]);
    }
    if let Op::Size = op {
        return Ok(vec![upload(ops, &element_count(&operands.shape(0)?))?]);
    }
    let x = operands.tensor(0)?;
    let shape = ops.shape(&x);
    let rank = shape.len();
    let output = match op {
        Op::Flatten { axis: at } => {
            let at = if *at == rank as i64 { rank } else { resolve_axis(*at, rank)? };
            ops.reshape(&x, &[shape[..at].iter().product(), shape[at..].iter().product()])?
        }
        Op::Reshape { allow_zero } => {
            ops.reshape(&x, &resolve_reshape(&shape, &operands.required_ints(1)?, *allow_zero)?)?
        }
        Op::Squeeze => squeeze(operands, &x)?,
        Op::Unsqueeze => unsqueeze(operands, &x)?,
        Op::Transpose { order } => ops.permute(&x, &permutation(order.as_deref(), rank)?)?,
        Op::Concat { axis: along } => {
            let parts = (0..operands.len()).map(|i| operands.tensor(i)).collect::<Result<Vec<_>, _>>()?;
            ops.concat(&parts, resolve_axis(*along, rank)?)?
        }
        Op::Split { axis: along, parts } => return split(operands, &x, resolve_axis(*along, rank)?, *parts),
        Op::Slice => slice(operands, x)?,
        Op::Gather { axis: along } => ops.gather(&x, &operands.tensor(1)?, resolve_axis(*along, rank)?)?,
        Op::Expand => ops.expand(&x, &broadcast_shape(&shape, &to_sizes(&operands.required_ints(1)?)?)?)?,
        Op::Pad { mode } => pad(operands, &x, *mode)?,
        Op::Cast { to } => ops.cast(&x, to.map_or_else(|| operands.dtype(1), Ok)?)?,
        Op::DepthToSpace { block, columns_first } => depth_to_space(ops, &x, *block, *columns_first)?,
        Op::SpaceToDepth { block, columns_first } => space_to_depth(ops, &x, *block, *columns_first)?,
        other => return Err(OpError::unsupported(format!("{other:?}"))),
    };
    Ok(vec![output])
}

fn upload<O: TensorOps>(ops: &O, array: &Array) -> Result<O::Tensor, OpError> {
    ops.upload(&array.to_tensor(array.dtype()))
}

fn to_sizes(wanted: &[i64]) -> Result<Vec<usize>, OpError> {
    let size = |size: &i64| {
        usize::try_from(*size).map_err(|_| OpError::invalid_operands(format!("{wanted:?} contains a negative size")))
    };
    wanted.iter().map(size).collect()
}

fn squeeze<O: TensorOps>(operands: &Operands<O>, x: &O::Tensor) -> Result<O::Tensor, OpError> {
    let shape = operands.ops.shape(x);
    let dropped = match operands.ints(1)? {
        Some(wanted) => resolve_axes(&wanted, shape.len())?,
        None => (0..shape.len()).filter(|i| shape[*i] == 1).collect(),
    };
    match dropped.iter().find(|i| shape[**i] != 1) {
        Some(i) => Err(OpError::invalid_operands(format!("dimension {i} of {shape:?} is not of size 1"))),
        None => drop_axes(operands.ops, x, &dropped),
    }
}

fn unsqueeze<O: TensorOps>(operands: &Operands<O>, x: &O::Tensor) -> Result<O::Tensor, OpError> {
    let wanted = operands.required_ints(1)?;
    let mut shape = operands.ops.shape(x);
    for at in resolve_axes(&wanted, shape.len() + wanted.len())? {
        shape.insert(at, 1);
    }
    operands.ops.reshape(x, &shape)
}

/// Returns the permutation of a Transpose. Without an order, the dimensions are reversed.
fn permutation(order: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, OpError> {
    let Some(order) = order else { return Ok((0..rank).rev().collect()) };
    let from_front = order.iter().map(|at| resolve_axis(*at, rank)).collect::<Result<Vec<_>, _>>()?;
    let is_complete = (0..rank).all(|at| from_front.contains(&at)) && from_front.len() == rank;
    if is_complete {
        Ok(from_front)
    } else {
        Err(OpError::invalid_operands(format!("`perm` {order:?} is not a permutation for rank {rank}")))
    }
}

fn split<O: TensorOps>(
    operands: &Operands<O>,
    x: &O::Tensor,
    along: usize,
    parts: usize,
) -> Result<Vec<O::Tensor>, OpError> {
    let size = operands.ops.shape(x)[along];
    let counts = match operands.ints(1)? {
        Some(counts) => to_sizes(&counts)?,
        None => {
            let each = size.div_ceil(parts.max(1));
            (0..parts).map(|part| each.min(size.saturating_sub(part * each))).collect()
        }
    };
    if counts.iter().sum::<usize>() != size || counts.len() != parts {
        return Err(OpError::invalid_operands(format!(
            "size {size} cannot be split into {counts:?} (outputs: {parts})"
        )));
    }
    let start = |part: usize| counts[..part].iter().sum();
    (0..parts).map(|part| operands.ops.slice(x, along, start(part), counts[part], 1)).collect()
}

fn slice<O: TensorOps>(operands: &Operands<O>, x: O::Tensor) -> Result<O::Tensor, OpError> {
    let shape = operands.ops.shape(&x);
    let (starts, ends, steps) = (operands.required_ints(1)?, operands.required_ints(2)?, operands.ints(4)?);
    let along = operands.ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), along.len(), steps.len()] != [starts.len(); 3] {
        return Err(OpError::invalid_operands("`starts`, `ends`, `axes` and `steps` differ in length"));
    }
    (0..starts.len()).try_fold(x, |x, i| {
        let at = resolve_axis(along[i], shape.len())?;
        let (start, count) = resolve_slice(starts[i], ends[i], steps[i], shape[at])?;
        if (start, count, steps[i]) == (0, shape[at], 1) {
            return Ok(x);
        }
        operands.ops.slice(&x, at, start, count, steps[i])
    })
}

fn pad<O: TensorOps>(operands: &Operands<O>, x: &O::Tensor, kind: Option<PadKind>) -> Result<O::Tensor, OpError> {
    let rank = operands.ops.shape(x).len();
    let amounts = to_sizes(&operands.required_ints(1)?).map_err(|_| OpError::unsupported("negative padding"))?;
    let along = match operands.ints(3)? {
        Some(wanted) => wanted.iter().map(|wanted| resolve_axis(*wanted, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if amounts.len() != 2 * along.len() {
        return Err(OpError::invalid_operands(format!(
            "{} padding amounts for {} axes (two per axis are required)",
            amounts.len(),
            along.len()
        )));
    }
    let mut pads = vec![(0, 0); rank];
    for (i, at) in along.iter().enumerate() {
        pads[*at] = (amounts[i], amounts[along.len() + i]);
    }
    let mode = match kind {
        Some(PadKind::Reflect) => PadMode::Reflect,
        Some(PadKind::Edge) => PadMode::Edge,
        None => PadMode::Constant(operands.number(2)?.unwrap_or(0.0)),
    };
    operands.ops.pad(x, &pads, mode)
}

/// Moves blocks of channels to rows and columns.
fn depth_to_space<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    block: usize,
    columns_first: bool,
) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    let misfit = || OpError::invalid_operands(format!("{shape:?} has no channels for blocks of {block} x {block}"));
    let [batch, channels, height, width] = shape[..] else { return Err(misfit()) };
    let area = block.checked_mul(block).filter(|area| *area > 0 && channels % area == 0).ok_or_else(misfit)?;
    let (split, order) = if columns_first {
        ([batch, channels / area, block, block, height, width], [0, 1, 4, 2, 5, 3])
    } else {
        ([batch, block, block, channels / area, height, width], [0, 3, 4, 1, 5, 2])
    };
    let moved = ops.permute(&ops.reshape(x, &split)?, &order)?;
    ops.reshape(&moved, &[batch, channels / area, height * block, width * block])
}

/// Moves blocks of rows and columns to channels.
fn space_to_depth<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    block: usize,
    columns_first: bool,
) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    let misfit = || OpError::invalid_operands(format!("{shape:?} cannot be cut into blocks of {block} x {block}"));
    let [batch, channels, height, width] = shape[..] else { return Err(misfit()) };
    if block == 0 || height % block != 0 || width % block != 0 {
        return Err(misfit());
    }
    let split = ops.reshape(x, &[batch, channels, height / block, block, width / block, block])?;
    let order = if columns_first { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let moved = ops.permute(&split, &order)?;
    ops.reshape(&moved, &[batch, channels * block * block, height / block, width / block])
}
