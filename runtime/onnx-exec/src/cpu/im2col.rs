//! Arranges the input of a convolution as the right operand of a matrix product (im2col), one tile of columns at a
//! time.

use std::ops::Range;

use super::conv::ConvShape;

/// Adjacent positions of one output row.
#[derive(Clone, Copy, Debug)]
struct Run {
    image: usize,
    row: usize,
    column: usize,
    length: usize,
}

/// Returns the positions in `columns` as runs, each within one output row. Columns count through all images, row by
/// row.
fn runs(shape: &ConvShape, columns: Range<usize>) -> Vec<Run> {
    let [height, width] = shape.output;
    let mut runs = Vec::new();
    let mut at = columns.start;
    while at < columns.end {
        let column = at % width;
        let length = (width - column).min(columns.end - at);
        runs.push(Run { image: at / (height * width), row: at / width % height, column, length });
        at += length;
    }
    runs
}

/// Fills `tile` (taps of the group's filters × columns, dense) with the input that each tap reads at each position.
pub(super) fn fill(shape: &ConvShape, input: &[f32], group: usize, columns: Range<usize>, tile: &mut [f32]) {
    let width = columns.len();
    let runs = runs(shape, columns);
    let [kernel_height, kernel_width] = shape.kernel;
    let taps = kernel_height * kernel_width;
    for (tap, line) in tile.chunks_exact_mut(width).enumerate() {
        let channel = group * shape.channels_per_group + tap / taps;
        let (tap_y, tap_x) = (tap % taps / kernel_width, tap % kernel_width);
        let mut rest = line;
        for run in &runs {
            let (places, others) = rest.split_at_mut(run.length);
            rest = others;
            let y =
                (run.row * shape.conv.strides[0] + tap_y * shape.conv.dilations[0]).wrapping_sub(shape.conv.before[0]);
            if y >= shape.input[0] {
                places.fill(0.0);
                continue;
            }
            let start = ((run.image * shape.channels + channel) * shape.input[0] + y) * shape.input[1];
            let source = &input[start..start + shape.input[1]];
            copy_tap(source, run.column, tap_x * shape.conv.dilations[1], shape, places);
        }
    }
}

/// Copies the input that the tap at `offset` reads at the positions from `column` on:
/// `source[place * stride + offset - before]`, or 0 outside the source.
fn copy_tap(source: &[f32], column: usize, offset: usize, shape: &ConvShape, places: &mut [f32]) {
    let (stride, before) = (shape.conv.strides[1], shape.conv.before[1]);
    // Positions from `first` on read at or after the beginning, positions before `last` read before the end.
    let first = before.saturating_sub(offset).div_ceil(stride).clamp(column, column + places.len());
    let last = (source.len() + before).saturating_sub(offset).div_ceil(stride).clamp(first, column + places.len());
    let (zeros, rest) = places.split_at_mut(first - column);
    let (read, more_zeros) = rest.split_at_mut(last - first);
    zeros.fill(0.0);
    more_zeros.fill(0.0);
    if read.is_empty() {
        return;
    }
    let source = &source[first * stride + offset - before..];
    if stride == 1 {
        read.copy_from_slice(&source[..read.len()]);
    } else {
        for (place, value) in read.iter_mut().zip(source.iter().step_by(stride)) {
            *place = *value;
        }
    }
}
