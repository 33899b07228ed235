//! The shape rule of every operator: a table from operator names to `rten-shape-inference`.
//!
//! Knows no element type.

use rten_shape_inference::{
    BinaryOp, InferShapes, InferShapesContext, InferShapesError, ReductionOp, SymExpr, SymTensor, SymbolGen, UnaryOp,
    VariadicOp, ops,
};

use super::window::{Slide, slide};
use super::{Attributes, InferError};

/// Shapes of a node's inputs; `None` is an optional input left out.
pub(super) type Inputs<'a> = &'a [Option<SymTensor>];

/// Operators whose first output has the shape of the first input.
pub(super) const SAME_SHAPE: &[&str] = &[
    "Abs",
    "BatchNormalization",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "CumSum",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Not",
    "PRelu",
    "RMSNormalization",
    "Reciprocal",
    "Relu",
    "RotaryEmbedding",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
];

/// Runs one shape rule.
pub(super) fn infer(
    operator: &dyn InferShapes,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    operator.infer_shapes(InferShapesContext::new(inputs), symbols).map_err(|error| match error {
        InferShapesError::IncorrectInputCount => InferError::InputCount,
        InferShapesError::IncompatibleShapes => InferError::Shapes,
        InferShapesError::IncorrectRank => InferError::Rank,
        InferShapesError::InvalidValue | InferShapesError::UnknownOutputCount => InferError::Value,
    })
}

/// Shapes of a node's outputs.
pub(super) fn outputs(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    if let Some(kind) = sliding(op) {
        let shape = slide(&kind, attributes, inputs, symbols)?;
        return Ok(vec![shape; count]);
    }
    if op.starts_with("Reduce") || matches!(op, "ArgMax" | "ArgMin") {
        return reduce(op, attributes, inputs, symbols);
    }
    if let Some(result) = rearrange(op, attributes, inputs, count, symbols) {
        return result;
    }
    let axis = |default| Ok::<i32, InferError>(attributes.small("axis")?.unwrap_or(default));
    let operator: &dyn InferShapes = match op {
        op if SAME_SHAPE.contains(&op) => &UnaryOp,
        // An integer stays a size when it becomes another integer.
        "Cast" if matches!(attributes.int("to")?, Some(6 | 7)) => &ops::Identity,
        "Cast" => &UnaryOp,
        "Identity" => &ops::Identity,
        "Neg" => &ops::Neg,
        "Dropout" => &ops::Dropout,
        "Add" => &ops::Add,
        "Sub" => &ops::Sub,
        "Mul" => &ops::Mul,
        "Div" => &ops::Div,
        "Equal" => &ops::Equal,
        "Where" => &ops::Where,
        "And" | "BitShift" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Mod" | "Or" | "Pow" | "Xor" => {
            &BinaryOp
        }
        "Max" | "Mean" | "Min" | "Sum" => &VariadicOp,
        "GlobalAveragePool" | "GlobalMaxPool" => &ops::GlobalPool,
        "Gemm" => &ops::Gemm { transpose_a: attributes.flag("transA")?, transpose_b: attributes.flag("transB")? },
        "MatMul" => &ops::MatMul,
        "Einsum" => {
            let equation = attributes.string("equation")?.ok_or(InferError::MissingAttribute("equation"))?;
            &ops::Einsum { equation }
        }
        "ConstantOfShape" => &ops::ConstantOfShape { value: filling(attributes)? },
        "OneHot" => &ops::OneHot { axis: axis(-1)? },
        "Range" => &ops::Range,
        "NonZero" => &ops::NonZero,
        "TopK" => &ops::TopK { axis: attributes.small("axis")? },
        "GridSample" => &ops::GridSample,
        "NonMaxSuppression" => &ops::NonMaxSuppression,
        _ => return Err(InferError::UnknownOperator(op.to_owned())),
    };
    infer(operator, inputs, symbols)
}

fn sliding(op: &str) -> Option<Slide> {
    match op {
        "Conv" => Some(Slide::Conv),
        "ConvTranspose" => Some(Slide::ConvTranspose),
        "AveragePool" | "LpPool" | "MaxPool" => Some(Slide::Pool),
        _ => None,
    }
}

/// Operators that only move, cut or repeat elements; `None` when `op` is none of them.
fn rearrange(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Option<Result<Vec<SymTensor>, InferError>> {
    let axis = |default| Ok::<i32, InferError>(attributes.small("axis")?.unwrap_or(default));
    // The rules multiply sizes in 32 bits.
    let too_large = matches!(op, "Flatten" | "Reshape" | "Size") && inputs.first().is_some_and(beyond_32_bits);
    let inputs = &if too_large { unknown_first(inputs) } else { inputs.to_vec() };
    let with_axes = matches!(op, "Squeeze" | "Unsqueeze").then(|| with_axes(attributes, inputs));
    let inputs = match &with_axes {
        Some(Ok(inputs)) => inputs,
        Some(Err(error)) => return Some(Err(error.clone())),
        None => inputs,
    };
    let mut run = |operator: &dyn InferShapes| infer(operator, inputs, symbols);
    let mut result = || match op {
        "Flatten" => run(&ops::Flatten { axis: axis(1)? }),
        "Reshape" => run(&ops::Reshape { allow_zero: attributes.flag("allowzero")? }),
        "Shape" => run(&ops::Shape { start: attributes.small("start")?, end: attributes.small("end")? }),
        "Size" => run(&ops::Size),
        "Transpose" => run(&ops::Transpose { perm: attributes.sizes("perm")?.as_deref() }),
        "Expand" => run(&ops::Expand),
        "Tile" => run(&ops::Tile),
        "Concat" => run(&ops::Concat { axis: axis(0)? }),
        "Slice" => run(&ops::Slice),
        "Gather" => run(&ops::Gather { axis: axis(0)? }),
        "GatherElements" => run(&ops::GatherElements),
        "GatherND" => {
            let batch_dims = attributes.int("batch_dims")?.unwrap_or(0);
            run(&ops::GatherND { batch_dims: usize::try_from(batch_dims).map_err(|_| InferError::Value)? })
        }
        "Pad" => run(&ops::Pad),
        "Resize" => run(&ops::Resize),
        "Upsample" => run(&ops::Upsample),
        "DepthToSpace" => {
            let block = attributes.int("blocksize")?.ok_or(InferError::MissingAttribute("blocksize"))?;
            run(&ops::DepthToSpace { block_size: u32::try_from(block).map_err(|_| InferError::Value)? })
        }
        "Split" => {
            let outputs = u32::try_from(count).map_err(|_| InferError::Value)?;
            // The sizes are the second input; without them the outputs are equal.
            let num_outputs = inputs.get(1).is_none_or(Option::is_none).then_some(outputs);
            run(&ops::Split { axis: axis(0)?, num_outputs })
        }
        "Squeeze" => run(&ops::Squeeze),
        "Unsqueeze" => run(&ops::Unsqueeze),
        _ => Err(InferError::UnknownOperator(op.to_owned())),
    };
    match result() {
        Err(InferError::UnknownOperator(_)) => None,
        result => Some(result),
    }
}

/// Whether a tensor has more elements than the symbolic arithmetic can count.
fn beyond_32_bits(tensor: &Option<SymTensor>) -> bool {
    let sizes = tensor.as_ref().and_then(SymTensor::shape).into_iter().flatten();
    let known = sizes.filter_map(|size| if let SymExpr::Value(size) = size { Some(size) } else { None });
    known.map(i64::from).try_fold(1i64, i64::checked_mul).is_none_or(|count| i32::try_from(count).is_err())
}

fn unknown_first(inputs: Inputs<'_>) -> Vec<Option<SymTensor>> {
    std::iter::once(Some(SymTensor::unknown("too large"))).chain(inputs.iter().skip(1).cloned()).collect()
}

/// The inputs, with the attribute `axes` as a second one when it is given: until operator set 12 it was no input.
fn with_axes(attributes: Attributes<'_>, inputs: Inputs<'_>) -> Result<Vec<Option<SymTensor>>, InferError> {
    let mut inputs = inputs.to_vec();
    if let Some(axes) = attributes.ints("axes")? {
        inputs.truncate(1);
        inputs.push(Some(SymTensor::from_vec(axes.iter().map(|axis| SymExpr::Value(*axis as i32)).collect())));
    }
    Ok(inputs)
}

fn reduce(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let axes: Option<Vec<i32>> = match op {
        "ArgMax" | "ArgMin" => Some(vec![attributes.small("axis")?.unwrap_or(0)]),
        _ => attributes.ints("axes")?.map(|axes| axes.iter().map(|axis| *axis as i32).collect()),
    };
    let keep_dims = attributes.int("keepdims")?.unwrap_or(1) != 0;
    let given = inputs.get(1).is_some_and(Option::is_some) || axes.is_some();
    if !given && attributes.flag("noop_with_empty_axes")? {
        return infer(&UnaryOp, inputs, symbols);
    }
    infer(&ReductionOp { axes: axes.as_deref(), keep_dims }, inputs, symbols)
}

/// The value that `ConstantOfShape` repeats, when it can be part of a shape.
fn filling(attributes: Attributes<'_>) -> Result<Option<i32>, InferError> {
    let value = attributes.tensor("value")?;
    Ok(value.filter(|tensor| !tensor.dtype().is_float()).and_then(|tensor| Some(*tensor.to_f64().first()? as i32)))
}
