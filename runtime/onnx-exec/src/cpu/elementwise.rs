//! Elementwise functions of whole tensors.

use ndarray::{ArrayD, IxDyn};
use rayon::prelude::*;

use super::activation::vectorized;
use super::number::Number;
use super::pairs::{zip, zip_costly};
use super::precision::{cast, in_compute_type};
use super::storage::{Dense, DenseElement, Elements, broadcast, in_order, with_elements, with_numbers, zeros};
use super::{OpError, activation};
use crate::ops::{Binary, Unary};
use crate::reference::elementwise as reference;
use crate::result_size::check_result_size;
use crate::shape_arithmetic::broadcast_shape;
use flagperf_onnx::DType;

/// Elements per task: enough to outweigh the cost of starting the task.
pub(super) const CHUNK: usize = 1 << 15;

/// Elements per block: few enough to stay in the first cache.
const BLOCK: usize = 1 << 10;

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
    let rows = in_order(x);
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

/// An operand that is broadcast to the shape of the result: all elements in row-major order or, of a single element, a
/// block of copies.
struct Broadcast<T> {
    elements: Elements<T>,
    repeats: bool,
}

impl<T: DenseElement> Broadcast<T> {
    fn new(x: &Elements<T>, shape: &[usize]) -> Result<Self, OpError> {
        let elements = match x.first() {
            Some(element) if x.len() == 1 => {
                let length = BLOCK.min(shape.iter().product());
                return Ok(Broadcast { elements: Elements::from_elem(IxDyn(&[length]), *element), repeats: true });
            }
            _ if x.shape() == shape && x.is_standard_layout() => x.clone(),
            _ => broadcast(x, shape)?.as_standard_layout().into_owned().into_shared(),
        };
        Ok(Broadcast { elements, repeats: false })
    }

    /// Returns `length` elements from place `start` on, at most [`BLOCK`].
    fn block(&self, start: usize, length: usize) -> &[T] {
        let elements = self.elements.as_slice().expect("the elements are in row-major order");
        &elements[if self.repeats { 0 } else { start }..][..length]
    }
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
        let condition = Broadcast::new(condition, &shape)?;
        let (a, b) = (Broadcast::new(a, &shape)?, Broadcast::new(b, &shape)?);
        let count: usize = shape.iter().product();
        let mut chosen = Vec::with_capacity(count);
        for start in (0..count).step_by(BLOCK) {
            let length = BLOCK.min(count - start);
            let (condition, a, b) = (condition.block(start, length), a.block(start, length), b.block(start, length));
            let choices = condition.iter().zip(a.iter().zip(b));
            vectorized(|| chosen.extend(choices.map(|(condition, (a, b))| if *condition == 0 { *b } else { *a })));
        }
        Elements::from_shape_vec(IxDyn(&shape), chosen).map_err(OpError::library)
    }
    let condition = cast(condition, DType::Bool);
    with_elements!(a, a => Ok(select(u8::elements(&condition)?, a, DenseElement::elements(b)?)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize]) -> Elements<f32> {
        let count = shape.iter().product();
        Elements::from_shape_vec(IxDyn(shape), (0..count).map(|i| i as f32 - 3.0).collect()).unwrap()
    }

    #[test]
    fn functions_reach_every_element_of_tensors_that_are_no_whole_blocks() {
        for length in [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK + BLOCK / 2] {
            for x in [floats(&[length, 2]), floats(&[2, length]).reversed_axes()] {
                let Dense::F32(negated) = unary(Unary::Neg, &Dense::F32(x.clone())).unwrap() else { unreachable!() };
                assert_eq!(negated, x.mapv(|x| -x).into_shared(), "{length}");
            }
        }
    }

    #[test]
    fn selected_elements_are_those_of_broadcast_operands() {
        let shapes: [&[usize]; 5] = [&[], &[1, 1], &[BLOCK + 5], &[3, 1], &[3, BLOCK + 5]];
        for condition in shapes.map(floats) {
            let truth = condition.mapv(|x| u8::from(x as i32 % 2 == 0)).into_shared();
            for a in shapes.map(floats) {
                for b in shapes.map(|shape| floats(shape).mapv(|x| -x).into_shared()) {
                    let actual = select(&truth.clone().into(), &a.clone().into(), &b.clone().into()).unwrap();
                    let Dense::F32(actual) = actual else { unreachable!("the type is that of the operands") };
                    let wide = IxDyn(actual.shape());
                    let (a, b) = (a.broadcast(wide.clone()).unwrap(), b.broadcast(wide.clone()).unwrap());
                    let choices = ndarray::Zip::from(truth.broadcast(wide).unwrap()).and(a).and(b);
                    assert_eq!(actual, choices.map_collect(|truth, a, b| if *truth == 0 { *b } else { *a }));
                }
            }
        }
        let none = select(&floats(&[0, 3]).into(), &floats(&[]).into(), &floats(&[3]).into()).unwrap();
        assert_eq!(none.shape(), [0, 3]);
    }
}
