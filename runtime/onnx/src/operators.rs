//! The operators of the standard (domain `ai.onnx`) up to ONNX 1.23, with what this crate knows about each.
//!
//! To add an operator:
//! 1. Complete its row: types (the constants of `shape_inference::dtypes`), shape rule, and what differs from the
//!    defaults of [`Operator`]: multiply-adds, decomposition, inputs that stay f32, precision in a training. `ANY` and
//!    `UNKNOWN` stand for an operator whose outputs are not inferred.
//! 2. Write the functions that the row names, beside those of the other rows.
//! 3. So that the interpreter and libtorch execute it, add a row to `KERNELS` of `flagperf-onnx-exec`.
//! 4. So that scripts have a method for it, add a function to `layers` and to the package `nn::`; `graph.node` of that
//!    package needs neither.

mod row;

use rten_shape_inference::ops;

pub(crate) use row::MixedPrecision;
pub use row::Operator;
use row::op;

use crate::operator_set::conversions as convert;
use crate::shape_inference::dtypes::{
    AND_INDICES, AND_MASK, AND_RUNNING_STATISTICS, AND_STATISTICS, ANY, CAST, DEQUANTIZED, FILL, FLOAT, LIKE_SECOND,
    LIKE_THIRD, SAME, SAME_FLOAT, SAME_TO_BOOL, SELECTED, TO_BOOL, TO_I32, TO_INDEX,
};
use crate::shape_inference::rules::{self, Arithmetic, BROADCAST, FIRST, UNKNOWN, VARIADIC};
use crate::{Graph, Node, OPSET, count, gradient, lower};

/// The newest version of the standard operator set that the table describes.
pub const OPSET_NEWEST: i64 = 28;

/// One row for each operator, by name: name, version, types, shape rule.
#[rustfmt::skip]
static OPERATORS: [Operator; 203] = [
    op("Abs",                       1,  ANY,            FIRST).derives(gradient::abs),
    op("Acos",                      7,  ANY,            FIRST).wide(),
    op("Acosh",                     9,  ANY,            FIRST).wide(),
    op("Add",                       1,  SAME,           Some(|n| rules::arithmetic(n, &ops::Add, Arithmetic::Sum))).converts(7, convert::broadcast)
        .derives(gradient::add),
    op("AffineGrid",                20, ANY,            UNKNOWN),
    op("And",                       1,  TO_BOOL,        BROADCAST).converts(7, convert::broadcast),
    op("ArgMax",                    1,  TO_INDEX,       Some(rules::arg_reduction)),
    op("ArgMin",                    1,  TO_INDEX,       Some(rules::arg_reduction)),
    op("Asin",                      7,  ANY,            FIRST).wide(),
    op("Asinh",                     9,  ANY,            FIRST).wide(),
    op("Atan",                      7,  ANY,            FIRST).wide(),
    op("Atanh",                     9,  ANY,            FIRST).wide(),
    op("Attention",                 23, FLOAT,          Some(rules::attention))
        .counts(count::attention).lowers(lower::attention).half(),
    op("AveragePool",               1,  FLOAT,          Some(rules::pool)).derives(gradient::average_pool),
    op("BatchNormalization",        1,  AND_RUNNING_STATISTICS,    Some(rules::batch_normalization))
        .converts(9, convert::batch_normalization).derives(gradient::batch_normalization),
    op("Bernoulli",                 15, ANY,            UNKNOWN),
    op("BitCast",                   26, ANY,            UNKNOWN),
    op("BitShift",                  11, ANY,            BROADCAST),
    op("BitwiseAnd",                18, SAME,            BROADCAST),
    op("BitwiseNot",                18, ANY,            FIRST),
    op("BitwiseOr",                 18, SAME,            BROADCAST),
    op("BitwiseXor",                18, SAME,            BROADCAST),
    op("BlackmanWindow",            17, ANY,            UNKNOWN),
    op("Cast",                      1,  CAST,           Some(rules::cast)).converts(6, convert::cast)
        .derives(gradient::cast),
    op("CastLike",                  15, LIKE_SECOND,    FIRST),
    op("CausalConvWithState",       27, ANY,            UNKNOWN),
    op("Ceil",                      1,  ANY,            FIRST).derives(gradient::zero),
    op("Celu",                      12, ANY,            FIRST).lowers(lower::celu),
    op("CenterCropPad",             18, ANY,            UNKNOWN),
    op("Clip",                      1,  SAME,           FIRST).converts(11, convert::clip).derives(gradient::clip),
    op("Col2Im",                    18, ANY,            UNKNOWN),
    op("Compress",                  9,  ANY,            UNKNOWN),
    op("Concat",                    1,  SAME,           Some(rules::concat)).converts(4, convert::concat)
        .derives(gradient::concat),
    op("ConcatFromSequence",        11, ANY,            UNKNOWN),
    op("Constant",                  1,  ANY,            UNKNOWN),
    op("ConstantOfShape",           9,  FILL,           Some(rules::constant_of_shape)),
    op("Conv",                      1,  SAME_FLOAT,     Some(rules::conv)).counts(count::convolution)
        .derives(gradient::conv).half(),
    op("ConvInteger",               10, ANY,            UNKNOWN).counts(count::convolution).lowers(lower::conv_integer),
    op("ConvTranspose",             1,  SAME_FLOAT,     Some(rules::conv_transpose))
        .counts(count::transposed_convolution).derives(gradient::conv_transpose).half(),
    op("Cos",                       7,  ANY,            FIRST).derives(gradient::cos).wide(),
    op("Cosh",                      9,  ANY,            FIRST).wide(),
    op("CumProd",                   26, ANY,            FIRST).wide(),
    op("CumSum",                    11, ANY,            FIRST).derives(gradient::cumulative_sum).wide(),
    op("DFT",                       17, ANY,            UNKNOWN),
    op("DeformConv",                19, ANY,            UNKNOWN).counts(count::unknown),
    op("DepthToSpace",              1,  ANY,            Some(rules::depth_to_space)).derives(gradient::depth_to_space),
    op("DequantizeLinear",          10, DEQUANTIZED,    FIRST).lowers(lower::dequantize_linear).f32(),
    op("Det",                       11, ANY,            UNKNOWN),
    op("Div",                       1,  SAME,           Some(|n| rules::arithmetic(n, &ops::Div, Arithmetic::Other))).converts(7, convert::broadcast)
        .derives(gradient::div),
    op("Dropout",                   1,  AND_MASK,       Some(|n| n.apply(&ops::Dropout)))
        .converts(12, convert::dropout).derives(gradient::dropout),
    op("DynamicQuantizeLinear",     11, ANY,            UNKNOWN).lowers(lower::dynamic_quantize_linear),
    op("Einsum",                    12, SAME,           Some(rules::einsum)).counts(count::einsum)
        .derives(gradient::einsum).half(),
    op("Elu",                       1,  FLOAT,          FIRST).derives(gradient::elu),
    op("Equal",                     1,  SAME_TO_BOOL,   Some(|n| rules::arithmetic(n, &ops::Equal, Arithmetic::Other))).converts(7, convert::broadcast),
    op("Erf",                       9,  FLOAT,          FIRST).derives(gradient::erf).wide(),
    op("Exp",                       1,  FLOAT,          FIRST).derives(gradient::exp).wide(),
    op("Expand",                    8,  ANY,            Some(|n| n.apply(&ops::Expand))).derives(gradient::expand),
    op("EyeLike",                   9,  ANY,            UNKNOWN),
    op("Flatten",                   1,  ANY,            Some(rules::flatten)).derives(gradient::reshape),
    op("Floor",                     1,  ANY,            FIRST).derives(gradient::zero),
    op("GRU",                       1,  ANY,            Some(rules::recurrent)).counts(count::recurrent)
        .lowers(lower::gru),
    op("Gather",                    1,  ANY,            Some(rules::gather)).derives(gradient::gather),
    op("GatherElements",            11, ANY,            Some(|n| n.apply(&ops::GatherElements)))
        .derives(gradient::gather_elements),
    op("GatherND",                  11, ANY,            Some(rules::gather_nd)).derives(gradient::gather_nd),
    op("Gelu",                      20, FLOAT,          FIRST).lowers(lower::gelu).wide(),
    op("Gemm",                      1,  SAME,           Some(rules::gemm))
        .counts(count::gemm).converts(7, convert::gemm).derives(gradient::gemm).half(),
    op("GlobalAveragePool",         1,  FLOAT,          Some(|n| n.apply(&ops::GlobalPool)))
        .derives(gradient::global_average_pool),
    op("GlobalLpPool",              1,  ANY,            UNKNOWN).lowers(lower::global_lp_pool),
    op("GlobalMaxPool",             1,  FLOAT,          Some(|n| n.apply(&ops::GlobalPool)))
        .derives(gradient::global_max_pool),
    op("Greater",                   1,  SAME_TO_BOOL,   BROADCAST).converts(7, convert::broadcast),
    op("GreaterOrEqual",            12, SAME_TO_BOOL,   BROADCAST),
    op("GridSample",                16, ANY,            Some(|n| n.apply(&ops::GridSample)))
        .lowers(lower::grid_sample).wide(),
    op("GroupNormalization",        21, FLOAT,          FIRST).lowers(lower::group_normalization).wide(),
    op("HammingWindow",             17, ANY,            UNKNOWN),
    op("HannWindow",                17, ANY,            UNKNOWN),
    op("HardSigmoid",               1,  FLOAT,          FIRST).derives(gradient::hard_sigmoid),
    op("HardSwish",                 14, FLOAT,          FIRST).derives(gradient::hard_swish),
    op("Hardmax",                   1,  ANY,            FIRST).converts(13, convert::softmax).lowers(lower::hardmax),
    op("Identity",                  1,  ANY,            Some(|n| n.apply(&ops::Identity))).derives(gradient::identity),
    op("If",                        1,  ANY,            UNKNOWN),
    op("ImageDecoder",              20, ANY,            UNKNOWN),
    op("InstanceNormalization",     1,  SAME_FLOAT,     FIRST).lowers(lower::instance_normalization).wide(),
    op("IsInf",                     10, TO_BOOL,        FIRST),
    op("IsNaN",                     9,  TO_BOOL,        FIRST),
    op("LRN",                       1,  ANY,            FIRST).lowers(lower::local_response).wide(),
    op("LSTM",                      1,  ANY,            Some(rules::recurrent)).counts(count::recurrent)
        .lowers(lower::lstm),
    op("LayerNormalization",        17, AND_STATISTICS,     Some(rules::layer_normalization))
        .lowers(lower::layer_normalization).wide(),
    op("LeakyRelu",                 1,  FLOAT,          FIRST).derives(gradient::leaky_relu),
    op("Less",                      1,  SAME_TO_BOOL,   BROADCAST).converts(7, convert::broadcast),
    op("LessOrEqual",               12, SAME_TO_BOOL,   BROADCAST),
    op("LinearAttention",           27, ANY,            UNKNOWN),
    op("Log",                       1,  FLOAT,          FIRST).derives(gradient::log).wide(),
    op("LogSoftmax",                1,  FLOAT,          FIRST).converts(13, convert::softmax)
        .derives(gradient::log_softmax).wide(),
    op("Loop",                      1,  ANY,            UNKNOWN),
    op("LpNormalization",           1,  ANY,            FIRST).lowers(lower::lp_normalization).wide(),
    op("LpPool",                    1,  ANY,            Some(rules::pool)).lowers(lower::lp_pool),
    op("MatMul",                    1,  SAME,           Some(rules::matmul)).counts(count::matmul)
        .derives(gradient::matmul).half(),
    op("MatMulInteger",             10, TO_I32,         Some(rules::matmul_integer)).counts(count::matmul)
        .lowers(lower::matmul_integer),
    op("Max",                       1,  SAME,           VARIADIC).derives(gradient::extreme),
    op("MaxPool",                   1,  AND_INDICES,    Some(rules::pool)).derives(gradient::max_pool),
    op("MaxRoiPool",                1,  ANY,            UNKNOWN),
    op("MaxUnpool",                 9,  ANY,            UNKNOWN),
    op("Mean",                      1,  SAME,           VARIADIC).derives(gradient::mean_of),
    op("MeanVarianceNormalization", 9,  ANY,            FIRST).lowers(lower::mean_variance).wide(),
    op("MelWeightMatrix",           17, ANY,            UNKNOWN),
    op("Min",                       1,  SAME,           VARIADIC).derives(gradient::extreme),
    op("Mish",                      18, FLOAT,          FIRST).derives(gradient::mish),
    op("Mod",                       10, SAME,           BROADCAST),
    op("Mul",                       1,  SAME,           Some(|n| rules::arithmetic(n, &ops::Mul, Arithmetic::Product))).converts(7, convert::broadcast)
        .derives(gradient::mul),
    op("Multinomial",               7,  ANY,            UNKNOWN),
    op("Neg",                       1,  ANY,            Some(|n| n.apply(&ops::Neg))).derives(gradient::neg),
    op("NegativeLogLikelihoodLoss", 12, FLOAT,          Some(rules::class_loss)).lowers(lower::negative_log_likelihood)
        .wide(),
    op("NonMaxSuppression",         10, TO_INDEX,       Some(rules::non_max_suppression)).f32(),
    op("NonZero",                   9,  TO_INDEX,       Some(|n| n.apply(&ops::NonZero))),
    op("Not",                       1,  TO_BOOL,        FIRST),
    op("OneHot",                    9,  LIKE_THIRD,     Some(rules::one_hot)),
    op("Optional",                  15, ANY,            UNKNOWN),
    op("OptionalGetElement",        15, ANY,            UNKNOWN),
    op("OptionalHasElement",        15, ANY,            UNKNOWN),
    op("Or",                        1,  TO_BOOL,        BROADCAST).converts(7, convert::broadcast),
    op("PRelu",                     1,  SAME,           FIRST).converts(7, convert::parametric_relu)
        .derives(gradient::parametric_relu),
    op("Pad",                       1,  ANY,            Some(|n| n.apply(&ops::Pad))).converts(11, convert::pad)
        .derives(gradient::pad),
    op("Pow",                       1,  ANY,            BROADCAST).converts(7, convert::broadcast)
        .derives(gradient::pow).wide(),
    op("QLinearConv",               10, ANY,            UNKNOWN)
        .counts(count::quantized_convolution).lowers(lower::qlinear_conv),
    op("QLinearMatMul",             10, ANY,            UNKNOWN).counts(count::matmul).lowers(lower::qlinear_matmul),
    op("QuantizeLinear",            10, ANY,            UNKNOWN).lowers(lower::quantize_linear),
    op("RMSNormalization",          23, FLOAT,          FIRST).lowers(lower::rms_normalization).wide(),
    op("RNN",                       1,  ANY,            Some(rules::recurrent)).counts(count::recurrent)
        .lowers(lower::rnn),
    op("RandomNormal",              1,  ANY,            UNKNOWN),
    op("RandomNormalLike",          1,  ANY,            UNKNOWN),
    op("RandomUniform",             1,  ANY,            UNKNOWN),
    op("RandomUniformLike",         1,  ANY,            UNKNOWN),
    op("Range",                     11, SAME,           Some(|n| n.apply(&ops::Range))),
    op("Reciprocal",                1,  ANY,            FIRST).derives(gradient::reciprocal).wide(),
    op("ReduceL1",                  1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_l1).wide(),
    op("ReduceL2",                  1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_l2).wide(),
    op("ReduceLogSum",              1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_log_sum).wide(),
    op("ReduceLogSumExp",           1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_log_sum_exp).wide(),
    op("ReduceMax",                 1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_extreme),
    op("ReduceMean",                1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_mean).wide(),
    op("ReduceMin",                 1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_extreme),
    op("ReduceProd",                1,  ANY,            Some(rules::reduction)).axes_input(18).wide(),
    op("ReduceSum",                 1,  ANY,            Some(rules::reduction)).axes_input(13)
        .derives(gradient::reduce_sum).wide(),
    op("ReduceSumSquare",           1,  ANY,            Some(rules::reduction)).axes_input(18)
        .derives(gradient::reduce_sum_square).wide(),
    op("RegexFullMatch",            20, ANY,            UNKNOWN),
    op("Relu",                      1,  ANY,            FIRST).derives(gradient::relu),
    op("Reshape",                   1,  ANY,            Some(rules::reshape)).converts(5, convert::reshape)
        .derives(gradient::reshape),
    op("Resize",                    10, ANY,            Some(rules::resize)).f32_input(2).converts(11, convert::resize)
        .derives(gradient::resize).wide(),
    op("ReverseSequence",           10, ANY,            FIRST),
    op("RoiAlign",                  10, ANY,            UNKNOWN),
    op("RotaryEmbedding",           23, FLOAT,          FIRST).lowers(lower::rotary_embedding).wide(),
    op("Round",                     11, ANY,            FIRST).derives(gradient::zero),
    op("STFT",                      17, ANY,            UNKNOWN),
    op("Scan",                      8,  ANY,            UNKNOWN).converts(9, convert::scan),
    op("Scatter",                   9,  ANY,            UNKNOWN).converts(11, convert::scatter),
    op("ScatterElements",           11, ANY,            FIRST).derives(gradient::scatter_elements),
    op("ScatterND",                 11, ANY,            FIRST).derives(gradient::scatter_nd),
    op("Selu",                      1,  FLOAT,          FIRST),
    op("SequenceAt",                11, ANY,            UNKNOWN),
    op("SequenceConstruct",         11, ANY,            UNKNOWN),
    op("SequenceEmpty",             11, ANY,            UNKNOWN),
    op("SequenceErase",             11, ANY,            UNKNOWN),
    op("SequenceInsert",            11, ANY,            UNKNOWN),
    op("SequenceLength",            11, ANY,            UNKNOWN),
    op("SequenceMap",               17, ANY,            UNKNOWN),
    op("Shape",                     1,  TO_INDEX,       Some(rules::shape)),
    op("Shrink",                    9,  ANY,            FIRST).lowers(lower::shrink),
    op("Sigmoid",                   1,  FLOAT,          FIRST).derives(gradient::sigmoid),
    op("Sign",                      9,  ANY,            FIRST).derives(gradient::zero),
    op("Sin",                       7,  ANY,            FIRST).derives(gradient::sin).wide(),
    op("Sinh",                      9,  ANY,            FIRST).wide(),
    op("Size",                      1,  TO_INDEX,       Some(rules::size)),
    op("Slice",                     1,  ANY,            Some(rules::slice)).converts(10, convert::slice)
        .derives(gradient::slice),
    op("Softmax",                   1,  FLOAT,          FIRST).converts(13, convert::softmax)
        .derives(gradient::softmax).wide(),
    op("SoftmaxCrossEntropyLoss",   12, FLOAT,          Some(rules::class_loss)).lowers(lower::softmax_cross_entropy)
        .wide(),
    op("Softplus",                  1,  FLOAT,          FIRST).derives(gradient::softplus).wide(),
    op("Softsign",                  1,  ANY,            FIRST).lowers(lower::softsign),
    op("SpaceToDepth",              1,  ANY,            Some(rules::space_to_depth)).derives(gradient::space_to_depth),
    op("Split",                     1,  ANY,            Some(rules::split)).converts(13, convert::split)
        .derives(gradient::split),
    op("SplitToSequence",           11, ANY,            UNKNOWN),
    op("Sqrt",                      1,  FLOAT,          FIRST).derives(gradient::sqrt).wide(),
    op("Squeeze",                   1,  ANY,            Some(rules::squeeze)).axes_input(13).derives(gradient::reshape),
    op("StringConcat",              20, ANY,            UNKNOWN),
    op("StringNormalizer",          10, ANY,            UNKNOWN),
    op("StringSplit",               20, ANY,            UNKNOWN),
    op("Sub",                       1,  SAME,           Some(|n| rules::arithmetic(n, &ops::Sub, Arithmetic::Sum))).converts(7, convert::broadcast)
        .derives(gradient::sub),
    op("Sum",                       1,  SAME,           VARIADIC).derives(gradient::add),
    op("SwiGLU",                    28, ANY,            FIRST).lowers(lower::swiglu),
    op("Swish",                     24, ANY,            FIRST).lowers(lower::swish),
    op("Tan",                       7,  FLOAT,          FIRST).wide(),
    op("Tanh",                      1,  FLOAT,          FIRST).derives(gradient::tanh),
    op("TensorScatter",             24, ANY,            FIRST).lowers(lower::tensor_scatter),
    op("TfIdfVectorizer",           9,  ANY,            UNKNOWN),
    op("ThresholdedRelu",           10, ANY,            FIRST).lowers(lower::thresholded_relu),
    op("Tile",                      1,  ANY,            Some(|n| n.apply(&ops::Tile))).derives(gradient::tile),
    op("TopK",                      1,  AND_INDICES,    Some(rules::top_k)).converts(10, convert::top_k)
        .derives(gradient::top_k),
    op("Transpose",                 1,  ANY,            Some(rules::transpose)).derives(gradient::transpose),
    op("Trilu",                     14, ANY,            FIRST).derives(gradient::trilu),
    op("Unique",                    11, ANY,            UNKNOWN),
    op("Unsqueeze",                 1,  ANY,            Some(rules::unsqueeze)).axes_input(13)
        .derives(gradient::reshape),
    op("Upsample",                  7,  ANY,            Some(rules::resize)).f32_input(1).converts(10, convert::resize)
        .wide(),
    op("Where",                     9,  SELECTED,       Some(|n| n.apply(&ops::Where))).derives(gradient::select),
    op("Xor",                       1,  TO_BOOL,        BROADCAST).converts(7, convert::broadcast),
];

/// Returns the row of an operator; `None` if the standard does not have it.
pub fn find_operator(name: &str) -> Option<&'static Operator> {
    let row = OPERATORS.binary_search_by_key(&name, |operator| operator.name);
    row.ok().map(|index| &OPERATORS[index])
}

/// Returns the names of the operators that have a derivative of their own.
pub fn operators_with_derivative() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().filter(|row| row.derivative.is_some()).map(|row| row.name)
}

/// Returns the names of all operators.
pub(crate) fn operator_names() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|row| row.name)
}

/// Returns the names of the operators that are decomposed before they are differentiated.
pub(crate) fn composite_operators() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().filter(|row| row.derivative.is_none() && row.decomposition.is_some()).map(|row| row.name)
}

/// Returns the version of the operator set that an operator needs, or 0 if every version since [`OPSET`] has it.
pub(crate) fn needed_version(name: &str) -> i64 {
    find_operator(name).map(|operator| operator.since).filter(|since| *since > OPSET).unwrap_or(0)
}

/// Returns the first node whose operator has no domain and is not one of the standard. An operator that the file itself
/// defines as a function is accepted.
pub fn find_unknown_operator(graph: &Graph) -> Option<&Node> {
    let is_unknown = |node: &&Node| node.domain.is_empty() && find_operator(&node.op).is_none();
    graph.functions.is_empty().then(|| graph.nodes.iter().find(is_unknown)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_their_names_are_unique() {
        assert!(OPERATORS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn a_version_is_one_of_the_standard_and_axes_became_an_input_later() {
        for operator in &OPERATORS {
            assert!((1..=28).contains(&operator.since), "{}", operator.name);
            assert!(operator.axes_input_since.is_none_or(|version| version > operator.since), "{}", operator.name);
        }
    }

    #[test]
    fn an_operator_that_is_newer_than_built_graphs_needs_its_own_version() {
        assert_eq!(["Relu", "LayerNormalization", "Gelu", "Wobble"].map(needed_version), [0, 0, 20, 0]);
    }

    #[test]
    fn an_operator_outside_the_standard_is_found_unless_it_has_a_domain() {
        let node = |op: &str, domain: &str| Node { op: op.to_owned(), domain: domain.to_owned(), ..Node::default() };
        let graph = |nodes| Graph { nodes, ..Graph::default() };
        let known = graph(vec![node("Relu", ""), node("SwiGLU", ""), node("Wobble", "com.example")]);
        assert_eq!(find_unknown_operator(&known), None);
        let unknown = graph(vec![node("Relu", ""), node("Wobble", "")]);
        assert_eq!(find_unknown_operator(&unknown).map(|node| node.op.as_str()), Some("Wobble"));
        let defined = Graph { functions: vec![vec![1]], ..unknown };
        assert_eq!(find_unknown_operator(&defined), None);
    }
}
