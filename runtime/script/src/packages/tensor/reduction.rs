//! Reductions: functions that combine the elements along some axes.

use flagperf_onnx::Attribute;
use rhai::{Dynamic, Module, NativeCallContext};

use super::Tensor;
use super::documented::documented;
use super::work::{Work, compute, ints, whole_numbers};
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// The name in scripts, the operator of ONNX, and the text.
const FUNCTIONS: [(&str, &str, &str); 6] = [
    (
        "sum",
        "ReduceSum",
        "Returns the sums of elements. Integers and booleans are summed as i64; the sum of booleans is the number of those \
         that are true.",
    ),
    ("mean", "ReduceMean", "Returns the means of elements of a float type."),
    ("max", "ReduceMax", "Returns the largest elements; NaN if there is one."),
    ("min", "ReduceMin", "Returns the smallest elements; NaN if there is one."),
    ("prod", "ReduceProd", "Returns the products of elements. Those of integers and booleans are computed as i64."),
    ("norm", "ReduceL2", "Returns the Euclidean norms of elements: the square roots of the sums of their squares."),
];

/// Registers the functions of the table, each for all elements, along some axes, and with `keepdims`.
pub(super) fn register(module: &mut Module) {
    for &(name, op, text) in &FUNCTIONS {
        let example = |arguments: &str| format!(r#"tensor::from([1, 2, 3, 4], "2,2,f32").{name}({arguments})"#);
        let text_of_all = format!("{text} Combines all elements; the result has no dimensions.");
        documented(name, &["tensor: Tensor"], &text_of_all, &example("")).set_into_module(
            module,
            move |context: NativeCallContext<'_>, tensor: &mut Tensor| {
                reduce(&context, (name, op), tensor, (&Dynamic::UNIT, false))
            },
        );
        let text_along = format!("{text} Combines those along one axis or an array of axes, which the result lacks.");
        documented(name, &["tensor: Tensor", "axes: Dynamic"], &text_along, &example("1")).set_into_module(
            module,
            move |context: NativeCallContext<'_>, tensor: &mut Tensor, axes: Dynamic| {
                reduce(&context, (name, op), tensor, (&axes, false))
            },
        );
        let text_keeping = format!(
            "{text} Combines those along one axis or an array of axes, or all with `()`. If `keepdims` is true, these axes \
             remain with size 1."
        );
        let parameters = ["tensor: Tensor", "axes: Dynamic", "keepdims: bool"];
        documented(name, &parameters, &text_keeping, &example("-1, true")).set_into_module(
            module,
            move |context: NativeCallContext<'_>, tensor: &mut Tensor, axes: Dynamic, keepdims: bool| {
                reduce(&context, (name, op), tensor, (&axes, keepdims))
            },
        );
    }
}

/// Reduces a tensor along `axes`, a whole number or an array; `()` stands for all axes.
fn reduce(
    context: &NativeCallContext<'_>,
    (function, op): (&'static str, &str),
    tensor: &Tensor,
    (axes, keep): (&Dynamic, bool),
) -> Fallible<Tensor> {
    compute(context, function, &|work| {
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
        return work.apply(op, &attributes, &[x]);
    }
    let axes = whole_numbers("the axes", axes)?;
    if axes.is_empty() {
        return Err(work.refuse_for(&[Some(x)], "the array of axes is empty"));
    }
    work.apply(op, &attributes, &[x, &ints(&axes)])
}
