//! Applies a transform that moves pixels to an image, to a mask, and to the places of points.

use super::{Geometry, Mapping, PADDED_LABEL, Part, Placement, Size};
use crate::pixels::CHANNELS;
use crate::random::SampleDraw;
use crate::resize::{Axis, Filter, ResizeScratch, axis_weights, resize};
use flagperf_core::image_decoder::AxisWeights;

/// Largest number of pixels of a transformed image.
const PIXELS_MAX: usize = 1 << 28;

/// A transform that moves pixels and the central crop that follows it: together, they compute only the pixels that remain.
pub struct Step {
    pub geometry: Geometry,
    /// Place of the transform in the pipeline, which random numbers depend on.
    pub place: usize,
    /// Width and height of the central part that is kept; `None` for all.
    pub centre: Option<Size>,
}

impl Step {
    /// Returns where the pixels of an image of `size` go.
    ///
    /// # Errors
    /// When the image is smaller than a crop, or the result has too many pixels.
    pub(super) fn map(&self, size: Size, draw: &SampleDraw) -> Result<Mapping, String> {
        let mut mapping = self.geometry.map(size, draw, self.place)?;
        if let Some(part) = self.centre {
            mapping = mapping.crop_centre(part, size)?;
        }
        match mapping.size.0.checked_mul(mapping.size.1) {
            Some(pixels) if pixels <= PIXELS_MAX && mapping.scaled.0 > 0 && mapping.scaled.1 > 0 => Ok(mapping),
            _ => Err(format!(
                "the image of {}x{} pixels would become {}x{} (at most {PIXELS_MAX} pixels)",
                size.0, size.1, mapping.size.0, mapping.size.1
            )),
        }
    }

    /// Returns the width and the height, from the top left, that remain after `fit` without its padding, or the new size.
    ///
    /// # Errors
    /// As [`Step::apply`].
    pub fn filled(&self, size: Size, draw: &SampleDraw) -> Result<Size, String> {
        let mapping = self.map(size, draw)?;
        Ok(if matches!(self.geometry, Geometry::Fit(_)) { mapping.scaled } else { mapping.size })
    }

    /// Transforms an RGB image of `size` into `target`, which is resized to fit; returns the new size.
    ///
    /// # Errors
    /// When the image is smaller than a crop, or the result has too many pixels.
    pub fn apply(
        &self,
        rgb: &[u8],
        size: Size,
        draw: &SampleDraw,
        scratch: &mut ResizeScratch,
        target: &mut Vec<u8>,
    ) -> Result<Size, String> {
        let mapping = self.map(size, draw)?;
        if mapping.part.size == size {
            self.move_pixels(rgb, &mapping, scratch, target);
        } else {
            let mut cut = std::mem::take(&mut scratch.cut);
            cut_out(rgb, size, &mapping.part, &mut cut);
            self.move_pixels(&cut, &mapping, scratch, target);
            scratch.cut = cut;
        }
        Ok(mapping.size)
    }

    /// Moves the pixels of the part of a mapping, which are those of `rgb`, to `target`.
    fn move_pixels(&self, rgb: &[u8], mapping: &Mapping, scratch: &mut ResizeScratch, target: &mut Vec<u8>) {
        let Mapping { part: Part { size, .. }, scaled, shift, flipped, size: out } = *mapping;
        let [columns, rows] = axes(mapping);
        target.clear();
        target.resize(out.0 * out.1 * CHANNELS, self.geometry.level());
        if columns.kept.len() == out.0 && rows.kept.len() == out.1 && scaled != size {
            resize(rgb, &columns, &rows, self.geometry.filter(), scratch, target);
            return;
        }
        let part = (columns.kept.len(), rows.kept.len());
        let resized = (scaled != size).then(|| {
            let mut part = vec![0; part.0 * part.1 * CHANNELS];
            resize(rgb, &columns, &rows, self.geometry.filter(), scratch, &mut part);
            part
        });
        let place = (shift.0.max(0) as usize, shift.1.max(0) as usize);
        for row in 0..part.1 {
            let source = match &resized {
                Some(pixels) => &pixels[row * part.0 * CHANNELS..][..part.0 * CHANNELS],
                None => &rgb[((rows.kept.start + row) * size.0 + columns.kept.start) * CHANNELS..][..part.0 * CHANNELS],
            };
            let line = &mut target[((place.1 + row) * out.0 + place.0) * CHANNELS..][..part.0 * CHANNELS];
            line.copy_from_slice(source);
            if flipped {
                line.reverse();
                // Reversing the bytes also reverses the channels of each pixel.
                line.chunks_exact_mut(CHANNELS).for_each(<[u8]>::reverse);
            }
        }
    }

    /// Returns whether the transform computes sums of weighted pixels along each axis, and nothing else.
    pub fn has_axis_weights(&self) -> bool {
        matches!(self.geometry, Geometry::Resize { filter: Filter::Bilinear | Filter::Bicubic, .. })
    }

    /// Returns the weights of the columns and of the rows of an image of `size`, for a transform that has them.
    ///
    /// # Errors
    /// As [`Step::apply`].
    pub fn axis_weights(&self, size: Size) -> Result<[AxisWeights; 2], String> {
        Ok(axes(&self.map(size, &SampleDraw::default())?).map(|axis| axis_weights(&axis, self.geometry.filter())))
    }

    /// Returns the placement after this transform, and the new size.
    ///
    /// # Errors
    /// As [`Step::apply`].
    pub fn placed(&self, before: Placement, size: Size, draw: &SampleDraw) -> Result<(Placement, Size), String> {
        let Mapping { part, scaled, shift, flipped, size: out } = self.map(size, draw)?;
        let factors = [scaled.0 as f64 / part.size.0 as f64, scaled.1 as f64 / part.size.1 as f64];
        let (starts, shifts) = ([part.left as f64, part.top as f64], [shift.0 as f64, shift.1 as f64]);
        let mut after = Placement {
            scale: [0, 1].map(|axis| before.scale[axis] * factors[axis]),
            shift: [0, 1].map(|axis| (before.shift[axis] - starts[axis]) * factors[axis] + shifts[axis]),
        };
        if flipped {
            after.scale[0] = -after.scale[0];
            after.shift[0] = out.0 as f64 - after.shift[0];
        }
        Ok((after, out))
    }

    /// Transforms a mask of `size` with the nearest label; padding has the label [`PADDED_LABEL`]. Returns the new mask
    /// and its size.
    ///
    /// # Errors
    /// As [`Step::apply`].
    pub fn apply_to_mask(&self, labels: &[u8], size: Size, draw: &SampleDraw) -> Result<(Vec<u8>, Size), String> {
        let mapping = self.map(size, draw)?;
        let part = &mapping.part;
        let source = |at: usize, shift: isize, scaled: usize, (start, length): (usize, usize)| {
            let position = usize::try_from(at as isize - shift).ok().filter(|position| *position < scaled)?;
            // As PIL's nearest filter.
            Some(start + (((position as f64 + 0.5) * (length as f64 / scaled as f64)) as usize).min(length - 1))
        };
        let columns: Vec<Option<usize>> = (0..mapping.size.0)
            .map(|x| if mapping.flipped { mapping.size.0 - 1 - x } else { x })
            .map(|x| source(x, mapping.shift.0, mapping.scaled.0, (part.left, part.size.0)))
            .collect();
        let mut out = Vec::with_capacity(mapping.size.0 * mapping.size.1);
        for y in 0..mapping.size.1 {
            let row = source(y, mapping.shift.1, mapping.scaled.1, (part.top, part.size.1));
            let label = |x: &Option<usize>| Some(labels[row? * size.0 + (*x)?]);
            out.extend(columns.iter().map(|x| label(x).unwrap_or(PADDED_LABEL)));
        }
        Ok((out, mapping.size))
    }
}

/// Returns the columns and the rows that remain of a scaled image.
fn axes(mapping: &Mapping) -> [Axis; 2] {
    let axis = |source: usize, scaled: usize, shift: isize, out: usize| {
        let first = usize::try_from(-shift).unwrap_or(0);
        Axis { source, scaled, kept: first..scaled.min(usize::try_from(out as isize - shift).unwrap_or(0)) }
    };
    let Mapping { part: Part { size, .. }, scaled, shift, size: out, .. } = mapping;
    [axis(size.0, scaled.0, shift.0, out.0), axis(size.1, scaled.1, shift.1, out.1)]
}

/// Copies a part of an image of `size` to `out`.
pub fn cut_out(rgb: &[u8], size: Size, part: &Part, out: &mut Vec<u8>) {
    out.clear();
    for row in rgb.chunks_exact(size.0 * CHANNELS).skip(part.top).take(part.size.1) {
        out.extend_from_slice(&row[part.left * CHANNELS..][..part.size.0 * CHANNELS]);
    }
}
