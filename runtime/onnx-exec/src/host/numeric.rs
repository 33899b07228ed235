//! Arithmetic on the host: CumProd, Det, Col2Im, and MaxPool with the places of its elements.

use std::sync::Arc;

use super::{HostFunction, input};
use crate::OpError;
use crate::indexing::{advance, row_major_strides};
use crate::resolve::Source;
use crate::result_size::check_result_size;
use crate::shape_arithmetic::resolve_axis;
use crate::window::Window;
use flagperf_onnx::{DType, Tensor};

/// `CumProd`: the products of the elements along an axis up to each one.
pub(crate) fn cumulative_product(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let (exclusive, reverse) = (source.attributes.flag("exclusive", false)?, source.attributes.flag("reverse", false)?);
    Ok(Arc::new(move |inputs| {
        let (x, axis) = (input(inputs, 0)?, input(inputs, 1)?.to_f64());
        let axis = axis.first().ok_or_else(|| OpError::invalid_operands("`axis` is empty"))?;
        let axis = resolve_axis(*axis as i64, x.shape().len())?;
        let (size, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
        let places = |line: usize| {
            let start = line / inner * inner * size + line % inner;
            (0..size).map(move |i| start + if reverse { size - 1 - i } else { i } * inner)
        };
        let lines = x.len().checked_div(size).unwrap_or(0);
        // Integers are multiplied as such: they may be larger than an f64 represents.
        if x.dtype().is_float() {
            let mut numbers = x.to_f64();
            (0..lines).for_each(|line| accumulate(&mut numbers, places(line), 1.0, exclusive, |a, b| a * b));
            return Ok(vec![Tensor::from_vec(x.shape(), numbers)?.cast(x.dtype())]);
        }
        let mut numbers = x.cast(DType::I64).as_slice::<i64>()?.to_vec();
        (0..lines).for_each(|line| accumulate(&mut numbers, places(line), 1, exclusive, i64::wrapping_mul));
        Ok(vec![Tensor::from_vec(x.shape(), numbers)?.cast(x.dtype())])
    }))
}

fn accumulate<T: Copy>(
    numbers: &mut [T],
    places: impl Iterator<Item = usize>,
    one: T,
    exclusive: bool,
    times: impl Fn(T, T) -> T,
) {
    let mut product = one;
    for place in places {
        let next = times(product, numbers[place]);
        numbers[place] = if exclusive { product } else { next };
        product = next;
    }
}

/// `Det`: the determinants of square matrices, by elimination.
pub(crate) fn determinant(_: &Source<'_>) -> Result<HostFunction, OpError> {
    Ok(Arc::new(|inputs| {
        let x = input(inputs, 0)?;
        let [batch @ .., rows, columns] = x.shape() else { return Err(OpError::invalid_operands("no matrix")) };
        if rows != columns {
            return Err(OpError::invalid_operands(format!("{rows} x {columns} is not square")));
        }
        let numbers = x.to_f64();
        let count: usize = batch.iter().product();
        let each = (0..count).map(|i| matrix_determinant(numbers[i * rows * rows..][..rows * rows].to_vec(), *rows));
        Ok(vec![Tensor::from_vec(batch, each.collect())?.cast(x.dtype())])
    }))
}

fn matrix_determinant(mut m: Vec<f64>, size: usize) -> f64 {
    let mut product = 1.0;
    for column in 0..size {
        let larger = |a: &usize, b: &usize| m[a * size + column].abs().total_cmp(&m[b * size + column].abs());
        let pivot = (column..size).max_by(larger).unwrap_or(column);
        if pivot != column {
            (0..size).for_each(|i| m.swap(pivot * size + i, column * size + i));
            product = -product;
        }
        let diagonal = m[column * size + column];
        product *= diagonal;
        if diagonal == 0.0 {
            return 0.0;
        }
        for row in column + 1..size {
            let factor = m[row * size + column] / diagonal;
            (column..size).for_each(|i| m[row * size + i] -= factor * m[column * size + i]);
        }
    }
    product
}

/// `Col2Im`: the sums of overlapping blocks at their places in an image.
pub(crate) fn column_to_image(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let attributes = source.attributes;
    let (dilations, strides) = (attributes.counts("dilations")?, attributes.counts("strides")?);
    let pads = attributes.sizes("pads")?;
    Ok(Arc::new(move |inputs| {
        let (x, image, block) = (input(inputs, 0)?, input(inputs, 1)?.to_f64(), input(inputs, 2)?.to_f64());
        let sizes = |list: &[f64]| list.iter().map(|size| *size as usize).collect::<Vec<_>>();
        let (image, block) = (sizes(&image), sizes(&block));
        let rank = image.len();
        let ones = vec![1; rank];
        let (dilations, strides) = (dilations.as_ref().unwrap_or(&ones), strides.as_ref().unwrap_or(&ones));
        let pads = pads.clone().unwrap_or_else(|| vec![0; 2 * rank]);
        let misfit = || OpError::invalid_operands(format!("{:?} has no blocks {block:?} of {image:?}", x.shape()));
        let [batch, depth, count] = x.shape()[..] else { return Err(misfit()) };
        let area: usize = block.iter().product();
        let is_regular = [block.len(), dilations.len(), strides.len(), pads.len() / 2] == [rank; 4];
        if !is_regular || area == 0 || depth % area != 0 {
            return Err(misfit());
        }
        let steps: Option<Vec<usize>> = (0..rank)
            .map(|axis| {
                let padded = image[axis] + pads[axis] + pads[rank + axis];
                Some(padded.checked_sub(dilations[axis] * (block[axis] - 1) + 1)? / strides[axis] + 1)
            })
            .collect();
        let steps = steps.filter(|steps| steps.iter().product::<usize>() == count).ok_or_else(misfit)?;
        check_result_size(&[&[batch, depth / area], &image[..]].concat(), DType::F64)?;
        let (plane, places) = (image.iter().product::<usize>(), row_major_strides(&image));
        let (numbers, mut result) = (x.to_f64(), vec![0.0; batch * (depth / area) * plane]);
        for row in 0..batch * depth {
            let tap = coordinates(row % area, &block);
            let mut at = vec![0; rank];
            for column in 0..count {
                let place =
                    |axis: usize| (at[axis] * strides[axis] + tap[axis] * dilations[axis]).checked_sub(pads[axis]);
                let inside: Option<Vec<usize>> =
                    (0..rank).map(|axis| place(axis).filter(|place| *place < image[axis])).collect();
                if let Some(inside) = inside {
                    let offset: usize = inside.iter().zip(&places).map(|(place, stride)| place * stride).sum();
                    result[row / area * plane + offset] += numbers[row * count + column];
                }
                advance(&mut at, &steps);
            }
        }
        let shape = [&[batch, depth / area], &image[..]].concat();
        Ok(vec![Tensor::from_vec(shape, result)?.cast(x.dtype())])
    }))
}

fn coordinates(place: usize, shape: &[usize]) -> Vec<usize> {
    row_major_strides(shape).iter().zip(shape).map(|(stride, size)| place / stride % size).collect()
}

/// `MaxPool` of images of one or two spatial dimensions, with the places of the largest elements in the whole tensor.
pub(crate) fn max_pool_with_places(window: Window, column_major: bool) -> HostFunction {
    Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        let (planes, height, width, is_line) = match x.shape() {
            [batch, channels, width] => (batch * channels, 1, *width, true),
            [batch, channels, height, width] => (batch * channels, *height, *width, false),
            shape => return Err(OpError::unsupported(format!("the places of elements of {shape:?}"))),
        };
        let pool = window.pool([height, width], false)?;
        let (numbers, mut values, mut places) = (x.to_f64(), Vec::new(), Vec::new());
        for (plane, [row, column]) in (0..planes).flat_map(|plane| {
            ndarray::indices((pool.output[0], pool.output[1]))
                .into_iter()
                .map(move |(row, column)| (plane, [row, column]))
        }) {
            let mut best = (f64::NEG_INFINITY, None);
            for (y, x) in ndarray::indices((pool.kernel[0], pool.kernel[1])) {
                let at = |axis: usize, place: usize, tap: usize, size: usize| {
                    let place = place * pool.strides[axis] + tap * pool.dilations[axis];
                    place.checked_sub(pool.before[axis]).filter(|place| *place < size)
                };
                let Some((y, x)) = at(0, row, y, height).zip(at(1, column, x, width)) else { continue };
                let value = numbers[(plane * height + y) * width + x];
                if value > best.0 || best.1.is_none() {
                    let place = if column_major { x * height + y } else { y * width + x };
                    best = (value, Some(plane * height * width + place));
                }
            }
            values.push(best.0);
            places.push(best.1.unwrap_or_default() as i64);
        }
        let spatial = if is_line { vec![pool.output[1]] } else { pool.output.to_vec() };
        let shape = [&x.shape()[..2], &spatial].concat();
        Ok(vec![Tensor::from_vec(&shape[..], values)?.cast(x.dtype()), Tensor::from_vec(shape, places)?])
    })
}
