//! OpenCV's filters for 8-bit images, bit for bit as `cv2.resize` of opencv-python 5.0 computes them on x86-64:
//! `INTER_LINEAR` in fixed point, without antialiasing, and `INTER_AREA`, the mean of the area that a pixel covers, in f32.
//!
//! YOLOv5 resizes with both.

use super::{Axis, CHANNELS};

/// Weights of `INTER_LINEAR` are multiples of this part of one.
const ONE: f32 = 2048.0;

/// Returns the scale of an axis, source pixels per resized pixel, as OpenCV rounds it.
fn scale(axis: &Axis) -> f64 {
    1.0 / (axis.scaled as f64 / axis.source as f64)
}

/// Returns the number of source pixels per resized pixel if it is the same whole number for all of them.
fn whole_scale(axis: &Axis) -> Option<usize> {
    let scale = scale(axis);
    ((scale - scale.round_ties_even()).abs() < f64::EPSILON).then_some(scale.round_ties_even() as usize)
}

/// Resizes with `INTER_LINEAR`, or halves both sides with `INTER_AREA`, as OpenCV does then.
pub fn resize_linear(rgb: &[u8], columns: &Axis, rows: &Axis, out: &mut [u8]) {
    if [columns, rows].map(whole_scale) == [Some(2); 2] {
        return resize_area(rgb, columns, rows, out);
    }
    let across: Vec<Pair> =
        columns.kept.clone().map(|target| Pair::new(columns, target).at_edge(columns.source)).collect();
    let stride = columns.source * CHANNELS;
    let width = columns.kept.len() * CHANNELS;
    // The last two source rows that were resized.
    let mut cache = [(usize::MAX, vec![0; width]), (usize::MAX, vec![0; width])];
    for (target, line) in rows.kept.clone().zip(out.chunks_exact_mut(width.max(1))) {
        let Pair { first, weights: [above, below] } = Pair::new(rows, target);
        let places = [0, 1].map(|next| (first + next).clamp(0, rows.source as isize - 1) as usize);
        if cache[1].0 == places[0] {
            cache.swap(0, 1);
        }
        for ((place, resized), wanted) in cache.iter_mut().zip(places) {
            if *place != wanted {
                *place = wanted;
                resize_row(&rgb[wanted * stride..][..stride], &across, resized);
            }
        }
        let [(_, upper), (_, lower)] = &cache;
        for ((level, upper), lower) in line.iter_mut().zip(upper).zip(lower) {
            // OpenCV drops bits of both products before it adds them, for its vector instructions.
            let sum = ((above * (upper >> 4)) >> 16) + ((below * (lower >> 4)) >> 16);
            *level = ((sum + 2) >> 2) as u8;
        }
    }
}

fn resize_row(source: &[u8], across: &[Pair], resized: &mut [i32]) {
    for (pixel, Pair { first, weights }) in resized.chunks_exact_mut(CHANNELS).zip(across) {
        let left = *first as usize * CHANNELS;
        let right = if weights[1] == 0 { left } else { left + CHANNELS };
        for (channel, sum) in pixel.iter_mut().enumerate() {
            *sum = i32::from(source[left + channel]) * weights[0] + i32::from(source[right + channel]) * weights[1];
        }
    }
}

/// Two neighbouring source pixels and their weights; the first may lie before the image, the second behind it.
struct Pair {
    first: isize,
    weights: [i32; 2],
}

impl Pair {
    fn new(axis: &Axis, target: usize) -> Self {
        let place = ((target as f64 + 0.5) * scale(axis) - 0.5) as f32;
        let share = place - place.floor();
        let weights = [1.0 - share, share].map(|share| (share * ONE).round_ties_even() as i32);
        Pair { first: place.floor() as isize, weights }
    }

    /// Keeps the pair inside of an axis with `source` pixels: a pixel at the edge counts alone.
    fn at_edge(self, source: usize) -> Self {
        let last = source as isize - 1;
        if (0..last).contains(&self.first) {
            return self;
        }
        Pair { first: self.first.clamp(0, last), weights: [ONE as i32, 0] }
    }
}

/// Resizes with `INTER_AREA` if neither side grows, and else with `INTER_LINEAR`.
pub fn resize_area(rgb: &[u8], columns: &Axis, rows: &Axis, out: &mut [u8]) {
    if columns.scaled > columns.source || rows.scaled > rows.source {
        return resize_linear(rgb, columns, rows, out);
    }
    if let (Some(across), Some(down)) = (whole_scale(columns), whole_scale(rows)) {
        return average_blocks(rgb, columns, rows, (across, down), out);
    }
    let (across, down) = (Cell::all(columns), Cell::all(rows));
    let (stride, width) = (columns.source * CHANNELS, columns.kept.len() * CHANNELS);
    let (mut resized, mut sums) = (vec![0.0; width], vec![0.0; width]);
    for (cell, line) in down.iter().zip(out.chunks_exact_mut(width.max(1))) {
        sums.fill(0.0);
        for (row, weight) in rgb[cell.first * stride..].chunks_exact(stride).zip(&cell.weights) {
            average_row(row, &across, &mut resized);
            for (sum, level) in sums.iter_mut().zip(&resized) {
                *sum += weight * level;
            }
        }
        for (level, sum) in line.iter_mut().zip(&sums) {
            *level = sum.round_ties_even() as u8;
        }
    }
}

fn average_row(source: &[u8], across: &[Cell], resized: &mut [f32]) {
    for (pixel, cell) in resized.chunks_exact_mut(CHANNELS).zip(across) {
        pixel.fill(0.0);
        for (levels, weight) in source[cell.first * CHANNELS..].chunks_exact(CHANNELS).zip(&cell.weights) {
            for (sum, level) in pixel.iter_mut().zip(levels) {
                *sum += f32::from(*level) * weight;
            }
        }
    }
}

/// The source pixels that a resized pixel covers, from `first` on, and their shares of it.
struct Cell {
    first: usize,
    weights: Vec<f32>,
}

impl Cell {
    /// A smaller part of a source pixel does not count.
    const LEAST: f64 = 1e-3;

    fn all(axis: &Axis) -> Vec<Cell> {
        axis.kept.clone().map(|target| Cell::new(axis, target)).collect()
    }

    fn new(axis: &Axis, target: usize) -> Self {
        let scale = scale(axis);
        let begin = target as f64 * scale;
        let end = begin + scale;
        let length = scale.min(axis.source as f64 - begin);
        let inner_end = (end.floor() as usize).min(axis.source - 1);
        let inner = (begin.ceil() as usize).min(inner_end);
        let mut cell = Cell { first: inner, weights: Vec::new() };
        if inner as f64 - begin > Self::LEAST {
            cell.first -= 1;
            cell.weights.push(((inner as f64 - begin) / length) as f32);
        }
        cell.weights.extend((inner..inner_end).map(|_| (1.0 / length) as f32));
        if end - inner_end as f64 > Self::LEAST {
            cell.weights.push(((end - inner_end as f64).min(1.0).min(length) / length) as f32);
        }
        cell
    }
}

/// Resizes by whole numbers: each pixel is the mean of a block of `across` x `down` pixels.
fn average_blocks(rgb: &[u8], columns: &Axis, rows: &Axis, (across, down): (usize, usize), out: &mut [u8]) {
    let stride = columns.source * CHANNELS;
    let share = 1.0 / (across * down) as f32;
    for (at, level) in out.iter_mut().enumerate() {
        let (pixel, channel) = (at / CHANNELS, at % CHANNELS);
        let left = (columns.kept.start + pixel % columns.kept.len()) * across;
        let top = (rows.kept.start + pixel / columns.kept.len()) * down;
        let row = |y: usize| (left..left + across).map(move |x| u32::from(rgb[y * stride + x * CHANNELS + channel]));
        let sum: u32 = (top..top + down).flat_map(row).sum();
        // Halves are rounded up in blocks of four pixels, else to the even number.
        *level =
            if (across, down) == (2, 2) { (sum + 2) >> 2 } else { (sum as f32 * share).round_ties_even() as u32 } as u8;
    }
}
