//! Layers with PyTorch's semantics, argument defaults and state_dict names, built from standard ONNX operators.
//!
//! Knows nothing about files or engines.

mod activation;
mod arithmetic;
mod convolution;
mod linear;
mod node;
mod normalization;
mod pool;
mod shape;

use node::{AttributeMap, add_node, argument_error, attributes, fixed_size, ints};

pub use activation::{
    gelu, hard_sigmoid, hard_swish, leaky_relu, log_softmax, relu, relu6, sigmoid, silu, softmax, tanh,
};
pub use arithmetic::{add, concat, div, matmul, mean, mul, scale, sub};
pub use convolution::{Conv2d, Padding, conv2d};
pub use linear::{Linear, embedding, linear};
pub use normalization::{BatchNorm, batch_norm, dropout, layer_norm};
pub use pool::{Pool2d, avg_pool2d, global_avg_pool, max_pool2d};
pub use shape::{flatten, reshape, transpose};
