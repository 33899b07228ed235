//! The parameters of the operations of a tensor library.

use flagperf_onnx::UpdateRule;

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
    /// Tangent.
    Tan,
    /// The nearest integer; of two equally near ones, the even one.
    Round,
    /// -1, 0 or 1, according to the sign of x.
    Sign,
    /// ln(1 + e^x).
    Softplus,
    /// x where x is positive, else `alpha * (e^x - 1)`.
    Elu {
        /// Limit towards negative infinity, negated.
        alpha: f64,
    },
    /// `gamma` times Elu with `alpha`.
    Selu {
        /// Factor of the exponential.
        alpha: f64,
        /// Factor of the result.
        gamma: f64,
    },
    /// x * tanh(Softplus(x)).
    Mish,
    /// Whether x is not a number, as bool.
    IsNan,
    /// Whether x is infinite, as bool.
    IsInf {
        /// Whether negative infinity counts.
        negative: bool,
        /// Whether positive infinity counts.
        positive: bool,
    },
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
    /// The remainder of a / b, with the sign of a, as C's function `fmod`.
    Fmod,
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
    /// a <= b, as bool.
    LessOrEqual,
    /// a >= b, as bool.
    GreaterOrEqual,
    /// Logical and of two bools.
    And,
    /// Logical or of two bools.
    Or,
    /// Whether exactly one of two bools is true.
    Xor,
}

impl Binary {
    /// Returns whether the result is a bool.
    pub fn is_predicate(self) -> bool {
        use Binary::{And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Or, Xor};
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or | Xor)
    }
}

/// Outputs of a gradient that are replaced by their means over the processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducedOutputs {
    /// The places of the outputs.
    pub places: Vec<usize>,
    /// The process that needs the means; `None` if all do. What the others get is not read.
    pub root: Option<u32>,
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
    /// Product.
    Product,
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

/// How the bits of integers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitwise {
    And,
    Or,
    Xor,
    /// Of one tensor.
    Not,
}

/// An update of parameters by an optimizer.
#[derive(Clone, Debug)]
pub struct Update<'a, T> {
    /// The rule.
    pub rule: &'a UpdateRule,
    /// The learning rate: one f32 number.
    pub learning_rate: &'a T,
    /// `1 - β₁ᵗ` in update t: one f32 number.
    pub mean_correction: &'a T,
    /// `√(1 - β₂ᵗ)`: one f32 number.
    pub square_correction: &'a T,
    /// The number of the update, from 1: one f32 number.
    pub number: &'a T,
    /// Whether anything changes; `None` if it does.
    pub changes: Option<&'a T>,
    /// The parameters.
    pub parameters: &'a [T],
    /// The gradient of each parameter.
    pub gradients: &'a [T],
    /// What the optimizer remembers: the first tensor of each parameter, then the second one of each.
    pub memory: &'a [T],
}
