//! Weights: where their bytes come from, and making tensors of them.
//!
//! Knows no engine and no graph rewriting.

mod error;
mod mapped;
#[cfg(feature = "candle")]
mod pickle;
#[cfg(feature = "candle")]
mod pth;
mod reader;
mod safetensors;
mod seed;

pub use error::{Mismatches, WeightError};
pub(crate) use mapped::MappedFile;
pub use reader::WeightReader;
pub(crate) use reader::narrowed;

/// The tensors of a weights file by name: each a specification, or in words what is none of ours.
type Listed = std::collections::HashMap<String, Result<crate::TensorSpec, String>>;
