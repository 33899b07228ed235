//! Depthwise convolution, in which each filter reads one channel: computed as sums of shifted rows, without matrices.

use rayon::prelude::*;

use super::activation::vectorized;
use super::conv::{ConvShape, Epilogue};

/// Number of output positions that are computed at once, in registers.
const LANES: usize = 16;

pub(super) fn conv(shape: &ConvShape, input: &[f32], weight: &[f32], epilogue: Epilogue, result: &mut [f32]) {
    let (plane, taps) = (shape.output_plane_size().max(1), shape.kernel[0] * shape.kernel[1]);
    let input_plane = shape.input[0] * shape.input[1];
    result.par_chunks_mut(plane).enumerate().for_each_init(Vec::new, |padded: &mut Vec<f32>, (i, output)| {
        let (image, filter) = (i / shape.filters, i % shape.filters);
        let channel = image * shape.channels + filter / shape.filters_per_group;
        let layout = Layout::new(shape);
        layout.fill(&input[channel * input_plane..(channel + 1) * input_plane], padded);
        let weight = &weight[filter * taps..(filter + 1) * taps];
        vectorized(|| layout.rows(padded, weight, output));
        epilogue.apply(filter, i * plane..(i + 1) * plane, output);
    });
}

/// A padded plane in which the columns that one tap reads are adjacent: columns are grouped by their index modulo the
/// stride (their phase).
struct Layout<'a> {
    shape: &'a ConvShape,
    /// Columns of one phase, rounded up so that a block of lanes may read beyond the last position.
    width: usize,
    /// Rows that the windows cover, including padding.
    height: usize,
}

impl<'a> Layout<'a> {
    fn new(shape: &'a ConvShape) -> Self {
        let conv = shape.conv;
        let reach = (shape.kernel[1] - 1) * conv.dilations[1] / conv.strides[1];
        let height = (shape.output[0] - 1) * conv.strides[0] + (shape.kernel[0] - 1) * conv.dilations[0] + 1;
        Layout { shape, width: shape.output[1].next_multiple_of(LANES) + reach, height }
    }

    fn fill(&self, plane: &[f32], padded: &mut Vec<f32>) {
        let ([top, left], stride) = (self.shape.conv.before, self.shape.conv.strides[1]);
        padded.clear();
        padded.resize(self.height * stride * self.width, 0.0);
        let rows = padded.chunks_exact_mut(stride * self.width).skip(top);
        for (row, padded) in plane.chunks_exact(self.shape.input[1]).zip(rows) {
            for (phase, padded) in padded.chunks_exact_mut(self.width).enumerate() {
                // The first position of this phase that is not in the padding.
                let place = left.saturating_sub(phase).div_ceil(stride);
                let source = row.iter().skip(place * stride + phase - left).step_by(stride);
                padded.iter_mut().skip(place).zip(source).for_each(|(padded, value)| *padded = *value);
            }
        }
    }

    #[inline(always)]
    fn rows(&self, padded: &[f32], weight: &[f32], output: &mut [f32]) {
        let (conv, kernel) = (self.shape.conv, self.shape.kernel);
        let line = conv.strides[1] * self.width;
        for (row, output) in output.chunks_exact_mut(self.shape.output[1]).enumerate() {
            let first_line = row * conv.strides[0];
            for (block, output) in output.chunks_mut(LANES).enumerate() {
                let mut sums = [0.0f32; LANES];
                for (tap, weight) in weight.iter().enumerate() {
                    let (tap_y, tap_x) = (tap / kernel[1], tap % kernel[1] * conv.dilations[1]);
                    let (phase, place) = (tap_x % conv.strides[1], tap_x / conv.strides[1]);
                    let start =
                        (first_line + tap_y * conv.dilations[0]) * line + phase * self.width + place + block * LANES;
                    let values = &padded[start..start + LANES];
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += weight * value;
                    }
                }
                output.copy_from_slice(&sums[..output.len()]);
            }
        }
    }
}
