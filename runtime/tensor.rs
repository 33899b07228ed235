//! Tensors and their specifications: the vocabulary of the crate `flagperf-onnx`, under the host's own name.
//!
//! Knows no device: what lives on one is an `engine::Value`.

pub use flagperf_onnx::{DType, Dim, Element, HostMemory, SpecError, Tensor, TensorError, TensorSpec, byte_count};
