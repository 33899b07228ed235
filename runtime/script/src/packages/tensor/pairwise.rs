//! Functions of two tensors, or a tensor and a number, by name. Shapes are broadcast.

use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::arithmetic::binary;
use super::work::compute;
use crate::sandbox::Fallible;

#[export_module]
pub(super) mod functions {
    /// Returns the elements to the power `b`.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3], "3,f32").pow(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn pow(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "pow", "Pow", &a, &b)
    }

    /// Returns the smaller of each pair of elements; NaN if one of them is.
    ///
    /// ```rhai
    /// tensor::from([1, 5], "2,f32").minimum(3)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn minimum(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "minimum", "Min", &a, &b)
    }

    /// Returns the larger of each pair of elements; NaN if one of them is.
    ///
    /// ```rhai
    /// tensor::from([1, 5], "2,f32").maximum(tensor::from([4, 2], "2,f32"))
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn maximum(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "maximum", "Max", &a, &b)
    }

    /// Returns true where both tensors of booleans are true.
    ///
    /// ```rhai
    /// let x = tensor::arange(4); (x > 0).and(x < 3)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn and(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "and", "And", &a, &b)
    }

    /// Returns true where at least one of two tensors of booleans is true.
    ///
    /// ```rhai
    /// let x = tensor::arange(4); (x < 1).or(x > 2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn or(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        binary(&context, "or", "Or", &a, &b)
    }

    /// Returns the opposite of every boolean.
    ///
    /// ```rhai
    /// (tensor::arange(4) > 1).not()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn not(context: NativeCallContext, tensor: Tensor) -> Fallible<Tensor> {
        compute(&context, "not", |work| work.apply("Not", [], &[&work.host(&tensor)?]))
    }

    /// Returns the elements of `a` where `condition`, a tensor of booleans, is true, else those of `b`. `a` and `b` are
    /// tensors, or one of them is a number.
    ///
    /// ```rhai
    /// let x = tensor::from([-1, 2], "2,f32");
    /// tensor::where(x > 0, x, 0)
    /// ```
    #[rhai_fn(name = "where", return_raw)]
    pub fn elements_where(context: NativeCallContext, condition: Tensor, a: Dynamic, b: Dynamic) -> Fallible<Tensor> {
        compute(&context, "where", |work| {
            let condition = work.host(&condition)?;
            let like = match (a.read_lock::<Tensor>(), b.read_lock::<Tensor>()) {
                (Some(tensor), _) | (None, Some(tensor)) => work.host(&tensor)?,
                (None, None) => return Err(work.refuse("`a` or `b` must be a tensor, which determines the type")),
            };
            work.apply("Where", [], &[&condition, &work.operand(&like, &a)?, &work.operand(&like, &b)?])
        })
    }
}
