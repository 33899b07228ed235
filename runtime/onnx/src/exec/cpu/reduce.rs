//! Reductions of some dimensions to size 1.

use ndarray::{ArrayView1, IxDyn, LinalgScalar};
use rayon::prelude::*;

use super::OpError;
use super::elementwise::{CHUNK, binary};
use super::storage::{Dense, DenseElement, Elements, scalar, with_elements};
use crate::exec::ops::{Binary, Reduce};

pub(super) fn reduce(kind: Reduce, x: &Dense, axes: &[usize]) -> Result<Dense, OpError> {
    with_elements!(x, x => {
        let reduced: Dense = match kind {
            Reduce::Sum | Reduce::Mean => each_group(x, axes, |group| ArrayView1::from(group).sum())?.into(),
            Reduce::Max => each_group(x, axes, |group| extreme(group, |new, best| new > best))?.into(),
            Reduce::Min => each_group(x, axes, |group| extreme(group, |new, best| new < best))?.into(),
        };
        let count = axes.iter().map(|axis| x.shape()[*axis]).product::<usize>();
        match kind {
            Reduce::Mean => binary(Binary::Div, &reduced, &scalar(count as f64, reduced.dtype())?),
            _ => Ok(reduced),
        }
    })
}

/// Returns the index of the first (or the last) largest element along an axis.
pub(super) fn arg_max(x: &Dense, axis: usize, last: bool) -> Result<Dense, OpError> {
    with_elements!(x, x => Ok(each_group(x, &[axis], |group| index_of_largest(group, last))?.into()))
}

fn index_of_largest<T: PartialOrd>(group: &[T], last: bool) -> i64 {
    let better = |new: usize, best: usize| group[new] > group[best] || last && group[new] == group[best];
    (0..group.len()).fold(0, |best, new| if better(new, best) { new } else { best }) as i64
}

/// Returns the element that is better than all others. The group is not empty.
fn extreme<T: Copy>(group: &[T], is_better: impl Fn(T, T) -> bool) -> T {
    group
        .iter()
        .copied()
        .reduce(|best, new| if is_better(new, best) { new } else { best })
        .expect("a group has elements")
}

/// Reduces the elements that differ only in their places along `axes`, which remain with size 1.
fn each_group<T: DenseElement + LinalgScalar, U: DenseElement>(
    x: &Elements<T>,
    axes: &[usize],
    f: impl Fn(&[T]) -> U + Send + Sync,
) -> Result<Elements<U>, OpError> {
    let kept = (0..x.ndim()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let length: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
    if length == 0 {
        return Err(OpError::invalid_operands(format!("{:?} cannot be reduced: there are no elements", x.shape())));
    }
    let groups = x.view().permuted_axes(IxDyn(&order));
    let groups = groups.as_standard_layout();
    let groups = groups.as_slice().expect("the standard layout is contiguous");
    let reduced: Vec<U> = groups.par_chunks(length).with_min_len(CHUNK.div_ceil(length)).map(f).collect();
    let mut shape = x.shape().to_vec();
    axes.iter().for_each(|axis| shape[*axis] = 1);
    Elements::from_shape_vec(IxDyn(&shape), reduced).map_err(OpError::library)
}
