//! Elementwise functions of one and of two tensors.

use flagperf_onnx_exec::{Binary, Unary};
use tch::{Kind, TchError, Tensor};

/// Applies an elementwise function, into a new tensor.
pub fn unary(kind: Unary, x: &Tensor) -> Result<Tensor, TchError> {
    match kind {
        Unary::Relu => x.f_relu(),
        Unary::Clip { min, max } if is_integer(x) => x.f_clamp(min as i64, max as i64),
        Unary::Clip { min, max } => x.f_clamp(min, max),
        Unary::Sigmoid => x.f_sigmoid(),
        Unary::HardSigmoid { alpha, beta } => x.f_mul_scalar(alpha)?.f_add_scalar_(beta)?.f_clamp_(0.0, 1.0),
        Unary::HardSwish => x.f_hardswish(),
        Unary::Silu => x.f_silu(),
        Unary::Tanh => x.f_tanh(),
        Unary::Erf => x.f_erf(),
        Unary::Gelu => x.f_gelu("none"),
        Unary::GeluTanh => x.f_gelu("tanh"),
        // tch binds libtorch's own function without its slope.
        Unary::LeakyRelu { alpha } => x.f_clamp_max(0.0)?.f_mul_scalar_(alpha)?.f_add_(&x.f_relu()?),
        Unary::Exp => x.f_exp(),
        Unary::Log => x.f_log(),
        Unary::Sqrt => x.f_sqrt(),
        Unary::Reciprocal => x.f_reciprocal(),
        Unary::Neg => x.f_neg(),
        Unary::Abs => x.f_abs(),
        Unary::Floor => x.f_floor(),
        Unary::Ceil => x.f_ceil(),
        Unary::Sin => x.f_sin(),
        Unary::Cos => x.f_cos(),
        Unary::Tan => x.f_tan(),
        Unary::Round => x.f_round(),
        Unary::Sign => x.f_sign(),
        Unary::Softplus => x.f_softplus(),
        Unary::Elu { alpha } => elu(x, alpha, 1.0),
        Unary::Selu { alpha, gamma } => elu(x, alpha, gamma),
        Unary::Mish => x.f_mish(),
        Unary::IsNan => x.f_isnan(),
        Unary::IsInf { negative: true, positive: true } => x.f_isinf(),
        Unary::IsInf { negative: true, .. } => x.f_isneginf(),
        Unary::IsInf { positive: true, .. } => x.f_isposinf(),
        Unary::IsInf { .. } => x.f_zeros_like()?.f_to_kind(Kind::Bool),
        Unary::Not => x.f_logical_not(),
    }
}

/// Returns x where it is positive, else `alpha * (e^x - 1)`, times `gamma`. tch binds libtorch's own function without its
/// parameters.
fn elu(x: &Tensor, alpha: f64, gamma: f64) -> Result<Tensor, TchError> {
    x.f_clamp_max(0.0)?.f_expm1_()?.f_mul_scalar_(alpha)?.f_add_(&x.f_relu()?)?.f_mul_scalar_(gamma)
}

/// Applies an elementwise function that may overwrite its operand.
pub fn unary_in_place(kind: Unary, mut x: Tensor) -> Result<Tensor, TchError> {
    match kind {
        Unary::Relu => x.f_relu_(),
        Unary::Clip { min, max } if !is_integer(&x) => x.f_clamp_(min, max),
        Unary::HardSwish => x.f_hardswish_(),
        Unary::Silu => x.f_silu_(),
        Unary::Sigmoid => x.f_sigmoid_(),
        Unary::Tanh => x.f_tanh_(),
        kind => unary(kind, &x),
    }
}

/// Applies an elementwise function to two tensors.
pub fn binary(kind: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor, TchError> {
    match kind {
        Binary::Add => a.f_add(b),
        Binary::Sub => a.f_sub(b),
        Binary::Mul => a.f_mul(b),
        Binary::Div if is_integer(a) => a.f_divide_tensor_mode(b, "trunc"),
        Binary::Div => a.f_div(b),
        Binary::Mod => a.f_remainder_tensor(b),
        Binary::Fmod => a.f_fmod_tensor(b),
        Binary::Pow => a.f_pow(b),
        Binary::Min => a.f_minimum(b),
        Binary::Max => a.f_maximum(b),
        Binary::Equal => a.f_eq_tensor(b),
        Binary::Less => a.f_lt_tensor(b),
        Binary::Greater => a.f_gt_tensor(b),
        Binary::LessOrEqual => a.f_le_tensor(b),
        Binary::GreaterOrEqual => a.f_ge_tensor(b),
        Binary::And => a.f_logical_and(b),
        Binary::Or => a.f_logical_or(b),
        Binary::Xor => a.f_logical_xor(b),
    }
}

/// Returns the sum of the squares over axes, which remain with size 1. Over all numbers of a dense tensor of floats,
/// it is a product in one pass.
pub fn sum_of_squares(x: &Tensor, axes: &[i64]) -> Result<Tensor, TchError> {
    if axes.len() < x.dim() || !x.is_contiguous() || is_integer(x) {
        return x.f_mul(x)?.f_sum_dim_intlist(axes, true, x.kind());
    }
    let flat = x.f_view([-1])?;
    flat.f_dot(&flat)?.f_view(&vec![1; x.dim()][..])
}

pub fn is_integer(x: &Tensor) -> bool {
    !matches!(x.kind(), Kind::Double | Kind::Float | Kind::Half | Kind::BFloat16)
}
