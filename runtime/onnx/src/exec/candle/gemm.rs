//! Matrix products on slices, and a tensor that several threads fill. Contains the only unsafe code of the executor.

use std::marker::PhantomData;
use std::ops::Range;

/// A row-major matrix in a slice, with `stride` elements from one row to the next.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub elements: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

impl Matrix<'_> {
    fn fits(&self, length: usize) -> bool {
        let last_row = self.rows.saturating_sub(1) * self.stride;
        self.rows == 0 || self.columns == 0 || last_row + self.columns <= length
    }
}

/// Computes `product = left * right` on the current thread. `product` is dense.
pub(super) fn multiply(left: Matrix, right: Matrix, product: &mut [f32]) {
    assert_eq!(left.columns, right.rows, "the inner dimensions of the matrices differ");
    assert!(left.fits(left.elements.len()) && right.fits(right.elements.len()), "a matrix is larger than its slice");
    assert_eq!(product.len(), left.rows * right.columns, "the product has another size");
    // SAFETY: the assertions above ensure that all reads and writes are within the three slices, of which `product` is
    // borrowed exclusively. The factors 0 and 1 mean that `product` is not read.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            product.as_mut_ptr(),
            1,
            right.columns as isize,
            false,
            left.elements.as_ptr(),
            1,
            left.stride as isize,
            right.elements.as_ptr(),
            1,
            right.stride as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
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
