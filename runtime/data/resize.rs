//! Antialiased bilinear resizing, bit by bit PIL's: a horizontal, then a vertical pass, both in fixed point and rounded
//! to 8 bits. A model that is not sure of a photograph tells one class or the other by such roundings, and an accuracy is
//! compared with what others measured on PIL's pixels.
//!
//! Only what a crop keeps is computed; the filter still sees the pixels around it. Knows no model.

use std::ops::Range;

use super::pixels::CHANNELS;

/// Bits of a weight behind the point, in PIL for 8-bit pixels: 32 less 8 of a pixel and 2 in reserve.
const FRACTION: u32 = 32 - 8 - 2;
/// Reach of the bilinear filter in pixels of the coarser side.
const REACH: f64 = 1.0;
/// What makes cutting off the fraction a rounding.
const HALF: i32 = 1 << (FRACTION - 1);
/// Rows that become narrower together, side by side: so the horizontal pass is made of whole vectors, too.
const LANES: usize = 16;

/// A part of a resized image: the pixels of `kept` after `source` pixels became `scaled`, along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Pixels before.
    pub source: usize,
    /// Pixels of the whole axis after.
    pub scaled: usize,
    /// Pixels after that are wanted.
    pub kept: Range<usize>,
}

/// Memory that one thread reuses from image to image.
#[derive(Default)]
pub struct ResizeScratch {
    wide: Vec<[u8; LANES]>,
    slim: Vec<[u8; LANES]>,
    narrow: Vec<u8>,
    sums: Vec<i32>,
}

/// The weights of one axis: for each kept pixel the first source pixel and the weight of each from there on.
struct Weights {
    taps: usize,
    first: Vec<usize>,
    values: Vec<i32>,
}

impl Weights {
    fn new(axis: &Axis) -> Self {
        let scale = axis.source as f64 / axis.scaled as f64;
        let stretch = scale.max(1.0);
        let support = REACH * stretch;
        let taps = (2.0 * support) as usize + 1;
        let mut weights = Weights { taps, first: Vec::new(), values: Vec::new() };
        for target in axis.kept.clone() {
            let centre = (target as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(axis.source);
            let exact = (first..end).map(|at| (1.0 - ((at as f64 - centre + 0.5) * (1.0 / stretch)).abs()).max(0.0));
            let sum: f64 = exact.clone().sum();
            let fixed = exact.map(|weight| (weight / sum * f64::from(1 << FRACTION) + 0.5) as i32);
            weights.first.push(first);
            weights.values.extend(fixed.chain(std::iter::repeat(0)).take(taps));
        }
        weights
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.first.iter().copied().zip(self.values.chunks_exact(self.taps))
    }

    /// Source pixels that any kept pixel sees.
    fn seen(&self, source: usize) -> Range<usize> {
        let first = self.first.first().copied().unwrap_or(0);
        first..self.first.last().map_or(first, |last| last + self.taps).min(source)
    }
}

/// Resizes interleaved RGB pixels and writes the part that is kept, row by row, to `out`.
pub fn resize(rgb: &[u8], columns: &Axis, rows: &Axis, scratch: &mut ResizeScratch, out: &mut [u8]) {
    let (across, down) = (Weights::new(columns), Weights::new(rows));
    let seen = down.seen(rows.source);
    let width = columns.kept.len() * CHANNELS;
    scratch.narrow.resize(seen.len() * width, 0);
    scratch.wide.resize(across.seen(columns.source).len() * CHANNELS, [0; LANES]);
    scratch.slim.resize(width, [0; LANES]);
    let stride = columns.source * CHANNELS;
    let source = &rgb[seen.start * stride..seen.end * stride];
    pulp::Arch::new().dispatch(Passes { source, stride, above: seen.start, across, down, scratch, out, width });
}

/// Both passes over an image, compiled for each set of vector instructions: what they call is inlined into them.
struct Passes<'a> {
    /// The rows that the kept ones see.
    source: &'a [u8],
    /// Bytes of a source row.
    stride: usize,
    /// Source rows above the first that is seen.
    above: usize,
    across: Weights,
    down: Weights,
    scratch: &'a mut ResizeScratch,
    out: &'a mut [u8],
    /// Bytes of a kept row.
    width: usize,
}

impl pulp::NullaryFnOnce for Passes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ResizeScratch { wide, slim, narrow, sums } = self.scratch;
        let left = self.across.first.first().copied().unwrap_or(0);
        for (sources, targets) in self.source.chunks(self.stride * LANES).zip(narrow.chunks_mut(self.width * LANES)) {
            for (lane, source) in sources.chunks_exact(self.stride).enumerate() {
                for (column, level) in wide.iter_mut().zip(&source[left * CHANNELS..]) {
                    column[lane] = *level;
                }
            }
            narrow_rows(wide, left, &self.across, slim);
            for (lane, target) in targets.chunks_exact_mut(self.width).enumerate() {
                for (level, column) in target.iter_mut().zip(&*slim) {
                    *level = column[lane];
                }
            }
        }
        for ((first, weights), target) in self.down.iter().zip(self.out.chunks_exact_mut(self.width)) {
            let sources = narrow[(first - self.above) * self.width..].chunks_exact(self.width);
            sum_rows(sources.zip(weights), sums, target);
        }
    }
}

/// Rows, side by side, made narrower; `wide` begins with the pixel `left`.
#[inline(always)]
fn narrow_rows(wide: &[[u8; LANES]], left: usize, weights: &Weights, slim: &mut [[u8; LANES]]) {
    for ((first, weights), pixel) in weights.iter().zip(slim.chunks_exact_mut(CHANNELS)) {
        let sources = &wide[(first - left) * CHANNELS..];
        for (channel, target) in pixel.iter_mut().enumerate() {
            let mut sums = [HALF; LANES];
            for (weight, source) in weights.iter().zip(sources.chunks_exact(CHANNELS)) {
                for (sum, level) in sums.iter_mut().zip(&source[channel]) {
                    *sum += weight * i32::from(*level);
                }
            }
            *target = sums.map(rounded);
        }
    }
}

/// Rows summed into one.
#[inline(always)]
fn sum_rows<'a>(rows: impl Iterator<Item = (&'a [u8], &'a i32)>, sums: &mut Vec<i32>, target: &mut [u8]) {
    sums.clear();
    sums.resize(target.len(), HALF);
    for (row, weight) in rows {
        for (sum, level) in sums.iter_mut().zip(row) {
            *sum += weight * i32::from(*level);
        }
    }
    for (level, sum) in target.iter_mut().zip(sums) {
        *level = rounded(*sum);
    }
}

#[inline(always)]
fn rounded(sum: i32) -> u8 {
    (sum >> FRACTION).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(source: usize, scaled: usize) -> Axis {
        Axis { source, scaled, kept: 0..scaled }
    }

    fn resized(rgb: &[u8], columns: &Axis, rows: &Axis) -> Vec<u8> {
        let mut out = vec![0; columns.kept.len() * rows.kept.len() * CHANNELS];
        resize(rgb, columns, rows, &mut ResizeScratch::default(), &mut out);
        out
    }

    /// Hills that differ in every direction and channel.
    fn image(width: usize, height: usize) -> Vec<u8> {
        let level = |at: usize| {
            let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
            ((x * (3 + channel) + y * (7 - channel)) % 509 / 2) as u8
        };
        (0..width * height * 3).map(level).collect()
    }

    #[test]
    fn the_same_size_is_the_same_image() {
        let rgb = image(7, 5);
        assert_eq!(resized(&rgb, &whole(7, 7), &whole(5, 5)), rgb);
    }

    #[test]
    fn a_part_is_cut_out_of_the_whole() {
        for (width, height, scaled) in [(500, 375, (341, 256)), (40, 60, (80, 120)), (333, 20, (33, 40))] {
            let rgb = image(width, height);
            let (columns, rows) = (whole(width, scaled.0), whole(height, scaled.1));
            let all = resized(&rgb, &columns, &rows);
            let (x, y) = (scaled.0 / 3..scaled.0 / 2, scaled.1 / 4..scaled.1);
            let part = resized(&rgb, &Axis { kept: x.clone(), ..columns }, &Axis { kept: y.clone(), ..rows });
            let cut: Vec<u8> =
                y.flat_map(|y| all[(y * scaled.0 + x.start) * 3..(y * scaled.0 + x.end) * 3].to_vec()).collect();
            assert_eq!(part, cut);
        }
    }

    #[test]
    fn levels_are_those_of_pil() {
        // Image.frombytes("L", (5, 1), bytes([0, 100, 200, 50, 255])).resize((w, 1), Image.Resampling.BILINEAR)
        let grey = [0u8, 100, 200, 50, 255];
        let rgb: Vec<u8> = grey.iter().flat_map(|level| [*level; 3]).collect();
        let line =
            |scaled| resized(&rgb, &whole(5, scaled), &whole(1, 1)).iter().step_by(3).copied().collect::<Vec<u8>>();
        assert_eq!(line(3), [43, 144, 167]);
        assert_eq!(line(8), [0, 44, 106, 169, 153, 59, 165, 255]);
    }
}
