//! The operators: those of FlagPerf's `operation`, each as a text of standard operators, with FlagPerf's shapes.
//!
//! An input repeats its values along some dimensions, its tiles, so that the reference computes one tile and knows every output.

use super::format::Format;
use super::sizes::Sizes;
use flagperf_core::suggestion::list_names;
use flagperf_core::tensor::DType;

/// The elements of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Normally distributed.
    Normal,
    /// Their absolute values.
    Positive,
    /// Whole numbers from -2 to 2, so that many pairs are equal.
    Few,
    /// Normally distributed, with NaN and both infinities.
    Special,
    /// Multiples of 2^-17 up to three: their sum is in the range of f16 up to 2^31 elements.
    Small,
    /// 1 and -1, with the product 1.
    Signs,
    /// All bits are random.
    Bits,
    /// The bits of random numbers in FP8 (E4M3), none of which is NaN.
    Float8,
    /// Numbers other than zero.
    NonZero,
    /// Indices of classes, which are numbered along the last dimension of the first input.
    Classes,
}

/// By what an output of the whole input differs from that of one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing: it repeats the tile's.
    Same,
    /// It is multiplied by the number of tiles: a sum.
    Tiles,
    /// It is divided by the number of tiles: the gradient of a mean.
    PerTile,
}

/// The formats in which an operator computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formats {
    /// Floating-point numbers.
    Floats,
    /// The same, and TF32.
    Products,
    /// Integers.
    Integers,
    /// Integers of 8 bits.
    Bytes,
    /// FP8.
    Float8,
    /// All but TF32 and FP8.
    All,
}

/// An operator that can be measured.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// FlagPerf's name.
    pub name: &'static str,
    /// The standard operators that compute the output `y`, as a pattern's text; empty for the product in FP8, which the standard lacks.
    pub computes: &'static str,
    /// Name, shape and elements of each input.
    pub inputs: &'static [(&'static str, &'static str, Elements)],
    /// FlagPerf's sizes of the dimensions that the shapes name.
    pub sizes: &'static [(&'static str, usize)],
    /// The dimensions along which values may repeat, and the largest size after which they do.
    pub tiles: &'static [(&'static str, usize)],
    /// Whether FlagPerf measures it with the gradient of the sum of its output.
    pub has_gradient: bool,
    /// The floating-point operations of a matrix product; for any other operator, the bytes that it moves are counted.
    pub flops: Option<fn(&Sizes) -> f64>,
    pub(crate) scale: Scale,
    /// The probability with which each element of the output is dropped, at random; 0 without randomness.
    pub(crate) dropped: f64,
    formats: Formats,
}

impl Operator {
    /// Returns the operator with this name.
    ///
    /// # Errors
    /// The known names.
    pub fn find(name: &str) -> Result<&'static Operator, String> {
        OPERATORS.iter().find(|operator| operator.name == name).ok_or_else(|| {
            let known = flagperf_core::suggestion::list_known(name, OPERATORS.iter().map(|operator| operator.name));
            format!("unknown operator `{name}` (known: {known})")
        })
    }

    /// Returns whether it is the product in FP8.
    pub(crate) fn is_fp8_product(&self) -> bool {
        self.formats == Formats::Float8
    }

    /// Checks that the operator computes in a format.
    ///
    /// # Errors
    /// The formats in which it does.
    pub fn check_format(&self, format: Format) -> Result<(), String> {
        let is_known = |format: &Format| {
            let (is_float, is_tf32) = (format.dtype.is_float(), format.is_tf32());
            match self.formats {
                Formats::Floats => is_float && !is_tf32,
                Formats::Products => is_float,
                Formats::Integers => format.name.starts_with("INT"),
                Formats::Bytes => format.dtype == DType::I8,
                Formats::Float8 => format.is_fp8(),
                Formats::All => !is_tf32 && !format.is_fp8(),
            }
        };
        if is_known(&format) {
            return Ok(());
        }
        let known = list_names(super::FORMATS.iter().filter(|format| is_known(format)).map(|format| format.name));
        Err(format!("operator `{}` does not compute in {} (known: {known})", self.name, format.name))
    }

    /// Returns the operator whose outputs are those of this one where no element is dropped.
    pub(crate) fn without_drops(&self) -> Operator {
        Operator { computes: if self.dropped > 0.0 { KEPT } else { self.computes }, ..*self }
    }

    const fn with_gradient(self) -> Self {
        Operator { has_gradient: true, ..self }
    }

    const fn of(self, inputs: &'static [(&'static str, &'static str, Elements)]) -> Self {
        Operator { inputs, ..self }
    }

    const fn scaled(self, scale: Scale) -> Self {
        Operator { scale, ..self }
    }

    const fn in_formats(self, formats: Formats) -> Self {
        Operator { formats, ..self }
    }
}

/// The shape of elementwise operators and reductions: `Melements` times 2^20 elements.
const ELEMENTS: &str = "Melements,1024,1024";

/// An operator of one input of normally distributed elements.
const fn unary(name: &'static str, computes: &'static str) -> Operator {
    Operator {
        name,
        computes,
        inputs: &[("a", ELEMENTS, Elements::Normal)],
        sizes: &[("Melements", 1024)],
        tiles: &[("Melements", 1)],
        has_gradient: false,
        flops: None,
        scale: Scale::Same,
        dropped: 0.0,
        formats: Formats::Floats,
    }
}

/// The elements that [`dropout`] keeps, with FlagPerf's probability.
const KEPT: &str = "y = Div(a, 0.8)";

/// Dropout in training.
const fn dropout(name: &'static str) -> Operator {
    Operator { dropped: 0.2, ..unary(name, "y = Dropout(a, 0.2, Cast<to=9>(1))") }
}

/// An operator of two such inputs.
const fn binary(name: &'static str, computes: &'static str) -> Operator {
    unary(name, computes).of(&[("a", ELEMENTS, Elements::Normal), ("b", ELEMENTS, Elements::Normal)])
}

/// A comparison of two inputs whose elements are often equal.
const fn comparison(name: &'static str, computes: &'static str) -> Operator {
    unary(name, computes).of(&[("a", ELEMENTS, Elements::Few), ("b", ELEMENTS, Elements::Few)])
}

/// An operator of the bits of one or two inputs.
const fn bitwise(
    name: &'static str,
    computes: &'static str,
    inputs: &'static [(&'static str, &'static str, Elements)],
) -> Operator {
    unary(name, computes).of(inputs).in_formats(Formats::Integers)
}

/// An operator of other shapes.
const fn shaped(
    name: &'static str,
    computes: &'static str,
    inputs: &'static [(&'static str, &'static str, Elements)],
    sizes: &'static [(&'static str, usize)],
    tiles: &'static [(&'static str, usize)],
) -> Operator {
    Operator { inputs, sizes, tiles, ..unary(name, computes) }
}

/// A matrix product.
const fn product(
    name: &'static str,
    computes: &'static str,
    inputs: &'static [(&'static str, &'static str, Elements)],
    sizes: &'static [(&'static str, usize)],
    flops: fn(&Sizes) -> f64,
) -> Operator {
    Operator {
        flops: Some(flops),
        formats: Formats::Products,
        ..shaped(name, computes, inputs, sizes, &[("M", 8), ("K", 8), ("BS", 1)])
    }
}

/// Two operations for each multiply-add of a product of `M,N` and `N,K`.
fn multiply_adds(sizes: &Sizes) -> f64 {
    2.0 * sizes.size("M") * sizes.size("N") * sizes.size("K")
}

use Elements::{Bits, Classes, Float8, NonZero, Normal, Positive, Signs, Small, Special};

/// Every operator, by FlagPerf's names; `int_mm` and `scaled_mm`, which FlagPerf measures as limits, by PyTorch's: their second factor
/// lies as the weight of a layer does, because tensor cores multiply only such ones.
#[rustfmt::skip]
pub const OPERATORS: [Operator; 54] = [
    unary("abs", "y = Abs(a)"),
    binary("add", "y = Add(a, b)"),
    product("addmm", "y = Gemm(a, b, c)", &[("a", "M,N", Normal), ("b", "N,K", Normal), ("c", "M,K", Normal)],
        &[("M", 4096), ("N", 4096), ("K", 4096)], |s| multiply_adds(s) + s.size("M") * s.size("K")),
    unary("all", "y = ReduceMin<keepdims=0>(Cast<to=9>(a))").of(&[("a", ELEMENTS, NonZero)]).in_formats(Formats::All),
    shaped("amax", "y = ReduceMax<keepdims=0>(a, [1])", &[("a", "M,N", Normal)], &[("M", 81920), ("N", 81920)], &[("M", 8)]),
    shaped("argmax", "y = ArgMax<axis=1, keepdims=0>(a)", &[("a", "M,N", Normal)], &[("M", 81920), ("N", 81920)], &[("M", 8)]),
    bitwise("bitwise_and", "y = BitwiseAnd(a, b)", &[("a", ELEMENTS, Bits), ("b", ELEMENTS, Bits)]),
    bitwise("bitwise_not", "y = BitwiseNot(a)", &[("a", ELEMENTS, Bits)]),
    bitwise("bitwise_or", "y = BitwiseOr(a, b)", &[("a", ELEMENTS, Bits), ("b", ELEMENTS, Bits)]),
    product("bmm", "y = MatMul(a, b)", &[("a", "BS,M,N", Normal), ("b", "BS,N,K", Normal)],
        &[("BS", 2), ("M", 4096), ("N", 4096), ("K", 4096)], |s| multiply_adds(s) * s.size("BS")),
    unary("cos", "y = Cos(a)"),
    shaped("cross_entropy_loss", "y = SoftmaxCrossEntropyLoss(a, target)",
        &[("a", "bs,elements", Normal), ("target", "bs", Classes)], &[("bs", 1024), ("elements", 128_000)], &[("bs", 8)])
        .with_gradient().scaled(Scale::PerTile),
    unary("div", "y = Div(a, 0.5)"),
    dropout("dropout"),
    comparison("eq", "y = Equal(a, b)"),
    unary("exp", "y = Exp(a)"),
    comparison("ge", "y = GreaterOrEqual(a, b)"),
    unary("gelu", "y = Gelu(a)"),
    shaped("group_norm", "y = GroupNormalization<num_groups=3>(a, scale, bias)",
        &[("a", "bs,6,hiddensize", Normal), ("scale", "6", Normal), ("bias", "6", Normal)],
        &[("bs", 20), ("hiddensize", 65536)], &[("bs", 1)]),
    comparison("gt", "y = Greater(a, b)"),
    product("int_mm", "y = MatMulInteger(x, Transpose<perm=[1, 0]>(w))", &[("x", "M,N", Bits), ("w", "K,N", Bits)],
        &[("M", 8192), ("N", 8192), ("K", 8192)], multiply_adds).in_formats(Formats::Bytes),
    unary("isinf", "y = IsInf(a)").of(&[("a", ELEMENTS, Special)]),
    unary("isnan", "y = IsNaN(a)").of(&[("a", ELEMENTS, Special)]),
    shaped("layer_norm", "y = LayerNormalization<axis=1>(a, scale, bias)",
        &[("a", "bs,channel,hiddensize", Normal), ("scale", "channel,hiddensize", Normal), ("bias", "channel,hiddensize", Normal)],
        &[("bs", 20), ("channel", 6), ("hiddensize", 1_048_576)], &[("bs", 1)]),
    comparison("le", "y = LessOrEqual(a, b)"),
    product("linear", "y = Gemm<transB=1>(x, w)", &[("x", "M,N", Normal), ("w", "K,N", Normal)],
        &[("M", 8192), ("N", 8192), ("K", 8192)], multiply_adds),
    shaped("log_softmax", "y = LogSoftmax<axis=1>(a)", &[("a", "M,N", Normal)], &[("M", 1_048_576), ("N", 10)], &[("M", 1024)])
        .with_gradient(),
    comparison("lt", "y = Less(a, b)"),
    unary("max", "y = ReduceMax<keepdims=0>(a)"),
    unary("mean", "y = ReduceMean<keepdims=0>(a)").of(&[("a", ELEMENTS, Positive)]),
    unary("min", "y = ReduceMin<keepdims=0>(a)"),
    product("mm", "y = MatMul(a, b)", &[("a", "M,N", Normal), ("b", "N,K", Normal)],
        &[("M", 8192), ("N", 8192), ("K", 8192)], multiply_adds),
    unary("mul", "y = Mul(a, 2)"),
    shaped("mv", "y = MatMul(a, b)", &[("a", "M,N", Normal), ("b", "N", Normal)], &[("M", 1024), ("N", 1024)], &[("M", 8)]),
    dropout("native_dropout").with_gradient(),
    shaped("native_group_norm", "y = GroupNormalization<num_groups=3>(a, scale, bias)",
        &[("a", "bs,6,hiddensize", Normal), ("scale", "6", Normal), ("bias", "6", Normal)],
        &[("bs", 20), ("hiddensize", 32768)], &[("bs", 1)]).with_gradient(),
    comparison("ne", "y = Not(Equal(a, b))"),
    unary("neg", "y = Neg(a)"),
    shaped("outer", "y = Mul(a, b)", &[("a", "M,1", Normal), ("b", "1,N", Normal)], &[("M", 10240), ("N", 10240)],
        &[("M", 8), ("N", 8)]),
    unary("pow", "y = Pow(a, 2)"),
    unary("prod", "y = ReduceProd<keepdims=0>(a)").of(&[("a", ELEMENTS, Signs)]),
    unary("reciprocal", "y = Reciprocal(a)"),
    unary("relu", "y = Relu(a)").with_gradient(),
    unary("rsqrt", "y = Reciprocal(Sqrt(a))").of(&[("a", ELEMENTS, Positive)]),
    binary("rsub", "y = Sub(b, a)"),
    product("scaled_mm", "", &[("x", "M,N", Float8), ("w", "K,N", Float8)],
        &[("M", 8192), ("N", 8192), ("K", 8192)], multiply_adds).in_formats(Formats::Float8),
    unary("sigmoid", "y = Sigmoid(a)").with_gradient(),
    unary("silu", "y = Mul(a, Sigmoid(a))").with_gradient(),
    unary("sin", "y = Sin(a)"),
    unary("softmax", "y = Softmax<axis=1>(a)").with_gradient(),
    binary("sub", "y = Sub(a, b)"),
    unary("sum", "y = ReduceSum<keepdims=0>(a)").of(&[("a", ELEMENTS, Small)]).scaled(Scale::Tiles),
    unary("tanh", "y = Tanh(a)").with_gradient(),
    shaped("triu", "y = Trilu(a)", &[("a", "M,N", Normal)], &[("M", 51200), ("N", 51200)], &[]),
];
