//! Elementwise functions of whole tensors.

use candle_core::Tensor as Candle;
use rayon::prelude::*;

use super::storage::{f32_tensor, with_f32_elements};
use super::{OpError, activation};
use crate::exec::ops::{Binary, Unary};

/// Elements per task: enough to outweigh the cost of starting the task.
const CHUNK: usize = 1 << 15;

pub(super) fn unary(kind: Unary, x: &Candle) -> Result<Candle, OpError> {
    if kind == Unary::Not {
        return Ok(x.eq(&x.zeros_like()?)?);
    }
    let mut elements = with_f32_elements(x, <[f32]>::to_vec)?;
    elements.par_chunks_mut(CHUNK).for_each(|chunk| activation::apply(kind, chunk));
    f32_tensor(elements, x.dims())
}

pub(super) fn binary(kind: Binary, a: &Candle, b: &Candle) -> Result<Candle, OpError> {
    Ok(match kind {
        Binary::Add => a.broadcast_add(b)?,
        Binary::Sub => a.broadcast_sub(b)?,
        Binary::Mul => a.broadcast_mul(b)?,
        Binary::Div => a.broadcast_div(b)?,
        Binary::Mod => return Err(OpError::unsupported("`Mod`, except in arithmetic on shapes")),
        Binary::Pow => power(a, b)?,
        Binary::Min => a.broadcast_minimum(b)?,
        Binary::Max => a.broadcast_maximum(b)?,
        Binary::Equal => a.broadcast_eq(b)?,
        Binary::Less => a.broadcast_lt(b)?,
        Binary::Greater => a.broadcast_gt(b)?,
        Binary::And => is_nonzero(a)?.broadcast_mul(&is_nonzero(b)?)?,
        Binary::Or => is_nonzero(a)?.broadcast_maximum(&is_nonzero(b)?)?,
    })
}

/// Returns 1 where the number is not 0, else 0.
pub(super) fn is_nonzero(x: &Candle) -> Result<Candle, OpError> {
    Ok(x.ne(&x.zeros_like()?)?)
}

/// Computes powers. candle's own operation uses the logarithm of the base, which fails for negative bases.
fn power(a: &Candle, b: &Candle) -> Result<Candle, OpError> {
    let shape = a.shape().broadcast_shape_binary_op(b.shape(), "pow")?;
    let (a, b) = (a.broadcast_as(&shape)?, b.broadcast_as(&shape)?.to_dtype(a.dtype())?);
    let powers = with_f32_elements(&a, |a| {
        with_f32_elements(&b, |b| a.par_iter().zip(b).with_min_len(CHUNK).map(|(a, b)| a.powf(*b)).collect::<Vec<_>>())
    })??;
    f32_tensor(powers, shape.dims())
}
