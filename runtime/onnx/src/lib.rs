//! Builds, reads, writes, checks, rewrites and counts ONNX models.
//!
//! Knows nothing about vendors, scripts or clocks.

mod builder;
mod check;
mod count;
mod file;
mod float8;
mod gradient;
mod graph;
pub mod layers;
mod limits;
mod lower;
mod operator_set;
mod operators;
mod precision;
mod random;
pub mod rewrite;
mod shape_inference;
mod training;
mod weights;

pub use builder::{BuildError, GraphBuilder, NODES_MAX, OPSET, Var, WEIGHT_ELEMENTS_MAX};
pub use check::{CheckError, UninferredNode, check, infer_shapes, infer_values};
pub use count::{Counts, count, multiply_adds};
pub use file::{
    OnnxError, Subgraph, WriteOptions, captured_names, data_files, dtype_from_onnx, read_onnx, write_onnx,
    write_onnx_with,
};
pub use flagperf_core::tensor::{
    DType, Dim, Element, HostMemory, NamedSizes, SpecError, Tensor, TensorError, TensorSpec, byte_count,
};
pub use float8::{FLOAT8_PRODUCT, float8_product_model, from_e4m3};
pub use gradient::{Differentiated, GradientError, differentiate};
pub use graph::{Attribute, Graph, Init, Model, Node, ValueInfo, Weight, WeightRole, WeightSource};
pub use limits::{CONSTANT_ELEMENTS_MAX, LimitError, check_limits, check_paths};
pub use lower::{Decomposition, LowerError, NodeList, lower, replace_nodes};
pub use operator_set::{MODERN_OPSET, upgrade};
pub use operators::{OPSET_NEWEST, Operator, find_operator, find_unknown_operator, operators_with_derivative};
pub use precision::{HalfPrecision, HalfPrecisionError, to_f16, to_half_precision, to_precision};
pub use random::RandomStream;
pub use shape_inference::{Attributes, InferError, output_dtypes};
pub use training::{
    ALL_REDUCE, Accumulation, BROADCAST, Decay, GRADIENT, LossScale, Moments, NORM, OWN_DOMAIN, Optimizer,
    OptimizerKind, REDUCE, ROOT, Schedule, State, StateExchange, StateKind, StepScalars, TRAINING_DOMAIN,
    TrainingBatches, TrainingError, TrainingOptions, TrainingStep, UPDATE, UPDATE_NUMBERS, UpdateRule, WarmUp,
    add_gradients, all_reduce_model, broadcast_model, gradient_operator, training_step, without_exchange,
};
pub use weights::{
    ConfigurationValue, Int8Part, WeightError, WeightMismatches, WeightOptions, WeightReader, find_weights_file,
};
