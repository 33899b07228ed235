//! Maps operator names to the shape rules of `rten-shape-inference`.
//!
//! Knows nothing about shapes or element types.

use rten_shape_inference::{BinaryOp, InferShapes, UnaryOp, VariadicOp, ops};

use super::{Attributes, InferError};

/// The rule of a node, constructed from its attributes; `None` for an operator without a rule.
type Rule<'a> = Option<Box<dyn InferShapes + 'a>>;

/// Returns the rule of an operator, or `None` when no table contains it. `split_evenly` is the number of outputs of a
/// `Split` without sizes.
pub(super) fn find_rule<'a>(
    op: &str,
    attributes: Attributes<'a>,
    split_evenly: Option<u32>,
) -> Result<Rule<'a>, InferError> {
    for rule in
        [elementwise_rule(op, attributes)?, compute_rule(op, attributes)?, movement_rule(op, attributes, split_evenly)?]
    {
        if rule.is_some() {
            return Ok(rule);
        }
    }
    Ok(None)
}

/// Returns the rule of an elementwise operator; inputs are broadcast.
fn elementwise_rule<'a>(op: &str, attributes: Attributes<'a>) -> Result<Rule<'a>, InferError> {
    Ok(Some(match op {
        "Abs"
        | "BatchNormalization"
        | "CastLike"
        | "Ceil"
        | "Celu"
        | "Clip"
        | "Cos"
        | "CumSum"
        | "Elu"
        | "Erf"
        | "Exp"
        | "Floor"
        | "Gelu"
        | "GroupNormalization"
        | "HardSigmoid"
        | "HardSwish"
        | "Hardmax"
        | "InstanceNormalization"
        | "IsInf"
        | "IsNaN"
        | "LRN"
        | "LayerNormalization"
        | "LeakyRelu"
        | "Log"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "Mish"
        | "Not"
        | "PRelu"
        | "RMSNormalization"
        | "Reciprocal"
        | "Relu"
        | "RotaryEmbedding"
        | "Round"
        | "ScatterElements"
        | "ScatterND"
        | "Selu"
        | "Sigmoid"
        | "Sign"
        | "Sin"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "Sqrt"
        | "Tan"
        | "Tanh"
        | "ThresholdedRelu"
        | "Trilu" => Box::new(UnaryOp),
        // An integer that may stand for a size keeps its value in another integer type.
        "Cast" if matches!(attributes.int("to")?, Some(6 | 7)) => Box::new(ops::Identity),
        "Cast" => Box::new(UnaryOp),
        "Identity" => Box::new(ops::Identity),
        "Neg" => Box::new(ops::Neg),
        "Dropout" => Box::new(ops::Dropout),
        "Add" => Box::new(ops::Add),
        "Sub" => Box::new(ops::Sub),
        "Mul" => Box::new(ops::Mul),
        "Div" => Box::new(ops::Div),
        "Equal" => Box::new(ops::Equal),
        "Where" => Box::new(ops::Where),
        "And" | "BitShift" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Mod" | "Or" | "Pow" | "Xor" => {
            Box::new(BinaryOp)
        }
        "Max" | "Mean" | "Min" | "Sum" => Box::new(VariadicOp),
        _ => return Ok(None),
    }))
}

/// Returns the rule of a matrix product, a global pool, or an operator that creates or selects elements.
fn compute_rule<'a>(op: &str, attributes: Attributes<'a>) -> Result<Rule<'a>, InferError> {
    Ok(Some(match op {
        "Gemm" => {
            Box::new(ops::Gemm { transpose_a: attributes.flag("transA")?, transpose_b: attributes.flag("transB")? })
        }
        "MatMul" => Box::new(ops::MatMul),
        "Attention" => {
            let heads = |name| Ok::<_, InferError>(attributes.small_int(name)?.map(i32::unsigned_abs));
            Box::new(ops::Attention { q_num_heads: heads("q_num_heads")?, kv_num_heads: heads("kv_num_heads")? })
        }
        "Einsum" => {
            let equation = attributes.string("equation")?.ok_or(InferError::MissingAttribute("equation"))?;
            Box::new(ops::Einsum { equation })
        }
        "GlobalAveragePool" | "GlobalMaxPool" => Box::new(ops::GlobalPool),
        "ConstantOfShape" => Box::new(ops::ConstantOfShape { value: fill_value(attributes)? }),
        "OneHot" => Box::new(ops::OneHot { axis: axis_attribute(attributes, -1)? }),
        "Range" => Box::new(ops::Range),
        "NonZero" => Box::new(ops::NonZero),
        "TopK" => Box::new(ops::TopK { axis: attributes.small_int("axis")? }),
        "GridSample" => Box::new(ops::GridSample),
        "NonMaxSuppression" => Box::new(ops::NonMaxSuppression),
        _ => return Ok(None),
    }))
}

/// Returns the rule of an operator that only moves, cuts or repeats elements.
fn movement_rule<'a>(op: &str, attributes: Attributes<'a>, split_evenly: Option<u32>) -> Result<Rule<'a>, InferError> {
    Ok(Some(match op {
        "Flatten" => Box::new(ops::Flatten { axis: axis_attribute(attributes, 1)? }),
        "Reshape" => Box::new(ops::Reshape { allow_zero: attributes.flag("allowzero")? }),
        "Shape" => Box::new(ops::Shape { start: attributes.small_int("start")?, end: attributes.small_int("end")? }),
        "Size" => Box::new(ops::Size),
        "Expand" => Box::new(ops::Expand),
        "Tile" => Box::new(ops::Tile),
        "Concat" => Box::new(ops::Concat { axis: axis_attribute(attributes, 0)? }),
        "Slice" => Box::new(ops::Slice),
        "Gather" => Box::new(ops::Gather { axis: axis_attribute(attributes, 0)? }),
        "GatherElements" => Box::new(ops::GatherElements),
        "GatherND" => {
            let batch_dims = attributes.int("batch_dims")?.unwrap_or(0);
            Box::new(ops::GatherND { batch_dims: usize::try_from(batch_dims).map_err(|_| InferError::Value)? })
        }
        "Pad" => Box::new(ops::Pad),
        "DepthToSpace" => {
            let block = attributes.int("blocksize")?.ok_or(InferError::MissingAttribute("blocksize"))?;
            Box::new(ops::DepthToSpace { block_size: u32::try_from(block).map_err(|_| InferError::Value)? })
        }
        "Split" => Box::new(ops::Split { axis: axis_attribute(attributes, 0)?, num_outputs: split_evenly }),
        "Squeeze" => Box::new(ops::Squeeze),
        "Unsqueeze" => Box::new(ops::Unsqueeze),
        _ => return Ok(None),
    }))
}

fn axis_attribute(attributes: Attributes<'_>, default: i32) -> Result<i32, InferError> {
    Ok(attributes.small_int("axis")?.unwrap_or(default))
}

/// Returns the value that `ConstantOfShape` repeats, if it can be part of a shape.
fn fill_value(attributes: Attributes<'_>) -> Result<Option<i32>, InferError> {
    let value = attributes.tensor("value")?;
    Ok(value.filter(|tensor| !tensor.dtype().is_float()).and_then(|tensor| Some(*tensor.to_f64().first()? as i32)))
}
