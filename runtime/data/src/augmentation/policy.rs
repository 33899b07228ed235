//! The policies that draw operations and their magnitudes: RandAugment, TrivialAugment and AutoAugment, with the magnitudes
//! of torchvision.

mod imagenet;
mod magnitudes;
#[cfg(test)]
mod tests;

use std::fmt;

use self::imagenet::IMAGENET;
use self::magnitudes::{Kind, RAND_AUGMENT_KINDS, Space};
use super::affine::Interpolation;
use super::operation::{Operation, Outside};
use crate::geometry::Size;
use crate::random::RandomStream;

/// A policy, and how its operations move pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub kind: PolicyKind,
    pub outside: Outside,
}

/// The kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Applies operations of one magnitude (Cubuk et al., "RandAugment", 2019).
    RandAugment {
        /// Number of operations applied to each image.
        operations: usize,
        /// The magnitude, below `bins`.
        magnitude: usize,
        /// Number of magnitudes, at least 2.
        bins: usize,
    },
    /// Applies one operation of a random magnitude with the wide ranges (Müller and Hutter, "TrivialAugment", 2021).
    TrivialAugmentWide {
        /// Number of magnitudes, at least 2.
        bins: usize,
    },
    /// Applies one of 25 pairs of operations that were learned on ImageNet (Cubuk et al., "AutoAugment", 2018).
    AutoAugment,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PolicyKind::RandAugment { operations, magnitude, bins } => {
                write!(f, "rand_augment {operations} operations of magnitude {magnitude} of {bins}")?;
            }
            PolicyKind::TrivialAugmentWide { bins } => write!(f, "trivial_augment_wide {bins} magnitudes")?,
            PolicyKind::AutoAugment => write!(f, "auto_augment imagenet")?,
        }
        let interpolation = match self.outside.interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Bilinear => "bilinear",
        };
        write!(f, ", {interpolation}, outside {}", self.outside.level)
    }
}

impl Policy {
    /// Draws the operations for an image of `size`.
    pub(crate) fn draw(&self, random: &mut RandomStream, size: Size) -> Vec<Operation> {
        match self.kind {
            PolicyKind::RandAugment { operations, magnitude, bins } => {
                let space = Space::standard(bins);
                let draw = |_| {
                    let kind = RAND_AUGMENT_KINDS[random.below(RAND_AUGMENT_KINDS.len())];
                    space.operation(kind, magnitude, random.below(2) == 1, size)
                };
                (0..operations).filter_map(draw).collect()
            }
            PolicyKind::TrivialAugmentWide { bins } => {
                let space = Space::wide(bins);
                let kind = RAND_AUGMENT_KINDS[random.below(RAND_AUGMENT_KINDS.len())];
                let bin = random.below(bins);
                space.operation(kind, bin, random.below(2) == 1, size).into_iter().collect()
            }
            PolicyKind::AutoAugment => {
                let pair = &IMAGENET[random.below(IMAGENET.len())];
                let mut draw = |(kind, probability, bin): (Kind, f64, usize)| {
                    let (is_applied, is_negative) = (random.chance(probability), random.below(2) == 0);
                    let space = Space::standard(10);
                    is_applied.then(|| space.operation(kind, bin, is_negative, size)).flatten()
                };
                pair.iter().filter_map(|drawn| draw(*drawn)).collect()
            }
        }
    }
}
