//! The element types of every operator: what inputs must share, and what comes out.
//!
//! Knows no shape.

use super::{Attributes, InferError, Known};
use crate::DType;

/// Operators of which all inputs are of one type.
const ALL_ALIKE: &[&str] = &[
    "Add",
    "BatchNormalization",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Div",
    "Einsum",
    "Equal",
    "Gemm",
    "Greater",
    "GreaterOrEqual",
    "InstanceNormalization",
    "LayerNormalization",
    "Less",
    "LessOrEqual",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "PRelu",
    "Range",
    "Sub",
    "Sum",
];

/// Operators that compute in real numbers.
const REAL: &[&str] = &[
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "Mish",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Sqrt",
    "Tanh",
];

/// Element types of a node's outputs; `None` when the input it depends on is unknown.
pub(super) fn outputs(
    op: &str,
    attributes: Attributes<'_>,
    inputs: &[Option<Known>],
    count: usize,
) -> Result<Vec<Option<DType>>, InferError> {
    let input = |index: usize| inputs.get(index).and_then(Option::as_ref).and_then(|known| known.dtype);
    if ALL_ALIKE.contains(&op) {
        alike(op, inputs.iter().flatten())?;
    }
    if op == "Where" {
        alike(op, inputs.iter().skip(1).flatten())?;
    }
    if let Some(dtype) = input(0).filter(|dtype| REAL.contains(&op) && !dtype.is_float()) {
        return Err(InferError::Mismatch(format!("`{op}` takes real numbers, not `{dtype}`")));
    }
    let first = match op {
        "And" | "Equal" | "Greater" | "GreaterOrEqual" | "IsInf" | "IsNaN" | "Less" | "LessOrEqual" | "Not" | "Or"
        | "Xor" => Some(DType::Bool),
        "ArgMax" | "ArgMin" | "NonMaxSuppression" | "NonZero" | "Shape" | "Size" => Some(DType::I64),
        "Cast" => Some(cast_to(attributes)?),
        "CastLike" | "Where" => input(1),
        "ConstantOfShape" => Some(attributes.tensor("value")?.map_or(DType::F32, |tensor| tensor.dtype())),
        "OneHot" => input(2),
        _ => input(0),
    };
    let second = match op {
        "Dropout" => Some(DType::Bool),
        "MaxPool" | "TopK" => Some(DType::I64),
        _ => first,
    };
    Ok([first, second].into_iter().chain(std::iter::repeat_n(first, count.saturating_sub(2))).collect())
}

fn alike<'a>(op: &str, inputs: impl Iterator<Item = &'a Known>) -> Result<(), InferError> {
    let mut dtypes = inputs.filter_map(|known| known.dtype);
    let Some(first) = dtypes.next() else { return Ok(()) };
    match dtypes.find(|dtype| *dtype != first) {
        None => Ok(()),
        Some(other) => {
            Err(InferError::Mismatch(format!("`{op}` takes inputs of one element type, not `{first}` and `{other}`")))
        }
    }
}

fn cast_to(attributes: Attributes<'_>) -> Result<DType, InferError> {
    let code = attributes.int("to")?.ok_or(InferError::MissingAttribute("to"))?;
    crate::file::dtype_of(code)
        .ok_or_else(|| InferError::Mismatch(format!("`Cast` to the unknown element type {code}")))
}
