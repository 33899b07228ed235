//! The element types of every operator: which inputs must have the same type, and the types of the outputs.
//!
//! Knows nothing about shapes.

use super::{Attributes, InferError};
use crate::DType;

/// Operators whose inputs must all have the same element type.
const SAME_DTYPE: &[&str] = &[
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

/// Operators that accept only floating-point types.
const FLOAT_ONLY: &[&str] = &[
    "Attention",
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
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "Mish",
    "RMSNormalization",
    "RotaryEmbedding",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Sqrt",
    "Tan",
    "Tanh",
];

/// Returns the element types of a node's outputs from those of its inputs. A type is `None` when the input is omitted or
/// its type is unknown, and for an output when it depends on such an input.
pub fn output_dtypes(
    op: &str,
    attributes: Attributes<'_>,
    inputs: &[Option<DType>],
    count: usize,
) -> Result<Vec<Option<DType>>, InferError> {
    let input = |index: usize| inputs.get(index).copied().flatten();
    if SAME_DTYPE.contains(&op) {
        check_same_dtype(op, inputs.iter().flatten().copied())?;
    }
    if op == "Where" {
        check_same_dtype(op, inputs.iter().skip(1).flatten().copied())?;
    }
    if let Some(dtype) = input(0).filter(|dtype| FLOAT_ONLY.contains(&op) && !dtype.is_float()) {
        return Err(InferError::Mismatch(format!("`{op}` requires a floating-point input, not `{dtype}`")));
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

fn check_same_dtype(op: &str, mut dtypes: impl Iterator<Item = DType>) -> Result<(), InferError> {
    let Some(first) = dtypes.next() else { return Ok(()) };
    match dtypes.find(|dtype| *dtype != first) {
        None => Ok(()),
        Some(other) => Err(InferError::Mismatch(format!(
            "`{op}` requires inputs of the same element type, not `{first}` and `{other}`"
        ))),
    }
}

fn cast_to(attributes: Attributes<'_>) -> Result<DType, InferError> {
    let code = attributes.int("to")?.ok_or(InferError::MissingAttribute("to"))?;
    crate::file::dtype_from_onnx(code)
        .ok_or_else(|| InferError::Mismatch(format!("`Cast` has the unknown ONNX element type {code}")))
}
