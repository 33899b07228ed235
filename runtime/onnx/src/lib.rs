//! Build, read, write, check, rewrite, count and execute ONNX models.
//!
//! Knows no vendor, no script and no clock.

mod builder;
mod check;
mod count;
pub mod exec;
mod file;
mod graph;
mod inference;
pub mod layers;
mod limits;
mod panic;
mod precision;
mod regular_file;
mod spec;
mod tensor;
mod weights;

pub use builder::{BuildError, GraphBuilder, NODES_MAX, OPSET, Var, WEIGHT_ELEMENTS_MAX};
pub use check::{CheckError, Uninferred, check, infer};
pub use count::{Counts, count};
pub use file::{OnnxError, WriteOptions, data_files, read_onnx, write_onnx, write_onnx_with};
pub use graph::{Attribute, Graph, Init, Model, Node, Role, Source, ValueInfo, Weight};
pub use inference::InferError;
pub use limits::{LimitError, check_limits};
pub use panic::panic_text;
pub use precision::{HalfError, to_f16};
pub use regular_file::{open_regular, read_regular, read_regular_text};
pub use spec::{DType, Dim, SpecError, TensorSpec};
pub use tensor::{Element, HostMemory, Tensor, TensorError, byte_count};
pub use weights::{Mismatches, WeightError, WeightReader};
