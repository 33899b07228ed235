//! Elementwise functions of whole tensors.

use candle_core::Tensor as Candle;
use rayon::prelude::*;

use super::storage::{floats, with_floats};
use super::{OpError, activation};
use crate::exec::ops::{Binary, Unary};

/// Elements that one task takes; enough to outweigh its start.
const PIECE: usize = 1 << 15;

pub(super) fn unary(kind: Unary, x: &Candle) -> Result<Candle, OpError> {
    if kind == Unary::Not {
        return Ok(x.eq(&x.zeros_like()?)?);
    }
    let mut elements = with_floats(x, <[f32]>::to_vec)?;
    elements.par_chunks_mut(PIECE).for_each(|piece| activation::apply(kind, piece));
    floats(elements, x.dims())
}

pub(super) fn binary(kind: Binary, a: &Candle, b: &Candle) -> Result<Candle, OpError> {
    Ok(match kind {
        Binary::Add => a.broadcast_add(b)?,
        Binary::Sub => a.broadcast_sub(b)?,
        Binary::Mul => a.broadcast_mul(b)?,
        Binary::Div => a.broadcast_div(b)?,
        Binary::Mod => return Err(OpError::lacks("remainders, except in arithmetic on shapes")),
        Binary::Pow => power(a, b)?,
        Binary::Min => a.broadcast_minimum(b)?,
        Binary::Max => a.broadcast_maximum(b)?,
        Binary::Equal => a.broadcast_eq(b)?,
        Binary::Less => a.broadcast_lt(b)?,
        Binary::Greater => a.broadcast_gt(b)?,
        Binary::And => truth(a)?.broadcast_mul(&truth(b)?)?,
        Binary::Or => truth(a)?.broadcast_maximum(&truth(b)?)?,
    })
}

/// 1 where the number is not 0.
pub(super) fn truth(x: &Candle) -> Result<Candle, OpError> {
    Ok(x.ne(&x.zeros_like()?)?)
}

/// candle's own takes the logarithm of the base, which fails for negative ones.
fn power(a: &Candle, b: &Candle) -> Result<Candle, OpError> {
    let shape = a.shape().broadcast_shape_binary_op(b.shape(), "pow")?;
    let (a, b) = (a.broadcast_as(&shape)?, b.broadcast_as(&shape)?.to_dtype(a.dtype())?);
    let powers = with_floats(&a, |a| {
        with_floats(&b, |b| a.par_iter().zip(b).with_min_len(PIECE).map(|(a, b)| a.powf(*b)).collect::<Vec<_>>())
    })??;
    floats(powers, shape.dims())
}
