//! Elementwise functions on slices of f32.

use crate::exec::ops::Unary;

/// Applies a function to each element in place.
pub(super) fn apply(kind: Unary, elements: &mut [f32]) {
    match kind {
        Unary::Relu => vectorized(|| each(elements, |x| x.max(0.0))),
        Unary::Clip { min, max } => {
            let (min, max) = (min as f32, max as f32);
            vectorized(|| each(elements, |x| x.max(min).min(max)));
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
        Unary::Sigmoid => each(elements, sigmoid),
        Unary::Silu => each(elements, |x| x * sigmoid(x)),
        Unary::Tanh => each(elements, f32::tanh),
        Unary::Erf => each(elements, libm::erff),
        Unary::Gelu => each(elements, |x| 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))),
        Unary::GeluTanh => each(elements, gelu_tanh),
        Unary::Exp => each(elements, f32::exp),
        Unary::Log => each(elements, f32::ln),
        Unary::Sqrt => each(elements, f32::sqrt),
        Unary::Reciprocal => each(elements, f32::recip),
        Unary::Neg => each(elements, |x| -x),
        Unary::Abs => each(elements, f32::abs),
        Unary::Floor => each(elements, f32::floor),
        Unary::Ceil => each(elements, f32::ceil),
        Unary::Sin => each(elements, f32::sin),
        Unary::Cos => each(elements, f32::cos),
        Unary::Not => each(elements, |x| f32::from(u8::from(x == 0.0))),
    }
}

/// Runs loops compiled for AVX2 if the machine supports it. Functions called by `f` must be inlined into it.
pub(super) fn vectorized(f: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return pulp::Simd::vectorize(simd, f);
    }
    f();
}

#[inline(always)]
fn each(elements: &mut [f32], f: impl Fn(f32) -> f32) {
    for element in elements {
        *element = f(*element);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f32) -> f32 {
    // sqrt(2 / pi), and the coefficient of Hendrycks and Gimpel's approximation.
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}
