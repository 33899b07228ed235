//! The drawn dataset: a small set of real JPEG files that flagperf generates, so that a fresh checkout has something to
//! load.
//!
//! Knows nothing about models: the pictures show geometric shapes, and accuracy on them is meaningless.

mod generate;
mod instances;
mod picture;
#[cfg(test)]
mod tests;

pub use generate::{DrawError, Preview, ensure, preview};
