//! Operators with parsed attributes.

use super::control::Control;
use super::conv_transpose::TransposedConv;
use super::custom::CustomOperator;
use super::einsum::Equation;
use super::elementwise::ElementwiseFunction;
use super::host::HostOp;
use super::multi_head_attention::MultiHeadAttention;
use super::normalize::GroupNorm;
use super::ops::{Binary, Bitwise, Reduce, ReducedOutputs, Unary};
use super::recurrent::{Cell, Recurrent};
use super::reference::Array;
use super::resize::Resize;
use super::rotary::Rotary;
use super::tensor_scatter::TensorScatter;
use super::window::Window;
use flagperf_onnx::{DType, UpdateRule};

/// An operator, ready to be applied. A parameter that ONNX moved from an attribute to an input over time is an input.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Identity,
    /// The first output is input 0; `mask` states whether the second is needed, `is_seeded` whether the node states a seed.
    Dropout {
        mask: bool,
        is_seeded: bool,
    },
    /// Computed on the host.
    Host(HostOp),
    /// Runs subgraphs.
    Control(Control),
    /// An operator of another domain than the standard's.
    Custom(CustomOperator),
    Unary(Unary),
    Bitwise(Bitwise),
    /// The bounds are inputs 1 and 2.
    Clip,
    /// Applied to two or more inputs, from the left.
    Binary(Binary),
    Select,
    /// Input 0 plus the product of inputs 1 and 2, or minus it.
    MultiplyAdd {
        subtract: bool,
    },
    /// Several elementwise operators as one.
    Fused(ElementwiseFunction),
    MatMul,
    /// The product in i32 of two matrices of i8.
    IntegerProduct,
    /// The product in bf16 of a matrix and a transposed one, which contain the bits of numbers in FP8 (E4M3).
    Float8Product,
    /// The product of the SiLU of input 0 and input 1.
    SiluProduct,
    /// The product of x and a matrix, to each row of which a bias is added; its ReLU if `relu` is true.
    Linear {
        relu: bool,
    },
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
    /// With the statistics of the batch, and new running statistics as further outputs.
    BatchNormalizationInTraining {
        epsilon: f64,
        momentum: f64,
    },
    /// Returns its inputs, the leaves of a [`Op::Gradient`]; what is computed of them is recorded.
    Record,
    /// The gradients of the last input with respect to the others. The means of each list over the processes are computed as soon as all of
    /// it is known.
    Gradient {
        reduced: Vec<ReducedOutputs>,
    },
    /// The means of the inputs over the processes, for the process with the number `root` alone if there is one.
    MeanOverProcesses {
        root: Option<u32>,
    },
    /// The inputs of the process with the number `root`.
    Broadcast {
        root: u32,
    },
    /// The norm of all inputs together.
    Norm,
    /// Updates parameters by an optimizer.
    Update(UpdateRule),
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
    TopK {
        axis: i64,
        largest: bool,
    },
    CumSum {
        exclusive: bool,
        reverse: bool,
    },
    Softmax {
        axis: i64,
        log: bool,
    },
    /// If `statistics` is true, the mean and the inverse of the deviation are further outputs.
    LayerNormalization {
        axis: i64,
        epsilon: f64,
        statistics: bool,
    },
    Flatten {
        axis: i64,
    },
    Reshape {
        allow_zero: bool,
    },
    Squeeze,
    Unsqueeze,
    Transpose {
        order: Option<Vec<i64>>,
    },
    Concat {
        axis: i64,
    },
    Split {
        axis: i64,
        parts: usize,
    },
    Slice,
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
    TensorScatter(TensorScatter),
    /// If `columns_first` is false, the rows and columns of a block vary slower than the channels (`DCR`).
    DepthToSpace {
        block: usize,
        columns_first: bool,
    },
    /// If `columns_first` is true, the channels vary slower than the rows and columns of a block (`CRD`).
    SpaceToDepth {
        block: usize,
        columns_first: bool,
    },
    Recurrent(Recurrent),
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
    /// Returns how many outputs are computed of a node of which `declared` outputs are read. Further outputs (the
    /// statistics of BatchNormalization) are not computed.
    pub fn output_count(&self, declared: usize) -> usize {
        match self {
            Op::Split { parts, .. } => *parts,
            Op::Dropout { .. } => declared.min(2),
            Op::Host(_) | Op::Control(_) | Op::Custom(_) => declared,
            Op::Recurrent(Recurrent { cell: Cell::Lstm, .. }) => declared.min(3),
            Op::Recurrent(_) => declared.min(2),
            Op::LayerNormalization { statistics: true, .. } => declared.min(3),
            Op::TopK { .. } => declared.min(2),
            Op::BatchNormalizationInTraining { .. } => declared.min(3),
            Op::Gradient { .. } | Op::MeanOverProcesses { .. } | Op::Broadcast { .. } | Op::Update(_) => declared,
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

/// The modes of Pad, other than a constant value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PadKind {
    Reflect,
    Edge,
}
