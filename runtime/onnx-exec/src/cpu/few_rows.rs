//! Matrix products whose left side has few rows: each element of the right side is read from memory once, which decides
//! the speed, so the copy into blocks that pays for larger products is left out.

use gemm::Parallelism;
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::number::Number;

/// The most rows for which this is faster than a product in blocks.
pub(super) const ROWS_MAX: usize = 4;

/// Columns of one task if the columns of the right side are contiguous, and if its rows are.
const DOT_COLUMNS: usize = 64;
const SUM_COLUMNS: usize = 512;

/// Independent sums of a dot product, so that the compiler can compute them in vector registers.
const LANES: usize = 16;

/// Computes `product = left * right` if `left` has few rows and the rows or columns of `right` are contiguous. Returns
/// whether it did. `product` is dense.
pub(super) fn multiply<T: Number>(
    left: ArrayView2<T>,
    right: ArrayView2<T>,
    product: &mut [T],
    parallelism: Parallelism,
) -> bool {
    let ((rows, inner), columns) = (left.dim(), right.ncols());
    if rows == 0 || rows > ROWS_MAX || inner == 0 || columns == 0 {
        return false;
    }
    let (task, compute): (usize, Task<T>) = match right.strides() {
        [1, _] => (DOT_COLUMNS, dot_columns),
        [_, 1] => (SUM_COLUMNS, sum_rows),
        _ => return false,
    };
    let left: Vec<T> = left.iter().copied().collect();
    let run = |first: usize| {
        let width = task.min(columns - first);
        let mut sums = vec![T::zero(); rows * width];
        compute(&left, right, first, &mut sums);
        (first, sums)
    };
    let starts = 0..columns.div_ceil(task);
    let parts: Vec<(usize, Vec<T>)> = match parallelism {
        Parallelism::None => starts.map(|part| run(part * task)).collect(),
        Parallelism::Rayon(_) => starts.into_par_iter().map(|part| run(part * task)).collect(),
    };
    for (first, sums) in parts {
        let width = sums.len() / rows;
        for (product, sums) in product.chunks_exact_mut(columns).zip(sums.chunks_exact(width)) {
            product[first..first + width].copy_from_slice(sums);
        }
    }
    true
}

/// Computes the columns of a product from `first` on. `left` is dense; `sums` has the rows of the part and is zero.
type Task<T> = fn(left: &[T], right: ArrayView2<T>, first: usize, sums: &mut [T]);

/// The columns of `right` are contiguous: each element of the product is a dot product.
fn dot_columns<T: Number>(left: &[T], right: ArrayView2<T>, first: usize, sums: &mut [T]) {
    let inner = right.nrows();
    let width = sums.len() * inner / left.len();
    for offset in 0..width {
        let column = right.column(first + offset);
        let column = column.as_slice().expect("the columns are contiguous");
        for (row, left) in left.chunks_exact(inner).enumerate() {
            sums[row * width + offset] = dot(left, column);
        }
    }
}

fn dot<T: Number>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::zero(); LANES];
    let (blocks, rest) = (a.chunks_exact(LANES).zip(b.chunks_exact(LANES)), a.len() / LANES * LANES);
    for (a, b) in blocks {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum = sum.plus(a.times(*b)));
    }
    let tail = a[rest..].iter().zip(&b[rest..]).fold(T::zero(), |sum, (a, b)| sum.plus(a.times(*b)));
    sums.into_iter().fold(tail, T::plus)
}

/// The rows of `right` are contiguous: the product is a sum of multiples of rows.
fn sum_rows<T: Number>(left: &[T], right: ArrayView2<T>, first: usize, sums: &mut [T]) {
    let inner = right.nrows();
    let width = sums.len() * inner / left.len();
    for (position, right) in right.outer_iter().enumerate() {
        let right = &right.to_slice().expect("the rows are contiguous")[first..first + width];
        for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
            let factor = left[row * inner + position];
            sums.iter_mut().zip(right).for_each(|(sum, right)| *sum = sum.plus(factor.times(*right)));
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ShapeBuilder};

    use super::*;

    fn numbers(shape: (usize, usize), seed: usize) -> Array2<f64> {
        Array2::from_shape_fn(shape, |(i, j)| ((i * 31 + j * 17 + seed) % 23) as f64 - 11.0)
    }

    #[test]
    fn products_equal_those_of_ndarray_for_both_orders_of_the_right_side() {
        for (rows, inner, columns) in [(1, 1, 1), (1, 40, 600), (3, 33, 65), (4, 16, 1025), (2, 5, 64)] {
            let (left, right) = (numbers((rows, inner), 1), numbers((inner, columns), 5));
            let expected = left.dot(&right);
            let mut columns_first = Array2::zeros((inner, columns).f());
            columns_first.assign(&right);
            for right in [right.view(), columns_first.view()] {
                for parallelism in [Parallelism::None, Parallelism::Rayon(0)] {
                    let mut product = vec![f64::NAN; rows * columns];
                    assert!(multiply(left.view(), right, &mut product, parallelism));
                    assert_eq!(product, expected.iter().copied().collect::<Vec<_>>(), "{rows}x{inner}x{columns}");
                }
            }
        }
    }

    #[test]
    fn products_of_many_rows_or_of_scattered_elements_are_left_to_the_product_in_blocks() {
        let mut product = vec![0.0; 50];
        let (many, right) = (numbers((5, 3), 1), numbers((3, 10), 2));
        assert!(!multiply(many.view(), right.view(), &mut product, Parallelism::None));
        let scattered = numbers((6, 20), 2);
        let scattered = scattered.slice(ndarray::s![..;2, ..;2]);
        assert!(!multiply(numbers((1, 3), 1).view(), scattered, &mut product, Parallelism::None));
    }
}
