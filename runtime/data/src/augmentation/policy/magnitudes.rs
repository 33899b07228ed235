//! The magnitudes of the operations of a policy, computed in f32 as torchvision's `_augmentation_space`.

use crate::augmentation::operation::Operation;
use crate::geometry::Size;

/// The operations from which policies choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

/// Those of RandAugment and TrivialAugment.
pub const RAND_AUGMENT_KINDS: [Kind; 14] = [
    Kind::Identity,
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
    Kind::Rotate,
    Kind::Brightness,
    Kind::Color,
    Kind::Contrast,
    Kind::Sharpness,
    Kind::Posterize,
    Kind::Solarize,
    Kind::AutoContrast,
    Kind::Equalize,
];

/// The largest magnitudes of the operations of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Number of magnitudes of each operation, from none to the largest.
    bins: usize,
    shear: f32,
    translation: Translation,
    degrees: f32,
    /// Distance of a factor from 1.
    factor: f32,
    /// Number of bits that `posterize` removes.
    removed_bits: f32,
}

#[derive(Clone, Copy, Debug)]
enum Translation {
    /// A share of the width or the height.
    Share(f64),
    Pixels(f32),
}

impl Space {
    /// Returns the magnitudes of RandAugment and AutoAugment; their translations are 150 pixels for images of 331.
    pub const fn standard(bins: usize) -> Self {
        let translation = Translation::Share(150.0 / 331.0);
        Space { bins, shear: 0.3, translation, degrees: 30.0, factor: 0.9, removed_bits: 4.0 }
    }

    /// Returns the magnitudes of TrivialAugment's wide space.
    pub const fn wide(bins: usize) -> Self {
        let translation = Translation::Pixels(32.0);
        Space { bins, shear: 0.99, translation, degrees: 135.0, factor: 0.99, removed_bits: 6.0 }
    }

    /// Returns the operation of magnitude `bin` for an image of `size`; `None` for the identity. Operations without a
    /// direction ignore `is_negative`.
    pub fn operation(&self, kind: Kind, bin: usize, is_negative: bool, size: Size) -> Option<Operation> {
        let signed = |most: f32| {
            let magnitude = f64::from(self.step(0.0, most, bin));
            if is_negative { -magnitude } else { magnitude }
        };
        let translation = |side: usize| match self.translation {
            Translation::Share(share) => signed((share * side as f64) as f32),
            Translation::Pixels(pixels) => signed(pixels),
        };
        Some(match kind {
            Kind::Identity => return None,
            Kind::ShearX => Operation::ShearX(signed(self.shear)),
            Kind::ShearY => Operation::ShearY(signed(self.shear)),
            Kind::TranslateX => Operation::TranslateX(translation(size.0)),
            Kind::TranslateY => Operation::TranslateY(translation(size.1)),
            Kind::Rotate => Operation::Rotate(signed(self.degrees)),
            Kind::Brightness => Operation::Brightness(1.0 + signed(self.factor)),
            Kind::Color => Operation::Saturation(1.0 + signed(self.factor)),
            Kind::Contrast => Operation::Contrast(1.0 + signed(self.factor)),
            Kind::Sharpness => Operation::Sharpness(1.0 + signed(self.factor)),
            Kind::Posterize => {
                let removed = bin as f32 / ((self.bins - 1) as f32 / self.removed_bits);
                Operation::Posterize(8 - removed.round_ties_even() as u32)
            }
            Kind::Solarize => Operation::Solarize(f64::from(self.step(255.0, 0.0, bin))),
            Kind::AutoContrast => Operation::AutoContrast,
            Kind::Equalize => Operation::Equalize,
            Kind::Invert => Operation::Invert,
        })
    }

    /// Returns an element of `torch.linspace`, which counts from the nearer end.
    fn step(&self, start: f32, end: f32, bin: usize) -> f32 {
        let step = (end - start) / (self.bins - 1) as f32;
        match bin < self.bins / 2 {
            true => start + step * bin as f32,
            false => end - step * (self.bins - bin - 1) as f32,
        }
    }
}
