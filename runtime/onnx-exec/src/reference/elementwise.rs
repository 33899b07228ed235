//! Elementwise functions in f64.

use ndarray::Zip;

use super::{Array, OpError};
use crate::ops::{Binary, Unary};
use crate::shape_arithmetic::broadcast_shape;
use flagperf_onnx::DType;

pub(super) fn unary(kind: Unary, x: &Array) -> Array {
    let result = x.map(|x| apply(kind, x));
    if matches!(kind, Unary::Not | Unary::IsNan | Unary::IsInf { .. }) {
        result.with_dtype(DType::Bool)
    } else {
        result
    }
}

/// Computes a function as the ONNX operator of the same name defines it.
pub(crate) fn apply(kind: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let hard_sigmoid = |alpha: f64, beta: f64| (alpha * x + beta).clamp(0.0, 1.0);
    match kind {
        Unary::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Unary::Clip { min, max } => clip(x, min, max),
        Unary::Sigmoid => sigmoid(x),
        Unary::HardSigmoid { alpha, beta } => hard_sigmoid(alpha, beta),
        Unary::HardSwish => x * hard_sigmoid(1.0 / 6.0, 0.5),
        Unary::Silu => x * sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Unary::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Unary::LeakyRelu { alpha } => {
            if x < 0.0 {
                alpha * x
            } else {
                x
            }
        }
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Round => x.round_ties_even(),
        Unary::Sign if x == 0.0 || x.is_nan() => x,
        Unary::Sign => x.signum(),
        Unary::Softplus => softplus(x),
        Unary::Elu { alpha } => elu(alpha, x),
        Unary::Selu { alpha, gamma } => gamma * elu(alpha, x),
        Unary::Mish => x * softplus(x).tanh(),
        Unary::IsNan => f64::from(x.is_nan()),
        Unary::IsInf { negative, positive } => f64::from(x.is_infinite() && if x < 0.0 { negative } else { positive }),
        Unary::Not => f64::from(x == 0.0),
    }
}

/// Returns ln(1 + e^x), without overflow for large x.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn elu(alpha: f64, x: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

/// Limits a number; NaN stays NaN.
fn clip(x: f64, min: f64, max: f64) -> f64 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

/// Returns the remainder with the sign of `b`.
fn modulo(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    match remainder == 0.0 {
        true => 0.0f64.copysign(b),
        false if (remainder < 0.0) != (b < 0.0) => remainder + b,
        false => remainder,
    }
}

pub(super) fn binary(kind: Binary, a: &Array, b: &Array) -> Result<Array, OpError> {
    let shape = broadcast_shape(a.shape(), b.shape())?;
    let integers = !a.dtype().is_float();
    let apply = |a: f64, b: f64| match kind {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div if integers => (a / b).trunc(),
        Binary::Div => a / b,
        Binary::Mod => modulo(a, b),
        Binary::Fmod => a % b,
        Binary::Pow if integers => a.powf(b).trunc(),
        Binary::Pow => a.powf(b),
        Binary::Min | Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Equal => f64::from(a == b),
        Binary::Less => f64::from(a < b),
        Binary::Greater => f64::from(a > b),
        Binary::LessOrEqual => f64::from(a <= b),
        Binary::GreaterOrEqual => f64::from(a >= b),
        Binary::And => f64::from(a != 0.0 && b != 0.0),
        Binary::Or => f64::from(a != 0.0 || b != 0.0),
        Binary::Xor => f64::from((a != 0.0) != (b != 0.0)),
    };
    if integers
        && matches!(kind, Binary::Div | Binary::Mod | Binary::Fmod)
        && b.values().iter().any(|value| *value == 0.0)
    {
        return Err(OpError::invalid_operands("integer division by zero"));
    }
    let dtype = if kind.is_predicate() { DType::Bool } else { a.dtype() };
    let values = Zip::from(a.broadcast(&shape)?).and(b.broadcast(&shape)?).map_collect(|a, b| apply(*a, *b));
    Ok(Array::new(values, dtype))
}

pub(super) fn select(condition: &Array, a: &Array, b: &Array) -> Result<Array, OpError> {
    let shape = broadcast_shape(condition.shape(), &broadcast_shape(a.shape(), b.shape())?)?;
    let values = Zip::from(condition.broadcast(&shape)?)
        .and(a.broadcast(&shape)?)
        .and(b.broadcast(&shape)?)
        .map_collect(|condition, a, b| if *condition != 0.0 { *a } else { *b });
    Ok(Array::new(values, a.dtype()))
}
