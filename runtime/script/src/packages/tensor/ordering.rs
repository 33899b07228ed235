//! Functions along one axis: the largest elements, sorting, sums up to each element, softmax. Without an axis, they
//! compute along the innermost one.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Map, NativeCallContext};

use super::Tensor;
use super::reduction::widened;
use super::work::{Work, compute, compute_all, ints};
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

/// Applies an operator with the attribute `axis`.
fn along(
    context: &NativeCallContext<'_>,
    function: &'static str,
    op: &str,
    tensor: &Tensor,
    axis: i64,
) -> Fallible<Tensor> {
    compute(context, function, |work| {
        let x = work.host(tensor)?;
        let keep = [("axis", Attribute::Int(axis)), ("keepdims", Attribute::Int(0))];
        match op {
            "ArgMax" | "ArgMin" if x.is_empty() => Err(work.refuse_for(&[Some(&x)], "there are no elements")),
            "ArgMax" | "ArgMin" => work.apply(op, keep, &[&x]),
            _ => work.apply(op, [("axis", Attribute::Int(axis))], &[&x]),
        }
    })
}

/// Returns the `count` best elements along an axis and their indices.
fn top(work: &Work<'_>, x: &HostTensor, count: i64, axis: i64, largest: bool) -> Fallible<Vec<HostTensor>> {
    let attributes = [("axis", Attribute::Int(axis)), ("largest", Attribute::Int(i64::from(largest)))];
    work.apply_all("TopK", attributes, &[Some(x), Some(&ints(&[count]))], 2)
}

/// Sorts along an axis, in ascending order; returns the values (`part` 0) or their indices (`part` 1).
fn sorted(
    context: &NativeCallContext<'_>,
    function: &'static str,
    tensor: &Tensor,
    (axis, part): (i64, usize),
) -> Fallible<Tensor> {
    compute(context, function, |work| {
        let x = work.host(tensor)?;
        let rank = x.shape().len() as i64;
        let size = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok().and_then(|at| x.shape().get(at));
        let Some(size) = size else {
            return Err(work.refuse_for(&[Some(&x)], &format!("axis {axis} is out of range for rank {rank}")));
        };
        Ok(top(work, &x, *size as i64, axis, false)?.swap_remove(part))
    })
}

fn best(context: &NativeCallContext<'_>, tensor: &Tensor, count: i64, axis: i64) -> Fallible<Map> {
    let mut parts = compute_all(context, "topk", |work| top(work, &work.host(tensor)?, count, axis, true))?;
    let indices = parts.pop().unwrap_or_default();
    Ok(Map::from([("values".into(), parts.pop().unwrap_or_default()), ("indices".into(), indices)]))
}

#[export_module]
pub(super) mod functions {
    /// Returns the index of the largest element; of equal elements the first, along the innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmax()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn argmax(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        along(&context, "argmax", "ArgMax", tensor, -1)
    }

    /// Returns the index of the largest element; of equal elements the first, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmax(0)
    /// ```
    #[rhai_fn(name = "argmax", global, return_raw, pure)]
    pub fn argmax_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        along(&context, "argmax", "ArgMax", tensor, axis)
    }

    /// Returns the index of the smallest element; of equal elements the first, along the innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmin()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn argmin(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        along(&context, "argmin", "ArgMin", tensor, -1)
    }

    /// Returns the index of the smallest element; of equal elements the first, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmin(0)
    /// ```
    #[rhai_fn(name = "argmin", global, return_raw, pure)]
    pub fn argmin_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        along(&context, "argmin", "ArgMin", tensor, axis)
    }

    /// Returns e^x / sum(e^x) for every element x, along the innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").softmax()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn softmax(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        along(&context, "softmax", "Softmax", tensor, -1)
    }

    /// Returns e^x / sum(e^x) for every element x, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").softmax(0)
    /// ```
    #[rhai_fn(name = "softmax", global, return_raw, pure)]
    pub fn softmax_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        along(&context, "softmax", "Softmax", tensor, axis)
    }

    /// Returns the logarithm of the softmax, along the innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").log_softmax()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn log_softmax(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        along(&context, "log_softmax", "LogSoftmax", tensor, -1)
    }

    /// Returns the logarithm of the softmax, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").log_softmax(0)
    /// ```
    #[rhai_fn(name = "log_softmax", global, return_raw, pure)]
    pub fn log_softmax_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        along(&context, "log_softmax", "LogSoftmax", tensor, axis)
    }

    /// Sorts the elements in ascending order, along the innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").sort()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sort(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        sorted(&context, "sort", tensor, (-1, 0))
    }

    /// Sorts the elements in ascending order, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").sort(0)
    /// ```
    #[rhai_fn(name = "sort", global, return_raw, pure)]
    pub fn sort_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        sorted(&context, "sort", tensor, (axis, 0))
    }

    /// Returns the indices that sort the elements in ascending order; equal elements keep their order, along the
    /// innermost axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argsort()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn argsort(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        sorted(&context, "argsort", tensor, (-1, 1))
    }

    /// Returns the indices that sort the elements in ascending order; equal elements keep their order, along an axis.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argsort(0)
    /// ```
    #[rhai_fn(name = "argsort", global, return_raw, pure)]
    pub fn argsort_along(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        sorted(&context, "argsort", tensor, (axis, 1))
    }

    /// Returns the `count` largest elements along the innermost axis and their indices, the largest first, as
    /// `#{values, indices}`. Of equal elements, the first comes first.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").topk(2).indices
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn topk(context: NativeCallContext, tensor: &mut Tensor, count: i64) -> Fallible<Map> {
        best(&context, tensor, count, -1)
    }

    /// Returns the `count` largest elements along an axis and their indices, as `#{values, indices}`.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").topk(1, 0).values
    /// ```
    #[rhai_fn(name = "topk", global, return_raw, pure)]
    pub fn topk_along(context: NativeCallContext, tensor: &mut Tensor, count: i64, axis: i64) -> Fallible<Map> {
        best(&context, tensor, count, axis)
    }

    /// Returns the sums of all elements up to each one along an axis; of integers and booleans as i64.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").cumsum(1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn cumsum(context: NativeCallContext, tensor: &mut Tensor, axis: i64) -> Fallible<Tensor> {
        compute(&context, "cumsum", |work| {
            work.apply("CumSum", [], &[&widened(work, work.host(tensor)?)?, &HostTensor::scalar(axis)])
        })
    }
}
