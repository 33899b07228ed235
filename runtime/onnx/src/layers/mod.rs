//! Layers with PyTorch's meaning, argument defaults and state_dict names, made of standard ONNX operators.
//!
//! Knows no file and no engine.

mod activation;
mod arithmetic;
mod convolution;
mod linear;
mod node;
mod normalization;
mod pool;
mod shape;

use node::{Attributes, argument, attributes, fixed_size, ints, one};

pub use activation::{
    gelu, hard_sigmoid, hard_swish, leaky_relu, log_softmax, relu, relu6, sigmoid, silu, softmax, tanh,
};
pub use arithmetic::{add, concat, div, matmul, mean, mul, scale, sub};
pub use convolution::{Conv2d, Padding, conv2d};
pub use linear::{Linear, embedding, linear};
pub use normalization::{BatchNorm, batch_norm, dropout, layer_norm};
pub use pool::{Pool2d, avg_pool2d, global_avg_pool, max_pool2d};
pub use shape::{flatten, reshape, transpose};
