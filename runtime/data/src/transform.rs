//! The transforms of images, as a pipeline describes them.

use std::fmt;

use super::geometry::Size;
use super::resize::Filter;
use flagperf_core::tensor::DType;

/// A transform of an image. Those that move pixels come first, in any order; then `scale`, `normalize` and `to`.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Scales the shorter side to `size` pixels with one of PIL's antialiased filters.
    Resize {
        /// Length of the shorter side in pixels.
        size: usize,
        /// The filter.
        filter: Filter,
    },
    /// Scales both sides.
    ResizeTo {
        /// Width and height in pixels.
        size: Size,
        /// The filter.
        filter: Filter,
    },
    /// Crops the central pixels.
    CenterCrop {
        /// Width and height in pixels.
        size: Size,
    },
    /// Crops a part.
    Crop {
        /// Pixels to the left of the part.
        left: usize,
        /// Pixels above the part.
        top: usize,
        /// Width and height in pixels.
        size: Size,
    },
    /// Adds pixels.
    Pad {
        /// Pixels to the left, above, to the right and below.
        sides: [usize; 4],
        /// Their level in every channel.
        level: u8,
    },
    /// Scales with the antialiased bilinear filter to fit into `size` and pads both sides evenly.
    Letterbox {
        /// Width and height in pixels.
        size: Size,
        /// Level of the padding in every channel.
        level: u8,
    },
    /// Exchanges left and right at random.
    Flip {
        /// The probability of a sample.
        probability: f64,
        /// The seed; the choice for a sample depends only on the seed and its index.
        seed: u64,
    },
    /// Multiplies every level, which is in 0..=255.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// Computes `(value - mean) / std` per channel (red, green, blue), where the value is that of `Scale`, or else
    /// `level / 255`.
    Normalize {
        /// Mean of each channel.
        mean: [f32; 3],
        /// Standard deviation of each channel.
        std: [f32; 3],
    },
    /// Converts the values to a type other than that of the case.
    To {
        /// The type.
        dtype: DType,
    },
}

impl Transform {
    /// Returns whether the transform moves pixels rather than computing values.
    pub fn moves_pixels(&self) -> bool {
        !matches!(self, Transform::Scale { .. } | Transform::Normalize { .. } | Transform::To { .. })
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |filter: &Filter| match filter {
            Filter::Bilinear => "bilinear",
            Filter::Bicubic => "bicubic",
        };
        match self {
            Transform::Resize { size, filter } => write!(f, "resize {size}, antialiased {}", name(filter)),
            Transform::ResizeTo { size: (width, height), filter } => {
                write!(f, "resize {width}x{height}, antialiased {}", name(filter))
            }
            Transform::CenterCrop { size: (width, height) } if width == height => write!(f, "center_crop {width}"),
            Transform::CenterCrop { size: (width, height) } => write!(f, "center_crop {width}x{height}"),
            Transform::Crop { left, top, size: (width, height) } => {
                write!(f, "crop {width}x{height} from {left},{top}")
            }
            Transform::Pad { sides: [left, top, right, bottom], level } => {
                write!(f, "pad left {left} top {top} right {right} bottom {bottom} with {level}")
            }
            Transform::Letterbox { size: (width, height), level } => {
                write!(f, "letterbox {width}x{height} with {level}")
            }
            Transform::Flip { probability, seed } => write!(f, "flip with probability {probability}, seed {seed}"),
            Transform::Scale { factor } => write!(f, "scale {factor}"),
            Transform::Normalize { mean, std } => write!(f, "normalize mean {mean:?} std {std:?}"),
            Transform::To { dtype } => write!(f, "to {}", dtype.name()),
        }
    }
}
