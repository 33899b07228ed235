//! Parts of tensors: slices, entries and elements by their indices.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::ops::{Range, RangeInclusive};

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Array, Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute, compute_all, ints, whole_numbers};
use crate::script::packages::options::size;
use crate::script::sandbox::Fallible;
use crate::tensor::Tensor as HostTensor;

/// Returns the entries from `start` to before `end` along an axis, `step` apart.
fn slice(work: &Work<'_>, x: &HostTensor, axis: i64, [start, end, step]: [i64; 3]) -> Fallible<HostTensor> {
    work.apply("Slice", [], &[x, &ints(&[start]), &ints(&[end]), &ints(&[axis]), &ints(&[step])])
}

/// Returns one entry along an axis, without the axis.
fn entry(work: &Work<'_>, x: &HostTensor, axis: i64, index: i64) -> Fallible<HostTensor> {
    work.apply("Gather", [("axis", Attribute::Int(axis))], &[x, &HostTensor::scalar(index)])
}

/// Returns the number of parts and their sizes, if they are given.
fn parts(work: &Work<'_>, x: &HostTensor, parts: &Dynamic, axis: i64) -> Fallible<Vec<HostTensor>> {
    const PARTS_MAX: usize = 65_536;
    let along = [("axis", Attribute::Int(axis))];
    let count = parts.as_int().ok().map(|count| usize::try_from(count).unwrap_or(0));
    let sizes = if count.is_some() { Vec::new() } else { whole_numbers("the parts", parts)? };
    match count.unwrap_or(sizes.len()) {
        count @ 1..=PARTS_MAX if sizes.is_empty() => {
            let equal = [along[0].clone(), ("num_outputs", Attribute::Int(count as i64))];
            work.apply_all("Split", equal, &[Some(x)], count)
        }
        count @ 1..=PARTS_MAX => work.apply_all("Split", along, &[Some(x), Some(&ints(&sizes))], count),
        count => {
            let reason = format!("a tensor can be split into 1 to {PARTS_MAX} parts, not {count}");
            Err(work.refuse_for(&[Some(x)], &reason))
        }
    }
}

#[export_module]
pub(super) mod functions {
    /// Returns the entries from `start` to before `end` along an axis. Negative indices count from the end; those beyond
    /// the ends are limited to them.
    ///
    /// ```rhai
    /// tensor::arange(6).slice(0, 1, -1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn slice(context: NativeCallContext, tensor: &mut Tensor, axis: i64, start: i64, end: i64) -> Fallible<Tensor> {
        compute(&context, "slice", |work| super::slice(work, &work.host(tensor)?, axis, [start, end, 1]))
    }

    /// Returns every `step`-th entry from `start` to before `end` along an axis. A negative step counts backwards; `end`
    /// may then be below `-size`, so that the first entry is included.
    ///
    /// ```rhai
    /// tensor::arange(6).slice(0, -1, -7, -2)
    /// ```
    #[rhai_fn(name = "slice", global, return_raw, pure)]
    pub fn slice_with_step(
        context: NativeCallContext,
        tensor: &mut Tensor,
        axis: i64,
        start: i64,
        end: i64,
        step: i64,
    ) -> Fallible<Tensor> {
        compute(&context, "slice", |work| super::slice(work, &work.host(tensor)?, axis, [start, end, step]))
    }

    /// Returns one entry along an axis, without the axis. A negative index counts from the end.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").index(1, -1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn index(context: NativeCallContext, tensor: &mut Tensor, axis: i64, index: i64) -> Fallible<Tensor> {
        compute(&context, "index", |work| entry(work, &work.host(tensor)?, axis, index))
    }

    /// Returns one entry of the outermost dimension, without that dimension. A negative index counts from the end.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32")[-1]
    /// ```
    #[rhai_fn(index_get, return_raw, pure)]
    pub fn entry_at(context: NativeCallContext, tensor: &mut Tensor, index: i64) -> Fallible<Tensor> {
        compute(&context, "[]", |work| entry(work, &work.host(tensor)?, 0, index))
    }

    /// Returns the entries of a range of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32")[1..3]
    /// ```
    #[rhai_fn(index_get, return_raw, pure)]
    pub fn entries_in(context: NativeCallContext, tensor: &mut Tensor, range: Range<i64>) -> Fallible<Tensor> {
        compute(&context, "[]", |work| super::slice(work, &work.host(tensor)?, 0, [range.start, range.end, 1]))
    }

    /// Returns the entries of an inclusive range of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32")[1..=2]
    /// ```
    #[rhai_fn(index_get, return_raw, pure)]
    pub fn entries_up_to(
        context: NativeCallContext,
        tensor: &mut Tensor,
        range: RangeInclusive<i64>,
    ) -> Fallible<Tensor> {
        let end = range.end().saturating_add(1);
        compute(&context, "[]", |work| super::slice(work, &work.host(tensor)?, 0, [*range.start(), end, 1]))
    }

    /// Returns the first `count` rows, that is, entries of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32").rows(2)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn rows(context: NativeCallContext, tensor: &mut Tensor, count: i64) -> Fallible<Tensor> {
        let count = size("the number of rows", count)?;
        compute(&context, "rows", |work| {
            let x = work.host(tensor)?;
            x.first_rows(count).map_err(|error| work.refuse_for(&[Some(&x)], &error.to_string()))?;
            super::slice(work, &x, 0, [0, count as i64, 1])
        })
    }

    /// Returns the entries along an axis at `indices`, an integer tensor or an array, whose shape replaces the axis.
    /// Negative indices count from the end.
    ///
    /// ```rhai
    /// tensor::from([10, 20, 30], "3,f32").gather([2, 0, 0], 0)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn gather(context: NativeCallContext, tensor: &mut Tensor, indices: Dynamic, axis: i64) -> Fallible<Tensor> {
        compute(&context, "gather", |work| {
            let x = work.host(tensor)?;
            let indices = match indices.read_lock::<Tensor>() {
                Some(tensor) => work.host(&tensor)?,
                None => ints(&whole_numbers("the indices", &indices)?),
            };
            if indices.dtype().is_float() {
                return Err(work.refuse_for(&[Some(&x), Some(&indices)], "the indices must be integers"));
            }
            work.apply("Gather", [("axis", Attribute::Int(axis))], &[&x, &indices])
        })
    }

    /// Splits a tensor along an axis into an array of tensors: into a number of equal parts, of which the last may be
    /// smaller, or into parts of the sizes in an array.
    ///
    /// ```rhai
    /// tensor::arange(6).split([1, 5], 0)[1]
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn split(context: NativeCallContext, tensor: &mut Tensor, parts: Dynamic, axis: i64) -> Fallible<Array> {
        compute_all(&context, "split", |work| super::parts(work, &work.host(tensor)?, &parts, axis))
    }
}
