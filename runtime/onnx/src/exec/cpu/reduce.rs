//! Reductions of some dimensions to size 1, sums along an axis, and the order of the elements along one.

use std::cmp::Ordering;

use ndarray::{ArrayView1, IxDyn};
use rayon::prelude::*;

use super::OpError;
use super::elementwise::{CHUNK, binary};
use super::number::Number;
use super::precision::in_compute_type;
use super::storage::{Dense, DenseElement, Elements, scalar, with_numbers};
use crate::exec::ops::{Binary, Reduce};

/// Reduces over `axes`. A sum of no elements is 0, a product 1; the largest of no elements is the type's least value.
pub(super) fn reduce(kind: Reduce, x: &Dense, axes: &[usize]) -> Result<Dense, OpError> {
    in_compute_type([x], |[x]| {
        with_numbers!(x, x => {
            let reduced = reduce_elements(kind, x, axes)?;
            let count = axes.iter().map(|axis| x.shape()[*axis]).product::<usize>();
            match kind {
                Reduce::Mean => binary(Binary::Div, &reduced, &scalar(count as f64, reduced.dtype())?),
                _ => Ok(reduced),
            }
        })
    })
}

fn reduce_elements<T: Number>(kind: Reduce, x: &Elements<T>, axes: &[usize]) -> Result<Dense, OpError>
where
    Dense: From<Elements<T>>,
{
    let rows = RowReduction::new(x, axes);
    let folded = match kind {
        Reduce::Sum | Reduce::Mean => match rows {
            Some(rows) => rows.sum(),
            None => each_group(x, axes, sum),
        },
        Reduce::Product => fold(x, axes, rows, T::one(), T::times),
        Reduce::Max => fold(x, axes, rows, T::LEAST, T::larger),
        Reduce::Min => fold(x, axes, rows, T::GREATEST, T::smaller),
    };
    let mut shape = x.shape().to_vec();
    axes.iter().for_each(|axis| shape[*axis] = 1);
    Elements::from_shape_vec(IxDyn(&shape), folded).map(Dense::from).map_err(OpError::library)
}

/// Elements of a lane, or rows of elements, that are added one after the other. More of them are halved and the sums of the
/// halves added: the rounding error then grows with the logarithm of their number.
const SUMMED_IN_ORDER: usize = 32;

/// Returns the sum of a group; floats are added in several lanes, integers wrap around.
fn sum<T: Number>(group: &[T]) -> T {
    if !T::DTYPE.is_float() {
        return group.iter().copied().fold(T::zero(), T::plus);
    }
    if group.len() <= 8 * SUMMED_IN_ORDER {
        return ArrayView1::from(group).sum();
    }
    let (first, second) = group.split_at(group.len() / 2);
    sum(first).plus(sum(second))
}

/// Adds rows of the length of `sums` to `sums`.
fn add_rows<T: Number>(rows: &[T], sums: &mut [T]) {
    let count = rows.len() / sums.len();
    if count <= SUMMED_IN_ORDER {
        for row in rows.chunks_exact(sums.len()) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = sum.plus(*x));
        }
        return;
    }
    let (first, second) = rows.split_at(count / 2 * sums.len());
    let mut rest = vec![T::zero(); sums.len()];
    add_rows(first, sums);
    add_rows(second, &mut rest);
    add_rows(&rest, sums);
}

fn fold<T: Number>(
    x: &Elements<T>,
    axes: &[usize],
    rows: Option<RowReduction<T>>,
    start: T,
    f: impl Fn(T, T) -> T + Send + Sync + Copy,
) -> Vec<T> {
    match rows {
        Some(rows) => rows.fold(start, f),
        None => each_group(x, axes, |group| group.iter().copied().fold(start, f)),
    }
}

/// A reduction of adjacent dimensions that are not the last ones: whole rows of the last ones are combined, which needs
/// no copy in another order.
struct RowReduction<'a, T> {
    elements: &'a [T],
    outer: usize,
    reduced: usize,
    inner: usize,
}

impl<'a, T: Number> RowReduction<'a, T> {
    fn new(x: &'a Elements<T>, axes: &[usize]) -> Option<Self> {
        let (first, last) = (*axes.iter().min()?, *axes.iter().max()?);
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let shape = x.shape();
        let (outer, inner) = (product(&shape[..first]), product(&shape[last + 1..]));
        let reduced = product(&shape[first..=last]);
        let fits = last - first + 1 == axes.len() && inner > 1 && reduced > 0;
        fits.then_some(())?;
        Some(RowReduction { elements: x.as_slice()?, outer, reduced, inner })
    }

    fn sum(self) -> Vec<T> {
        self.combine(T::zero(), |result, block| add_rows(block, result))
    }

    fn fold(self, start: T, f: impl Fn(T, T) -> T + Send + Sync) -> Vec<T> {
        self.combine(start, |result, block| {
            for row in block.chunks_exact(result.len()) {
                result.iter_mut().zip(row).for_each(|(result, x)| *result = f(*result, *x));
            }
        })
    }

    /// Combines the rows of each block into a row that begins as `start`.
    fn combine(self, start: T, f: impl Fn(&mut [T], &[T]) + Send + Sync) -> Vec<T> {
        let mut result = vec![start; self.outer * self.inner];
        let blocks = self.elements.par_chunks(self.reduced * self.inner);
        let rows = result.par_chunks_mut(self.inner).zip(blocks);
        rows.with_min_len(CHUNK.div_ceil(self.reduced * self.inner)).for_each(|(result, block)| f(result, block));
        result
    }
}

/// Returns the index of the first (or the last) largest, or smallest, element along an axis.
pub(super) fn arg_extreme(x: &Dense, axis: usize, last: bool, wanted: Ordering) -> Result<Dense, OpError> {
    if x.shape()[axis] == 0 {
        return Err(OpError::invalid_operands(format!("{:?} has no elements along axis {axis}", x.shape())));
    }
    in_compute_type([x], |[x]| {
        with_numbers!(x, x => {
            let indices = each_group(x, &[axis], |group| index_of_extreme(group, last, wanted));
            let mut shape = x.shape().to_vec();
            shape[axis] = 1;
            Elements::from_shape_vec(IxDyn(&shape), indices).map(Dense::from).map_err(OpError::library)
        })
    })
}

fn index_of_extreme<T: Number>(group: &[T], last: bool, wanted: Ordering) -> i64 {
    let better = |new: usize, best: usize| {
        let order = compare(group[new], group[best]);
        order == wanted || last && order == Ordering::Equal
    };
    (0..group.len()).fold(0, |best, new| if better(new, best) { new } else { best }) as i64
}

/// Orders elements; NaN is larger than every number.
fn compare<T: Number>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns the indices of the `count` largest (or smallest) elements along an axis, the best first; of equal elements,
/// the first comes first.
pub(super) fn top_indices(x: &Dense, axis: usize, count: usize, largest: bool) -> Result<Dense, OpError> {
    let mut shape = x.shape().to_vec();
    shape[axis] = count;
    if shape.contains(&0) {
        return Ok(Elements::<i64>::zeros(IxDyn(&shape)).into());
    }
    in_compute_type([x], |[x]| {
        with_numbers!(x, x => {
            let groups = each_group(x, &[axis], |group| top_of_group(group, count, largest));
            shape.remove(axis);
            shape.push(count);
            let indices: Vec<i64> = groups.into_iter().flatten().collect();
            let indices = Elements::from_shape_vec(IxDyn(&shape), indices).map_err(OpError::library)?;
            let mut back: Vec<usize> = (0..x.ndim() - 1).collect();
            back.insert(axis, x.ndim() - 1);
            Ok(indices.permuted_axes(IxDyn(&back)).into())
        })
    })
}

fn top_of_group<T: Number>(group: &[T], count: usize, largest: bool) -> Vec<i64> {
    let mut indices: Vec<usize> = (0..group.len()).collect();
    let by_value = |a: &usize, b: &usize| {
        let order = compare(group[*a], group[*b]);
        (if largest { order.reverse() } else { order }).then(a.cmp(b))
    };
    if count < indices.len() {
        indices.select_nth_unstable_by(count, by_value);
        indices.truncate(count);
    }
    indices.sort_unstable_by(by_value);
    indices.into_iter().map(|index| index as i64).collect()
}

/// Returns the sums of all elements up to each one along an axis.
pub(super) fn cumulative_sum(x: &Dense, axis: usize) -> Result<Dense, OpError> {
    fn running<T: Number>(x: &Elements<T>, axis: usize) -> Elements<T> {
        let mut sums = x.to_owned();
        sums.accumulate_axis_inplace(ndarray::Axis(axis), |before, sum| *sum = before.plus(*sum));
        sums.into_shared()
    }
    in_compute_type([x], |[x]| with_numbers!(x, x => Ok(running(x, axis).into())))
}

/// Reduces the elements that differ only in their places along `axes`.
fn each_group<T: DenseElement, U: Send>(
    x: &Elements<T>,
    axes: &[usize],
    f: impl Fn(&[T]) -> U + Send + Sync,
) -> Vec<U> {
    let kept = (0..x.ndim()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let length: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
    if length == 0 {
        let groups = order[..order.len() - axes.len()].iter().map(|axis| x.shape()[*axis]).product();
        return (0..groups).map(|_| f(&[])).collect();
    }
    let groups = x.view().permuted_axes(IxDyn(&order));
    let groups = groups.as_standard_layout();
    let groups = groups.as_slice().expect("the standard layout is contiguous");
    groups.par_chunks(length).with_min_len(CHUNK.div_ceil(length)).map(f).collect()
}
