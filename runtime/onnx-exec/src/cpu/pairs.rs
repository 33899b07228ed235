//! Elementwise functions of pairs of elements, whose tensors are broadcast.
//!
//! Neighbouring dimensions that are broadcast in the same way are merged, so that the innermost loop is long and reads
//! each operand either in order or at one place.

use ndarray::IxDyn;
use rayon::prelude::*;

use super::OpError;
use super::elementwise::CHUNK;
use super::storage::{DenseElement, Elements, in_order, zeros};
use crate::shape_arithmetic::broadcast_shape;

/// Elements from which on a cheap function is computed on all cores: below, memory is the limit, not the processor.
const PARALLEL_MIN: usize = 1 << 21;

/// Applies a cheap function to each pair of elements.
pub(super) fn zip<T: DenseElement, U: DenseElement>(
    a: &Elements<T>,
    b: &Elements<T>,
    f: impl Fn(T, T) -> U + Send + Sync,
) -> Result<Elements<U>, OpError> {
    zip_from(PARALLEL_MIN, a, b, f)
}

/// Applies a function that takes many instructions to each pair of elements.
pub(super) fn zip_costly<T: DenseElement, U: DenseElement>(
    a: &Elements<T>,
    b: &Elements<T>,
    f: impl Fn(T, T) -> U + Send + Sync,
) -> Result<Elements<U>, OpError> {
    zip_from(2 * CHUNK, a, b, f)
}

fn zip_from<T: DenseElement, U: DenseElement>(
    parallel_min: usize,
    a: &Elements<T>,
    b: &Elements<T>,
    f: impl Fn(T, T) -> U + Send + Sync,
) -> Result<Elements<U>, OpError> {
    let shape = broadcast_shape(a.shape(), b.shape())?;
    let pairing = Pairing::new(&shape, a.shape(), b.shape());
    let (a, b) = (in_order(a), in_order(b));
    let dense = "the standard layout is contiguous";
    let (a, b) = (a.as_slice().expect(dense), b.as_slice().expect(dense));
    let count = shape.iter().product();
    let elements = if count < parallel_min {
        let mut elements = Vec::with_capacity(count);
        pairing.for_each_run(0..count, |run| run.extend(&mut elements, a, b, &f));
        elements
    } else {
        let mut elements: Vec<U> = zeros(&shape)?;
        elements.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
            let first = chunk * CHUNK;
            pairing.for_each_run(first..first + part.len(), |run| {
                run.fill(&mut part[run.at - first..][..run.length], a, b, &f);
            });
        });
        elements
    };
    Elements::from_shape_vec(IxDyn(&shape), elements).map_err(OpError::library)
}

/// A dimension of the result: its size, and which operands have it.
#[derive(Clone, Copy)]
struct PairedDim {
    size: usize,
    in_a: bool,
    in_b: bool,
}

/// The dimensions of the result, outermost first; neighbours that the same operands have are merged.
struct Pairing(Vec<PairedDim>);

/// Neighbouring elements of the result that one loop computes.
struct Run {
    /// Place of the first element in the result.
    at: usize,
    length: usize,
    /// Places of the first elements in the operands; `None` for an operand of which all elements of the run use one.
    a: (usize, bool),
    b: (usize, bool),
}

impl Pairing {
    fn new(shape: &[usize], a: &[usize], b: &[usize]) -> Self {
        let has =
            |operand: &[usize], i: usize| (i + operand.len()).checked_sub(shape.len()).is_some_and(|i| operand[i] != 1);
        let mut dims: Vec<PairedDim> = Vec::new();
        for (i, size) in shape.iter().copied().enumerate().filter(|(_, size)| *size != 1) {
            let dim = PairedDim { size, in_a: has(a, i), in_b: has(b, i) };
            match dims.last_mut() {
                Some(last) if (last.in_a, last.in_b) == (dim.in_a, dim.in_b) => last.size *= size,
                _ => dims.push(dim),
            }
        }
        Pairing(dims)
    }

    /// Calls `f` with the runs that make up a range of the result, in order.
    fn for_each_run(&self, range: std::ops::Range<usize>, mut f: impl FnMut(Run)) {
        let Some((inner, outer)) = self.0.split_last() else {
            return f(Run { at: range.start, length: range.len(), a: (0, true), b: (0, true) });
        };
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / inner.size, at % inner.size);
            let length = (inner.size - column).min(range.end - at);
            let (mut rest, mut a, mut b) = (row, 0, 0);
            let mut step_a = if inner.in_a { inner.size } else { 1 };
            let mut step_b = if inner.in_b { inner.size } else { 1 };
            for dim in outer.iter().rev() {
                let place = rest % dim.size;
                rest /= dim.size;
                if dim.in_a {
                    a += place * step_a;
                    step_a *= dim.size;
                }
                if dim.in_b {
                    b += place * step_b;
                    step_b *= dim.size;
                }
            }
            let start = |first: usize, varies: bool| (if varies { first + column } else { first }, varies);
            f(Run { at, length, a: start(a, inner.in_a), b: start(b, inner.in_b) });
            at += length;
        }
    }
}

impl Run {
    fn extend<T: Copy, U>(&self, result: &mut Vec<U>, a: &[T], b: &[T], f: &impl Fn(T, T) -> U) {
        match (self.a, self.b) {
            ((from_a, true), (from_b, true)) => {
                let pairs = a[from_a..][..self.length].iter().zip(&b[from_b..][..self.length]);
                result.extend(pairs.map(|(a, b)| f(*a, *b)));
            }
            ((from_a, true), (at_b, false)) => {
                let b = b[at_b];
                result.extend(a[from_a..][..self.length].iter().map(|a| f(*a, b)));
            }
            ((at_a, false), (from_b, _)) => {
                let a = a[at_a];
                result.extend(b[from_b..][..self.length].iter().map(|b| f(a, *b)));
            }
        }
    }

    fn fill<T: Copy, U>(&self, result: &mut [U], a: &[T], b: &[T], f: &impl Fn(T, T) -> U) {
        match (self.a, self.b) {
            ((from_a, true), (from_b, true)) => {
                let pairs = a[from_a..][..self.length].iter().zip(&b[from_b..][..self.length]);
                result.iter_mut().zip(pairs).for_each(|(result, (a, b))| *result = f(*a, *b));
            }
            ((from_a, true), (at_b, false)) => {
                let b = b[at_b];
                result.iter_mut().zip(&a[from_a..]).for_each(|(result, a)| *result = f(*a, b));
            }
            ((at_a, false), (from_b, _)) => {
                let a = a[at_a];
                result.iter_mut().zip(&b[from_b..]).for_each(|(result, b)| *result = f(a, *b));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{ArrayD, Zip};

    use super::*;

    fn elements(shape: &[usize]) -> Elements<i64> {
        let count = shape.iter().product::<usize>() as i64;
        ArrayD::from_shape_vec(IxDyn(shape), (1..=count).collect()).unwrap().into_shared()
    }

    #[test]
    fn pairs_are_those_of_broadcast_arrays() {
        let shapes: [&[usize]; 9] = [&[], &[1], &[4], &[3, 1], &[3, 4], &[2, 1, 4], &[2, 3, 1], &[2, 3, 4], &[1, 3, 4]];
        for a in shapes.map(elements) {
            for b in shapes.map(elements) {
                let shape = broadcast_shape(a.shape(), b.shape()).unwrap();
                let (wide_a, wide_b) = (a.broadcast(IxDyn(&shape)).unwrap(), b.broadcast(IxDyn(&shape)).unwrap());
                let expected = Zip::from(wide_a).and(wide_b).map_collect(|a, b| a * 100 - b);
                for parallel_min in [0, usize::MAX] {
                    let actual = zip_from(parallel_min, &a, &b, |a, b| a * 100 - b).unwrap();
                    assert_eq!(actual, expected, "{:?} {:?}", a.shape(), b.shape());
                }
            }
        }
    }

    #[test]
    fn chunks_of_a_long_result_continue_in_the_middle_of_a_run() {
        let (column, row) = (elements(&[7, 1]), elements(&[CHUNK / 3]));
        let expected = zip_from(usize::MAX, &column, &row, |a, b| a * b).unwrap();
        assert_eq!(zip_from(0, &column, &row, |a, b| a * b).unwrap(), expected);
        assert_eq!(zip_from(0, &elements(&[0, 3]), &elements(&[3]), |a, b| a + b).unwrap().shape(), [0, 3]);
    }
}
