//! Infers the shape and element type of every value, node by node.
//!
//! Shapes with named dimensions come from `rten-shape-inference`; element types and the checks between inputs are
//! implemented here. Knows nothing about file formats, nor about weights' bytes except those of small integer
//! constants.

mod attributes;
pub(crate) mod dtypes;
mod error;
mod input_checks;
mod own_rules;
pub(crate) mod rules;
mod shapes;
mod silent;
mod symbols;
mod values;
mod window;

pub use attributes::Attributes;
pub(crate) use dtypes::Types;
pub use dtypes::output_dtypes;
pub use error::InferError;
pub(crate) use shapes::ShapeRule;
pub(crate) use values::ShapeInference;
