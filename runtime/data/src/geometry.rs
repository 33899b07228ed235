//! Transforms that move pixels: resizing, cropping, padding, flipping. Each applies to an RGB image and, with the nearest
//! label in place of a filter, to a mask.

use std::fmt;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::pixels::CHANNELS;
use super::resize::{Axis, Filter, ResizeScratch, resize};

/// Largest number of pixels of a transformed image.
const PIXELS_MAX: usize = 1 << 28;
/// The label of the pixels that padding adds to a mask.
pub const PADDED_LABEL: u8 = 255;

/// A width and a height in pixels.
pub type Size = (usize, usize);

/// A transform that moves pixels.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// Scales with one of PIL's antialiased filters.
    Resize { target: Target, filter: Filter },
    /// Keeps the central pixels of this width and height; the start is rounded half to even, as in torchvision's
    /// `center_crop`.
    CenterCrop(Size),
    /// Keeps the part of `size` that begins at the column `left` and the row `top`.
    Crop { left: usize, top: usize, size: Size },
    /// Adds pixels to the left, above, to the right and below; `level` is their level in every channel.
    Pad { sides: [usize; 4], level: u8 },
    /// Scales with the antialiased bilinear filter to fit into `size` and pads both sides evenly; `level` is that of the
    /// padding in every channel.
    Letterbox { size: Size, level: u8 },
    /// Exchanges left and right with a probability. The choice for a sample depends only on the seed and its index.
    Flip { probability: f64, seed: u64 },
}

/// The size of a scaled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The shorter side; the longer one is rounded down, as in torchvision's `Resize`.
    Shorter(usize),
    Exactly(Size),
}

/// Where a point of the original image is in the transformed one: `x * scale + shift` in both directions. A flip has a
/// negative scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Scale across and down.
    pub scale: [f64; 2],
    /// Shift to the right and down, in pixels.
    pub shift: [f64; 2],
}

impl Placement {
    /// The placement of an image that is not transformed.
    pub const IDENTITY: Placement = Placement { scale: [1.0; 2], shift: [0.0; 2] };
}

impl Target {
    fn of(self, (width, height): Size) -> Size {
        match self {
            Target::Exactly(size) => size,
            Target::Shorter(size) if width <= height => (size, size * height / width),
            Target::Shorter(size) => (size * width / height, size),
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Geometry::Resize { target, filter } => {
                match target {
                    Target::Shorter(side) => write!(f, "resize {side}")?,
                    Target::Exactly((width, height)) => write!(f, "resize {width}x{height}")?,
                }
                let filter = match filter {
                    Filter::Bilinear => "bilinear",
                    Filter::Bicubic => "bicubic",
                };
                write!(f, ", antialiased {filter}")
            }
            Geometry::CenterCrop((width, height)) if width == height => write!(f, "center_crop {width}"),
            Geometry::CenterCrop((width, height)) => write!(f, "center_crop {width}x{height}"),
            Geometry::Crop { left, top, size: (width, height) } => {
                write!(f, "crop {width}x{height} from {left},{top}")
            }
            Geometry::Pad { sides: [left, top, right, bottom], level } => {
                write!(f, "pad left {left} top {top} right {right} bottom {bottom} with {level}")
            }
            Geometry::Letterbox { size: (width, height), level } => {
                write!(f, "letterbox {width}x{height} with {level}")
            }
            Geometry::Flip { probability, seed } => write!(f, "flip with probability {probability}, seed {seed}"),
        }
    }
}

/// The pixels of a transformed image that come from the source: scaled to `scaled`, moved by `shift`, flipped.
struct Mapping {
    scaled: Size,
    /// Left and top of the scaled image in the result; negative for a crop.
    shift: (isize, isize),
    flipped: bool,
    size: Size,
}

impl Mapping {
    fn scaled(scaled: Size) -> Self {
        Mapping { scaled, shift: (0, 0), flipped: false, size: scaled }
    }

    /// Keeps `part` from `start` on. `original` is the size of the source, for the error.
    fn crop(self, start: (usize, usize), part: Size, original: Size) -> Result<Self, String> {
        if self.size.0 < start.0 + part.0 || self.size.1 < start.1 + part.1 {
            let crop = format!("the crop of {}x{}", part.0, part.1);
            return Err(format!("the image of {}x{} pixels is smaller than {crop}", original.0, original.1));
        }
        let shift = (self.shift.0 - start.0 as isize, self.shift.1 - start.1 as isize);
        Ok(Mapping { shift, size: part, ..self })
    }

    fn crop_centre(self, part: Size, original: Size) -> Result<Self, String> {
        let start = |whole: usize, part: usize| (whole.saturating_sub(part) as f64 / 2.0).round_ties_even() as usize;
        let start = (start(self.size.0, part.0), start(self.size.1, part.1));
        self.crop(start, part, original)
    }
}

impl Geometry {
    /// Returns where the pixels of an image of `size` go, or an error if it is smaller than a crop.
    fn map(&self, size: Size, index: u64) -> Result<Mapping, String> {
        match *self {
            Geometry::Resize { target, .. } => Ok(Mapping::scaled(target.of(size))),
            Geometry::CenterCrop(part) => Mapping::scaled(size).crop_centre(part, size),
            Geometry::Crop { left, top, size: part } => Mapping::scaled(size).crop((left, top), part, size),
            Geometry::Pad { sides: [left, top, right, bottom], .. } => Ok(Mapping {
                shift: (left as isize, top as isize),
                size: (size.0 + left + right, size.1 + top + bottom),
                ..Mapping::scaled(size)
            }),
            Geometry::Letterbox { size: target, .. } => Ok(letterbox(size, target)),
            Geometry::Flip { probability, seed } => {
                Ok(Mapping { flipped: is_flipped(seed, probability, index), ..Mapping::scaled(size) })
            }
        }
    }

    fn filter(&self) -> Filter {
        match self {
            Geometry::Resize { filter, .. } => *filter,
            _ => Filter::Bilinear,
        }
    }

    fn level(&self) -> u8 {
        match self {
            Geometry::Pad { level, .. } | Geometry::Letterbox { level, .. } => *level,
            _ => 0,
        }
    }
}

/// A transform that moves pixels and the central crop that follows it: together, they compute only the pixels that remain.
pub struct Step {
    pub geometry: Geometry,
    /// Width and height of the central part that is kept; `None` for all.
    pub centre: Option<Size>,
}

impl Step {
    /// Returns where the pixels of an image of `size` go.
    ///
    /// # Errors
    /// When the image is smaller than a crop, or the result has too many pixels.
    fn map(&self, size: Size, index: u64) -> Result<Mapping, String> {
        let mut mapping = self.geometry.map(size, index)?;
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

    /// Transforms an RGB image of `size` into `target`, which is resized to fit; returns the new size.
    ///
    /// # Errors
    /// When the image is smaller than a crop, or the result has too many pixels.
    pub fn apply(
        &self,
        rgb: &[u8],
        size: Size,
        index: u64,
        scratch: &mut ResizeScratch,
        target: &mut Vec<u8>,
    ) -> Result<Size, String> {
        let Mapping { scaled, shift, flipped, size: out } = self.map(size, index)?;
        let kept = |scaled: usize, shift: isize, out: usize| {
            let first = usize::try_from(-shift).unwrap_or(0);
            first..scaled.min(usize::try_from(out as isize - shift).unwrap_or(0))
        };
        let columns = Axis { source: size.0, scaled: scaled.0, kept: kept(scaled.0, shift.0, out.0) };
        let rows = Axis { source: size.1, scaled: scaled.1, kept: kept(scaled.1, shift.1, out.1) };
        target.clear();
        target.resize(out.0 * out.1 * CHANNELS, self.geometry.level());
        if columns.kept.len() == out.0 && rows.kept.len() == out.1 && scaled != size {
            resize(rgb, &columns, &rows, self.geometry.filter(), scratch, target);
            return Ok(out);
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
        Ok(out)
    }

    /// Returns the placement after this transform, and the new size.
    ///
    /// # Errors
    /// As [`Step::apply`].
    pub fn place(&self, before: Placement, size: Size, index: u64) -> Result<(Placement, Size), String> {
        let Mapping { scaled, shift, flipped, size: out } = self.map(size, index)?;
        let factors = [scaled.0 as f64 / size.0 as f64, scaled.1 as f64 / size.1 as f64];
        let shifts = [shift.0 as f64, shift.1 as f64];
        let mut after = Placement {
            scale: [0, 1].map(|axis| before.scale[axis] * factors[axis]),
            shift: [0, 1].map(|axis| before.shift[axis] * factors[axis] + shifts[axis]),
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
    pub fn apply_to_mask(&self, labels: &[u8], size: Size, index: u64) -> Result<(Vec<u8>, Size), String> {
        let mapping = self.map(size, index)?;
        let source = |at: usize, shift: isize, scaled: usize, whole: usize| {
            let position = usize::try_from(at as isize - shift).ok().filter(|position| *position < scaled)?;
            // As PIL's nearest filter.
            Some((((position as f64 + 0.5) * (whole as f64 / scaled as f64)) as usize).min(whole - 1))
        };
        let columns: Vec<Option<usize>> = (0..mapping.size.0)
            .map(|x| if mapping.flipped { mapping.size.0 - 1 - x } else { x })
            .map(|x| source(x, mapping.shift.0, mapping.scaled.0, size.0))
            .collect();
        let mut out = Vec::with_capacity(mapping.size.0 * mapping.size.1);
        for y in 0..mapping.size.1 {
            let row = source(y, mapping.shift.1, mapping.scaled.1, size.1);
            let label = |x: &Option<usize>| Some(labels[row? * size.0 + (*x)?]);
            out.extend(columns.iter().map(|x| label(x).unwrap_or(PADDED_LABEL)));
        }
        Ok((out, mapping.size))
    }
}

/// Returns how an image fits into `target` with its proportions; YOLO rounds in the same way.
fn letterbox(size: Size, target: Size) -> Mapping {
    let scale = (target.0 as f64 / size.0 as f64).min(target.1 as f64 / size.1 as f64);
    let side = |whole: usize, most: usize| ((whole as f64 * scale).round_ties_even() as usize).clamp(1, most);
    let scaled = (side(size.0, target.0), side(size.1, target.1));
    let margin = |most: usize, side: usize| ((most - side) as f64 / 2.0 - 0.1).round_ties_even() as isize;
    let shift = (margin(target.0, scaled.0).max(0), margin(target.1, scaled.1).max(0));
    Mapping { shift, size: target, ..Mapping::scaled(scaled) }
}

fn is_flipped(seed: u64, probability: f64, index: u64) -> bool {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(index);
    f64::from(random.next_u32()) / (f64::from(u32::MAX) + 1.0) < probability
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image whose red is the column and whose green is the row.
    fn image((width, height): Size) -> Vec<u8> {
        (0..width * height).flat_map(|at| [(at % width) as u8, (at / width) as u8, 9]).collect()
    }

    fn step(geometry: Geometry) -> Step {
        Step { geometry, centre: None }
    }

    fn applied(step: &Step, size: Size, index: u64) -> (Vec<u8>, Size) {
        let mut out = Vec::new();
        let size = step.apply(&image(size), size, index, &mut ResizeScratch::default(), &mut out).unwrap();
        (out, size)
    }

    fn reds(pixels: &[u8]) -> Vec<u8> {
        pixels.iter().step_by(3).copied().collect()
    }

    #[test]
    fn a_crop_keeps_its_part_and_padding_surrounds_the_image() {
        let (pixels, size) = applied(&step(Geometry::Crop { left: 1, top: 2, size: (2, 1) }), (4, 4), 0);
        assert_eq!((pixels, size), (vec![1, 2, 9, 2, 2, 9], (2, 1)));
        let (pixels, size) = applied(&step(Geometry::Pad { sides: [1, 0, 2, 1], level: 7 }), (2, 1), 0);
        assert_eq!(size, (5, 2));
        assert_eq!(reds(&pixels), [7, 0, 1, 7, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn a_letterbox_keeps_the_proportions_and_centres_the_image() {
        let letterbox = step(Geometry::Letterbox { size: (8, 8), level: 114 });
        let (pixels, size) = applied(&letterbox, (4, 2), 0);
        assert_eq!(size, (8, 8));
        let row = |y: usize| pixels[y * 24];
        assert_eq!([row(0), row(1), row(6), row(7)], [114; 4]);
        assert!((2..6).all(|y| row(y) == 0));
        let (mask, _) = letterbox.apply_to_mask(&[1, 1, 2, 2, 1, 1, 2, 2], (4, 2), 0).unwrap();
        assert_eq!(mask[2 * 8..3 * 8], [1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(mask[0], PADDED_LABEL);
    }

    #[test]
    fn a_flip_is_the_same_for_image_and_mask_and_depends_on_seed_and_index() {
        let flip = step(Geometry::Flip { probability: 0.5, seed: 3 });
        let flipped: Vec<bool> = (0..100).map(|index| reds(&applied(&flip, (3, 1), index).0) == [2, 1, 0]).collect();
        let count = flipped.iter().filter(|flipped| **flipped).count();
        assert!((30..70).contains(&count), "{count}");
        for (index, flipped) in flipped.iter().enumerate() {
            let (mask, _) = flip.apply_to_mask(&[4, 5, 6], (3, 1), index as u64).unwrap();
            assert_eq!(mask, if *flipped { [6, 5, 4] } else { [4, 5, 6] });
        }
        assert_eq!(applied(&step(Geometry::Flip { probability: 1.0, seed: 0 }), (2, 1), 0).0, [1, 0, 9, 0, 0, 9]);
    }

    #[test]
    fn a_placement_is_where_the_transforms_move_a_point() {
        let steps = [
            Geometry::Letterbox { size: (8, 8), level: 0 },
            Geometry::Crop { left: 1, top: 2, size: (7, 5) },
            Geometry::Flip { probability: 1.0, seed: 0 },
        ]
        .map(step);
        let place = |(placement, size), step: &Step| step.place(placement, size, 0).unwrap();
        let (placement, size) = steps.iter().fold((Placement::IDENTITY, (4, 2)), place);
        // The letterbox doubles 4x2 and adds two rows above, the crop takes away one column and two rows.
        assert_eq!(placement, Placement { scale: [-2.0, 2.0], shift: [7.0 + 1.0, 0.0] });
        assert_eq!(size, (7, 5));
    }

    #[test]
    fn a_mask_is_scaled_as_pil_scales_with_the_nearest_filter() {
        let resize = step(Geometry::Resize { target: Target::Exactly((3, 1)), filter: Filter::Bicubic });
        // Image.frombytes("L", (5, 1), bytes([0, 1, 2, 3, 4])).resize((3, 1), Image.Resampling.NEAREST)
        assert_eq!(resize.apply_to_mask(&[0, 1, 2, 3, 4], (5, 1), 0).unwrap(), (vec![0, 2, 4], (3, 1)));
    }

    #[test]
    fn an_image_that_is_too_small_or_would_be_too_large_is_refused() {
        let mut out = Vec::new();
        let mut apply = |geometry: Geometry| {
            step(geometry).apply(&image((3, 2)), (3, 2), 0, &mut ResizeScratch::default(), &mut out).unwrap_err()
        };
        assert_eq!(
            apply(Geometry::Crop { left: 2, top: 0, size: (2, 2) }),
            "the image of 3x2 pixels is smaller than the crop of 2x2"
        );
        assert!(apply(Geometry::Pad { sides: [1 << 20, 1 << 20, 0, 0], level: 0 }).contains("would become"));
    }
}
