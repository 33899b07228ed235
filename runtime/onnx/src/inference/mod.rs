//! Shapes and element types of every value, inferred node by node.
//!
//! Shapes with named dimensions come from `rten-shape-inference`; element types and what inputs must agree on are ours.
//! Knows no file format and no weights' bytes beyond small integer constants.

mod agreement;
mod attributes;
mod dtypes;
mod error;
mod known;
mod rules;
mod shapes;
mod symbols;
mod window;

pub(crate) use attributes::Attributes;
pub use error::InferError;
use known::Known;
pub(crate) use known::{Inference, constant_value};
