//! Applies the operators that move elements and compute none.

use super::OpError;
use super::evaluate::{drop_axes, shape_of};
use super::movement::{axes, axis, broadcast_shape, reshaped, sliced};
use super::op::{Op, PadKind, SliceAttributes};
use super::operands::Operands;
use super::ops::{PadMode, TensorOps};
use super::reference::{Array, ReferenceOps};
use crate::limits::CONSTANT_ELEMENTS_MAX;

/// The outputs of an operator that [`super::evaluate::evaluate`] leaves to this module.
pub(super) fn rearrange<O: TensorOps>(op: &Op, given: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let ops = given.ops;
    if let Op::ConstantOfShape { value } = op {
        let shape = sizes(&given.needed_ints(0)?)?;
        let elements = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
        if elements.is_none_or(|count| count > CONSTANT_ELEMENTS_MAX) {
            let reason = format!("a constant of {shape:?}, at most {CONSTANT_ELEMENTS_MAX} elements are supported");
            return Err(OpError::operands(reason));
        }
        let filled = ReferenceOps.expand(value, &shape)?;
        return Ok(vec![upload(ops, &filled)?]);
    }
    if let Op::Shape { start, end } = op {
        return Ok(vec![upload(ops, &shape_of(&given.shape(0)?, *start, *end))?]);
    }
    let x = given.tensor(0)?;
    let shape = ops.shape(&x);
    let rank = shape.len();
    let one = match op {
        Op::Flatten { axis: at } => {
            let at = if *at == rank as i64 { rank } else { axis(*at, rank)? };
            ops.reshape(&x, &[shape[..at].iter().product(), shape[at..].iter().product()])?
        }
        Op::Reshape { allow_zero } => ops.reshape(&x, &reshaped(&shape, &given.needed_ints(1)?, *allow_zero)?)?,
        Op::Squeeze { axes: wanted } => squeeze(given, &x, wanted.as_deref())?,
        Op::Unsqueeze { axes: wanted } => unsqueeze(given, &x, wanted.as_deref())?,
        Op::Transpose { order } => ops.permute(&x, &permutation(order.as_deref(), rank)?)?,
        Op::Concat { axis: along } => {
            let parts = (0..given.len()).map(|i| given.tensor(i)).collect::<Result<Vec<_>, _>>()?;
            ops.concat(&parts, axis(*along, rank)?)?
        }
        Op::Split { axis: along, sizes, parts } => {
            return split(given, &x, axis(*along, rank)?, sizes.as_deref(), *parts);
        }
        Op::Slice { attributes } => slice(given, x, attributes.as_ref())?,
        Op::Gather { axis: along } => ops.gather(&x, &given.tensor(1)?, axis(*along, rank)?)?,
        Op::Expand => ops.expand(&x, &broadcast_shape(&shape, &sizes(&given.needed_ints(1)?)?)?)?,
        Op::Pad { mode, pads, value } => pad(given, &x, *mode, pads.as_deref(), *value)?,
        Op::Cast { to } => ops.cast(&x, *to)?,
        other => return Err(OpError::lacks(format!("{other:?}"))),
    };
    Ok(vec![one])
}

fn upload<O: TensorOps>(ops: &O, array: &Array) -> Result<O::Tensor, OpError> {
    ops.upload(&array.to_tensor(array.dtype()))
}

fn sizes(wanted: &[i64]) -> Result<Vec<usize>, OpError> {
    let size = |size: &i64| usize::try_from(*size).map_err(|_| OpError::operands(format!("{wanted:?} is no shape")));
    wanted.iter().map(size).collect()
}

/// From the attribute, else from input 1.
fn wanted_axes<O: TensorOps>(given: &Operands<O>, attribute: Option<&[i64]>) -> Result<Option<Vec<i64>>, OpError> {
    attribute.map_or_else(|| given.ints(1), |axes| Ok(Some(axes.to_vec())))
}

fn squeeze<O: TensorOps>(given: &Operands<O>, x: &O::Tensor, attribute: Option<&[i64]>) -> Result<O::Tensor, OpError> {
    let shape = given.ops.shape(x);
    let dropped = match wanted_axes(given, attribute)? {
        Some(wanted) => axes(&wanted, shape.len())?,
        None => (0..shape.len()).filter(|i| shape[*i] == 1).collect(),
    };
    match dropped.iter().find(|i| shape[**i] != 1) {
        Some(i) => Err(OpError::operands(format!("dimension {i} of {shape:?} is not 1"))),
        None => drop_axes(given.ops, x, &dropped),
    }
}

fn unsqueeze<O: TensorOps>(
    given: &Operands<O>,
    x: &O::Tensor,
    attribute: Option<&[i64]>,
) -> Result<O::Tensor, OpError> {
    let wanted = wanted_axes(given, attribute)?.ok_or_else(|| OpError::operands("`axes` is missing"))?;
    let mut shape = given.ops.shape(x);
    for at in axes(&wanted, shape.len() + wanted.len())? {
        shape.insert(at, 1);
    }
    given.ops.reshape(x, &shape)
}

/// The order that Transpose asks for; without one the dimensions are reversed.
fn permutation(order: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, OpError> {
    let Some(order) = order else { return Ok((0..rank).rev().collect()) };
    let from_front = order.iter().map(|at| axis(*at, rank)).collect::<Result<Vec<_>, _>>()?;
    let complete = (0..rank).all(|at| from_front.contains(&at)) && from_front.len() == rank;
    if complete { Ok(from_front) } else { Err(OpError::operands(format!("`perm` {order:?} for {rank} dimensions"))) }
}

fn split<O: TensorOps>(
    given: &Operands<O>,
    x: &O::Tensor,
    along: usize,
    attribute: Option<&[i64]>,
    parts: usize,
) -> Result<Vec<O::Tensor>, OpError> {
    let size = given.ops.shape(x)[along];
    let counts = match wanted_axes(given, attribute)? {
        Some(counts) => sizes(&counts)?,
        None => {
            let each = size.div_ceil(parts.max(1));
            (0..parts).map(|part| each.min(size.saturating_sub(part * each))).collect()
        }
    };
    if counts.iter().sum::<usize>() != size || counts.len() != parts {
        return Err(OpError::operands(format!("{size} entries do not split into {counts:?} for {parts} outputs")));
    }
    let start = |part: usize| counts[..part].iter().sum();
    (0..parts).map(|part| given.ops.slice(x, along, start(part), counts[part], 1)).collect()
}

fn slice<O: TensorOps>(
    given: &Operands<O>,
    x: O::Tensor,
    attributes: Option<&SliceAttributes>,
) -> Result<O::Tensor, OpError> {
    let shape = given.ops.shape(&x);
    let (starts, ends, wanted, steps) = match attributes {
        Some(SliceAttributes { starts, ends, axes }) => (starts.clone(), ends.clone(), axes.clone(), None),
        None => (given.needed_ints(1)?, given.needed_ints(2)?, given.ints(3)?, given.ints(4)?),
    };
    let along = wanted.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), along.len(), steps.len()] != [starts.len(); 3] {
        return Err(OpError::operands("`starts`, `ends`, `axes` and `steps` differ in length"));
    }
    (0..starts.len()).try_fold(x, |x, i| {
        let at = axis(along[i], shape.len())?;
        let (start, count) = sliced(starts[i], ends[i], steps[i], shape[at])?;
        if (start, count, steps[i]) == (0, shape[at], 1) {
            return Ok(x);
        }
        given.ops.slice(&x, at, start, count, steps[i])
    })
}

fn pad<O: TensorOps>(
    given: &Operands<O>,
    x: &O::Tensor,
    kind: Option<PadKind>,
    attribute: Option<&[i64]>,
    value: f64,
) -> Result<O::Tensor, OpError> {
    let rank = given.ops.shape(x).len();
    let amounts = sizes(&match attribute {
        Some(pads) => pads.to_vec(),
        None => given.needed_ints(1)?,
    })
    .map_err(|_| OpError::lacks("negative padding"))?;
    let along = match given.ints(3)? {
        Some(wanted) => wanted.iter().map(|wanted| axis(*wanted, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if amounts.len() != 2 * along.len() {
        return Err(OpError::operands(format!("{} amounts of padding for {} dimensions", amounts.len(), along.len())));
    }
    let mut pads = vec![(0, 0); rank];
    for (i, at) in along.iter().enumerate() {
        pads[*at] = (amounts[i], amounts[along.len() + i]);
    }
    let mode = match kind {
        Some(PadKind::Reflect) => PadMode::Reflect,
        Some(PadKind::Edge) => PadMode::Edge,
        None => PadMode::Constant(given.number(2)?.unwrap_or(value)),
    };
    given.ops.pad(x, &pads, mode)
}
