//! Matrix products, and a tensor that several threads fill. Contains the only unsafe code of the executor.

use std::marker::PhantomData;
use std::ops::Range;

use gemm::Parallelism;
use ndarray::{ArrayD, ArrayView2, ArrayViewD, Axis, Ix2, IxDyn};
use rayon::prelude::*;

use super::OpError;
use super::few_rows;
use super::number::Number;
use super::storage::{Dense, Elements, broadcast, zeros};
use crate::shape_arithmetic::{MatmulDims, matmul_dims};

/// Multiplies two matrices into a dense product.
type Multiply<T> = fn(ArrayView2<T>, ArrayView2<T>, &mut [T], Parallelism);

/// Returns the matrix products over the last two dimensions; the others are broadcast.
pub(super) fn matmul<T: Number>(a: &Elements<T>, b: &Elements<T>, multiply: Multiply<T>) -> Result<Dense, OpError>
where
    Dense: From<ArrayD<T>>,
{
    let MatmulDims { batch, m, k, n } = matmul_dims(a.shape(), b.shape())?;
    let shape = [&batch[..], &[m, n]].concat();
    let mut product = zeros(&shape)?;
    if b.ndim() == 2 {
        // With one matrix for the whole batch, the rows of all batches are the rows of one product.
        let rows = batch.iter().product::<usize>() * m;
        let left = a.to_shape((rows, k)).map_err(OpError::library)?;
        multiply(left.view(), matrices(b.view(), 0).swap_remove(0), &mut product, Parallelism::Rayon(0));
    } else {
        let left = matrices(broadcast(a, &[&batch[..], &[m, k]].concat())?, batch.len());
        let right = matrices(broadcast(b, &[&batch[..], &[k, n]].concat())?, batch.len());
        let many = left.len() >= rayon::current_num_threads();
        let parallelism = if many { Parallelism::None } else { Parallelism::Rayon(0) };
        let products = product.par_chunks_mut((m * n).max(1)).zip(left).zip(right);
        let products = products.with_min_len(if many { 1 } else { usize::MAX });
        products.for_each(|((product, left), right)| multiply(left, right, product, parallelism));
    }
    ArrayD::from_shape_vec(IxDyn(&shape), product).map(Dense::from).map_err(OpError::library)
}

/// Returns the matrices over the last two dimensions, one after the other.
fn matrices<'a, T>(x: ArrayViewD<'a, T>, batch_rank: usize) -> Vec<ArrayView2<'a, T>> {
    let mut parts = vec![x];
    for _ in 0..batch_rank {
        let entries =
            |part: ArrayViewD<'a, T>| (0..part.len_of(Axis(0))).map(move |i| part.clone().index_axis_move(Axis(0), i));
        parts = parts.into_iter().flat_map(entries).collect();
    }
    parts.into_iter().map(|part| part.into_dimensionality::<Ix2>().expect("two dimensions remain")).collect()
}

/// Computes `product = left * right` of integers, which wrap around on overflow. `product` is dense.
pub(super) fn multiply_integers<T: Number>(
    left: ArrayView2<T>,
    right: ArrayView2<T>,
    product: &mut [T],
    _: Parallelism,
) {
    for (left, product) in left.outer_iter().zip(product.chunks_exact_mut(right.ncols().max(1))) {
        product.fill(T::zero());
        for (factor, right) in left.iter().zip(right.outer_iter()) {
            product.iter_mut().zip(right).for_each(|(sum, right)| *sum = sum.plus(factor.times(*right)));
        }
    }
}

/// Computes `product = left * right` of f32 or f64. `product` is dense.
pub(super) fn multiply<T: Number>(
    left: ArrayView2<T>,
    right: ArrayView2<T>,
    product: &mut [T],
    parallelism: Parallelism,
) {
    let ((rows, inner), columns) = (left.dim(), right.ncols());
    assert_eq!(inner, right.nrows(), "the inner dimensions of the matrices differ");
    assert_eq!(product.len(), rows * columns, "the product has another size");
    if few_rows::multiply(left, right, product, parallelism) {
        return;
    }
    // SAFETY: the views are valid for their dimensions and strides, `product` has the size of the product by the
    // assertion above and is borrowed exclusively. The factors 0 and 1 mean that `product` is not read.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            product.as_mut_ptr(),
            1,
            columns as isize,
            false,
            left.as_ptr(),
            left.strides()[1],
            left.strides()[0],
            right.as_ptr(),
            right.strides()[1],
            right.strides()[0],
            T::zero(),
            T::one(),
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Elements that several threads fill, each thread in its own ranges.
pub(super) struct DisjointRanges<'a> {
    start: *mut f32,
    length: usize,
    elements: PhantomData<&'a mut [f32]>,
}

// SAFETY: the only access is `range`, whose caller guarantees that no two threads hold overlapping ranges.
unsafe impl Sync for DisjointRanges<'_> {}

impl<'a> DisjointRanges<'a> {
    pub fn new(elements: &'a mut [f32]) -> Self {
        DisjointRanges { start: elements.as_mut_ptr(), length: elements.len(), elements: PhantomData }
    }

    /// Returns the elements of a range.
    ///
    /// # Safety
    /// While the result exists, no other range that overlaps with it may be requested.
    #[expect(clippy::mut_from_ref, reason = "disjoint ranges of one exclusive borrow, by the contract above")]
    pub unsafe fn range(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.length, "the range is out of bounds");
        // SAFETY: within the slice that `new` borrowed exclusively; disjoint from others by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
