//! Pooling and padding.

use rayon::prelude::*;

use super::OpError;
use super::storage::{Dense, f32_tensor, with_f32_elements};
use crate::ops::Pool;

/// How the elements of a window are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    Max,
    Mean,
}

pub(super) fn pool(x: &Dense, pool: &Pool, kind: PoolKind) -> Result<Dense, OpError> {
    let [count, channels, height, width] = x.image_shape()?;
    let [out_height, out_width] = pool.output;
    let mut pooled = vec![0.0; count * channels * out_height * out_width];
    with_f32_elements(x, |elements| {
        let planes = elements.par_chunks((height * width).max(1));
        let outputs = pooled.par_chunks_mut((out_height * out_width).max(1));
        planes.zip(outputs).for_each(|(plane, output)| pool_plane(plane, [height, width], pool, kind, output));
    })?;
    f32_tensor(pooled, &[count, channels, out_height, out_width])
}

fn pool_plane(plane: &[f32], [height, width]: [usize; 2], pool: &Pool, kind: PoolKind, output: &mut [f32]) {
    for (row, output) in output.chunks_exact_mut(pool.output[1]).enumerate() {
        let (rows, rows_padded) = tap_range(pool, 0, row, height);
        for (column, output) in output.iter_mut().enumerate() {
            let (columns, columns_padded) = tap_range(pool, 1, column, width);
            let inside = rows.clone().flat_map(|y| columns.clone().map(move |x| plane[y * width + x]));
            *output = match kind {
                PoolKind::Max => inside.fold(f32::NEG_INFINITY, f32::max),
                PoolKind::Mean if pool.include_pad => mean(inside, rows_padded * columns_padded),
                PoolKind::Mean => mean(inside, rows.len() * columns.len()),
            };
        }
    }
}

/// Windows may be as large as an image, so that their sum is one in f64.
fn mean(elements: impl Iterator<Item = f32>, count: usize) -> f32 {
    (elements.map(f64::from).sum::<f64>() / count as f64) as f32
}

/// Returns the indices that the taps of window `place` read along an axis of `size` entries, and the number of taps
/// within the padded input.
fn tap_range(
    pool: &Pool,
    axis: usize,
    place: usize,
    size: usize,
) -> (std::iter::StepBy<std::ops::Range<usize>>, usize) {
    let (dilation, before) = (pool.dilations[axis], pool.before[axis]);
    let start = place * pool.strides[axis];
    let end = start + (pool.kernel[axis] - 1) * dilation + 1;
    let padded = (end.min(size + before + pool.after[axis]) - start).div_ceil(dilation);
    // The first tap that is not in the padding before the input.
    let skipped = before.saturating_sub(start).div_ceil(dilation) * dilation;
    let first = start + skipped - before;
    let last = end.saturating_sub(before).min(size);
    ((first..last.max(first)).step_by(dilation), padded)
}
