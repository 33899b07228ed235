//! Converts a node of the graph to an [`Op`]: the table of the operators that the executor supports.
//!
//! What an operator is, whoever executes it, is in the table of `flagperf-onnx`.

mod composed;
mod control;
mod elementwise;
mod indexing;
mod normalization;
mod recurrent;
mod shapes;
mod windows;

use std::cell::RefCell;

use super::attributes::Attributes;
use super::custom::CustomOperator;
use super::execution_plan::node_error;
use super::host::{
    HostFunction, HostOp, detection, elementwise as elementwise_host, entries, numeric, sampling, signal,
};
use super::op::{Op, ReduceDefault, Reduction};
use super::ops::{Binary, Bitwise, Reduce, Unary};
use super::{ExecError, OpError};
use flagperf_onnx::{
    ALL_REDUCE, Attribute, BROADCAST, FLOAT8_PRODUCT, GRADIENT, NORM, Node, OWN_DOMAIN, REDUCE, ROOT, TRAINING_DOMAIN,
    UPDATE, UpdateRule,
};

/// How a node of an operator becomes an [`Op`].
enum Kernel {
    Unary(Unary),
    Binary(Binary),
    Reduce(Reduction),
    /// An elementwise function without attributes, on the host.
    Map(fn(f64) -> f64),
    /// The operator has no attributes.
    Plain(Op),
    /// A function reads the attributes.
    Read(fn(&Source<'_>) -> Result<Op, OpError>),
    /// A function reads the attributes and returns the one that computes the outputs on the host.
    Host(fn(&Source<'_>) -> Result<HostFunction, OpError>),
}

/// The node from which an [`Op`] is read.
pub(super) struct Source<'a> {
    pub node: &'a Node,
    pub attributes: Attributes<'a>,
    /// The version of the operator set for which the node was written.
    pub opset: i64,
}

/// The operators that the executor supports, by name.
#[rustfmt::skip]
static KERNELS: [(&str, Kernel); 149] = [
    ("Abs",                   Kernel::Unary(Unary::Abs)),
    ("Acos",                   Kernel::Map(f64::acos)),
    ("Acosh",                  Kernel::Map(f64::acosh)),
    ("Add",                   Kernel::Binary(Binary::Add)),
    ("AffineGrid",             Kernel::Host(sampling::affine_grid)),
    ("And",                   Kernel::Binary(Binary::And)),
    ("ArgMax",                Kernel::Read(indexing::arg_max)),
    ("ArgMin",                Kernel::Read(indexing::arg_min)),
    ("Asin",                   Kernel::Map(f64::asin)),
    ("Asinh",                  Kernel::Map(f64::asinh)),
    ("Atan",                   Kernel::Map(f64::atan)),
    ("Atanh",                  Kernel::Map(f64::atanh)),
    ("Attention",             Kernel::Read(composed::attention)),
    ("AveragePool",           Kernel::Read(windows::average_pool)),
    ("BatchNormalization",    Kernel::Read(normalization::batch_normalization)),
    ("BitCast",                Kernel::Host(entries::bit_cast)),
    ("BitShift",               Kernel::Host(elementwise_host::bit_shift)),
    ("BitwiseAnd",             Kernel::Plain(Op::Bitwise(Bitwise::And))),
    ("BitwiseNot",             Kernel::Plain(Op::Bitwise(Bitwise::Not))),
    ("BitwiseOr",              Kernel::Plain(Op::Bitwise(Bitwise::Or))),
    ("BitwiseXor",             Kernel::Plain(Op::Bitwise(Bitwise::Xor))),
    ("BlackmanWindow",         Kernel::Host(signal::blackman_window)),
    ("Cast",                  Kernel::Read(elementwise::cast)),
    ("CastLike",              Kernel::Plain(Op::Cast { to: None })),
    ("Ceil",                  Kernel::Unary(Unary::Ceil)),
    ("CenterCropPad",          Kernel::Host(entries::center_crop_pad)),
    ("Clip",                  Kernel::Plain(Op::Clip)),
    ("Col2Im",                 Kernel::Host(numeric::column_to_image)),
    ("Compress",               Kernel::Host(entries::compress)),
    ("Concat",                Kernel::Read(shapes::concat)),
    ("ConstantOfShape",       Kernel::Read(shapes::constant_of_shape)),
    ("Conv",                  Kernel::Read(windows::conv)),
    ("ConvTranspose",         Kernel::Read(windows::conv_transpose)),
    ("Cos",                   Kernel::Unary(Unary::Cos)),
    ("Cosh",                   Kernel::Map(f64::cosh)),
    ("CumProd",                Kernel::Host(numeric::cumulative_product)),
    ("CumSum",                Kernel::Read(indexing::cumulative_sum)),
    ("DFT",                    Kernel::Host(signal::dft)),
    ("DepthToSpace",          Kernel::Read(shapes::depth_to_space)),
    ("Det",                    Kernel::Host(numeric::determinant)),
    ("Div",                   Kernel::Binary(Binary::Div)),
    ("Dropout",               Kernel::Read(normalization::dropout)),
    ("Einsum",                Kernel::Read(composed::einsum)),
    ("Elu",                   Kernel::Read(elementwise::elu)),
    ("Equal",                 Kernel::Binary(Binary::Equal)),
    ("Erf",                   Kernel::Unary(Unary::Erf)),
    ("Exp",                   Kernel::Unary(Unary::Exp)),
    ("Expand",                Kernel::Plain(Op::Expand)),
    ("EyeLike",                Kernel::Host(entries::eye_like)),
    ("Flatten",               Kernel::Read(shapes::flatten)),
    ("Floor",                 Kernel::Unary(Unary::Floor)),
    ("GRU",                    Kernel::Read(recurrent::gru)),
    ("Gather",                Kernel::Read(indexing::gather)),
    ("GatherElements",        Kernel::Read(indexing::gather_elements)),
    ("GatherND",              Kernel::Read(indexing::gather_nd)),
    ("Gelu",                  Kernel::Read(elementwise::gelu)),
    ("Gemm",                  Kernel::Read(elementwise::gemm)),
    ("GlobalAveragePool",     Kernel::Read(windows::global_average_pool)),
    ("GlobalMaxPool",         Kernel::Read(windows::global_max_pool)),
    ("Greater",               Kernel::Binary(Binary::Greater)),
    ("GreaterOrEqual",        Kernel::Binary(Binary::GreaterOrEqual)),
    ("GridSample",             Kernel::Host(sampling::grid_sample)),
    ("GroupNormalization",    Kernel::Read(normalization::group_normalization)),
    ("HammingWindow",          Kernel::Host(signal::hamming_window)),
    ("HannWindow",             Kernel::Host(signal::hann_window)),
    ("HardSigmoid",           Kernel::Read(elementwise::hard_sigmoid)),
    ("HardSwish",             Kernel::Unary(Unary::HardSwish)),
    ("Identity",              Kernel::Plain(Op::Identity)),
    ("If",                     Kernel::Read(control::branch)),
    ("InstanceNormalization", Kernel::Read(normalization::instance_normalization)),
    ("IsInf",                 Kernel::Read(elementwise::is_inf)),
    ("IsNaN",                 Kernel::Unary(Unary::IsNan)),
    ("LSTM",                   Kernel::Read(recurrent::lstm)),
    ("LayerNormalization",    Kernel::Read(normalization::layer_normalization)),
    ("LeakyRelu",             Kernel::Read(elementwise::leaky_relu)),
    ("Less",                  Kernel::Binary(Binary::Less)),
    ("LessOrEqual",           Kernel::Binary(Binary::LessOrEqual)),
    ("Log",                   Kernel::Unary(Unary::Log)),
    ("LogSoftmax",            Kernel::Read(normalization::log_softmax)),
    ("Loop",                   Kernel::Read(control::repeat)),
    ("MatMul",                Kernel::Plain(Op::MatMul)),
    ("Max",                   Kernel::Binary(Binary::Max)),
    ("MaxPool",               Kernel::Read(windows::max_pool)),
    ("Mean",                  Kernel::Plain(Op::Mean)),
    ("Min",                   Kernel::Binary(Binary::Min)),
    ("Mish",                  Kernel::Unary(Unary::Mish)),
    ("Mod",                   Kernel::Read(elementwise::modulo)),
    ("Mul",                   Kernel::Binary(Binary::Mul)),
    ("Neg",                   Kernel::Unary(Unary::Neg)),
    ("NonMaxSuppression",      Kernel::Host(detection::non_max_suppression)),
    ("NonZero",               Kernel::Plain(Op::NonZero)),
    ("Not",                   Kernel::Unary(Unary::Not)),
    ("OneHot",                Kernel::Read(indexing::one_hot)),
    ("Or",                    Kernel::Binary(Binary::Or)),
    ("PRelu",                 Kernel::Plain(Op::PRelu)),
    ("Pad",                   Kernel::Read(shapes::pad)),
    ("Pow",                   Kernel::Binary(Binary::Pow)),
    ("RMSNormalization",      Kernel::Read(normalization::rms_normalization)),
    ("RNN",                    Kernel::Read(recurrent::rnn)),
    ("Range",                 Kernel::Plain(Op::Range)),
    ("Reciprocal",            Kernel::Unary(Unary::Reciprocal)),
    ("ReduceL1",              Kernel::Reduce(Reduction::L1)),
    ("ReduceL2",              Kernel::Reduce(Reduction::L2)),
    ("ReduceLogSum",          Kernel::Reduce(Reduction::LogSum)),
    ("ReduceLogSumExp",       Kernel::Reduce(Reduction::LogSumExp)),
    ("ReduceMax",             Kernel::Reduce(Reduction::Plain(Reduce::Max))),
    ("ReduceMean",            Kernel::Reduce(Reduction::Plain(Reduce::Mean))),
    ("ReduceMin",             Kernel::Reduce(Reduction::Plain(Reduce::Min))),
    ("ReduceProd",            Kernel::Reduce(Reduction::Plain(Reduce::Product))),
    ("ReduceSum",             Kernel::Reduce(Reduction::Plain(Reduce::Sum))),
    ("ReduceSumSquare",       Kernel::Reduce(Reduction::SumSquare)),
    ("Relu",                  Kernel::Unary(Unary::Relu)),
    ("Reshape",               Kernel::Read(shapes::reshape)),
    ("Resize",                Kernel::Read(composed::resize)),
    ("ReverseSequence",        Kernel::Host(entries::reverse_sequence)),
    ("RoiAlign",               Kernel::Host(detection::roi_align)),
    ("RotaryEmbedding",       Kernel::Read(composed::rotary_embedding)),
    ("Round",                 Kernel::Unary(Unary::Round)),
    ("STFT",                   Kernel::Host(signal::stft)),
    ("Scan",                   Kernel::Read(control::scan)),
    ("ScatterElements",       Kernel::Read(indexing::scatter_elements)),
    ("ScatterND",             Kernel::Read(indexing::scatter_nd)),
    ("Selu",                  Kernel::Read(elementwise::selu)),
    ("Shape",                 Kernel::Read(shapes::shape)),
    ("Sigmoid",               Kernel::Unary(Unary::Sigmoid)),
    ("Sign",                  Kernel::Unary(Unary::Sign)),
    ("Sin",                   Kernel::Unary(Unary::Sin)),
    ("Sinh",                   Kernel::Map(f64::sinh)),
    ("Size",                  Kernel::Plain(Op::Size)),
    ("Slice",                 Kernel::Plain(Op::Slice)),
    ("Softmax",               Kernel::Read(normalization::softmax)),
    ("Softplus",              Kernel::Unary(Unary::Softplus)),
    ("SpaceToDepth",          Kernel::Read(shapes::space_to_depth)),
    ("Split",                 Kernel::Read(shapes::split)),
    ("Sqrt",                  Kernel::Unary(Unary::Sqrt)),
    ("Squeeze",               Kernel::Plain(Op::Squeeze)),
    ("Sub",                   Kernel::Binary(Binary::Sub)),
    ("Sum",                   Kernel::Binary(Binary::Add)),
    ("Tan",                   Kernel::Unary(Unary::Tan)),
    ("Tanh",                  Kernel::Unary(Unary::Tanh)),
    ("TensorScatter",          Kernel::Read(indexing::tensor_scatter)),
    ("Tile",                  Kernel::Plain(Op::Tile)),
    ("TopK",                  Kernel::Read(indexing::top_k)),
    ("Transpose",             Kernel::Read(shapes::transpose)),
    ("Trilu",                 Kernel::Read(indexing::triangle)),
    ("Unique",                 Kernel::Host(entries::unique)),
    ("Unsqueeze",             Kernel::Plain(Op::Unsqueeze)),
    ("Where",                 Kernel::Plain(Op::Select)),
    ("Xor",                   Kernel::Binary(Binary::Xor)),
];

/// Attributes that do not change the result of an inference, by operator; `*` stands for all operators.
#[rustfmt::skip]
const WITHOUT_EFFECT: [(&str, &str); 15] = [
    ("*",                  "consumed_inputs"),
    // The softmax is computed in f32 or f64 anyway, and so are the normalizations and the numbers of a range.
    ("Attention",          "softmax_precision"),
    ("BatchNormalization", "momentum"),
    ("Cast",               "round_mode"),
    ("Cast",               "saturate"),
    ("CastLike",           "round_mode"),
    ("CastLike",           "saturate"),
    ("Dropout",            "seed"),
    ("GroupNormalization", "stash_type"),
    ("LayerNormalization", "stash_type"),
    ("RMSNormalization",   "stash_type"),
    ("Range",              "stash_type"),
    ("Resize",             "cubic_coeff_a"),
    ("Split",              "num_outputs"),
    ("TopK",               "sorted"),
];

/// Returns whether the executor has an implementation of an operator of the standard.
pub(super) fn has_kernel(op: &str) -> bool {
    KERNELS.binary_search_by_key(&op, |(name, _)| name).is_ok()
}

/// Returns the operator of a node in a graph of operator set `opset`.
///
/// # Errors
/// When the operator is not supported, an attribute has another type than the operator requires, or the executor does
/// not know the attribute.
pub(super) fn resolve(node: &Node, opset: i64) -> Result<Op, ExecError> {
    if node.domain == TRAINING_DOMAIN && node.op == GRADIENT {
        return Ok(Op::Gradient { reduced: Vec::new() });
    }
    if node.domain == OWN_DOMAIN && node.op == ALL_REDUCE {
        return Ok(Op::MeanOverProcesses { root: None });
    }
    if node.domain == OWN_DOMAIN && [REDUCE, BROADCAST].contains(&node.op.as_str()) {
        let root = match node.attributes.get(ROOT) {
            Some(Attribute::Int(root)) => u32::try_from(*root).ok(),
            _ => None,
        };
        let reason = || OpError::invalid_operands("`root` is not the number of a process");
        let root = root.ok_or_else(|| node_error(&node.name, &node.op, reason()))?;
        return Ok(if node.op == REDUCE { Op::MeanOverProcesses { root: Some(root) } } else { Op::Broadcast { root } });
    }
    if node.domain == OWN_DOMAIN && node.op == NORM {
        return Ok(Op::Norm);
    }
    if node.domain == OWN_DOMAIN && node.op == FLOAT8_PRODUCT {
        return Ok(Op::Float8Product);
    }
    if node.domain == OWN_DOMAIN && node.op == UPDATE {
        let reason = || OpError::invalid_operands("`optimizer` and `settings` are no update rule");
        return UpdateRule::of_node(node).map(Op::Update).ok_or_else(|| node_error(&node.name, &node.op, reason()));
    }
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return Ok(Op::Custom(CustomOperator::of_node(node)));
    }
    let row = KERNELS.binary_search_by_key(&node.op.as_str(), |(name, _)| name);
    let unknown = |_| ExecError::UnknownOperator { node: node.name.clone(), op: node.op.clone() };
    let (_, kernel) = row.map(|index| &KERNELS[index]).map_err(unknown)?;
    let read = RefCell::default();
    let source = Source { node, attributes: Attributes::new(&node.attributes, &read), opset };
    let op = match kernel {
        Kernel::Unary(kind) => Ok(Op::Unary(*kind)),
        Kernel::Binary(kind) => Ok(Op::Binary(*kind)),
        Kernel::Reduce(kind) => reduction(*kind, &source),
        Kernel::Plain(op) => Ok(op.clone()),
        Kernel::Read(read) => read(&source),
        Kernel::Map(function) => Ok(Op::Host(HostOp(elementwise_host::map(function)))),
        Kernel::Host(read) => read(&source).map(|function| Op::Host(HostOp(function))),
    };
    let has_no_effect =
        |name: &str| WITHOUT_EFFECT.iter().any(|(op, other)| (*op == "*" || *op == node.op) && *other == name);
    let known = op.and_then(|op| match source.attributes.unread(has_no_effect) {
        Some(name) => Err(OpError::unsupported(format!("attribute `{name}`"))),
        None => Ok(op),
    });
    known.map_err(|reason| node_error(&node.name, &node.op, reason))
}

fn reduction(kind: Reduction, source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let none = attributes.flag("noop_with_empty_axes", false)?;
    let default = if none { ReduceDefault::None } else { ReduceDefault::All };
    Ok(Op::Reduce { kind, axes: attributes.ints("axes")?, default, keep: attributes.flag("keepdims", true)? })
}

fn unknown_word(name: &str, word: &str) -> OpError {
    OpError::unsupported(format!("`{name}` `{word}`"))
}

fn required_count(attributes: Attributes, name: &str) -> Result<usize, OpError> {
    attributes.count(name)?.ok_or_else(|| OpError::invalid_operands(format!("attribute `{name}` is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_sorted_and_each_is_of_an_operator_of_the_standard() {
        assert!(KERNELS.is_sorted_by(|(a, _), (b, _)| a < b));
        for (name, _) in &KERNELS {
            assert!(flagperf_onnx::find_operator(name).is_some(), "{name}");
        }
    }
}
