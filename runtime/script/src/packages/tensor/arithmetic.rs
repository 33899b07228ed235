//! Arithmetic and logic between two tensors, or a tensor and a number. Shapes are broadcast; both tensors have the same
//! element type, and a number takes the type of the tensor.

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute};
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// Applies an operator to a tensor and its right operand, a tensor or a number.
pub(super) fn binary(
    context: &NativeCallContext<'_>,
    function: &'static str,
    op: &str,
    a: &Tensor,
    b: &Dynamic,
) -> Fallible<Tensor> {
    compute(context, function, |work| {
        let a = work.host(a)?;
        let b = work.operand(&a, b)?;
        apply(work, op, &a, &b)
    })
}

/// Applies an operator to a number, the left operand, and a tensor.
pub(super) fn reversed(
    context: &NativeCallContext<'_>,
    function: &'static str,
    op: &str,
    a: &Dynamic,
    b: &Tensor,
) -> Fallible<Tensor> {
    compute(context, function, |work| {
        let b = work.host(b)?;
        let a = work.operand(&b, a)?;
        apply(work, op, &a, &b)
    })
}

fn apply(work: &Work<'_>, op: &str, a: &HostTensor, b: &HostTensor) -> Fallible<HostTensor> {
    if op == "Mod" && a.dtype().is_float() {
        return work.apply(op, [("fmod", Attribute::Int(1))], &[a, b]);
    }
    work.apply(op, [], &[a, b])
}

#[export_module]
pub(super) mod functions {
    /// Adds two tensors, or a number to every element. For this and all other operators, two tensors have the same type,
    /// and a tensor of integers combines only with whole numbers written without a point: convert it first.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) + 2
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "+", "Add", &a, &b)
    }

    /// Adds two tensors, or a number to every element. The left operand is a number.
    ///
    /// ```rhai
    /// 1 + tensor::full("2,f32", 1.0)
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn reversed_add(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "+", "Add", &a, &b)
    }

    /// Subtracts a tensor or a number from a tensor.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) - tensor::full("2,f32", 0.5)
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "-", "Sub", &a, &b)
    }

    /// Subtracts a tensor or a number from a tensor. The left operand is a number.
    ///
    /// ```rhai
    /// 1 - tensor::full("2,f32", 0.25)
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn reversed_subtract(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "-", "Sub", &a, &b)
    }

    /// Multiplies two tensors, or every element by a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) * 2.5
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "*", "Mul", &a, &b)
    }

    /// Multiplies two tensors, or every element by a number. The left operand is a number.
    ///
    /// ```rhai
    /// 2.5 * tensor::full("2,f32", 1.0)
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn reversed_multiply(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "*", "Mul", &a, &b)
    }

    /// Divides a tensor by a tensor or a number; integers are truncated towards zero.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) / 4
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "/", "Div", &a, &b)
    }

    /// Divides a tensor by a tensor or a number; integers are truncated towards zero. The left operand is a number.
    ///
    /// ```rhai
    /// 1 / tensor::full("2,f32", 4.0)
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn reversed_divide(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "/", "Div", &a, &b)
    }

    /// Returns the remainder of a division: of integers with the sign of the divisor, of floats with the sign of the
    /// dividend.
    ///
    /// ```rhai
    /// tensor::from([7, -7], "2,i64") % 3
    /// ```
    #[rhai_fn(name = "%", global, return_raw)]
    pub fn modulo(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "%", "Mod", &a, &b)
    }

    /// Returns the remainder of a division: of integers with the sign of the divisor, of floats with the sign of the
    /// dividend. The left operand is a number.
    ///
    /// ```rhai
    /// 7 % tensor::from([2, 4], "2,i64")
    /// ```
    #[rhai_fn(name = "%", global, return_raw)]
    pub fn reversed_modulo(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "%", "Mod", &a, &b)
    }

    /// Raises the elements to a power.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 3.0) ** 2
    /// ```
    #[rhai_fn(name = "**", global, return_raw)]
    pub fn power(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "**", "Pow", &a, &b)
    }

    /// Raises the elements to a power. The left operand is a number.
    ///
    /// ```rhai
    /// 2 ** tensor::full("2,f32", 3.0)
    /// ```
    #[rhai_fn(name = "**", global, return_raw)]
    pub fn reversed_power(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "**", "Pow", &a, &b)
    }

    /// Returns true where both tensors of booleans are true.
    ///
    /// ```rhai
    /// let x = tensor::arange(4); (x > 0) & (x < 3)
    /// ```
    #[rhai_fn(name = "&", global, return_raw)]
    pub fn both(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "&", "And", &a, &b)
    }

    /// Returns true where both tensors of booleans are true. The left operand is a truth value.
    ///
    /// ```rhai
    /// true & (tensor::arange(4) > 0)
    /// ```
    #[rhai_fn(name = "&", global, return_raw)]
    pub fn reversed_both(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "&", "And", &a, &b)
    }

    /// Returns true where at least one of two tensors of booleans is true.
    ///
    /// ```rhai
    /// let x = tensor::arange(4); (x < 1) | (x > 2)
    /// ```
    #[rhai_fn(name = "|", global, return_raw)]
    pub fn either(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "|", "Or", &a, &b)
    }

    /// Returns true where at least one of two tensors of booleans is true. The left operand is a truth value.
    ///
    /// ```rhai
    /// false | (tensor::arange(4) > 0)
    /// ```
    #[rhai_fn(name = "|", global, return_raw)]
    pub fn reversed_either(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        reversed(&context, "|", "Or", &a, &b)
    }

    /// Returns every element with the opposite sign.
    ///
    /// ```rhai
    /// -tensor::from([1, -2], "2,f32")
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn negate(context: NativeCallContext, tensor: Tensor) -> Fallible<Tensor> {
        compute(&context, "-", |work| {
            let x = work.host(&tensor)?;
            if x.dtype() == DType::Bool {
                return Err(work.refuse_for(&[Some(&x)], "booleans have no negative: `!` inverts them"));
            }
            work.apply("Neg", [], &[&x])
        })
    }

    /// Returns the opposite of every boolean.
    ///
    /// ```rhai
    /// !(tensor::arange(4) > 1)
    /// ```
    #[rhai_fn(name = "!", global, return_raw)]
    pub fn invert(context: NativeCallContext, tensor: Tensor) -> Fallible<Tensor> {
        compute(&context, "!", |work| work.apply("Not", [], &[&work.host(&tensor)?]))
    }
}
