//! Functions along one axis: the largest elements, sorting, sums up to each element, softmax. Without an axis, they
//! compute along the innermost one.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Map, Module, NativeCallContext};

use super::Tensor;
use super::documented::documented;
use super::reduction::widened;
use super::work::{Work, compute, compute_all, ints};
use crate::packages::parts::axis_place;
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

/// The name in scripts, the operator of ONNX, and the text.
const FUNCTIONS: [(&str, &str, &str); 6] = [
    ("argmax", "ArgMax", "Returns the index of the largest element; of equal elements the first"),
    ("argmin", "ArgMin", "Returns the index of the smallest element; of equal elements the first"),
    ("softmax", "Softmax", "Returns e^x / sum(e^x) for every element x"),
    ("log_softmax", "LogSoftmax", "Returns the logarithm of the softmax"),
    ("sort", "TopK", "Sorts the elements in ascending order"),
    (
        "argsort",
        "TopK",
        "Returns the indices that sort the elements in ascending order; equal elements keep their order",
    ),
];

/// Registers the functions of the table, each with and without an axis.
pub(super) fn register(module: &mut Module) {
    for &(name, op, text) in &FUNCTIONS {
        let example = |axis: &str| format!(r#"tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").{name}({axis})"#);
        let text_innermost = format!("{text}, along the innermost axis.");
        documented(name, &["tensor: Tensor"], &text_innermost, &example(""))
            .set_into_module(module, move |context: NativeCallContext<'_>, tensor: &mut Tensor| {
                along(&context, (name, op), tensor, -1)
            });
        let text_along = format!("{text}, along an axis.");
        documented(name, &["tensor: Tensor", "axis: i64"], &text_along, &example("0")).set_into_module(
            module,
            move |context: NativeCallContext<'_>, tensor: &mut Tensor, axis: i64| {
                along(&context, (name, op), tensor, axis)
            },
        );
    }
}

/// Applies an operator with the attribute `axis`.
fn along(
    context: &NativeCallContext<'_>,
    (function, op): (&'static str, &str),
    tensor: &Tensor,
    axis: i64,
) -> Fallible<Tensor> {
    compute(context, function, &|work| {
        let x = work.host(tensor)?;
        let keep = [("axis", Attribute::Int(axis)), ("keepdims", Attribute::Int(0))];
        match op {
            "TopK" => sorted(work, &x, axis, function == "argsort"),
            "ArgMax" | "ArgMin" if x.is_empty() => Err(work.refuse_for(&[Some(&x)], "there are no elements")),
            "ArgMax" | "ArgMin" => work.apply(op, &keep, &[&x]),
            _ => work.apply(op, &[("axis", Attribute::Int(axis))], &[&x]),
        }
    })
}

/// Returns the `count` best elements along an axis and their indices.
fn top(work: &Work<'_>, x: &HostTensor, count: i64, axis: i64, largest: bool) -> Fallible<Vec<HostTensor>> {
    let attributes = [("axis", Attribute::Int(axis)), ("largest", Attribute::Int(i64::from(largest)))];
    work.apply_all("TopK", &attributes, &[Some(x), Some(&ints(&[count]))], 2)
}

/// Sorts along an axis, in ascending order; returns the values or their indices.
fn sorted(work: &Work<'_>, x: &HostTensor, axis: i64, indices: bool) -> Fallible<HostTensor> {
    let rank = x.shape().len();
    let Some(place) = axis_place(axis, rank) else {
        return Err(work.refuse_for(&[Some(x)], &format!("axis {axis} is out of range for rank {rank}")));
    };
    Ok(top(work, x, x.shape()[place] as i64, axis, false)?.swap_remove(usize::from(indices)))
}

fn best(context: &NativeCallContext<'_>, tensor: &Tensor, count: i64, axis: i64) -> Fallible<Map> {
    let mut parts = compute_all(context, "topk", &|work| top(work, &work.host(tensor)?, count, axis, true))?;
    let indices = parts.pop().unwrap_or_default();
    Ok(Map::from([("values".into(), parts.pop().unwrap_or_default()), ("indices".into(), indices)]))
}

#[export_module]
pub(super) mod functions {
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
        compute(&context, "cumsum", &|work| {
            work.apply("CumSum", &[], &[&widened(work, work.host(tensor)?)?, &HostTensor::scalar(axis)])
        })
    }
}
