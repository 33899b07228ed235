//! Transforms that move pixels: resizing, cropping, padding, flipping. Each applies to an RGB image and, with the nearest
//! label in place of a filter, to a mask.

mod fit;
mod step;
#[cfg(test)]
mod tests;

use std::fmt;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub use self::fit::Fit;
pub use self::step::Step;
#[cfg(test)]
pub use self::step::cut_out;
use super::augmentation::CropRange;
use super::random::SampleDraw;
use super::resize::Filter;

/// The label of the pixels that padding adds to a mask.
pub const PADDED_LABEL: u8 = 255;

/// A width and a height in pixels.
pub type Size = (usize, usize);

/// A transform that moves pixels.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// Scales to another size.
    Resize { target: Target, filter: Filter },
    /// Keeps the central pixels of this width and height; the start is rounded half to even, as in torchvision's
    /// `center_crop`.
    CenterCrop(Size),
    /// Keeps the part of `size` that begins at the column `left` and the row `top`.
    Crop { left: usize, top: usize, size: Size },
    /// Adds pixels to the left, above, to the right and below; `level` is their level in every channel.
    Pad { sides: [usize; 4], level: u8 },
    /// Scales to fit into `size` and pads both sides evenly; `level` is that of the padding in every channel.
    Letterbox { size: Size, level: u8, filter: Filter },
    /// Scales with the antialiased bilinear filter so that the image fits. Every value of the padding is 0, after all other
    /// transforms.
    Fit(Fit),
    /// Exchanges left and right with a probability. The choice for a sample depends only on the seed and its index.
    Flip { probability: f64, seed: u64 },
    /// Keeps a part that is drawn for each sample and epoch, and scales it to `size`.
    RandomResizedCrop { size: Size, range: CropRange, filter: Filter },
    /// Exchanges left and right with a probability; the choice is drawn for each sample and epoch.
    RandomHorizontalFlip { probability: f64 },
}

/// A rectangle in an image, in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub left: usize,
    pub top: usize,
    pub size: Size,
}

/// The size of a scaled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The shorter side; the longer one is rounded down, as in torchvision's `Resize`.
    Shorter(usize),
    /// The longer side; both are rounded up, as in YOLOv5's `load_image`. Since the ratio is rounded before, the longer side
    /// of some images has a pixel more.
    Longer(usize),
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
            Target::Longer(size) => {
                let ratio = size as f64 / width.max(height) as f64;
                let scaled = |side: usize| (side as f64 * ratio).ceil() as usize;
                (scaled(width), scaled(height))
            }
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Geometry::Resize { target, filter } => {
                match target {
                    Target::Shorter(side) => write!(f, "resize {side}")?,
                    Target::Longer(side) => write!(f, "resize_longer {side}")?,
                    Target::Exactly((width, height)) => write!(f, "resize {width}x{height}")?,
                }
                write!(f, ", {}", filter.description())
            }
            Geometry::CenterCrop((width, height)) if width == height => write!(f, "center_crop {width}"),
            Geometry::CenterCrop((width, height)) => write!(f, "center_crop {width}x{height}"),
            Geometry::Crop { left, top, size: (width, height) } => {
                write!(f, "crop {width}x{height} from {left},{top}")
            }
            Geometry::Pad { sides: [left, top, right, bottom], level } => {
                write!(f, "pad left {left} top {top} right {right} bottom {bottom} with {level}")
            }
            Geometry::Letterbox { size: (width, height), level, filter } => {
                write!(f, "letterbox {width}x{height} with {level}, {}", filter.description())
            }
            Geometry::Fit(fit) => fit.fmt(f),
            Geometry::Flip { probability, seed } => write!(f, "flip with probability {probability}, seed {seed}"),
            Geometry::RandomResizedCrop { size: (width, height), range: CropRange { scale, ratio }, filter } => {
                let filter = filter.description();
                write!(f, "random_resized_crop {width}x{height}, scale {scale:?}, ratio {ratio:?}, {filter}")
            }
            Geometry::RandomHorizontalFlip { probability } => {
                write!(f, "random_horizontal_flip with probability {probability}")
            }
        }
    }
}

/// The pixels of a transformed image that come from the source: those of `part`, scaled to `scaled`, moved by `shift`,
/// flipped.
struct Mapping {
    part: Part,
    scaled: Size,
    /// Left and top of the scaled image in the result; negative for a crop.
    shift: (isize, isize),
    flipped: bool,
    size: Size,
}

impl Mapping {
    /// Scales an image of `size` to `scaled`.
    fn scaled(size: Size, scaled: Size) -> Self {
        let part = Part { left: 0, top: 0, size };
        Mapping { part, scaled, shift: (0, 0), flipped: false, size: scaled }
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
    /// Returns whether the transform draws for each epoch, which only a training has.
    pub fn is_random(&self) -> bool {
        matches!(self, Geometry::RandomResizedCrop { .. } | Geometry::RandomHorizontalFlip { .. })
    }

    /// Returns where the pixels of an image of `size` go, or an error if it is smaller than a crop. `place` is that of the
    /// transform in the pipeline.
    fn map(&self, size: Size, draw: &SampleDraw, place: usize) -> Result<Mapping, String> {
        let whole = Mapping::scaled(size, size);
        match *self {
            Geometry::Resize { target, .. } => Ok(Mapping::scaled(size, target.of(size))),
            Geometry::CenterCrop(part) => whole.crop_centre(part, size),
            Geometry::Crop { left, top, size: part } => whole.crop((left, top), part, size),
            Geometry::Pad { sides: [left, top, right, bottom], .. } => Ok(Mapping {
                shift: (left as isize, top as isize),
                size: (size.0 + left + right, size.1 + top + bottom),
                ..whole
            }),
            Geometry::Letterbox { size: target, .. } => Ok(letterbox(size, target)),
            Geometry::Fit(fit) => Ok(Mapping { size: fit.size, ..Mapping::scaled(size, fit.scaled(size)) }),
            Geometry::Flip { probability, seed } => {
                Ok(Mapping { flipped: is_flipped(seed, probability, draw.sample), ..whole })
            }
            Geometry::RandomResizedCrop { size: target, ref range, .. } => {
                let part = range.draw(&mut draw.stream(place), size);
                Ok(Mapping { part, ..Mapping::scaled(size, target) })
            }
            Geometry::RandomHorizontalFlip { probability } => {
                Ok(Mapping { flipped: draw.stream(place).chance(probability), ..whole })
            }
        }
    }

    fn filter(&self) -> Filter {
        match self {
            Geometry::Resize { filter, .. }
            | Geometry::Letterbox { filter, .. }
            | Geometry::RandomResizedCrop { filter, .. } => *filter,
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

/// Returns how an image fits into `target` with its proportions; YOLO rounds in the same way.
fn letterbox(size: Size, target: Size) -> Mapping {
    let scale = (target.0 as f64 / size.0 as f64).min(target.1 as f64 / size.1 as f64);
    let side = |whole: usize, most: usize| ((whole as f64 * scale).round_ties_even() as usize).clamp(1, most);
    let scaled = (side(size.0, target.0), side(size.1, target.1));
    let margin = |most: usize, side: usize| ((most - side) as f64 / 2.0 - 0.1).round_ties_even() as isize;
    let shift = (margin(target.0, scaled.0).max(0), margin(target.1, scaled.1).max(0));
    Mapping { shift, size: target, ..Mapping::scaled(size, scaled) }
}

fn is_flipped(seed: u64, probability: f64, index: u64) -> bool {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(index);
    f64::from(random.next_u32()) / (f64::from(u32::MAX) + 1.0) < probability
}
