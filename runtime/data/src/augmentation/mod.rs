//! The random transforms of training on the pixels of an image, with the pixels and the distributions of torchvision on
//! PIL's images.
//!
//! A transform first draws its parameters, and a kernel then applies them; only the first knows random numbers.

mod affine;
mod color_jitter;
mod hue;
mod levels;
mod operation;
mod policy;
mod random_erasing;
mod random_resized_crop;
#[cfg(test)]
pub(crate) mod tests;

pub use affine::Interpolation;
pub use color_jitter::ColorJitter;
pub use operation::{Operation, Outside};
pub use policy::{Policy, PolicyKind};
pub use random_erasing::{ErasedValue, RandomErasing};
pub use random_resized_crop::CropRange;
