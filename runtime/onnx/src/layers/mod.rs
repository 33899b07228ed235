//! Layers with PyTorch's semantics, argument defaults and state_dict names, built from standard ONNX operators.
//!
//! Knows nothing about files or engines.

mod activation;
mod arithmetic;
mod attention;
mod cache;
mod convolution;
mod convolution_nd;
mod linear;
mod loss;
mod node;
mod normalization;
mod pool;
mod reduction;
mod resize;
mod rotary;
mod selection;
mod shape;
mod window;

use node::{AttributeMap, add_node, argument_error, attributes, fixed_size, ints};

pub use activation::{
    abs, ceil, clip, cos, erf, exp, floor, gelu, gelu_tanh, hard_sigmoid, hard_swish, leaky_relu, log, log_softmax,
    mish, neg, not, reciprocal, relu, relu6, round, sigmoid, sign, silu, sin, softmax, softplus, sqrt, tanh,
};
pub use arithmetic::{
    add, and, cast, div, einsum, equal, greater, greater_or_equal, less, less_or_equal, matmul, maximum, minimum,
    modulo, mul, not_equal, or, pow, range, scale, sub,
};
pub use attention::{Attention, attention, multi_head_attention};
pub use cache::update_cache;
pub use convolution::{Conv2d, Padding, conv2d};
pub use convolution_nd::{ConvNd, conv_nd, conv_transpose};
pub use linear::{Linear, embedding, linear};
pub use loss::{CrossEntropy, cross_entropy};
pub use normalization::{BatchNorm, batch_norm, dropout, group_norm, instance_norm, layer_norm, rms_norm};
pub use pool::{Pool2d, avg_pool2d, global_avg_pool, max_pool2d};
pub use reduction::{Reduction, arg_max, cumulative_sum, mean, reduce};
pub use resize::{Interpolation, ResizeTo, interpolate};
pub use rotary::{Rotary, RotaryAngles, RotaryScaling, rotary, rotate};
pub use selection::{
    Fill, Slice, choose, concat, gather, gather_elements, pad, roll, select, slice, split, stack, top_k,
};
pub use shape::{Size, expand, flatten, reshape, reshape_to, shape_of, squeeze, swap_axes, tile, transpose, unsqueeze};
pub use window::{relative_position_bias, shifted_window_mask, window_partition, window_reverse};
