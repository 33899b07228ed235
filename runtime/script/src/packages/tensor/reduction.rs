//! Reductions: functions that combine the elements along some axes.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute, ints, whole_numbers};
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// Reduces a tensor along `axes`, a whole number or an array; `()` stands for all axes.
fn reduce(
    context: &NativeCallContext<'_>,
    function: &'static str,
    op: &str,
    tensor: &Tensor,
    (axes, keep): (&Dynamic, bool),
) -> Fallible<Tensor> {
    compute(context, function, |work| {
        let mut x = work.host(tensor)?;
        if op == "ReduceMean" && !x.dtype().is_float() {
            let hint = "the mean of integers and booleans needs a float type: convert first, for example with \
                        `.cast(\"f32\")`";
            return Err(work.refuse_for(&[Some(&x)], hint));
        }
        if matches!(op, "ReduceSum" | "ReduceProd") {
            x = widened(work, x)?;
        }
        if matches!(op, "ReduceMax" | "ReduceMin") && x.is_empty() {
            return Err(work.refuse_for(&[Some(&x)], "there are no elements"));
        }
        apply(work, op, &x, axes, keep)
    })
}

/// Returns booleans and integers as i64, in which their sum does not overflow.
pub(super) fn widened(work: &Work<'_>, x: HostTensor) -> Fallible<HostTensor> {
    if x.dtype().is_float() {
        return Ok(x);
    }
    work.request((x.len() * DType::I64.size()) as u64, &[Some(&x)])?;
    Ok(x.cast(DType::I64))
}

pub(super) fn apply(work: &Work<'_>, op: &str, x: &HostTensor, axes: &Dynamic, keep: bool) -> Fallible<HostTensor> {
    let attributes = [("keepdims", Attribute::Int(i64::from(keep)))];
    if axes.is_unit() {
        return work.apply(op, attributes, &[x]);
    }
    let axes = whole_numbers("the axes", axes)?;
    if axes.is_empty() {
        return Err(work.refuse_for(&[Some(x)], "the array of axes is empty"));
    }
    work.apply(op, attributes, &[x, &ints(&axes)])
}

#[export_module]
pub(super) mod functions {
    /// Returns the sum of all elements as a tensor without dimensions. Integers and booleans are summed as i64; the sum of
    /// booleans is the number of those that are true.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").sum().item()
    /// ```
    #[rhai_fn(name = "sum", global, return_raw, pure)]
    pub fn sum_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "sum", "ReduceSum", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the sums of the elements; the sum of booleans counts those that are true, along one axis or an array of
    /// axes, which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").sum(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sum(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "sum", "ReduceSum", tensor, (&axes, false))
    }

    /// Returns the sums of the elements; the sum of booleans counts those that are true, along one axis or an array of
    /// axes, or all with `()`. If `keepdims` is true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").sum(-1, true)
    /// ```
    #[rhai_fn(name = "sum", global, return_raw, pure)]
    pub fn sum_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "sum", "ReduceSum", tensor, (&axes, keepdims))
    }

    /// Returns the means of the elements of a float type, over all elements, as a tensor without dimensions.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").mean().item()
    /// ```
    #[rhai_fn(name = "mean", global, return_raw, pure)]
    pub fn mean_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "mean", "ReduceMean", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the means of the elements of a float type, along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").mean(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn mean(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "mean", "ReduceMean", tensor, (&axes, false))
    }

    /// Returns the means of the elements of a float type, along one axis or an array of axes, or all with `()`. If
    /// `keepdims` is true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").mean(-1, true)
    /// ```
    #[rhai_fn(name = "mean", global, return_raw, pure)]
    pub fn mean_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "mean", "ReduceMean", tensor, (&axes, keepdims))
    }

    /// Returns the largest elements; NaN if there is one, over all elements, as a tensor without dimensions.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").max().item()
    /// ```
    #[rhai_fn(name = "max", global, return_raw, pure)]
    pub fn max_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "max", "ReduceMax", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the largest elements; NaN if there is one, along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").max(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn max(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "max", "ReduceMax", tensor, (&axes, false))
    }

    /// Returns the largest elements; NaN if there is one, along one axis or an array of axes, or all with `()`. If
    /// `keepdims` is true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").max(-1, true)
    /// ```
    #[rhai_fn(name = "max", global, return_raw, pure)]
    pub fn max_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "max", "ReduceMax", tensor, (&axes, keepdims))
    }

    /// Returns the smallest elements; NaN if there is one, over all elements, as a tensor without dimensions.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").min().item()
    /// ```
    #[rhai_fn(name = "min", global, return_raw, pure)]
    pub fn min_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "min", "ReduceMin", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the smallest elements; NaN if there is one, along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").min(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn min(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "min", "ReduceMin", tensor, (&axes, false))
    }

    /// Returns the smallest elements; NaN if there is one, along one axis or an array of axes, or all with `()`. If
    /// `keepdims` is true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").min(-1, true)
    /// ```
    #[rhai_fn(name = "min", global, return_raw, pure)]
    pub fn min_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "min", "ReduceMin", tensor, (&axes, keepdims))
    }

    /// Returns the products of the elements, over all elements, as a tensor without dimensions.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").prod().item()
    /// ```
    #[rhai_fn(name = "prod", global, return_raw, pure)]
    pub fn prod_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "prod", "ReduceProd", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the products of the elements, along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").prod(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn prod(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "prod", "ReduceProd", tensor, (&axes, false))
    }

    /// Returns the products of the elements, along one axis or an array of axes, or all with `()`. If `keepdims` is
    /// true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,f32").prod(-1, true)
    /// ```
    #[rhai_fn(name = "prod", global, return_raw, pure)]
    pub fn prod_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "prod", "ReduceProd", tensor, (&axes, keepdims))
    }

    /// Returns the Euclidean norms: the square roots of the sums of the squares, over all elements, as a tensor without
    /// dimensions.
    ///
    /// ```rhai
    /// tensor::from([3, 4, 6, 8], "2,2,f32").norm().item()
    /// ```
    #[rhai_fn(name = "norm", global, return_raw, pure)]
    pub fn norm_of_all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        reduce(&context, "norm", "ReduceL2", tensor, (&Dynamic::UNIT, false))
    }

    /// Returns the Euclidean norms: the square roots of the sums of the squares, along one axis or an array of axes,
    /// which the result lacks.
    ///
    /// ```rhai
    /// tensor::from([3, 4, 6, 8], "2,2,f32").norm(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn norm(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        reduce(&context, "norm", "ReduceL2", tensor, (&axes, false))
    }

    /// Returns the Euclidean norms: the square roots of the sums of the squares, along one axis or an array of axes, or
    /// all with `()`. If `keepdims` is true, these axes remain with size 1.
    ///
    /// ```rhai
    /// tensor::from([3, 4, 6, 8], "2,2,f32").norm(-1, true)
    /// ```
    #[rhai_fn(name = "norm", global, return_raw, pure)]
    pub fn norm_keeping(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axes: Dynamic,
        keepdims: bool,
    ) -> Fallible<Tensor> {
        reduce(&context, "norm", "ReduceL2", tensor, (&axes, keepdims))
    }
}
