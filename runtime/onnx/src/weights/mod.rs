//! Weights: reads or generates their bytes and returns them as tensors.
//!
//! Knows nothing about engines or graph rewriting.

mod error;
mod mapped;
#[cfg(feature = "interpreter")]
mod pickle;
#[cfg(feature = "interpreter")]
mod pth;
mod reader;
mod safetensors;
mod seed;

pub use error::{WeightError, WeightMismatches};
pub(crate) use mapped::MappedFile;
pub use reader::WeightReader;
pub(crate) use reader::cast_saturating;

/// The tensors of a weights file by name: each a specification, or a description of one with an unsupported type.
type TensorListing = std::collections::HashMap<String, Result<crate::TensorSpec, String>>;
