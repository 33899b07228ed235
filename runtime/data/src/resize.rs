//! Antialiased bilinear and bicubic resizing, bit for bit as Pillow 10.4 to 12.3 computes it: a horizontal and then a
//! vertical pass, both in fixed point and rounded to 8 bits. Pillow 13.0 resizes some pixels one level differently.
//!
//! Accuracy is compared with figures that others measured on PIL's pixels, and where a model is unsure, a difference of
//! one level decides its answer: such differences cost EfficientNet-Lite0 two of its 89 correct answers. The code is
//! written here because no crate rounds as PIL does.
//!
//! OpenCV's filters are in `opencv`.
//!
//! Only the pixels inside the crop are computed; the filter still includes the pixels around it. Knows nothing about
//! models.

mod opencv;

use std::ops::Range;

use super::pixels::CHANNELS;
use flagperf_core::image_decoder::AxisWeights;

/// Fractional bits of a weight.
const FRACTION: u32 = AxisWeights::FRACTION;
/// The parameter of the bicubic filter.
const CUBIC: f64 = -0.5;
/// One half in fixed point: added to a sum, it makes truncation round to nearest.
const HALF: i32 = 1 << (FRACTION - 1);
/// Number of rows that the horizontal pass resizes together, so that it works on whole vectors, too.
const LANES: usize = 16;

/// A filter of PIL, antialiased when it makes an image smaller, or one of OpenCV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// `Image.Resampling.BILINEAR`.
    Bilinear,
    /// `Image.Resampling.BICUBIC`, the convolution of Keys (1981) with `a = -0.5`.
    Bicubic,
    /// `INTER_LINEAR`.
    Linear,
    /// `INTER_AREA`, and `INTER_LINEAR` for an image that grows.
    Area,
}

impl Filter {
    /// Returns what it is, for the record.
    pub const fn description(self) -> &'static str {
        match self {
            Filter::Bilinear => "antialiased bilinear",
            Filter::Bicubic => "antialiased bicubic",
            Filter::Linear => "OpenCV's linear",
            Filter::Area => "OpenCV's area",
        }
    }

    /// Returns the radius, of a filter of PIL, in pixels of the coarser of source and target.
    fn radius(self) -> f64 {
        match self {
            Filter::Bicubic => 2.0,
            _ => 1.0,
        }
    }

    /// Returns the weight, of a filter of PIL, of a pixel at a distance from the centre.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Filter::Bicubic if x < 1.0 => ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * CUBIC,
            Filter::Bicubic => 0.0,
            _ => (1.0 - x).max(0.0),
        }
    }
}

/// The part of a resized image to compute along one axis: `source` pixels are scaled to `scaled`, of which the range
/// `kept` is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Pixels before resizing.
    pub source: usize,
    /// Pixels of the whole axis after resizing.
    pub scaled: usize,
    /// Resized pixels to compute.
    pub kept: Range<usize>,
}

/// Memory that a thread reuses from image to image.
#[derive(Default)]
pub struct ResizeScratch {
    /// [`LANES`] source rows, transposed: one entry per column and channel.
    columns_in: Vec<[u8; LANES]>,
    /// The same rows after the horizontal pass.
    columns_out: Vec<[u8; LANES]>,
    /// All rows after the horizontal pass.
    resized_rows: Vec<u8>,
    /// The sums of one row of the vertical pass.
    sums: Vec<i32>,
    /// The part of an image that is cut out before it is resized.
    pub cut: Vec<u8>,
}

/// Returns the weights of one axis for the pixels that are kept.
pub fn axis_weights(axis: &Axis, filter: Filter) -> AxisWeights {
    let scale = axis.source as f64 / axis.scaled as f64;
    let stretch = scale.max(1.0);
    let support = filter.radius() * stretch;
    let taps = (2.0 * support) as usize + 1;
    let mut weights = AxisWeights { taps, first: Vec::new(), values: Vec::new() };
    for target in axis.kept.clone() {
        let centre = (target as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(axis.source);
        let exact = (first..end).map(|at| filter.weight((at as f64 - centre + 0.5) * (1.0 / stretch)));
        let sum: f64 = exact.clone().sum();
        let fixed = exact.map(|weight| {
            let scaled = weight / sum * f64::from(1 << FRACTION);
            (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i32
        });
        weights.first.push(first as u32);
        weights.values.extend(fixed.chain(std::iter::repeat(0)).take(taps));
    }
    weights
}

/// Returns the range of source pixels that contribute to any kept pixel.
fn source_range(weights: &AxisWeights, source: usize) -> Range<usize> {
    let first = weights.first.first().map_or(0, |first| *first as usize);
    first..weights.first.last().map_or(first, |last| *last as usize + weights.taps).min(source)
}

/// Resizes interleaved RGB pixels and writes the kept part to `out`, row by row.
pub fn resize(rgb: &[u8], columns: &Axis, rows: &Axis, filter: Filter, scratch: &mut ResizeScratch, out: &mut [u8]) {
    match filter {
        Filter::Linear => return opencv::resize_linear(rgb, columns, rows, out),
        Filter::Area => return opencv::resize_area(rgb, columns, rows, out),
        Filter::Bilinear | Filter::Bicubic => {}
    }
    let (across, down) = (axis_weights(columns, filter), axis_weights(rows, filter));
    let seen = source_range(&down, rows.source);
    let width = columns.kept.len() * CHANNELS;
    scratch.resized_rows.resize(seen.len() * width, 0);
    scratch.columns_in.resize(source_range(&across, columns.source).len() * CHANNELS, [0; LANES]);
    scratch.columns_out.resize(width, [0; LANES]);
    let stride = columns.source * CHANNELS;
    let source = &rgb[seen.start * stride..seen.end * stride];
    pulp::Arch::new().dispatch(ResizePasses { source, stride, above: seen.start, across, down, scratch, out, width });
}

/// Both passes over an image, compiled once per vector instruction set; the functions they call are inlined into them.
struct ResizePasses<'a> {
    /// The source rows that contribute to the kept rows.
    source: &'a [u8],
    /// Bytes of a source row.
    stride: usize,
    /// Number of rows above `source` in the image.
    above: usize,
    across: AxisWeights,
    down: AxisWeights,
    scratch: &'a mut ResizeScratch,
    out: &'a mut [u8],
    /// Bytes of a kept row.
    width: usize,
}

impl pulp::NullaryFnOnce for ResizePasses<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ResizeScratch { columns_in, columns_out, resized_rows, sums, .. } = self.scratch;
        let left = self.across.first.first().map_or(0, |first| *first as usize);
        for (sources, targets) in
            self.source.chunks(self.stride * LANES).zip(resized_rows.chunks_mut(self.width * LANES))
        {
            for (lane, source) in sources.chunks_exact(self.stride).enumerate() {
                for (column, level) in columns_in.iter_mut().zip(&source[left * CHANNELS..]) {
                    column[lane] = *level;
                }
            }
            resize_columns(columns_in, left, &self.across, columns_out);
            for (lane, target) in targets.chunks_exact_mut(self.width).enumerate() {
                for (level, column) in target.iter_mut().zip(&*columns_out) {
                    *level = column[lane];
                }
            }
        }
        for ((first, weights), target) in self.down.iter().zip(self.out.chunks_exact_mut(self.width)) {
            let sources = resized_rows[(first - self.above) * self.width..].chunks_exact(self.width);
            sum_rows(sources.zip(weights), sums, target);
        }
    }
}

/// Resizes [`LANES`] rows horizontally, from `columns_in` to `columns_out`; `columns_in` begins with the pixel `left`.
#[inline(always)]
fn resize_columns(columns_in: &[[u8; LANES]], left: usize, weights: &AxisWeights, columns_out: &mut [[u8; LANES]]) {
    for ((first, weights), pixel) in weights.iter().zip(columns_out.chunks_exact_mut(CHANNELS)) {
        let sources = &columns_in[(first - left) * CHANNELS..];
        for (channel, target) in pixel.iter_mut().enumerate() {
            let mut sums = [HALF; LANES];
            for (weight, source) in weights.iter().zip(sources.chunks_exact(CHANNELS)) {
                for (sum, level) in sums.iter_mut().zip(&source[channel]) {
                    *sum += weight * i32::from(*level);
                }
            }
            *target = sums.map(to_level);
        }
    }
}

/// Computes one row of the vertical pass: the weighted sum of `rows`, rounded to 8 bits.
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
        *level = to_level(*sum);
    }
}

#[inline(always)]
fn to_level(sum: i32) -> u8 {
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
        resize(rgb, columns, rows, Filter::Bilinear, &mut ResizeScratch::default(), &mut out);
        out
    }

    /// Creates an image with gradients that differ by direction and channel.
    fn image(width: usize, height: usize) -> Vec<u8> {
        let level = |at: usize| {
            let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
            ((x * (3 + channel) + y * (7 - channel)) % 509 / 2) as u8
        };
        (0..width * height * 3).map(level).collect()
    }

    #[test]
    fn resizing_to_the_same_size_changes_nothing() {
        let rgb = image(7, 5);
        assert_eq!(resized(&rgb, &whole(7, 7), &whole(5, 5)), rgb);
    }

    #[test]
    fn a_kept_part_equals_that_part_of_the_whole_image() {
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
    fn pixels_are_identical_to_those_of_pil() {
        // Image.frombytes("L", (5, 1), bytes([0, 100, 200, 50, 255])).resize((w, 1), Image.Resampling.BILINEAR)
        let grey = [0u8, 100, 200, 50, 255];
        let rgb: Vec<u8> = grey.iter().flat_map(|level| [*level; 3]).collect();
        let line =
            |scaled| resized(&rgb, &whole(5, scaled), &whole(1, 1)).iter().step_by(3).copied().collect::<Vec<u8>>();
        assert_eq!(line(3), [43, 144, 167]);
        assert_eq!(line(8), [0, 44, 106, 169, 153, 59, 165, 255]);
    }

    #[test]
    fn bicubic_pixels_are_identical_to_those_of_pil() {
        // Image.frombytes("L", (5, 1), bytes([0, 100, 200, 50, 255])).resize((w, 1), Image.Resampling.BICUBIC)
        let grey = [0u8, 100, 200, 50, 255];
        let rgb: Vec<u8> = grey.iter().flat_map(|level| [*level; 3]).collect();
        let line = |scaled: usize| {
            let mut out = vec![0; scaled * CHANNELS];
            let scratch = &mut ResizeScratch::default();
            resize(&rgb, &whole(5, scaled), &whole(1, 1), Filter::Bicubic, scratch, &mut out);
            out.iter().step_by(3).copied().collect::<Vec<u8>>()
        };
        assert_eq!(line(3), [43, 144, 168]);
        assert_eq!(line(8), [0, 34, 107, 187, 160, 50, 167, 255]);
        assert_eq!(line(5), grey);
    }
}
