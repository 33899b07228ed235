//! Converts a node of the graph to an [`Op`]: lists the supported operators and reads their attributes.

mod composed;
mod indexing;

use composed::resolve_composed;
use indexing::resolve_indexing;

use super::attributes::Attributes;
use super::op::{Op, PadKind, ReduceDefault, Reduction, SliceAttributes};
use super::ops::{Binary, Reduce, Unary};
use super::reference::Array;
use super::window::{Padding, Window};
use super::{ExecError, OpError};
use flagperf_onnx::dtype_from_onnx;
use flagperf_onnx::{DType, Node, Tensor};

/// Returns the operator of a node in a graph of operator set `opset`.
///
/// # Errors
/// When the operator is not supported, or an attribute has another type than the operator requires.
pub(super) fn resolve(node: &Node, opset: i64) -> Result<Op, ExecError> {
    let unknown = |op: String| ExecError::UnknownOperator { node: node.name.clone(), op };
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return Err(unknown(format!("{}.{}", node.domain, node.op)));
    }
    let attributes = Attributes(&node.attributes);
    let families =
        [resolve_arithmetic, resolve_windows, resolve_reductions, resolve_shapes, resolve_composed, resolve_indexing];
    for family in families {
        let op = family(node, attributes, opset).map_err(|reason| ExecError::Node {
            node: node.name.clone(),
            op: node.op.clone(),
            reason,
        })?;
        if let Some(op) = op {
            return Ok(op);
        }
    }
    Err(unknown(node.op.clone()))
}

fn resolve_arithmetic(node: &Node, attributes: Attributes, opset: i64) -> Result<Option<Op>, OpError> {
    if let Some(unary) = resolve_unary(node, attributes)? {
        return Ok(Some(Op::Unary(unary)));
    }
    Ok(Some(match node.op.as_str() {
        "Identity" | "Dropout" => Op::Identity,
        "Clip" if opset < 11 => Op::Clip {
            min: Some(attributes.float("min", f64::NEG_INFINITY)?),
            max: Some(attributes.float("max", f64::INFINITY)?),
        },
        "Clip" => Op::Clip { min: None, max: None },
        "Add" | "Sum" => Op::Binary(Binary::Add),
        "Sub" => Op::Binary(Binary::Sub),
        "Mul" => Op::Binary(Binary::Mul),
        "Div" => Op::Binary(Binary::Div),
        "Mod" if attributes.flag("fmod", false)? => Op::Binary(Binary::Fmod),
        "Mod" => Op::Binary(Binary::Mod),
        "Pow" => Op::Binary(Binary::Pow),
        "Min" => Op::Binary(Binary::Min),
        "Max" => Op::Binary(Binary::Max),
        "Equal" => Op::Binary(Binary::Equal),
        "Less" => Op::Binary(Binary::Less),
        "Greater" => Op::Binary(Binary::Greater),
        "LessOrEqual" => Op::Binary(Binary::LessOrEqual),
        "GreaterOrEqual" => Op::Binary(Binary::GreaterOrEqual),
        "And" => Op::Binary(Binary::And),
        "Xor" => Op::Binary(Binary::Xor),
        "Mean" => Op::Mean,
        "PRelu" => Op::PRelu,
        "Or" => Op::Binary(Binary::Or),
        "Where" => Op::Select,
        "MatMul" => Op::MatMul,
        "Gemm" => Op::Gemm {
            alpha: attributes.float("alpha", 1.0)?,
            beta: attributes.float("beta", 1.0)?,
            trans_a: attributes.flag("transA", false)?,
            trans_b: attributes.flag("transB", false)?,
        },
        "BatchNormalization" if attributes.flag("training_mode", false)? => {
            return Err(OpError::unsupported("`training_mode` (the executor only runs inference)"));
        }
        "BatchNormalization" => Op::BatchNormalization { epsilon: attributes.float("epsilon", 1e-5)? },
        _ => return Ok(None),
    }))
}

fn resolve_unary(node: &Node, attributes: Attributes) -> Result<Option<Unary>, OpError> {
    Ok(Some(match node.op.as_str() {
        "Relu" => Unary::Relu,
        "Sigmoid" => Unary::Sigmoid,
        "HardSigmoid" => {
            Unary::HardSigmoid { alpha: attributes.float("alpha", 0.2)?, beta: attributes.float("beta", 0.5)? }
        }
        "HardSwish" => Unary::HardSwish,
        "Tanh" => Unary::Tanh,
        "Erf" => Unary::Erf,
        "Gelu" => match attributes.text("approximate", "none")? {
            "tanh" => Unary::GeluTanh,
            _ => Unary::Gelu,
        },
        "LeakyRelu" => Unary::LeakyRelu { alpha: attributes.float("alpha", 0.01)? },
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Sqrt" => Unary::Sqrt,
        "Reciprocal" => Unary::Reciprocal,
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Floor" => Unary::Floor,
        "Ceil" => Unary::Ceil,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Tan" => Unary::Tan,
        "Round" => Unary::Round,
        "Sign" => Unary::Sign,
        "Softplus" => Unary::Softplus,
        "Elu" => Unary::Elu { alpha: attributes.float("alpha", 1.0)? },
        // The defaults are the f32 numbers of ONNX's schema.
        "Selu" => Unary::Selu {
            alpha: attributes.float("alpha", 1.673_263_192_176_818_8)?,
            gamma: attributes.float("gamma", 1.050_700_783_729_553_2)?,
        },
        "Mish" => Unary::Mish,
        "IsNaN" => Unary::IsNan,
        "IsInf" => Unary::IsInf {
            negative: attributes.flag("detect_negative", true)?,
            positive: attributes.flag("detect_positive", true)?,
        },
        "Not" => Unary::Not,
        _ => return Ok(None),
    }))
}

fn resolve_windows(node: &Node, attributes: Attributes, _: i64) -> Result<Option<Op>, OpError> {
    Ok(Some(match node.op.as_str() {
        "Conv" => Op::Conv {
            window: resolve_window(attributes)?,
            groups: attributes.counts("group")?.and_then(|group| group.first().copied()).unwrap_or(1),
            residual: false,
            activation: None,
        },
        "MaxPool" if node.outputs.iter().filter(|output| !output.is_empty()).count() > 1 => {
            return Err(OpError::unsupported("the output `Indices`"));
        }
        "MaxPool" => Op::MaxPool(resolve_window(attributes)?),
        "AveragePool" => Op::AveragePool {
            window: resolve_window(attributes)?,
            include_pad: attributes.flag("count_include_pad", false)?,
        },
        "GlobalAveragePool" => reduce(Reduction::Plain(Reduce::Mean), None, ReduceDefault::Spatial, true),
        "GlobalMaxPool" => reduce(Reduction::Plain(Reduce::Max), None, ReduceDefault::Spatial, true),
        _ => return Ok(None),
    }))
}

fn resolve_window(attributes: Attributes) -> Result<Window, OpError> {
    let explicit = || attributes.sizes("pads").map(|pads| Padding::Explicit(pads.unwrap_or_default()));
    let padding = match attributes.text("auto_pad", "NOTSET")? {
        "NOTSET" => explicit()?,
        "VALID" => Padding::default(),
        "SAME_UPPER" => Padding::Same { lower: false },
        "SAME_LOWER" => Padding::Same { lower: true },
        other => return Err(OpError::unsupported(format!("`auto_pad` `{other}`"))),
    };
    Ok(Window {
        kernel: attributes.counts("kernel_shape")?,
        strides: attributes.counts("strides")?.unwrap_or_default(),
        dilations: attributes.counts("dilations")?.unwrap_or_default(),
        padding,
        ceil: attributes.flag("ceil_mode", false)?,
    })
}

fn resolve_reductions(node: &Node, attributes: Attributes, opset: i64) -> Result<Option<Op>, OpError> {
    let reduction = |kind| {
        let none = attributes.flag("noop_with_empty_axes", false)?;
        let default = if none { ReduceDefault::None } else { ReduceDefault::All };
        Ok::<_, OpError>(reduce(kind, attributes.ints("axes")?, default, attributes.flag("keepdims", true)?))
    };
    let softmax = |log| {
        let (flat, default) = if opset < 13 { (true, 1) } else { (false, -1) };
        Ok::<_, OpError>(Op::Softmax { axis: attributes.int("axis", default)?, log, flat })
    };
    Ok(Some(match node.op.as_str() {
        "ReduceMean" => reduction(Reduction::Plain(Reduce::Mean))?,
        "ReduceSum" => reduction(Reduction::Plain(Reduce::Sum))?,
        "ReduceMax" => reduction(Reduction::Plain(Reduce::Max))?,
        "ReduceMin" => reduction(Reduction::Plain(Reduce::Min))?,
        "ReduceProd" => reduction(Reduction::Plain(Reduce::Product))?,
        "ReduceL1" => reduction(Reduction::L1)?,
        "ReduceL2" => reduction(Reduction::L2)?,
        "ReduceSumSquare" => reduction(Reduction::SumSquare)?,
        "ReduceLogSum" => reduction(Reduction::LogSum)?,
        "ReduceLogSumExp" => reduction(Reduction::LogSumExp)?,
        "ArgMax" | "ArgMin" => Op::ArgMax {
            axis: attributes.int("axis", 0)?,
            keep: attributes.flag("keepdims", true)?,
            last: attributes.flag("select_last_index", false)?,
            smallest: node.op == "ArgMin",
        },
        "Softmax" => softmax(false)?,
        "LogSoftmax" => softmax(true)?,
        "LayerNormalization" => {
            Op::LayerNormalization { axis: attributes.int("axis", -1)?, epsilon: attributes.float("epsilon", 1e-5)? }
        }
        _ => return Ok(None),
    }))
}

fn reduce(kind: Reduction, axes: Option<Vec<i64>>, default: ReduceDefault, keep: bool) -> Op {
    Op::Reduce { kind, axes, default, keep }
}

fn resolve_shapes(node: &Node, attributes: Attributes, opset: i64) -> Result<Option<Op>, OpError> {
    Ok(Some(match node.op.as_str() {
        "Flatten" => Op::Flatten { axis: attributes.int("axis", 1)? },
        "Reshape" => Op::Reshape { allow_zero: attributes.flag("allowzero", false)? },
        "Squeeze" => Op::Squeeze { axes: attributes.ints("axes")? },
        "Unsqueeze" => Op::Unsqueeze { axes: attributes.ints("axes")? },
        "Transpose" => Op::Transpose { order: attributes.ints("perm")? },
        "Concat" => Op::Concat { axis: attributes.int("axis", 0)? },
        "Split" => {
            Op::Split { axis: attributes.int("axis", 0)?, sizes: attributes.ints("split")?, parts: node.outputs.len() }
        }
        "Slice" if opset < 10 => Op::Slice {
            attributes: Some(SliceAttributes {
                starts: attributes.ints("starts")?.unwrap_or_default(),
                ends: attributes.ints("ends")?.unwrap_or_default(),
                axes: attributes.ints("axes")?,
            }),
        },
        "Slice" => Op::Slice { attributes: None },
        "Gather" => Op::Gather { axis: attributes.int("axis", 0)? },
        "Expand" => Op::Expand,
        "Pad" => resolve_pad(attributes)?,
        "Shape" => Op::Shape { start: attributes.int("start", 0)?, end: attributes.int("end", i64::MAX)? },
        "ConstantOfShape" => {
            let zero = Tensor::scalar(0.0f32);
            Op::ConstantOfShape { value: Array::from_tensor(attributes.tensor("value")?.unwrap_or(&zero)) }
        }
        "Cast" => Op::Cast { to: Some(element_type(attributes.int("to", 0)?)?) },
        "CastLike" => Op::Cast { to: None },
        _ => return Ok(None),
    }))
}

fn resolve_pad(attributes: Attributes) -> Result<Op, OpError> {
    let mode = match attributes.text("mode", "constant")? {
        "constant" => None,
        "reflect" => Some(PadKind::Reflect),
        "edge" => Some(PadKind::Edge),
        other => return Err(OpError::unsupported(format!("`mode` `{other}`"))),
    };
    Ok(Op::Pad { mode, pads: attributes.ints("pads")?, value: attributes.float("value", 0.0)? })
}

/// Returns the element type of a number of ONNX's `TensorProto.DataType`.
fn element_type(number: i64) -> Result<DType, OpError> {
    dtype_from_onnx(number).ok_or_else(|| OpError::unsupported(format!("ONNX element type {number}")))
}
