//! Operators with their attributes read.

use super::ops::{Binary, Reduce, Unary};
use super::reference::Array;
use super::window::Window;
use crate::DType;

/// An operator, ready to be applied. What ONNX moved from attributes to inputs over time is `None` here when the node
/// brings it as an input.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Identity,
    Unary(Unary),
    /// Bounds from attributes; else from the inputs 1 and 2.
    Clip {
        min: Option<f64>,
        max: Option<f64>,
    },
    /// Over two or more inputs, from the left.
    Binary(Binary),
    Select,
    MatMul,
    /// Of q, k with its dimensions in `key_order`, v, a mask that may be left out, and one number for each of `scaling`,
    /// by which the scores are multiplied or divided.
    Attention {
        key_order: Vec<usize>,
        scaling: Vec<Binary>,
    },
    /// ONNX's operator Attention.
    Heads {
        counts: Heads,
        scale: Option<f64>,
        causal: bool,
    },
    Gemm {
        alpha: f64,
        beta: f64,
        trans_a: bool,
        trans_b: bool,
    },
    /// `residual`: the last input is added to the result.
    Conv {
        window: Window,
        groups: usize,
        residual: bool,
        activation: Option<Unary>,
    },
    BatchNormalization {
        epsilon: f64,
    },
    MaxPool(Window),
    AveragePool {
        window: Window,
        include_pad: bool,
    },
    /// `axes` from the attribute, else from input 1, else `default`.
    Reduce {
        kind: Reduce,
        axes: Option<Vec<i64>>,
        default: ReduceDefault,
        keep: bool,
    },
    ArgMax {
        axis: i64,
        keep: bool,
        last: bool,
    },
    /// `flat`: over all dimensions from `axis` on, as before opset 13.
    Softmax {
        axis: i64,
        log: bool,
        flat: bool,
    },
    LayerNormalization {
        axis: i64,
        epsilon: f64,
    },
    Flatten {
        axis: i64,
    },
    Reshape {
        allow_zero: bool,
    },
    Squeeze {
        axes: Option<Vec<i64>>,
    },
    Unsqueeze {
        axes: Option<Vec<i64>>,
    },
    Transpose {
        order: Option<Vec<i64>>,
    },
    Concat {
        axis: i64,
    },
    Split {
        axis: i64,
        sizes: Option<Vec<i64>>,
        parts: usize,
    },
    Slice {
        attributes: Option<SliceAttributes>,
    },
    Gather {
        axis: i64,
    },
    Expand,
    Pad {
        mode: Option<PadKind>,
        pads: Option<Vec<i64>>,
        value: f64,
    },
    Shape {
        start: i64,
        end: i64,
    },
    ConstantOfShape {
        value: Array,
    },
    Cast {
        to: DType,
    },
}

/// How many heads lie side by side in tensors of three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    pub of_q: Option<usize>,
    pub of_kv: Option<usize>,
}

/// Which axes a reduction takes when none are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReduceDefault {
    All,
    None,
    /// All but batch and channels (GlobalAveragePool).
    Spatial,
}

/// A slice of opset 1 to 9, all in attributes.
#[derive(Clone, Debug)]
pub(super) struct SliceAttributes {
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub axes: Option<Vec<i64>>,
}

/// What Pad puts beyond the border, where that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PadKind {
    Reflect,
    Edge,
}
