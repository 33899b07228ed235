//! Matrix products, convolution and pooling in f64.

use ndarray::{Array2, Array3, Array4, ArrayView3, ArrayView4, Axis, Ix4, s};

use super::{Array, OpError};
use crate::ops::{Conv, Pool};
use crate::shape_arithmetic::{MatmulDims, matmul_dims};

pub(super) fn matmul(a: &Array, b: &Array) -> Result<Array, OpError> {
    let MatmulDims { batch, m, k, n } = matmul_dims(a.shape(), b.shape())?;
    let (left, right) = (stack(a, &batch, [m, k])?, stack(b, &batch, [k, n])?);
    let mut product = Array3::zeros((left.len_of(Axis(0)), m, n));
    for ((mut product, left), right) in product.outer_iter_mut().zip(left.outer_iter()).zip(right.outer_iter()) {
        product.assign(&left.dot(&right));
    }
    Array::new(product.into_dyn(), a.dtype()).reshape(&[&batch[..], &[m, n]].concat())
}

/// Returns the matrices of a batch, one after the other.
fn stack(x: &Array, batch: &[usize], [rows, columns]: [usize; 2]) -> Result<Array3<f64>, OpError> {
    let values = x.broadcast(&[batch, &[rows, columns]].concat())?;
    let row_major: Vec<f64> = values.iter().copied().collect();
    Array3::from_shape_vec((batch.iter().product(), rows, columns), row_major).map_err(OpError::library)
}

pub(super) fn conv(x: &Array, weight: &Array, bias: Option<&Array>, conv: &Conv) -> Result<Array, OpError> {
    let (images, weight_values) = (planes(x)?, planes(weight)?);
    let (count, channels, height, width) = images.dim();
    let (filters, filter_channels, kernel_height, kernel_width) = weight_values.dim();
    if channels != filter_channels * conv.groups || filters % conv.groups != 0 {
        return Err(conv.shape_mismatch(x.shape(), weight.shape()));
    }
    let [out_height, out_width] = conv.output([height, width], [kernel_height, kernel_width])?;
    let filters_per_group = filters / conv.groups;
    let mut result = Array4::zeros((count, filters, out_height, out_width));
    for (image, mut result) in images.outer_iter().zip(result.outer_iter_mut()) {
        for group in 0..conv.groups {
            let inputs = image.slice(s![group * filter_channels..(group + 1) * filter_channels, .., ..]);
            let columns = columns(inputs, [kernel_height, kernel_width], conv, [out_height, out_width]);
            let outputs = s![group * filters_per_group..(group + 1) * filters_per_group, .., ..];
            let matrix =
                weight_values.slice(s![group * filters_per_group..(group + 1) * filters_per_group, .., .., ..]);
            let matrix = matrix.to_shape((filters_per_group, columns.nrows())).map_err(OpError::library)?;
            let product = matrix.dot(&columns);
            let product = product.to_shape((filters_per_group, out_height, out_width)).map_err(OpError::library)?;
            result.slice_mut(outputs).assign(&product);
        }
    }
    if let Some(bias) = bias {
        result += &bias.reshape(&[filters, 1, 1])?.values();
    }
    Ok(Array::new(result.into_dyn(), x.dtype()))
}

/// Returns, for each weight of a filter (rows) and each position of the output (columns), the input that is multiplied
/// by the weight; 0 in the padding.
fn columns(inputs: ArrayView3<f64>, kernel: [usize; 2], conv: &Conv, output: [usize; 2]) -> Array2<f64> {
    let channels = inputs.len_of(Axis(0));
    Array2::from_shape_fn((channels * kernel[0] * kernel[1], output[0] * output[1]), |(row, column)| {
        let (channel, tap) = (row / (kernel[0] * kernel[1]), row % (kernel[0] * kernel[1]));
        let y = source(column / output[1], tap / kernel[1], conv.strides[0], conv.dilations[0], conv.before[0]);
        let x = source(column % output[1], tap % kernel[1], conv.strides[1], conv.dilations[1], conv.before[1]);
        y.zip(x).and_then(|(y, x)| inputs.get((channel, y, x)).copied()).unwrap_or(0.0)
    })
}

/// Returns the index that tap `tap` of the window at `place` reads, or `None` when it is before the first entry.
fn source(place: usize, tap: usize, stride: usize, dilation: usize, before: usize) -> Option<usize> {
    (place * stride + tap * dilation).checked_sub(before)
}

/// Pools each window with `combine`, which receives the elements of the window that are not padding, and the number of
/// taps within the padded input.
pub(super) fn pool(x: &Array, pool: &Pool, combine: impl Fn(&[f64], usize) -> f64) -> Result<Array, OpError> {
    let images = planes(x)?;
    let (count, channels, height, width) = images.dim();
    let padded = [height + pool.before[0] + pool.after[0], width + pool.before[1] + pool.after[1]];
    let inside =
        |axis: usize, place: usize, tap: usize| place * pool.strides[axis] + tap * pool.dilations[axis] < padded[axis];
    let result = Array4::from_shape_fn((count, channels, pool.output[0], pool.output[1]), |(n, c, row, column)| {
        let (mut taps, mut in_padded) = (Vec::new(), 0);
        for (tap_y, tap_x) in ndarray::indices((pool.kernel[0], pool.kernel[1])) {
            in_padded += usize::from(inside(0, row, tap_y) && inside(1, column, tap_x));
            let y = source(row, tap_y, pool.strides[0], pool.dilations[0], pool.before[0]);
            let x = source(column, tap_x, pool.strides[1], pool.dilations[1], pool.before[1]);
            taps.extend(y.zip(x).and_then(|(y, x)| images.get((n, c, y, x))));
        }
        combine(&taps, in_padded)
    });
    Ok(Array::new(result.into_dyn(), x.dtype()))
}

fn planes(x: &Array) -> Result<ArrayView4<'_, f64>, OpError> {
    x.values()
        .into_dimensionality::<Ix4>()
        .map_err(|_| OpError::invalid_operands(format!("{:?} must have 4 dimensions", x.shape())))
}
