//! Tensors and their specifications: types of the crate `flagperf-onnx` under the host's own module name.
//!
//! Knows no device: a tensor on a device is an `engine::Value`.

pub use flagperf_onnx::{
    DType, Dim, Element, HostMemory, NamedSizes, SpecError, Tensor, TensorError, TensorSpec, byte_count,
};
