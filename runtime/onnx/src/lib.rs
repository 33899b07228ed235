//! Build, read, write, check, rewrite, count and execute ONNX models.
//!
//! Knows no vendor, no script and no clock.

mod graph;
mod spec;
mod tensor;

pub use graph::{Attribute, Graph, Init, Model, Node, Role, Source, ValueInfo, Weight};
pub use spec::{DType, Dim, SpecError, TensorSpec};
pub use tensor::{Element, HostMemory, Tensor, TensorError, byte_count};
