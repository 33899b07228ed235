//! Convolutions and pools. libtorch supports symmetric padding only; for asymmetric padding, the input is padded first.

use flagperf_onnx_exec::{Conv, Pool};
use tch::{TchError, Tensor};

/// Computes a two-dimensional convolution.
pub fn conv(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor, TchError> {
    let (padded, padding) = if conv.before == conv.after {
        (x.shallow_clone(), pair(conv.before))
    } else {
        (pad(x, conv.before, conv.after, 0.0)?, [0, 0])
    };
    padded.f_conv2d(weight, bias, pair(conv.strides), padding, pair(conv.dilations), conv.groups as i64)
}

/// Computes the ReLU of a two-dimensional convolution plus `residual`, if given, in one kernel of cuDNN. The padding
/// must be symmetric.
pub fn conv_relu(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    conv: &Conv,
) -> Result<Tensor, TchError> {
    let (strides, padding, dilations) = (pair(conv.strides), pair(conv.before), pair(conv.dilations));
    let groups = conv.groups as i64;
    match residual {
        Some(z) => x.f_cudnn_convolution_add_relu(weight, z, 1.0, bias, strides, padding, dilations, groups),
        None => x.f_cudnn_convolution_relu(weight, bias, strides, padding, dilations, groups),
    }
}

/// Computes the largest element of each window.
pub fn max_pool(x: &Tensor, pool: &Pool) -> Result<Tensor, TchError> {
    let (padded, padding) = if is_plain(x, pool) {
        (x.shallow_clone(), pair(pool.before))
    } else {
        (pad(x, pool.before, needed_after(x, pool), f64::NEG_INFINITY)?, [0, 0])
    };
    padded.f_max_pool2d(pair(pool.kernel), pair(pool.strides), padding, pair(pool.dilations), false)
}

/// Computes the mean of each window. Where libtorch's own padding is not sufficient, this is the sum of each window
/// divided by the number of elements that count.
pub fn average_pool(x: &Tensor, pool: &Pool) -> Result<Tensor, TchError> {
    let (kernel, strides) = (pair(pool.kernel), pair(pool.strides));
    if is_plain(x, pool) {
        return x.f_avg_pool2d(kernel, strides, pair(pool.before), false, pool.include_pad, None);
    }
    let after = needed_after(x, pool);
    let sum = |x: &Tensor| x.f_avg_pool2d(kernel, strides, [0, 0], false, true, 1);
    let [.., height, width] = x.size()[..] else { return x.f_avg_pool2d(kernel, strides, [0, 0], false, true, None) };
    let ones = Tensor::f_ones([1, 1, height, width], (x.kind(), x.device()))?;
    let counted = if pool.include_pad {
        let beyond = [0, 1].map(|axis| after[axis].saturating_sub(pool.after[axis]));
        pad(&pad(&ones, pool.before, pool.after, 1.0)?, [0, 0], beyond, 0.0)?
    } else {
        pad(&ones, pool.before, after, 0.0)?
    };
    let counted = crop_to_padded(&counted, x, pool.before, after)?;
    sum(&pad(x, pool.before, after, 0.0)?)?.f_div(&sum(&counted)?)
}

/// Whether libtorch's own padding is sufficient for this pool: it is symmetric and at most half a window, and no window
/// extends beyond it.
fn is_plain(x: &Tensor, pool: &Pool) -> bool {
    let fits = |axis: usize| 2 * pool.before[axis] <= pool.kernel[axis];
    let covered = needed_after(x, pool).iter().zip(pool.after).all(|(needed, after)| *needed <= after);
    pool.before == pool.after && fits(0) && fits(1) && covered
}

/// Returns the padding at the end that yields the pool's number of windows. It is less than the pool's own padding when
/// that leaves a remainder.
fn needed_after(x: &Tensor, pool: &Pool) -> [usize; 2] {
    let shape = x.size();
    [0, 1].map(|axis| {
        let input = shape[shape.len() - 2 + axis] as usize;
        let reach = (pool.kernel[axis] - 1) * pool.dilations[axis] + 1;
        ((pool.output[axis] - 1) * pool.strides[axis] + reach).saturating_sub(input + pool.before[axis])
    })
}

/// Crops a padded plane of ones to the size of the padded input.
fn crop_to_padded(ones: &Tensor, x: &Tensor, before: [usize; 2], after: [usize; 2]) -> Result<Tensor, TchError> {
    let shape = x.size();
    let size = |axis: usize| shape[shape.len() - 2 + axis] + (before[axis] + after[axis]) as i64;
    ones.f_narrow(2, 0, size(0))?.f_narrow(3, 0, size(1))
}

fn pad(x: &Tensor, before: [usize; 2], after: [usize; 2], value: f64) -> Result<Tensor, TchError> {
    let amounts = [before[1], after[1], before[0], after[0]].map(|amount| amount as i64);
    x.f_pad(amounts, "constant", value)
}

fn pair(values: [usize; 2]) -> [i64; 2] {
    values.map(|value| value as i64)
}
