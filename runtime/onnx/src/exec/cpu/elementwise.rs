//! Elementwise functions of whole tensors.

use ndarray::{ArrayD, IxDyn};
use rayon::prelude::*;

use super::number::Number;
use super::pairs::{zip, zip_costly};
use super::precision::{cast, in_compute_type};
use super::storage::{Dense, DenseElement, Elements, broadcast, with_elements, with_numbers, zeros};
use super::{OpError, activation};
use crate::DType;
use crate::exec::ops::{Binary, Unary};
use crate::exec::reference::elementwise as reference;
use crate::exec::result_size::check_result_size;
use crate::exec::shape_arithmetic::broadcast_shape;

/// Elements per task: enough to outweigh the cost of starting the task.
pub(super) const CHUNK: usize = 1 << 15;

pub(super) fn unary(kind: Unary, x: &Dense) -> Result<Dense, OpError> {
    match kind {
        Unary::Not => return Ok(logical_not(x)),
        Unary::IsNan => return in_compute_type([x], |[x]| with_numbers!(x, x => Ok(predicate(x, Number::is_nan)))),
        Unary::IsInf { negative, positive } => {
            return in_compute_type([x], |[x]| match x {
                Dense::F64(x) => Ok(predicate(x, |x| is_infinite(x, negative, positive))),
                Dense::F32(x) => Ok(predicate(x, |x| is_infinite(f64::from(x), negative, positive))),
                integers => Ok(never(integers.shape())),
            });
        }
        _ => {}
    }
    in_compute_type([x], |[x]| match x {
        Dense::F32(x) => map_chunks(x, |chunk| activation::apply(kind, chunk)),
        Dense::F64(x) => map_chunks(x, |chunk| chunk.iter_mut().for_each(|x| *x = reference::apply(kind, *x))),
        Dense::I64(x) => integer_unary(kind, x, -1, |bound| bound as i64),
        Dense::I32(x) => integer_unary(kind, x, -1, |bound| bound as i32),
        other => Err(OpError::unsupported(format!("`{kind:?}` in `{}`", other.dtype()))),
    })
}

fn logical_not(x: &Dense) -> Dense {
    match cast(x, DType::Bool) {
        Dense::U8(x) => predicate(&x, |x| x == 0),
        _ => unreachable!("bools are stored as u8"),
    }
}

fn predicate<T: DenseElement>(x: &Elements<T>, f: impl Fn(T) -> bool) -> Dense {
    x.mapv(|x| u8::from(f(x))).into()
}

fn never(shape: &[usize]) -> Dense {
    ArrayD::<u8>::zeros(IxDyn(shape)).into()
}

fn is_infinite(x: f64, negative: bool, positive: bool) -> bool {
    x.is_infinite() && if x < 0.0 { negative } else { positive }
}

/// Applies a function to chunks of a copy of the elements, on all cores.
fn map_chunks<T: DenseElement>(x: &Elements<T>, f: impl Fn(&mut [T]) + Send + Sync) -> Result<Dense, OpError>
where
    Dense: From<ArrayD<T>>,
{
    let rows = x.as_standard_layout();
    let rows = rows.as_slice().expect("the standard layout is contiguous");
    let mut result = zeros(x.shape())?;
    result.par_chunks_mut(CHUNK).zip(rows.par_chunks(CHUNK)).for_each(|(result, x)| {
        result.copy_from_slice(x);
        f(result);
    });
    ArrayD::from_shape_vec(IxDyn(x.shape()), result).map(Dense::from).map_err(OpError::library)
}

/// Applies one of the functions that integers have, too. `to_integer` converts a bound and saturates.
fn integer_unary<T: Number>(
    kind: Unary,
    x: &Elements<T>,
    minus_one: T,
    to_integer: impl Fn(f64) -> T,
) -> Result<Dense, OpError>
where
    Dense: From<Elements<T>>,
{
    let (zero, one) = (T::zero(), T::one());
    let negated = |x: T| zero.minus(x);
    Ok(match kind {
        Unary::Abs => x.mapv(|x| if x < zero { negated(x) } else { x }),
        Unary::Neg => x.mapv(negated),
        Unary::Sign => x.mapv(|x| if x > zero { one } else { x.larger(minus_one) }),
        Unary::Relu => x.mapv(|x| x.larger(zero)),
        Unary::Clip { min, max } => {
            let (min, max) = (to_integer(min), to_integer(max));
            x.mapv(|x| x.larger(min).smaller(max))
        }
        Unary::Floor | Unary::Ceil | Unary::Round => x.to_owned(),
        other => return Err(OpError::unsupported(format!("`{other:?}` in `{}`", T::DTYPE))),
    }
    .into_shared()
    .into())
}

pub(super) fn binary(kind: Binary, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
    check_result_size(&broadcast_shape(a.shape(), b.shape())?, a.dtype())?;
    match (kind, a, b) {
        (Binary::And | Binary::Or | Binary::Xor, ..) => {
            return logic(kind, u8::elements(&cast(a, DType::Bool))?, u8::elements(&cast(b, DType::Bool))?);
        }
        // The exponent may have another type than the base, which determines the type of the result.
        (Binary::Pow, ..) if a.dtype() != b.dtype() => {
            let dtype = match a.dtype() {
                DType::F64 => DType::F64,
                float if float.is_float() => DType::F32,
                _ => DType::F64,
            };
            return Ok(cast(&binary(kind, &cast(a, dtype), &cast(b, dtype))?, a.dtype()));
        }
        _ => {}
    }
    in_compute_type([a, b], |[a, b]| with_numbers!(a, a => arithmetic(kind, a, DenseElement::elements(b)?)))
}

fn logic(kind: Binary, a: &Elements<u8>, b: &Elements<u8>) -> Result<Dense, OpError> {
    Ok(match kind {
        Binary::And => zip(a, b, |a, b| a & b)?,
        Binary::Or => zip(a, b, |a, b| a | b)?,
        _ => zip(a, b, |a, b| a ^ b)?,
    }
    .into())
}

fn arithmetic<T: Number>(kind: Binary, a: &Elements<T>, b: &Elements<T>) -> Result<Dense, OpError>
where
    Dense: From<Elements<T>>,
{
    let divides = matches!(kind, Binary::Div | Binary::Mod | Binary::Fmod);
    if divides && !T::DTYPE.is_float() && b.iter().any(|b| *b == T::zero()) {
        return Err(OpError::invalid_operands("integer division by zero"));
    }
    Ok(match kind {
        Binary::Add => zip(a, b, T::plus)?.into(),
        Binary::Sub => zip(a, b, T::minus)?.into(),
        Binary::Mul => zip(a, b, T::times)?.into(),
        Binary::Div => zip(a, b, T::divided_by)?.into(),
        Binary::Mod => zip_costly(a, b, T::modulo)?.into(),
        Binary::Fmod => zip_costly(a, b, T::remainder)?.into(),
        Binary::Pow => zip_costly(a, b, T::power)?.into(),
        Binary::Min => zip(a, b, T::smaller)?.into(),
        Binary::Max => zip(a, b, T::larger)?.into(),
        Binary::Equal => zip(a, b, |a, b| u8::from(a == b))?.into(),
        Binary::Less => zip(a, b, |a, b| u8::from(a < b))?.into(),
        Binary::LessOrEqual => zip(a, b, |a, b| u8::from(a <= b))?.into(),
        Binary::Greater => zip(a, b, |a, b| u8::from(a > b))?.into(),
        Binary::GreaterOrEqual => zip(a, b, |a, b| u8::from(a >= b))?.into(),
        Binary::And | Binary::Or | Binary::Xor => return Err(OpError::unsupported("logic of numbers")),
    })
}

/// Returns the elements of a tensor broadcast to a shape, in row-major order, and the distance between those of
/// neighbouring places: 0 if there is only one element.
fn broadcast_elements<T: DenseElement>(x: &Elements<T>, shape: &[usize]) -> Result<(Elements<T>, usize), OpError> {
    Ok(match x.len() {
        1 => (x.clone(), 0),
        _ if x.shape() == shape && x.is_standard_layout() => (x.clone(), 1),
        _ => (broadcast(x, shape)?.as_standard_layout().into_owned().into_shared(), 1),
    })
}

/// Selects `a` where `condition` is true, else `b`.
pub(super) fn select(condition: &Dense, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
    fn select<T: DenseElement>(
        condition: &Elements<u8>,
        a: &Elements<T>,
        b: &Elements<T>,
    ) -> Result<Elements<T>, OpError> {
        let shape = broadcast_shape(condition.shape(), &broadcast_shape(a.shape(), b.shape())?)?;
        check_result_size(&shape, T::DTYPE)?;
        let (condition, every_condition) = broadcast_elements(condition, &shape)?;
        let ((a, every_a), (b, every_b)) = (broadcast_elements(a, &shape)?, broadcast_elements(b, &shape)?);
        let dense = "the elements are in row-major order";
        let condition = condition.as_slice().expect(dense);
        let (a, b) = (a.as_slice().expect(dense), b.as_slice().expect(dense));
        let choose = |i: usize| if condition[i * every_condition] == 0 { b[i * every_b] } else { a[i * every_a] };
        let chosen = (0..shape.iter().product()).map(choose).collect();
        Elements::from_shape_vec(IxDyn(&shape), chosen).map_err(OpError::library)
    }
    let condition = cast(condition, DType::Bool);
    with_elements!(a, a => Ok(select(u8::elements(&condition)?, a, DenseElement::elements(b)?)?.into()))
}
