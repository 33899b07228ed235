//! Elementwise functions on slices of f32.

use rten_simd::SimdUnaryOp;
use rten_vecmath::{Cos, Exp, Sigmoid, Silu, Sin, Tanh};

use crate::ops::Unary;

/// Applies a function to each element in place.
pub(super) fn apply(kind: Unary, elements: &mut [f32]) {
    match kind {
        // NaN fails every comparison and is kept, where `f32::max` would return the bound.
        Unary::Relu => vectorized(|| each(elements, |x| if x < 0.0 { 0.0 } else { x })),
        Unary::Clip { min, max } => {
            let (min, max) = (min as f32, max as f32);
            vectorized(|| each(elements, |x| clip(x, min, max)));
        }
        Unary::HardSigmoid { alpha, beta } => {
            let (alpha, beta) = (alpha as f32, beta as f32);
            vectorized(|| each(elements, |x| (alpha * x + beta).clamp(0.0, 1.0)));
        }
        Unary::HardSwish => vectorized(|| each(elements, |x| x * (x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0))),
        Unary::LeakyRelu { alpha } => {
            let alpha = alpha as f32;
            vectorized(|| each(elements, |x| if x < 0.0 { alpha * x } else { x }));
        }
        Unary::Sigmoid => Sigmoid {}.map_mut(elements),
        Unary::Silu => Silu {}.map_mut(elements),
        Unary::Tanh => Tanh {}.map_mut(elements),
        Unary::Erf => each(elements, libm::erff),
        Unary::Gelu => each(elements, |x| 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))),
        Unary::GeluTanh => each(elements, gelu_tanh),
        Unary::Exp => Exp {}.map_mut(elements),
        Unary::Log => each(elements, f32::ln),
        Unary::Sqrt => vectorized(|| each(elements, f32::sqrt)),
        Unary::Reciprocal => vectorized(|| each(elements, f32::recip)),
        Unary::Neg => vectorized(|| each(elements, |x| -x)),
        Unary::Abs => vectorized(|| each(elements, f32::abs)),
        Unary::Floor => vectorized(|| each(elements, f32::floor)),
        Unary::Ceil => vectorized(|| each(elements, f32::ceil)),
        Unary::Round => vectorized(|| each(elements, f32::round_ties_even)),
        Unary::Sign => vectorized(|| each(elements, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() })),
        Unary::Sin => Sin::new().map_mut(elements),
        Unary::Cos => Cos::new().map_mut(elements),
        Unary::Tan => each(elements, f32::tan),
        Unary::Softplus => each(elements, softplus),
        Unary::Elu { alpha } => each(elements, |x| elu(alpha as f32, x)),
        Unary::Selu { alpha, gamma } => each(elements, |x| gamma as f32 * elu(alpha as f32, x)),
        Unary::Mish => each(elements, |x| x * softplus(x).tanh()),
        Unary::Not => each(elements, |x| f32::from(u8::from(x == 0.0))),
        Unary::IsNan => each(elements, |x| f32::from(u8::from(x.is_nan()))),
        Unary::IsInf { negative, positive } => {
            each(elements, |x| f32::from(u8::from(x.is_infinite() && if x < 0.0 { negative } else { positive })));
        }
    }
}

#[inline(always)]
fn clip(x: f32, min: f32, max: f32) -> f32 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

/// Runs loops compiled for AVX2 if the machine supports it. Functions called by `f` must be inlined into it.
pub(super) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return pulp::Simd::vectorize(simd, f);
    }
    f()
}

#[inline(always)]
fn each(elements: &mut [f32], f: impl Fn(f32) -> f32) {
    for element in elements {
        *element = f(*element);
    }
}

/// Returns ln(1 + e^x), without overflow for large x.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn elu(alpha: f32, x: f32) -> f32 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

fn gelu_tanh(x: f32) -> f32 {
    // sqrt(2 / pi), and the coefficient of Hendrycks and Gimpel's approximation.
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}
