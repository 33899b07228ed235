//! The size of an operator's result, before the result exists.
//!
//! Exact only for operators whose result can be larger than their inputs. Counts saturate instead of overflowing, which
//! is why shape inference, with sizes of 32 bits, is not used here.

use super::OpError;
use super::op::Op;
use super::shape_arithmetic::{broadcast_shape, matmul_dims, resolve_axis};
use flagperf_onnx::Tensor;

/// Returns an upper bound of the number of elements of all outputs together. `name` is that of the operator.
pub(super) fn elements_max(name: &str, op: &Op, inputs: &[Option<&Tensor>]) -> Result<u64, OpError> {
    let input = |i: usize| {
        let input = inputs.get(i).copied().flatten();
        input.ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")))
    };
    let present = || inputs.iter().flatten();
    Ok(match op {
        Op::ArgMax { .. }
        | Op::Cast { .. }
        | Op::Dropout { mask: false, .. }
        | Op::Clip
        | Op::CumSum { .. }
        | Op::Flatten { .. }
        | Op::Identity
        | Op::LayerNormalization { .. }
        | Op::Reduce { .. }
        | Op::Reshape { .. }
        | Op::RmsNormalization { .. }
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::TensorScatter(_)
        | Op::Shape { .. }
        | Op::Size
        | Op::Slice
        | Op::Softmax { .. }
        | Op::Split { .. }
        | Op::Squeeze
        | Op::Transpose { .. }
        | Op::Trilu { .. }
        | Op::Unary(_)
        | Op::Unsqueeze => input(0)?.len() as u64,
        Op::Binary(_) | Op::Bitwise(_) | Op::SiluProduct | Op::Mean | Op::PRelu | Op::Select => {
            broadcast_count(present().map(|input| input.shape()))?
        }
        Op::Concat { .. } => present().map(|input| input.len() as u64).sum(),
        Op::ConstantOfShape { .. } => count(&sizes(input(0)?)),
        Op::Expand => {
            let shape = sizes(input(1)?).into_iter().map(|size| usize::try_from(size).unwrap_or(usize::MAX));
            count_usize(&broadcast_shape(input(0)?.shape(), &shape.collect::<Vec<_>>())?)
        }
        Op::Gather { axis } => {
            let (x, indices) = (input(0)?, input(1)?);
            let axis = resolve_axis(*axis, x.shape().len())?;
            let kept = x.shape().iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, size)| *size);
            count_usize(&kept.chain(indices.shape().iter().copied()).collect::<Vec<_>>())
        }
        Op::GatherElements { .. } => input(1)?.len() as u64,
        Op::MatMul => matmul_count(input(0)?.shape(), input(1)?.shape())?,
        Op::OneHot { .. } => {
            let depth = input(1)?.to_f64().first().copied().unwrap_or(0.0);
            (input(0)?.len() as u64).saturating_mul(depth as u64)
        }
        Op::Pad { .. } => pad_count(input(0)?, input(1)?, inputs.get(3).copied().flatten())?,
        Op::Range => range_count(input(0)?, input(1)?, input(2)?)?,
        Op::TopK { .. } => (input(0)?.len() as u64).saturating_mul(2),
        Op::Tile => {
            let repeats = sizes(input(1)?);
            (input(0)?.len() as u64).saturating_mul(count(&repeats))
        }
        _ => return Err(OpError::unsupported(format!("`{name}`, because the size of its result is not known before"))),
    })
}

fn broadcast_count<'a>(mut shapes: impl Iterator<Item = &'a [usize]>) -> Result<u64, OpError> {
    let first = shapes.next().unwrap_or_default().to_vec();
    shapes.try_fold(first, |all, shape| broadcast_shape(&all, shape)).map(|shape| count_usize(&shape))
}

fn matmul_count(a: &[usize], b: &[usize]) -> Result<u64, OpError> {
    let row = if let [k] = a { vec![1, *k] } else { a.to_vec() };
    let column = if let [k] = b { vec![*k, 1] } else { b.to_vec() };
    let dims = matmul_dims(&row, &column)?;
    Ok(count_usize(&dims.batch).saturating_mul(count_usize(&[dims.m, dims.n])))
}

fn pad_count(x: &Tensor, pads: &Tensor, axes: Option<&Tensor>) -> Result<u64, OpError> {
    let (pads, rank) = (sizes(pads), x.shape().len());
    let axes: Vec<i64> = axes.map_or_else(|| (0..rank as i64).collect(), sizes);
    if pads.len() != 2 * axes.len() {
        return Err(OpError::invalid_operands(format!(
            "{} pad amounts for {} axes (two per axis are required)",
            pads.len(),
            axes.len()
        )));
    }
    let mut shape: Vec<u64> = x.shape().iter().map(|size| *size as u64).collect();
    for (i, axis) in axes.iter().enumerate() {
        let padded = &mut shape[resolve_axis(*axis, rank)?];
        let amount = |i: usize| u64::try_from(pads[i]).unwrap_or(0);
        *padded = padded.saturating_add(amount(i)).saturating_add(amount(axes.len() + i));
    }
    Ok(shape.into_iter().fold(1, u64::saturating_mul))
}

fn range_count(start: &Tensor, limit: &Tensor, delta: &Tensor) -> Result<u64, OpError> {
    let number = |tensor: &Tensor| tensor.to_f64().first().copied().unwrap_or(f64::NAN);
    let count = ((number(limit) - number(start)) / number(delta)).ceil();
    if count.is_nan() {
        Err(OpError::invalid_operands("the step of a range is 0 or not a number"))
    } else {
        Ok(count.max(0.0) as u64)
    }
}

/// Returns the integers of a tensor of sizes; those beyond 2^53 are rounded.
fn sizes(tensor: &Tensor) -> Vec<i64> {
    tensor.to_f64().into_iter().map(|size| size as i64).collect()
}

/// Returns the product of sizes; a negative size counts as 0.
fn count(sizes: &[i64]) -> u64 {
    sizes.iter().fold(1, |product, size| product.saturating_mul(u64::try_from(*size).unwrap_or(0)))
}

fn count_usize(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |product, size| product.saturating_mul(*size as u64))
}
