//! The operations of the policies and of `color_jitter`, each with its parameter drawn.

use super::affine::{Interpolation, rotation, transform};
use super::{hue, levels};
use crate::geometry::Size;

/// An operation on an RGB image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// These four have a factor that changes nothing if it is 1.
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Sharpness(f64),
    /// A part of a turn, from -0.5 to 0.5.
    Hue(f64),
    /// Number of bits that remain.
    Posterize(u32),
    /// The level from which on levels are inverted.
    Solarize(f64),
    AutoContrast,
    Equalize,
    Invert,
    /// Pixels to the left for each pixel down.
    ShearX(f64),
    /// Pixels up for each pixel to the right.
    ShearY(f64),
    /// Pixels to the right.
    TranslateX(f64),
    /// Pixels down.
    TranslateY(f64),
    /// Degrees, counterclockwise.
    Rotate(f64),
}

/// How pixels are moved, and the level of those that come from outside the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    pub interpolation: Interpolation,
    pub level: u8,
}

impl Operation {
    /// Applies the operation to an image of `size`. `scratch` is memory to reuse.
    pub fn apply(self, rgb: &mut Vec<u8>, size: Size, outside: Outside, scratch: &mut Vec<u8>) {
        match self {
            Operation::Brightness(factor) => levels::brightness(rgb, factor as f32),
            Operation::Contrast(factor) => levels::contrast(rgb, factor as f32),
            Operation::Saturation(factor) => levels::saturation(rgb, factor as f32),
            Operation::Sharpness(factor) => levels::sharpness(rgb, size.0, factor as f32, scratch),
            Operation::Hue(factor) => hue::turn_hue(rgb, factor),
            Operation::Posterize(bits) => levels::posterize(rgb, bits),
            Operation::Solarize(threshold) => levels::solarize(rgb, threshold),
            Operation::AutoContrast => levels::auto_contrast(rgb),
            Operation::Equalize => levels::equalize(rgb),
            Operation::Invert => levels::apply_lookup(rgb, |level| 255 - level),
            Operation::ShearX(shear) => {
                moved([1.0, libm::tan(angle(shear)), 0.0, 0.0, 1.0, 0.0], rgb, size, outside, scratch);
            }
            Operation::ShearY(shear) => {
                let slope = libm::sin(angle(shear)) / libm::cos(angle(shear));
                moved([1.0, 0.0, 0.0, slope, 1.0, 0.0], rgb, size, outside, scratch);
            }
            // torchvision moves by whole pixels.
            Operation::TranslateX(pixels) => {
                moved([1.0, 0.0, -pixels.trunc(), 0.0, 1.0, 0.0], rgb, size, outside, scratch);
            }
            Operation::TranslateY(pixels) => {
                moved([1.0, 0.0, 0.0, 0.0, 1.0, -pixels.trunc()], rgb, size, outside, scratch);
            }
            Operation::Rotate(degrees) => moved(rotation(degrees, size), rgb, size, outside, scratch),
        }
    }
}

/// Returns the angle of a shear by way of degrees, as torchvision computes it: the last bit of the slope decides where a level
/// is cut off.
fn angle(shear: f64) -> f64 {
    libm::atan(shear).to_degrees().to_radians()
}

fn moved(map: [f64; 6], rgb: &mut Vec<u8>, size: Size, outside: Outside, scratch: &mut Vec<u8>) {
    transform(rgb, size, map, outside, scratch);
    std::mem::swap(rgb, scratch);
}
