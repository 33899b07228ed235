//! The transforms of images, as a pipeline describes them.

use std::fmt;

use super::Geometry;
use flagperf_core::tensor::DType;

/// A transform of an image. Those that move pixels come first, in any order; then `scale`, `normalize` and `to`.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    Geometry(Geometry),
    /// Multiplies every level, which is in 0..=255.
    Scale {
        factor: f32,
    },
    /// Computes `(value - mean) / std` per channel (red, green, blue), where the value is that of `Scale`, or else
    /// `level / 255`.
    Normalize {
        mean: [f32; 3],
        std: [f32; 3],
    },
    /// Converts the values to a type other than that of the case.
    To {
        dtype: DType,
    },
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transform::Geometry(geometry) => geometry.fmt(f),
            Transform::Scale { factor } => write!(f, "scale {factor}"),
            Transform::Normalize { mean, std } => write!(f, "normalize mean {mean:?} std {std:?}"),
            Transform::To { dtype } => write!(f, "to {}", dtype.name()),
        }
    }
}
