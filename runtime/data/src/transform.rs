//! The transforms of images, as a pipeline describes them.

use std::fmt;

use super::Geometry;
use super::augmentation::{ColorJitter, Policy, RandomErasing};
use super::mixing::Mix;
use flagperf_core::tensor::DType;

/// A transform of an image or of a batch. Those of pixels come first, in any order; then `scale`, `normalize` and `to`; then
/// `random_erasing`; then `mixup` and `cutmix`.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    Geometry(Geometry),
    /// Changes brightness, contrast, saturation and hue by random factors.
    ColorJitter(ColorJitter),
    /// Draws operations and their magnitudes.
    Policy(Policy),
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
    /// Overwrites a random rectangle of the values.
    RandomErasing(RandomErasing),
    /// Mixes each image of a batch and its label with another one (Zhang et al., "mixup", 2017).
    MixUp(Mix),
    /// Pastes a rectangle of another image of the batch, and mixes the labels by the areas (Yun et al., "CutMix", 2019).
    CutMix(Mix),
}

impl Transform {
    /// Returns whether the transform draws for each epoch, which only a training has.
    pub fn is_random(&self) -> bool {
        match self {
            Transform::Geometry(geometry) => geometry.is_random(),
            Transform::Scale { .. } | Transform::Normalize { .. } | Transform::To { .. } => false,
            Transform::ColorJitter(_)
            | Transform::Policy(_)
            | Transform::RandomErasing(_)
            | Transform::MixUp(_)
            | Transform::CutMix(_) => true,
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transform::Geometry(geometry) => geometry.fmt(f),
            Transform::ColorJitter(jitter) => jitter.fmt(f),
            Transform::Policy(policy) => policy.fmt(f),
            Transform::RandomErasing(erasing) => erasing.fmt(f),
            Transform::MixUp(Mix { alpha, classes }) => write!(f, "mixup alpha {alpha}, {classes} classes"),
            Transform::CutMix(Mix { alpha, classes }) => write!(f, "cutmix alpha {alpha}, {classes} classes"),
            Transform::Scale { factor } => write!(f, "scale {factor}"),
            Transform::Normalize { mean, std } => write!(f, "normalize mean {mean:?} std {std:?}"),
            Transform::To { dtype } => write!(f, "to {}", dtype.name()),
        }
    }
}
