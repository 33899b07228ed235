//! Elementwise functions of whole tensors.

use ndarray::{LinalgScalar, Zip};
use rayon::prelude::*;

use super::storage::{Dense, DenseElement, Elements, broadcast, f32_tensor, row_major, with_elements};
use super::{OpError, activation};
use crate::DType;
use crate::exec::ops::{Binary, Unary};
use crate::exec::shape_arithmetic::broadcast_shape;

/// Elements per task: enough to outweigh the cost of starting the task.
pub(super) const CHUNK: usize = 1 << 15;

pub(super) fn unary(kind: Unary, x: &Dense) -> Result<Dense, OpError> {
    if kind == Unary::Not {
        return Ok(with_elements!(x, x => x.mapv(|x| u8::from(!is_nonzero(x)))).into());
    }
    let mut elements = row_major(f32::elements(x)?);
    elements.par_chunks_mut(CHUNK).for_each(|chunk| activation::apply(kind, chunk));
    f32_tensor(elements, x.shape())
}

pub(super) fn binary(kind: Binary, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
    match (kind, a) {
        (Binary::Mod, _) => Err(OpError::unsupported("`Mod`, except in arithmetic on shapes")),
        (Binary::Pow, _) => {
            let b = cast(b, DType::F32)?;
            Ok(zip(f32::elements(a)?, f32::elements(&b)?, f32::powf)?.into())
        }
        (Binary::Div, Dense::I64(_) | Dense::I32(_) | Dense::U8(_)) if has_zero(b) => {
            Err(OpError::invalid_operands("integer division by zero"))
        }
        _ => with_elements!(a, a => arithmetic(kind, a, DenseElement::elements(b)?)),
    }
}

fn is_nonzero<T: LinalgScalar>(x: T) -> bool {
    !x.is_zero()
}

fn has_zero(x: &Dense) -> bool {
    with_elements!(x, x => x.iter().any(|x| !is_nonzero(*x)))
}

fn arithmetic<T>(kind: Binary, a: &Elements<T>, b: &Elements<T>) -> Result<Dense, OpError>
where
    T: DenseElement + LinalgScalar + PartialOrd,
    Dense: From<Elements<T>>,
{
    Ok(match kind {
        Binary::Add => zip(a, b, |a, b| a + b)?.into(),
        Binary::Sub => zip(a, b, |a, b| a - b)?.into(),
        Binary::Mul => zip(a, b, |a, b| a * b)?.into(),
        Binary::Div => zip(a, b, |a, b| a / b)?.into(),
        Binary::Min => zip(a, b, |a, b| if b < a { b } else { a })?.into(),
        Binary::Max => zip(a, b, |a, b| if b > a { b } else { a })?.into(),
        Binary::Equal => zip(a, b, |a, b| u8::from(a == b))?.into(),
        Binary::Less => zip(a, b, |a, b| u8::from(a < b))?.into(),
        Binary::Greater => zip(a, b, |a, b| u8::from(a > b))?.into(),
        Binary::And => zip(a, b, |a, b| u8::from(is_nonzero(a) && is_nonzero(b)))?.into(),
        Binary::Or => zip(a, b, |a, b| u8::from(is_nonzero(a) || is_nonzero(b)))?.into(),
        Binary::Mod | Binary::Pow => return Err(OpError::unsupported(format!("`{kind:?}` in `{}`", T::DTYPE))),
    })
}

/// Applies a function to each pair of elements of two tensors, which are broadcast.
fn zip<T: DenseElement, U: DenseElement>(
    a: &Elements<T>,
    b: &Elements<T>,
    f: impl Fn(T, T) -> U + Send + Sync,
) -> Result<Elements<U>, OpError> {
    let shape = broadcast_shape(a.shape(), b.shape())?;
    let pairs = Zip::from(broadcast(a, &shape)?).and(broadcast(b, &shape)?);
    let f = |a: &T, b: &T| f(*a, *b);
    let elements = if pairs.size() < 2 * CHUNK { pairs.map_collect(f) } else { pairs.par_map_collect(f) };
    Ok(elements.into_shared())
}

/// Selects `a` where `condition` is true, else `b`.
pub(super) fn select(condition: &Dense, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
    fn select<T: DenseElement>(
        condition: &Elements<u8>,
        a: &Elements<T>,
        b: &Elements<T>,
    ) -> Result<Elements<T>, OpError> {
        let shape = broadcast_shape(condition.shape(), &broadcast_shape(a.shape(), b.shape())?)?;
        let (condition, a, b) = (broadcast(condition, &shape)?, broadcast(a, &shape)?, broadcast(b, &shape)?);
        let choose = |condition: &u8, a: &T, b: &T| if *condition == 0 { *b } else { *a };
        Ok(Zip::from(condition).and(a).and(b).map_collect(choose).into_shared())
    }
    let condition = cast(condition, DType::Bool)?;
    with_elements!(a, a => Ok(select(u8::elements(&condition)?, a, DenseElement::elements(b)?)?.into()))
}

/// Converts the numbers to another element type.
#[expect(clippy::unnecessary_cast, reason = "the macro also casts elements that have the type already")]
pub(super) fn cast(x: &Dense, dtype: DType) -> Result<Dense, OpError> {
    if dtype == x.dtype() {
        return Ok(x.clone());
    }
    Ok(match dtype {
        DType::F32 => with_elements!(x, x => x.mapv(|x| x as f32)).into(),
        DType::I64 => with_elements!(x, x => x.mapv(|x| x as i64)).into(),
        DType::I32 => with_elements!(x, x => x.mapv(|x| x as i32)).into(),
        DType::U8 => with_elements!(x, x => x.mapv(|x| x as u8)).into(),
        DType::Bool => with_elements!(x, x => x.mapv(|x| u8::from(is_nonzero(x)))).into(),
        other => return Err(OpError::unsupported(format!("tensors of `{other}`"))),
    })
}
