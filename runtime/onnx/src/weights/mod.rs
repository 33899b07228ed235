//! Weights: where their bytes come from, and making tensors of them.
//!
//! Knows no engine and no graph rewriting.

mod error;
mod mapped;
mod reader;
mod safetensors;
mod seed;

pub use error::{Mismatches, WeightError};
pub(crate) use mapped::MappedFile;
pub use reader::WeightReader;
pub(crate) use reader::narrowed;
