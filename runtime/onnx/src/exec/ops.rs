//! The interface of a tensor library, [`TensorOps`], and the parameters of its operations.

use super::OpError;
use super::attention::attention_from_primitives;
use crate::{DType, Tensor};

/// The operations that the executor requires from a tensor library. Shapes are NCHW, axes count from the front and are
/// in range, and elementwise operations broadcast under NumPy's rules. An operation that is not possible is an error,
/// never a different result.
pub trait TensorOps: Send + Sync {
    /// A tensor of the library. Cloning shares its memory.
    type Tensor: Clone + Send;

    /// Returns the library's name in messages.
    fn name(&self) -> &'static str;
    /// Returns the supported element types.
    fn dtypes(&self) -> &'static [DType];
    /// Returns whether the executor may fuse nodes for speed, for example a batch normalization into the preceding
    /// convolution.
    fn supports_fusion(&self) -> bool {
        true
    }

    /// Converts a host tensor to a tensor of the library.
    fn upload(&self, tensor: &Tensor) -> Result<Self::Tensor, OpError>;
    /// Copies a tensor of the library to the host as `dtype`, the type declared by the graph. The library may store
    /// another type, for example u8 for bool.
    fn download(&self, tensor: &Self::Tensor, dtype: DType) -> Result<Tensor, OpError>;
    /// Returns the sizes, outermost first.
    fn shape(&self, tensor: &Self::Tensor) -> Vec<usize>;
    /// Returns the element type as it is stored.
    fn dtype(&self, tensor: &Self::Tensor) -> DType;

    /// Applies an elementwise function.
    fn unary(&self, kind: Unary, x: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Applies an elementwise function of two tensors.
    fn binary(&self, kind: Binary, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Selects `a` where `condition` is true, else `b`.
    fn select(&self, condition: &Self::Tensor, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Multiplies matrices over the last two dimensions and broadcasts the others. Both tensors have at least two.
    fn matmul(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Scaled dot-product attention, `softmax(q · kᵀ · scale + mask) · v` with the softmax over the last axis: equation
    /// 1 of Vaswani et al. 2017, "Attention Is All You Need", and ONNX's operator `Attention`. `q` is `…,L,E`, `k` is
    /// `…,S,E`, `v` is `…,S,Ev`; their leading dimensions are broadcast. `mask` broadcasts to the scores, `…,L,S`. The
    /// result is `…,L,Ev`. In a row that the mask hides completely (only -∞), the result depends on the library: NaN or
    /// zeros.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        mask: Option<&Self::Tensor>,
        scale: f64,
    ) -> Result<Self::Tensor, OpError> {
        attention_from_primitives(self, q, k, v, mask, scale)
    }
    /// Computes a two-dimensional convolution. `weight` is `out,in/groups,height,width`, `bias` is `out`.
    fn conv(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
    ) -> Result<Self::Tensor, OpError>;
    /// Computes a convolution, adds the residual of the epilogue, if any, and applies its activation, if any.
    fn conv_fused(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
        epilogue: ConvEpilogue<'_, Self::Tensor>,
    ) -> Result<Self::Tensor, OpError> {
        let mut y = self.conv(x, weight, bias, conv)?;
        if let Some(residual) = epilogue.residual {
            y = self.binary(Binary::Add, &y, residual)?;
        }
        epilogue.activation.map_or(Ok(y.clone()), |activation| self.unary(activation, &y))
    }
    /// Computes the largest element of each window. Padding is ignored.
    fn max_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// Computes the mean of each window.
    fn average_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// Reduces over `axes`, each of which remains with size 1.
    fn reduce(&self, kind: Reduce, x: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Returns the index (i64) of the largest element along `axis`, which remains with size 1. Of equal elements, it is
    /// the index of the first, or of the last if `last` is true.
    fn arg_max(&self, x: &Self::Tensor, axis: usize, last: bool) -> Result<Self::Tensor, OpError>;
    /// Computes the softmax along `axis`, or its logarithm.
    fn softmax(&self, x: &Self::Tensor, axis: usize, log: bool) -> Result<Self::Tensor, OpError>;
    /// Normalizes over the dimensions from `axis` on, then multiplies by `scale` and adds `bias`.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Self::Tensor, OpError>;

    /// Returns the same elements, in row-major order, with another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Permutes the dimensions: dimension `i` of the result is dimension `order[i]` of `x`.
    fn permute(&self, x: &Self::Tensor, order: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Concatenates tensors along `axis`.
    fn concat(&self, parts: &[Self::Tensor], axis: usize) -> Result<Self::Tensor, OpError>;
    /// Returns `count` entries along `axis`, beginning at `start`, every `step`-th. `step` is not zero; if it is
    /// negative, the order is reversed.
    fn slice(
        &self,
        x: &Self::Tensor,
        axis: usize,
        start: usize,
        count: usize,
        step: i64,
    ) -> Result<Self::Tensor, OpError>;
    /// Returns the entries of `x` along `axis` at `indices`, whose shape replaces the axis. Negative indices count from
    /// the end.
    fn gather(&self, x: &Self::Tensor, indices: &Self::Tensor, axis: usize) -> Result<Self::Tensor, OpError>;
    /// Repeats dimensions of size 1 up to `shape`, which has at least as many dimensions as `x`.
    fn expand(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Adds `pads[i].0` entries before and `pads[i].1` after along dimension `i`.
    fn pad(&self, x: &Self::Tensor, pads: &[(usize, usize)], mode: PadMode) -> Result<Self::Tensor, OpError>;
    /// Converts the numbers to another element type. Floats are truncated to integers; every number except zero is
    /// true.
    fn cast(&self, x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor, OpError>;
}

/// An elementwise function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// max(x, 0).
    Relu,
    /// x limited to the range between two bounds.
    Clip {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// `alpha * x + beta`, limited to the range 0 to 1.
    HardSigmoid {
        /// Factor.
        alpha: f64,
        /// Summand.
        beta: f64,
    },
    /// x * HardSigmoid(x) with alpha 1/6 and beta 1/2.
    HardSwish,
    /// x * Sigmoid(x).
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// x * Φ(x), computed with the error function.
    Gelu,
    /// The tanh approximation of Gelu.
    GeluTanh,
    /// x where x is positive, else `alpha * x`.
    LeakyRelu {
        /// Slope below zero.
        alpha: f64,
    },
    /// e^x.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// 1 / x.
    Reciprocal,
    /// -x.
    Neg,
    /// |x|.
    Abs,
    /// Largest integer not above x.
    Floor,
    /// Smallest integer not below x.
    Ceil,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Logical negation of a bool.
    Not,
}

/// An elementwise function of two tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a * b.
    Mul,
    /// a / b; between integers, truncated towards zero.
    Div,
    /// The remainder of a / b, with the sign of b.
    Mod,
    /// a to the power b.
    Pow,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// a == b, as bool.
    Equal,
    /// a < b, as bool.
    Less,
    /// a > b, as bool.
    Greater,
    /// Logical and of two bools.
    And,
    /// Logical or of two bools.
    Or,
}

/// How several elements are reduced to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum divided by count.
    Mean,
    /// Sum.
    Sum,
    /// Largest.
    Max,
    /// Smallest.
    Min,
}

/// The values of padding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// This value.
    Constant(f64),
    /// The interior, mirrored at the outermost entry, which is not repeated.
    Reflect,
    /// The outermost entry, repeated.
    Edge,
}

/// The geometry of a two-dimensional convolution. Each pair is height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Steps between windows.
    pub strides: [usize; 2],
    /// Zeros before the input: top, left.
    pub before: [usize; 2],
    /// Zeros after the input: bottom, right.
    pub after: [usize; 2],
    /// Distance between the taps of the kernel.
    pub dilations: [usize; 2],
    /// Number of channel groups that are convolved separately.
    pub groups: usize,
}

/// The operations that follow a convolution in the same step.
#[derive(Clone, Copy, Debug)]
pub struct ConvEpilogue<'a, T> {
    /// Added to the result, whose shape it has.
    pub residual: Option<&'a T>,
    /// Applied last.
    pub activation: Option<Unary>,
}

/// The geometry of a two-dimensional pool. Each pair is height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The window.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub strides: [usize; 2],
    /// Padding before the input: top, left.
    pub before: [usize; 2],
    /// Padding after the input: bottom, right.
    pub after: [usize; 2],
    /// Distance between the taps of the window.
    pub dilations: [usize; 2],
    /// Size of the result.
    pub output: [usize; 2],
    /// Whether a mean includes the padding.
    pub include_pad: bool,
}
