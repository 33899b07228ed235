//! Elementwise functions on the host, in f64 or in the integers themselves.

use std::sync::Arc;

use super::{HostFunction, HostOp, input};
use crate::OpError;
use crate::operands::Operands;
use crate::ops::{Bitwise, TensorOps};
use crate::resolve::Source;
use crate::shape_arithmetic::broadcast_shape;
use flagperf_onnx::{DType, Tensor};

/// Applies a function to each number of input 0, in f64.
pub(crate) fn map(function: impl Fn(f64) -> f64 + Send + Sync + 'static) -> HostFunction {
    Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        if !x.dtype().is_float() {
            return Err(OpError::unsupported(format!("numbers in `{}`", x.dtype())));
        }
        let numbers: Vec<f64> = x.to_f64().into_iter().map(&function).collect();
        Ok(vec![Tensor::from_vec(x.shape(), numbers)?.cast(x.dtype())])
    })
}

/// How the bits of two integers are combined.
#[derive(Clone, Copy)]
enum Bits {
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Combines the bits of integers of one type, which the tensor library does if it can.
pub(crate) fn combine_bits<O: TensorOps>(operands: &Operands<O>, kind: Bitwise) -> Result<O::Tensor, OpError> {
    let (ops, a, b) = (operands.ops, operands.tensor(0)?, operands.optional_tensor(1)?);
    let is_possible = |dtype: DType| !dtype.is_float() && b.as_ref().is_none_or(|b| ops.dtype(b) == dtype);
    let combined = is_possible(ops.dtype(&a)).then(|| ops.bitwise(kind, &a, b.as_ref())).flatten();
    let on_host = || {
        let function = match kind {
            Bitwise::And => bitwise(Bits::And),
            Bitwise::Or => bitwise(Bits::Or),
            Bitwise::Xor => bitwise(Bits::Xor),
            Bitwise::Not => bitwise_not(),
        };
        Ok(HostOp(function).evaluate(operands)?.remove(0))
    };
    combined.unwrap_or_else(on_host)
}

pub(crate) fn bit_shift(source: &Source<'_>) -> Result<HostFunction, OpError> {
    match source.attributes.text("direction", "")? {
        "LEFT" => Ok(bitwise(Bits::ShiftLeft)),
        "RIGHT" => Ok(bitwise(Bits::ShiftRight)),
        other => Err(OpError::unsupported(format!("`direction` `{other}`"))),
    }
}

fn bitwise(kind: Bits) -> HostFunction {
    Arc::new(move |inputs| {
        let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
        let dtype = a.dtype();
        if dtype.is_float() || b.dtype() != dtype {
            return Err(OpError::unsupported(format!("bits of `{dtype}` and `{}`", b.dtype())));
        }
        let shape = broadcast_shape(a.shape(), b.shape())?;
        let (a, b) = (broadcast_ints(a, &shape)?, broadcast_ints(b, &shape)?);
        let width = 8 * dtype.size() as i64;
        let combine = |(a, b): (i64, i64)| match kind {
            Bits::And => a & b,
            Bits::Or => a | b,
            Bits::Xor => a ^ b,
            // A shift by the width or more leaves only copies of the sign.
            Bits::ShiftLeft if !(0..width).contains(&b) => 0,
            Bits::ShiftRight if !(0..width).contains(&b) => a >> 63,
            Bits::ShiftLeft => a << b,
            Bits::ShiftRight => a >> b,
        };
        let combined: Vec<i64> = a.into_iter().zip(b).map(combine).collect();
        Ok(vec![from_ints(&shape, combined, dtype)?])
    })
}

fn bitwise_not() -> HostFunction {
    Arc::new(|inputs| {
        let x = input(inputs, 0)?;
        if x.dtype().is_float() {
            return Err(OpError::unsupported(format!("bits of `{}`", x.dtype())));
        }
        let inverted = broadcast_ints(x, x.shape())?.into_iter().map(|x| !x).collect();
        Ok(vec![from_ints(x.shape(), inverted, x.dtype())?])
    })
}

/// Returns integers, cut to the bits of their type.
fn from_ints(shape: &[usize], numbers: Vec<i64>, dtype: DType) -> Result<Tensor, OpError> {
    Ok(Tensor::from_vec(shape, numbers)?.cast(dtype))
}

/// Returns the integers of a tensor that is broadcast to a shape.
fn broadcast_ints(x: &Tensor, shape: &[usize]) -> Result<Vec<i64>, OpError> {
    // A cast to i64 by way of f64 keeps integers of up to 32 bits.
    let wide = x.cast(DType::I64).to_array::<i64>()?;
    let view = wide.broadcast(ndarray::IxDyn(shape));
    let view = view.ok_or_else(|| OpError::invalid_operands(format!("{:?} does not fit {shape:?}", x.shape())))?;
    Ok(view.iter().copied().collect())
}
