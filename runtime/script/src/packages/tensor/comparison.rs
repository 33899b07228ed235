//! Comparisons of tensors, with each other and with numbers. The result is a tensor of booleans; shapes are broadcast.

use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute};
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

/// Compares a tensor with a tensor or a number.
fn compare(
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

/// Compares a number, the left operand, with a tensor.
fn compare_reversed(
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
    if op == "NotEqual" {
        return work.apply("Not", [], &[&work.apply("Equal", [], &[a, b])?]);
    }
    work.apply(op, [], &[a, b])
}

#[export_module]
pub(super) mod functions {
    /// Returns true where an element is below the number or the element on the right.
    ///
    /// ```rhai
    /// tensor::arange(4) < 2
    /// ```
    #[rhai_fn(name = "<", global, return_raw)]
    pub fn less_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "<", "Less", &a, &b)
    }

    /// Returns true where the number on the left is below an element.
    ///
    /// ```rhai
    /// 2 < tensor::arange(4)
    /// ```
    #[rhai_fn(name = "<", global, return_raw)]
    pub fn reversed_less(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        compare_reversed(&context, "<", "Less", &a, &b)
    }

    /// Returns true where an element of `a` is below that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).less(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn less(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "less", "Less", &a, &b)
    }

    /// Returns true where an element is not above the number or the element on the right.
    ///
    /// ```rhai
    /// tensor::arange(4) <= 2
    /// ```
    #[rhai_fn(name = "<=", global, return_raw)]
    pub fn less_or_equal_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "<=", "LessOrEqual", &a, &b)
    }

    /// Returns true where the number on the left is not above an element.
    ///
    /// ```rhai
    /// 2 <= tensor::arange(4)
    /// ```
    #[rhai_fn(name = "<=", global, return_raw)]
    pub fn reversed_less_or_equal(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        compare_reversed(&context, "<=", "LessOrEqual", &a, &b)
    }

    /// Returns true where an element of `a` is not above that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).less_or_equal(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn less_or_equal(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "less_or_equal", "LessOrEqual", &a, &b)
    }

    /// Returns true where an element is above the number or the element on the right.
    ///
    /// ```rhai
    /// tensor::arange(4) > 2
    /// ```
    #[rhai_fn(name = ">", global, return_raw)]
    pub fn greater_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, ">", "Greater", &a, &b)
    }

    /// Returns true where the number on the left is above an element.
    ///
    /// ```rhai
    /// 2 > tensor::arange(4)
    /// ```
    #[rhai_fn(name = ">", global, return_raw)]
    pub fn reversed_greater(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        compare_reversed(&context, ">", "Greater", &a, &b)
    }

    /// Returns true where an element of `a` is above that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).greater(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn greater(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "greater", "Greater", &a, &b)
    }

    /// Returns true where an element is not below the number or the element on the right.
    ///
    /// ```rhai
    /// tensor::arange(4) >= 2
    /// ```
    #[rhai_fn(name = ">=", global, return_raw)]
    pub fn greater_or_equal_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, ">=", "GreaterOrEqual", &a, &b)
    }

    /// Returns true where the number on the left is not below an element.
    ///
    /// ```rhai
    /// 2 >= tensor::arange(4)
    /// ```
    #[rhai_fn(name = ">=", global, return_raw)]
    pub fn reversed_greater_or_equal(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Tensor> {
        compare_reversed(&context, ">=", "GreaterOrEqual", &a, &b)
    }

    /// Returns true where an element of `a` is not below that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).greater_or_equal(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn greater_or_equal(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "greater_or_equal", "GreaterOrEqual", &a, &b)
    }

    /// Returns true where an element is equal to the number or the element on the right. A tensor is never equal to
    /// `()`.
    ///
    /// ```rhai
    /// tensor::arange(4) == 2
    /// ```
    #[rhai_fn(name = "==", global, return_raw)]
    pub fn equal_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Dynamic> {
        if b.is_unit() {
            return Ok(Dynamic::from(false));
        }
        compare(&context, "==", "Equal", &a, &b).map(Dynamic::from)
    }

    /// Returns true where the number on the left is equal to an element. A tensor is never equal to `()`.
    ///
    /// ```rhai
    /// 2 == tensor::arange(4)
    /// ```
    #[rhai_fn(name = "==", global, return_raw)]
    pub fn reversed_equal(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Dynamic> {
        if a.is_unit() {
            return Ok(Dynamic::from(false));
        }
        compare_reversed(&context, "==", "Equal", &a, &b).map(Dynamic::from)
    }

    /// Returns true where an element of `a` is equal to that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).equal(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn equal(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "equal", "Equal", &a, &b)
    }

    /// Returns true where an element is different from the number or the element on the right. A tensor is never equal
    /// to `()`.
    ///
    /// ```rhai
    /// tensor::arange(4) != 2
    /// ```
    #[rhai_fn(name = "!=", global, return_raw)]
    pub fn not_equal_operator(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Dynamic> {
        if b.is_unit() {
            return Ok(Dynamic::from(true));
        }
        compare(&context, "!=", "NotEqual", &a, &b).map(Dynamic::from)
    }

    /// Returns true where the number on the left is different from an element. A tensor is never equal to `()`.
    ///
    /// ```rhai
    /// 2 != tensor::arange(4)
    /// ```
    #[rhai_fn(name = "!=", global, return_raw)]
    pub fn reversed_not_equal(context: NativeCallContext, a: Dynamic, b: Tensor) -> Fallible<Dynamic> {
        if a.is_unit() {
            return Ok(Dynamic::from(true));
        }
        compare_reversed(&context, "!=", "NotEqual", &a, &b).map(Dynamic::from)
    }

    /// Returns true where an element of `a` is different from that of `b`, a tensor or a number.
    ///
    /// ```rhai
    /// tensor::arange(4).not_equal(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn not_equal(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        compare(&context, "not_equal", "NotEqual", &a, &b)
    }
}
