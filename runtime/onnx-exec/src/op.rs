//! Operators with parsed attributes.

use super::conv_transpose::TransposedConv;
use super::einsum::Equation;
use super::multi_head_attention::MultiHeadAttention;
use super::normalize::GroupNorm;
use super::ops::{Binary, Reduce, Unary};
use super::reference::Array;
use super::resize::Resize;
use super::rotary::Rotary;
use super::window::Window;
use flagperf_onnx::DType;

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
    /// The product of x and a matrix, to each row of which a bias is added.
    Linear,
    /// A fused attention. The inputs are q, k (permuted by `key_order`), v, an optional mask, and one number for each
    /// element of `scaling`, by which the scores are multiplied or divided.
    FusedAttention {
        key_order: Vec<usize>,
        scaling: Vec<Binary>,
    },
    /// ONNX's operator `Attention`.
    MultiHeadAttention(MultiHeadAttention),
    /// Applied to two or more inputs.
    Mean,
    PRelu,
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
    ConvTranspose(TransposedConv),
    BatchNormalization {
        epsilon: f64,
    },
    InstanceNormalization {
        epsilon: f64,
    },
    GroupNormalization(GroupNorm),
    RmsNormalization {
        axis: i64,
        epsilon: f64,
    },
    RotaryEmbedding(Rotary),
    Einsum(Equation),
    Resize(Resize),
    MaxPool(Window),
    AveragePool {
        window: Window,
        include_pad: bool,
    },
    /// The axes come from the attribute, else from input 1, else from `default`.
    Reduce {
        kind: Reduction,
        axes: Option<Vec<i64>>,
        default: ReduceDefault,
        keep: bool,
    },
    /// The index of the largest element, or of the smallest if `smallest` is true.
    ArgMax {
        axis: i64,
        keep: bool,
        last: bool,
        smallest: bool,
    },
    /// The number of elements comes from the attribute, else from input 1.
    TopK {
        axis: i64,
        largest: bool,
        count: Option<usize>,
    },
    CumSum {
        exclusive: bool,
        reverse: bool,
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
    GatherElements {
        axis: i64,
    },
    GatherNd {
        batch_dims: usize,
    },
    /// Without a combination, an update replaces the element.
    ScatterElements {
        axis: i64,
        combination: Option<Binary>,
    },
    ScatterNd {
        combination: Option<Binary>,
    },
    /// If `columns_first` is false, the rows and columns of a block vary slower than the channels (`DCR`).
    DepthToSpace {
        block: usize,
        columns_first: bool,
    },
    SpaceToDepth {
        block: usize,
    },
    Expand,
    /// Repeats whole dimensions.
    Tile,
    Range,
    OneHot {
        axis: i64,
    },
    Trilu {
        upper: bool,
    },
    NonZero,
    Size,
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
    /// Converts to the element type of input 1 if `to` is `None`.
    Cast {
        to: Option<DType>,
    },
}

impl Op {
    /// Returns how many outputs are computed of a node with `declared` outputs. Further outputs (the mask of Dropout, the
    /// statistics of BatchNormalization) are not computed.
    pub fn output_count(&self, declared: usize) -> usize {
        match self {
            Op::Split { parts, .. } => *parts,
            Op::TopK { .. } => declared.min(2),
            Op::MultiHeadAttention(attention) => attention.outputs,
            _ => declared.min(1),
        }
    }
}

/// How several elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    /// An operation of the tensor library.
    Plain(Reduce),
    /// The sum of the absolute values.
    L1,
    /// The root of the sum of the squares.
    L2,
    SumSquare,
    /// The logarithm of the sum.
    LogSum,
    /// The logarithm of the sum of the exponentials.
    LogSumExp,
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
