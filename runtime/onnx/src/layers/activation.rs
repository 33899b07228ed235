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

/// `x / 2 · (1 + erf(x / √2))`, composed of other operators: `Gelu` is available only since operator set 20.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn gelu(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    let mut step = |part: &str, op: &str, a: &Var, b: f32| {
        let constant = scalar_like(builder, &format!("{name}.{part}.value"), b, x)?;
        add_node(builder, &format!("{name}.{part}"), op, &[Some(a), Some(&constant)], attributes([]))
    };
    let scaled = step("div", "Div", x, std::f32::consts::SQRT_2)?;
    let half = step("half", "Mul", x, 0.5)?;
    let erf = add_node(builder, &format!("{name}.erf"), "Erf", &[Some(&scaled)], attributes([]))?;
    let one_more = scalar_like(builder, &format!("{name}.add.value"), 1.0, x)?;
    let cdf = add_node(builder, &format!("{name}.add"), "Add", &[Some(&erf), Some(&one_more)], attributes([]))?;
    add_node(builder, name, "Mul", &[Some(&half), Some(&cdf)], attributes([]))
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
