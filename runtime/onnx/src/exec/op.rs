//! Operators with parsed attributes.

use super::ops::{Binary, Reduce, Unary};
use super::reference::Array;
use super::window::Window;
use crate::DType;

/// An operator, ready to be applied. A parameter that ONNX moved from an attribute to an input over time is `None` here
/// if it is an input of the node.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Identity,
    Unary(Unary),
    /// The bounds come from attributes, else from inputs 1 and 2.
    Clip {
        min: Option<f64>,
        max: Option<f64>,
    },
    /// Applied to two or more inputs, from the left.
    Binary(Binary),
    Select,
    MatMul,
    /// A fused attention. The inputs are q, k (permuted by `key_order`), v, an optional mask, and one number for each
    /// element of `scaling`, by which the scores are multiplied or divided.
    FusedAttention {
        key_order: Vec<usize>,
        scaling: Vec<Binary>,
    },
    /// ONNX's operator `Attention`.
    MultiHeadAttention {
        counts: HeadCounts,
        scale: Option<f64>,
        causal: bool,
    },
    Gemm {
        alpha: f64,
        beta: f64,
        trans_a: bool,
        trans_b: bool,
    },
    /// If `residual` is true, the last input is added to the result.
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
    /// The axes come from the attribute, else from input 1, else from `default`.
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
    /// If `flat` is true, the softmax covers all dimensions from `axis` on, as before operator set 13.
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

/// The numbers of heads that lie side by side in tensors of three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadCounts {
    pub of_q: Option<usize>,
    pub of_kv: Option<usize>,
}

/// The axes of a reduction for which none are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReduceDefault {
    All,
    None,
    /// All except batch and channels (GlobalAveragePool).
    Spatial,
}

/// The parameters of a Slice of operator sets 1 to 9, where all are attributes.
#[derive(Clone, Debug)]
pub(super) struct SliceAttributes {
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub axes: Option<Vec<i64>>,
}

/// The modes of Pad, other than a constant value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PadKind {
    Reflect,
    Edge,
}
