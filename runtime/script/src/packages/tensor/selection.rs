//! Parts of tensors: slices, entries and elements by their indices.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::ops::{Range, RangeInclusive};

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Array, Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute, compute_all, ints, whole_numbers};
use crate::packages::options::size;
use crate::packages::parts::{axis_place, equal_parts};
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

/// Returns the entries from `start` to before `end` along an axis, `step` apart.
fn slice(work: &Work<'_>, x: &HostTensor, axis: i64, [start, end, step]: [i64; 3]) -> Fallible<HostTensor> {
    work.apply("Slice", &[], &[x, &ints(&[start]), &ints(&[end]), &ints(&[axis]), &ints(&[step])])
}

/// Returns one entry along an axis, without the axis.
fn entry(work: &Work<'_>, x: &HostTensor, axis: i64, index: i64) -> Fallible<HostTensor> {
    work.apply("Gather", &[("axis", Attribute::Int(axis))], &[x, &HostTensor::scalar(index)])
}

/// Largest number of parts of a tensor.
const PARTS_MAX: usize = 65_536;

/// Returns the size of a dimension; a negative axis counts from the last.
fn axis_size(work: &Work<'_>, x: &HostTensor, axis: i64) -> Fallible<usize> {
    let size = axis_place(axis, x.shape().len()).map(|place| x.shape()[place]);
    size.ok_or_else(|| work.refuse_for(&[Some(x)], &format!("there is no axis {axis}")))
}

/// Splits a dimension into parts of these sizes.
fn parts(work: &Work<'_>, x: &HostTensor, sizes: &[i64], axis: i64) -> Fallible<Vec<HostTensor>> {
    if !(1..=PARTS_MAX).contains(&sizes.len()) {
        let reason = format!("a tensor can be split into 1 to {PARTS_MAX} parts, not {}", sizes.len());
        return Err(work.refuse_for(&[Some(x)], &reason));
    }
    work.apply_all("Split", &[("axis", Attribute::Int(axis))], &[Some(x), Some(&ints(sizes))], sizes.len())
}

/// Splits a dimension of the size `all` into parts of the size `each`.
fn split_evenly(work: &Work<'_>, x: &HostTensor, (all, each): (usize, usize), axis: i64) -> Fallible<Vec<HostTensor>> {
    let sizes = equal_parts(all, each, PARTS_MAX)?;
    parts(work, x, &sizes.into_iter().map(|size| size as i64).collect::<Vec<_>>(), axis)
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
        compute(&context, "slice", &|work| super::slice(work, &work.host(tensor)?, axis, [start, end, 1]))
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
        compute(&context, "slice", &|work| super::slice(work, &work.host(tensor)?, axis, [start, end, step]))
    }

    /// Returns one entry along an axis, without the axis. A negative index counts from the end.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").index(1, -1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn index(context: NativeCallContext, tensor: &mut Tensor, axis: i64, index: i64) -> Fallible<Tensor> {
        compute(&context, "index", &|work| entry(work, &work.host(tensor)?, axis, index))
    }

    /// Returns one entry of the outermost dimension, without that dimension. A negative index counts from the end.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32")[-1]
    /// ```
    #[rhai_fn(index_get, return_raw, pure)]
    pub fn entry_at(context: NativeCallContext, tensor: &mut Tensor, index: i64) -> Fallible<Tensor> {
        compute(&context, "[]", &|work| entry(work, &work.host(tensor)?, 0, index))
    }

    /// Returns the entries of a range of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32")[1..3]
    /// ```
    #[rhai_fn(index_get, return_raw, pure)]
    pub fn entries_in(context: NativeCallContext, tensor: &mut Tensor, range: Range<i64>) -> Fallible<Tensor> {
        compute(&context, "[]", &|work| super::slice(work, &work.host(tensor)?, 0, [range.start, range.end, 1]))
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
        compute(&context, "[]", &|work| super::slice(work, &work.host(tensor)?, 0, [*range.start(), end, 1]))
    }

    /// Returns the first `count` rows, that is, entries of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32").rows(2)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn rows(context: NativeCallContext, tensor: &mut Tensor, count: i64) -> Fallible<Tensor> {
        let count = size("the number of rows", count)?;
        compute(&context, "rows", &|work| {
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
        compute(&context, "gather", &|work| {
            let x = work.host(tensor)?;
            let indices = match indices.read_lock::<Tensor>() {
                Some(tensor) => work.host(&tensor)?,
                None => ints(&whole_numbers("the indices", &indices)?),
            };
            if indices.dtype().is_float() {
                return Err(work.refuse_for(&[Some(&x), Some(&indices)], "the indices must be integers"));
            }
            work.apply("Gather", &[("axis", Attribute::Int(axis))], &[&x, &indices])
        })
    }

    /// Returns one element for each of `indices`, along an axis and at the other coordinates of the index, as PyTorch's `gather`.
    /// Negative indices count from the end.
    ///
    /// ```rhai
    /// let scores = tensor::from([1, 5, 2, 9], "2,2,f32");
    /// scores.gather_elements(tensor::from([1, 0], "2,1,i64"), 1)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn gather_elements(
        context: NativeCallContext,
        tensor: &mut Tensor,
        indices: Tensor,
        axis: i64,
    ) -> Fallible<Tensor> {
        compute(&context, "gather_elements", &|work| {
            let (x, indices) = (work.host(tensor)?, work.host(&indices)?);
            if indices.dtype().is_float() {
                return Err(work.refuse_for(&[Some(&x), Some(&indices)], "the indices must be integers"));
            }
            work.apply("GatherElements", &[("axis", Attribute::Int(axis))], &[&x, &indices])
        })
    }

    /// Splits a dimension and returns an array of tensors: `parts` is an array of sizes, or the size of every part, of
    /// which the last may be smaller.
    ///
    /// ```rhai
    /// let parts = tensor::arange(6).split([1, 5], 0);
    /// let pairs = tensor::arange(6).split(2, 0);
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn split(context: NativeCallContext, tensor: &mut Tensor, parts: Dynamic, axis: i64) -> Fallible<Array> {
        compute_all(&context, "split", &|work| {
            let x = work.host(tensor)?;
            match parts.as_int().map(|each| (each, usize::try_from(each))) {
                Ok((_, Ok(each @ 1..))) => split_evenly(work, &x, (axis_size(work, &x, axis)?, each), axis),
                Ok((each, _)) => Err(work.refuse(format!("the size of a part is {each}"))),
                Err(_) => super::parts(work, &x, &whole_numbers("the sizes of the parts", &parts)?, axis),
            }
        })
    }

    /// Splits a dimension into `count` equal parts and returns an array of tensors; the last part may be smaller.
    ///
    /// ```rhai
    /// let halves = tensor::arange(6).chunk(2, 0);
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn chunk(context: NativeCallContext, tensor: &mut Tensor, count: i64, axis: i64) -> Fallible<Array> {
        compute_all(&context, "chunk", &|work| {
            let x = work.host(tensor)?;
            let Ok(parts @ 1..) = usize::try_from(count) else {
                return Err(work.refuse(format!("the number of parts is {count}")));
            };
            let all = axis_size(work, &x, axis)?;
            split_evenly(work, &x, (all, all.div_ceil(parts)), axis)
        })
    }
}
