//! The largest or smallest elements along an axis, in order.
//!
//! Elements are sorted by integers of the same order, each with the element's index, so that equal elements keep their
//! order and the values are never compared as floats.

use ndarray::IxDyn;
use rayon::prelude::*;

use super::OpError;
use super::elementwise::CHUNK;
use super::number::Number;
use super::precision::{cast, compute_dtype};
use super::storage::{Dense, Elements, with_numbers};

/// Returns the `count` largest (or smallest) elements along an axis, the best first, and their indices; of equal
/// elements, the first comes first. NaN is larger than every number.
pub(super) fn top(x: &Dense, axis: usize, count: usize, largest: bool) -> Result<[Dense; 2], OpError> {
    let wide = cast(x, compute_dtype(x.dtype()));
    let [values, indices] = with_numbers!(&wide, wide => top_elements(wide, axis, count, largest))?;
    Ok([cast(&values, x.dtype()), indices])
}

fn top_elements<T: Number>(x: &Elements<T>, axis: usize, count: usize, largest: bool) -> Result<[Dense; 2], OpError>
where
    Dense: From<Elements<T>>,
{
    let length = x.shape()[axis];
    let mut order: Vec<usize> = (0..x.ndim()).filter(|other| *other != axis).collect();
    order.push(axis);
    let groups = x.view().permuted_axes(IxDyn(&order));
    let mut shape = groups.shape().to_vec();
    shape[x.ndim() - 1] = count;
    let groups = groups.as_standard_layout();
    let groups = groups.as_slice().expect("the standard layout is contiguous");
    let total = shape.iter().product();
    let (mut values, mut indices) = (vec![T::zeroed(); total], vec![0i64; total]);
    if total > 0 {
        let results = values.par_chunks_mut(count).zip(indices.par_chunks_mut(count));
        let tasks = results.zip(groups.par_chunks(length)).with_min_len(CHUNK.div_ceil(length));
        tasks.for_each(|((values, indices), group)| {
            write_best(group, largest, indices);
            values.iter_mut().zip(indices).for_each(|(value, index)| *value = group[*index as usize]);
        });
    }
    order = (0..axis).chain([x.ndim() - 1]).chain(axis..x.ndim() - 1).collect();
    let back = IxDyn(&order);
    let values = Elements::from_shape_vec(IxDyn(&shape), values).map_err(OpError::library)?;
    let indices = Elements::from_shape_vec(IxDyn(&shape), indices).map_err(OpError::library)?;
    Ok([values.permuted_axes(back.clone()).into(), indices.permuted_axes(back).into()])
}

/// Writes the indices of the best elements of a group.
fn write_best<T: Number>(group: &[T], largest: bool, indices: &mut [i64]) {
    let rank = |x: &T| if largest { !x.rank() } else { x.rank() };
    let mut ranks: Vec<(i64, i64)> = group.iter().map(rank).zip(0..).collect();
    if indices.len() < group.len() {
        ranks.select_nth_unstable(indices.len());
        ranks.truncate(indices.len());
    }
    ranks.sort_unstable();
    indices.iter_mut().zip(ranks).for_each(|(index, (_, i))| *index = i);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], elements: Vec<f32>) -> Elements<f32> {
        Elements::from_shape_vec(IxDyn(shape), elements).unwrap()
    }

    #[test]
    fn groups_of_every_length_are_sorted() {
        for length in 1..70 {
            let x = floats(&[3, length], (0..3 * length).map(|i| (i * 7919 % 31) as f32).collect());
            for largest in [false, true] {
                let [_, actual] = top_elements(&x, 1, length, largest).unwrap();
                let Dense::I64(actual) = actual else { unreachable!("indices are i64") };
                for (group, actual) in x.rows().into_iter().zip(actual.rows()) {
                    let mut expected: Vec<i64> = (0..length as i64).collect();
                    let order = |i: &i64| group[*i as usize] as i64 * if largest { -1 } else { 1 };
                    expected.sort_by_key(order);
                    assert_eq!(actual.to_vec(), expected, "length {length}");
                }
            }
        }
    }

    #[test]
    fn nan_is_largest_and_zeros_of_both_signs_are_equal() {
        let numbers = [0.0, f32::NAN, -0.0, f32::INFINITY, -1.5, -f32::NAN, f32::NEG_INFINITY, 0.0, 1e-45];
        for copies in [1, 100] {
            let x = floats(&[9 * copies], numbers.repeat(copies));
            let indices = |count, largest| match top_elements(&x, 0, count, largest).unwrap() {
                [_, Dense::I64(indices)] => indices.iter().map(|i| i % 9).collect::<Vec<_>>(),
                _ => unreachable!("indices are i64"),
            };
            let ascending = [6, 4, 0, 2, 7, 8, 3, 1, 5];
            let mut actual = indices(9 * copies, false);
            actual.dedup();
            if copies == 1 {
                assert_eq!(actual, ascending);
                assert_eq!(indices(9, true), [1, 5, 3, 8, 0, 2, 7, 4, 6]);
                assert_eq!(indices(3, true), [1, 5, 3]);
            } else {
                assert_eq!(actual[..2], [6, 4]);
                assert_eq!(actual[2..5], [0, 2, 7]);
                assert_eq!(indices(2 * copies + 1, true)[2 * copies], 3);
            }
        }
        let wide = Elements::from_shape_vec(IxDyn(&[4]), vec![-0.0f64, f64::NAN, -f64::INFINITY, 0.0]).unwrap();
        let [_, Dense::I64(indices)] = top_elements(&wide, 0, 4, false).unwrap() else { unreachable!() };
        assert_eq!(indices.as_slice().unwrap(), [2, 0, 3, 1]);
        let integers = Elements::from_shape_vec(IxDyn(&[3]), vec![i64::MAX, i64::MIN, 0]).unwrap();
        let [_, Dense::I64(indices)] = top_elements(&integers, 0, 2, true).unwrap() else { unreachable!() };
        assert_eq!(indices.as_slice().unwrap(), [0, 2]);
    }

    #[test]
    fn a_group_lies_along_any_axis_and_may_be_empty() {
        let x = floats(&[2, 3, 2], vec![5., 1., 3., 2., 4., 0., 0., 9., 1., 8., 2., 7.]);
        let [values, indices] = top(&Dense::F32(x.clone()), 1, 2, true).unwrap();
        let Dense::F32(values) = values else { unreachable!("the type stays the same") };
        assert_eq!(values, floats(&[2, 2, 2], vec![5., 2., 4., 1., 2., 9., 1., 8.]));
        assert_eq!(indices.shape(), [2, 2, 2]);
        assert_eq!(top_elements(&x, 1, 0, true).unwrap()[0].shape(), [2, 0, 2]);
        assert_eq!(top_elements(&floats(&[0, 3], vec![]), 1, 3, true).unwrap()[0].shape(), [0, 3]);
        assert_eq!(top_elements(&floats(&[3, 0], vec![]), 1, 0, true).unwrap()[1].shape(), [3, 0]);
    }
}
