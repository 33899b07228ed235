//! Elementwise functions and softmax.

use super::{add_node, attributes};
use crate::{Attribute, BuildError, GraphBuilder, Tensor, Var};

macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident => $op:literal $([$($attribute:literal = $value:expr),*])?;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the element type is not a floating-point type.
            pub fn $name(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
                let attributes = attributes([$($(($attribute, Attribute::Float($value))),*)?]);
                add_node(builder, name, $op, &[Some(x)], attributes)
            }
        )*
    };
}

elementwise! {
    /// `max(x, 0)`.
    relu => "Relu";
    /// `1 / (1 + exp(-x))`.
    sigmoid => "Sigmoid";
    /// Hyperbolic tangent.
    tanh => "Tanh";
    /// `x · hard_sigmoid(x)`.
    hard_swish => "HardSwish";
    /// `min(max(x / 6 + 1/2, 0), 1)`, with PyTorch's slope.
    hard_sigmoid => "HardSigmoid"["alpha" = 1.0 / 6.0, "beta" = 0.5];
}

macro_rules! numeric {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the operator does not accept the element type.
            pub fn $name(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
                add_node(builder, name, $op, &[Some(x)], attributes([]))
            }
        )*
    };
}

numeric! {
    /// e to the power `x`.
    exp => "Exp";
    /// Natural logarithm.
    log => "Log";
    /// Square root.
    sqrt => "Sqrt";
    /// `1 / x`.
    reciprocal => "Reciprocal";
    /// Absolute value.
    abs => "Abs";
    /// `-x`.
    neg => "Neg";
    /// Sine.
    sin => "Sin";
    /// Cosine.
    cos => "Cos";
    /// Error function.
    erf => "Erf";
    /// The largest integer not above `x`.
    floor => "Floor";
    /// The smallest integer not below `x`.
    ceil => "Ceil";
    /// The nearest integer; halves are rounded to the even one.
    round => "Round";
    /// -1, 0 or 1 with the sign of `x`.
    sign => "Sign";
    /// `log(1 + exp(x))`.
    softplus => "Softplus";
    /// Logical negation of bools.
    not => "Not";
}

/// `min(max(x, low), high)`; a bound may be omitted.
///
/// # Errors
/// When the name is already used.
pub fn clip(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    (low, high): (Option<f32>, Option<f32>),
) -> Result<Var, BuildError> {
    let mut bound = |part: &str, value: Option<f32>| {
        value.map(|value| scalar_like(builder, &format!("{name}.{part}"), value, x)).transpose()
    };
    let (low, high) = (bound("min", low)?, bound("max", high)?);
    add_node(builder, name, "Clip", &[Some(x), low.as_ref(), high.as_ref()], attributes([]))
}

/// `min(max(x, 0), 6)`.
///
/// # Errors
/// When the name is already used.
pub fn relu6(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    let low = scalar_like(builder, &format!("{name}.min"), 0.0, x)?;
    let high = scalar_like(builder, &format!("{name}.max"), 6.0, x)?;
    add_node(builder, name, "Clip", &[Some(x), Some(&low), Some(&high)], attributes([]))
}

/// `x` where `x` is positive, else `slope · x`.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn leaky_relu(builder: &mut GraphBuilder, name: &str, x: &Var, slope: f32) -> Result<Var, BuildError> {
    add_node(builder, name, "LeakyRelu", &[Some(x)], attributes([("alpha", Attribute::Float(slope))]))
}

/// `x · sigmoid(x)`, also called swish.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn silu(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    let gate = sigmoid(builder, &format!("{name}.sigmoid"), x)?;
    add_node(builder, name, "Mul", &[Some(x), Some(&gate)], attributes([]))
}

/// `x / 2 · (1 + erf(x / √2))`: the operator `Gelu` of operator set 20.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn gelu(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    add_node(builder, name, "Gelu", &[Some(x)], attributes([]))
}

/// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`, the approximation of [`gelu`] that GPT-2 uses: section 2 of
/// Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn gelu_tanh(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    add_node(builder, name, "Gelu", &[Some(x)], attributes([("approximate", Attribute::String("tanh".to_owned()))]))
}

/// `x · tanh(softplus(x))`, composed of other operators: `Mish` is available only since operator set 18.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn mish(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    let softplus = softplus(builder, &format!("{name}.softplus"), x)?;
    let gate = tanh(builder, &format!("{name}.tanh"), &softplus)?;
    add_node(builder, name, "Mul", &[Some(x), Some(&gate)], attributes([]))
}

/// Softmax over `axis`; a negative axis counts from the end.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn softmax(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64) -> Result<Var, BuildError> {
    add_node(builder, name, "Softmax", &[Some(x)], attributes([("axis", Attribute::Int(axis))]))
}

/// The logarithm of softmax over `axis`.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn log_softmax(builder: &mut GraphBuilder, name: &str, x: &Var, axis: i64) -> Result<Var, BuildError> {
    add_node(builder, name, "LogSoftmax", &[Some(x)], attributes([("axis", Attribute::Int(axis))]))
}

/// Declares a scalar constant with the element type of `like`.
pub(super) fn scalar_like(builder: &mut GraphBuilder, name: &str, value: f32, like: &Var) -> Result<Var, BuildError> {
    builder.constant(name, Tensor::scalar(value).cast(like.spec().dtype))
}
