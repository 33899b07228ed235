//! What a tensor library has to bring: [`TensorOps`], and the operations it is asked for.

use super::OpError;
use super::attention::by_parts;
use crate::{DType, Tensor};

/// A tensor library as the executor sees it. Shapes are NCHW, axes count from the front and are in range; elementwise
/// operations broadcast as NumPy does. What is not possible is an error, never another result.
pub trait TensorOps: Send + Sync {
    /// A tensor of the library; cloning shares its memory.
    type Tensor: Clone + Send;

    /// Name in messages.
    fn name(&self) -> &'static str;
    /// The element types it computes in.
    fn dtypes(&self) -> &'static [DType];
    /// Whether the executor may merge nodes (a batch normalization into the convolution before it, …) for speed.
    fn fuses(&self) -> bool {
        true
    }

    /// A host tensor as the library's.
    fn upload(&self, tensor: &Tensor) -> Result<Self::Tensor, OpError>;
    /// The library's tensor on the host, as `dtype` (what the graph says it is; a library may keep bool as u8).
    fn download(&self, tensor: &Self::Tensor, dtype: DType) -> Result<Tensor, OpError>;
    /// The sizes, outermost first.
    fn shape(&self, tensor: &Self::Tensor) -> Vec<usize>;
    /// The element type as it is kept.
    fn dtype(&self, tensor: &Self::Tensor) -> DType;

    /// An elementwise function.
    fn unary(&self, kind: Unary, x: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// An elementwise function of two tensors.
    fn binary(&self, kind: Binary, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// `a` where `condition` is true, else `b`.
    fn select(&self, condition: &Self::Tensor, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Matrix products over the last two dimensions, the others broadcast; both have at least two.
    fn matmul(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Scaled dot-product attention, `softmax(q · kᵀ · scale + mask) · v` with the softmax over the last axis: equation 1
    /// of Vaswani et al. 2017, "Attention Is All You Need", and ONNX's operator `Attention`. `q` is `…,L,E`, `k` is
    /// `…,S,E`, `v` is `…,S,Ev`, their leading dimensions broadcast; `mask` broadcasts to the scores, `…,L,S`; the result
    /// is `…,L,Ev`. What a row gives that the mask bars everywhere, with nothing but -∞, is the library's: no numbers or
    /// zeros.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        mask: Option<&Self::Tensor>,
        scale: f64,
    ) -> Result<Self::Tensor, OpError> {
        by_parts(self, q, k, v, mask, scale)
    }
    /// Two-dimensional convolution; `weight` is `out,in/groups,height,width`, `bias` is `out`.
    fn conv(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
    ) -> Result<Self::Tensor, OpError>;
    /// A convolution, plus `residual` if given, through `activation` if given.
    fn conv_fused(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
        after: After<'_, Self::Tensor>,
    ) -> Result<Self::Tensor, OpError> {
        let mut y = self.conv(x, weight, bias, conv)?;
        if let Some(residual) = after.residual {
            y = self.binary(Binary::Add, &y, residual)?;
        }
        after.activation.map_or(Ok(y.clone()), |activation| self.unary(activation, &y))
    }
    /// The largest element of each window; padding never wins.
    fn max_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// The mean of each window.
    fn average_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// Reduces over `axes`, each of which stays with size 1.
    fn reduce(&self, kind: Reduce, x: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Where the largest element along `axis` is (i64), which stays with size 1; of equal ones the first or the last.
    fn arg_max(&self, x: &Self::Tensor, axis: usize, last: bool) -> Result<Self::Tensor, OpError>;
    /// Softmax along `axis`, or its logarithm.
    fn softmax(&self, x: &Self::Tensor, axis: usize, log: bool) -> Result<Self::Tensor, OpError>;
    /// Normalizes over the dimensions from `axis` on, then `* scale + bias`.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Self::Tensor, OpError>;

    /// The same elements, row-major, under another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Dimension `i` of the result is dimension `order[i]` of `x`.
    fn permute(&self, x: &Self::Tensor, order: &[usize]) -> Result<Self::Tensor, OpError>;
    /// The tensors one after the other along `axis`.
    fn concat(&self, parts: &[Self::Tensor], axis: usize) -> Result<Self::Tensor, OpError>;
    /// `count` entries along `axis`, from `start`, every `step`-th (not zero; backwards when negative).
    fn slice(
        &self,
        x: &Self::Tensor,
        axis: usize,
        start: usize,
        count: usize,
        step: i64,
    ) -> Result<Self::Tensor, OpError>;
    /// The entries of `x` along `axis` at `indices` (negative ones from the end); their shape replaces the axis.
    fn gather(&self, x: &Self::Tensor, indices: &Self::Tensor, axis: usize) -> Result<Self::Tensor, OpError>;
    /// Repeats dimensions of size 1 up to `shape`, which has at least as many dimensions as `x`.
    fn expand(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Adds `pads[i].0` entries before and `pads[i].1` after along dimension `i`.
    fn pad(&self, x: &Self::Tensor, pads: &[(usize, usize)], mode: PadMode) -> Result<Self::Tensor, OpError>;
    /// The same numbers in another element type; truncates to integers, anything but zero is true.
    fn cast(&self, x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor, OpError>;
}

/// An elementwise function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// max(x, 0).
    Relu,
    /// x between two bounds.
    Clip {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x between 0 and 1 after `alpha * x + beta`.
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
    /// x * Φ(x), with the error function.
    Gelu,
    /// The tanh approximation of Gelu.
    GeluTanh,
    /// x where it is positive, else `alpha * x`.
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
    /// a / b, truncated towards zero between integers.
    Div,
    /// The remainder of a / b, of the sign of b.
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
    /// Both, of bools.
    And,
    /// Either, of bools.
    Or,
}

/// How elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum over count.
    Mean,
    /// Sum.
    Sum,
    /// Largest.
    Max,
    /// Smallest.
    Min,
}

/// What is beyond the border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// This value.
    Constant(f64),
    /// The interior mirrored at the outermost entry, which is not repeated.
    Reflect,
    /// The outermost entry repeated.
    Edge,
}

/// The geometry of a two-dimensional convolution; each pair is height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Steps between windows.
    pub strides: [usize; 2],
    /// Zeros before: top, left.
    pub before: [usize; 2],
    /// Zeros after: bottom, right.
    pub after: [usize; 2],
    /// Distance between the taps of the kernel.
    pub dilations: [usize; 2],
    /// The channels are split in this many groups that do not see each other.
    pub groups: usize,
}

/// What follows a convolution in the same step.
#[derive(Clone, Copy, Debug)]
pub struct After<'a, T> {
    /// Added to the result; of its shape.
    pub residual: Option<&'a T>,
    /// Applied last.
    pub activation: Option<Unary>,
}

/// The geometry of a two-dimensional pooling; each pair is height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The window.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub strides: [usize; 2],
    /// Padding before: top, left.
    pub before: [usize; 2],
    /// Padding after: bottom, right.
    pub after: [usize; 2],
    /// Distance between the taps of the window.
    pub dilations: [usize; 2],
    /// Size of the result.
    pub output: [usize; 2],
    /// Whether padding counts in a mean.
    pub include_pad: bool,
}
