//! A small dataset of real JPEG files that the project draws itself, so that a fresh checkout has something to load.
//!
//! Knows no model: the pictures are of shapes, and no accuracy means anything on them.

mod generate;
mod picture;
#[cfg(test)]
mod tests;

pub use generate::{DrawError, ensure};
