//! Reductions of some dimensions to size 1, sums along an axis, and the index of the largest or smallest element along
//! one.

use std::cmp::Ordering;

use ndarray::{ArrayView1, IxDyn};
use rayon::prelude::*;

use super::OpError;
use super::activation::vectorized;
use super::elementwise::{CHUNK, binary};
use super::number::Number;
use super::precision::in_compute_type;
use super::storage::{Dense, DenseElement, Elements, scalar, with_numbers};
use crate::ops::{Binary, Reduce};

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
pub(super) fn sum<T: Number>(group: &[T]) -> T {
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

/// Returns the index of the first (or the last) largest, or smallest, element along an axis. NaN is larger than every
/// number.
pub(super) fn arg_extreme(x: &Dense, axis: usize, last: bool, wanted: Ordering) -> Result<Dense, OpError> {
    if x.shape()[axis] == 0 {
        return Err(OpError::invalid_operands(format!("{:?} has no elements along axis {axis}", x.shape())));
    }
    in_compute_type([x], |[x]| {
        with_numbers!(x, x => {
            let indices = each_group(x, &[axis], |group| vectorized(|| match wanted {
                Ordering::Less => index_of_best(group, last, |a, b| a < b || b.is_nan() && !a.is_nan()),
                _ => index_of_best(group, last, |a, b| a > b || a.is_nan() && !b.is_nan()),
            }));
            let mut shape = x.shape().to_vec();
            shape[axis] = 1;
            Elements::from_shape_vec(IxDyn(&shape), indices).map(Dense::from).map_err(OpError::library)
        })
    })
}

/// Returns the index of the element that no other one is better than. Several lanes are compared at once.
#[inline(always)]
fn index_of_best<T: Number>(group: &[T], last: bool, is_better: impl Fn(T, T) -> bool) -> i64 {
    const LANES: usize = 16;
    let (blocks, rest) = group.as_chunks::<LANES>();
    let better = |a: T, b: T| if is_better(b, a) { b } else { a };
    let mut lanes = [group[0]; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane = better(*lane, *x));
    }
    let best = lanes.iter().chain(rest).fold(group[0], |best, x| better(best, *x));
    let is_best = |x: &T| !is_better(best, *x);
    if last {
        return group.iter().rposition(is_best).unwrap_or_default() as i64;
    }
    let has_best = |block: &[T; LANES]| block.iter().fold(false, |found, x| found | is_best(x));
    let start = blocks.iter().take_while(|block| !has_best(block)).count() * LANES;
    (start + group[start..].iter().position(is_best).unwrap_or_default()) as i64
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

#[cfg(test)]
mod tests {
    use super::*;

    fn index(numbers: &[f32], last: bool, wanted: Ordering) -> usize {
        let x = Elements::from_shape_vec(IxDyn(&[numbers.len()]), numbers.to_vec()).unwrap();
        match arg_extreme(&x.into(), 0, last, wanted).unwrap() {
            Dense::I64(index) => index[[0]] as usize,
            _ => unreachable!("indices are i64"),
        }
    }

    #[test]
    fn the_extreme_is_found_at_any_place_of_a_group_of_any_length() {
        for length in 1..50 {
            for place in 0..length {
                let mut numbers = vec![1.0; length];
                for (value, wanted) in [(2.0, Ordering::Greater), (f32::NAN, Ordering::Greater), (0.0, Ordering::Less)]
                {
                    numbers[place] = value;
                    assert_eq!(index(&numbers, false, wanted), place);
                    assert_eq!(index(&numbers, true, wanted), place);
                }
            }
        }
    }

    #[test]
    fn of_equal_elements_the_first_or_the_last_is_found_and_nan_is_largest() {
        for length in [2, 16, 17, 40] {
            for equal in [[0.0, -0.0], [f32::NAN, -f32::NAN], [f32::INFINITY; 2], [f32::NEG_INFINITY; 2]] {
                let numbers: Vec<f32> = equal.into_iter().cycle().take(length).collect();
                for wanted in [Ordering::Less, Ordering::Greater] {
                    assert_eq!(index(&numbers, false, wanted), 0, "{equal:?}");
                    assert_eq!(index(&numbers, true, wanted), length - 1, "{equal:?}");
                }
            }
        }
        assert_eq!(index(&[f32::NAN, 3.0, f32::NAN], false, Ordering::Less), 1);
        assert_eq!(index(&[3.0, f32::INFINITY, f32::NAN], true, Ordering::Greater), 2);
    }
}
