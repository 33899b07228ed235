//! Builds, reads, writes, checks, rewrites, counts and executes ONNX models.
//!
//! Knows nothing about vendors, scripts or clocks.

mod builder;
mod check;
mod count;
pub mod exec;
mod file;
mod graph;
pub mod layers;
mod limits;
mod lower;
mod operator_names;
mod operator_set;
mod panic;
mod precision;
mod random;
mod regular_file;
mod shape_inference;
mod sizes;
mod spec;
mod tensor;
mod weights;

pub use builder::{BuildError, GraphBuilder, NODES_MAX, OPSET, Var, WEIGHT_ELEMENTS_MAX};
pub use check::{CheckError, UninferredNode, check, infer_shapes};
pub use count::{Counts, count, multiply_adds};
pub use file::{OnnxError, WriteOptions, data_files, read_onnx, write_onnx, write_onnx_with};
pub use graph::{Attribute, Graph, Init, Model, Node, ValueInfo, Weight, WeightRole, WeightSource};
pub use limits::{LimitError, check_limits};
pub use lower::{LowerError, lower};
pub use operator_names::find_unknown_operator;
pub use panic::panic_text;
pub use precision::{HalfPrecision, HalfPrecisionError, to_f16, to_half_precision};
pub use random::RandomStream;
pub use regular_file::{open_regular, read_regular, read_regular_text};
pub use shape_inference::InferError;
pub use sizes::{NamedSizes, SizeConflict};
pub use spec::{DType, Dim, SpecError, TensorSpec};
pub use tensor::{Element, HostMemory, Tensor, TensorError, byte_count};
pub use weights::{WeightError, WeightMismatches, WeightOptions, WeightReader};
