//! The element types of every operator: which inputs must have the same type, and the types of the outputs.
//!
//! Knows nothing about shapes.

use super::{Attributes, InferError};
use crate::{DType, find_operator};

/// The type rule of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types {
    /// The inputs from this one on must have the same type.
    equal_from: Option<usize>,
    /// Input 0 must have a floating-point type.
    is_float: bool,
    /// The type of every output that has no own one.
    output: OutputType,
    /// The type of the outputs after the first, if they have their own.
    others: Option<OutputType>,
}

/// The type of an output.
#[derive(Clone, Copy, Debug)]
enum OutputType {
    /// That of an input.
    Input(usize),
    Fixed(DType),
    /// An attribute contains it.
    Attribute(fn(Attributes<'_>) -> Result<DType, InferError>),
    /// The attribute `output_dtype` contains it; without one, or with 0, it is that of an input.
    DeclaredOrInput(usize),
}

/// Any inputs; the outputs have the type of input 0.
pub(crate) const ANY: Types = Types { equal_from: None, is_float: false, output: OutputType::Input(0), others: None };
/// As [`ANY`], but input 0 has a floating-point type.
pub(crate) const FLOAT: Types = Types { is_float: true, ..ANY };
/// As [`ANY`], but all inputs have the same type.
pub(crate) const SAME: Types = Types { equal_from: Some(0), ..ANY };
/// All inputs have the same floating-point type.
pub(crate) const SAME_FLOAT: Types = Types { is_float: true, ..SAME };
/// Any inputs; the output is a bool.
pub(crate) const TO_BOOL: Types = Types { output: OutputType::Fixed(DType::Bool), ..ANY };
/// Inputs of the same type; the output is a bool.
pub(crate) const SAME_TO_BOOL: Types = Types { output: OutputType::Fixed(DType::Bool), ..SAME };
/// Any inputs; the output is an index or a size.
pub(crate) const TO_INDEX: Types = Types { output: OutputType::Fixed(DType::I64), ..ANY };
/// Any inputs; the output is a sum of products of integers.
pub(crate) const TO_I32: Types = Types { output: OutputType::Fixed(DType::I32), ..ANY };
/// As [`ANY`], with indices as the second output.
pub(crate) const AND_INDICES: Types = Types { others: Some(OutputType::Fixed(DType::I64)), ..ANY };
/// As [`FLOAT`], with a mask as the second output.
pub(crate) const AND_MASK: Types = Types { others: Some(OutputType::Fixed(DType::Bool)), ..FLOAT };
/// As [`SAME_FLOAT`], with statistics in f32 after the first output.
pub(crate) const AND_STATISTICS: Types = Types { others: Some(OutputType::Fixed(DType::F32)), ..SAME_FLOAT };
/// As [`FLOAT`], with running statistics, which have the type of input 3, after the first output.
pub(crate) const AND_RUNNING_STATISTICS: Types = Types { others: Some(OutputType::Input(3)), ..FLOAT };
/// The output has the type of input 1.
pub(crate) const LIKE_SECOND: Types = Types { output: OutputType::Input(1), ..ANY };
/// The output has the type of input 2.
pub(crate) const LIKE_THIRD: Types = Types { output: OutputType::Input(2), ..ANY };
/// The output has the type of inputs 1 and 2: those that input 0 selects from.
pub(crate) const SELECTED: Types = Types { equal_from: Some(1), ..LIKE_SECOND };
/// The attribute `to` is the type of the output.
pub(crate) const CAST: Types = Types { output: OutputType::Attribute(cast_to), ..ANY };
/// The output has the type of the attribute `output_dtype`, or else of input 1.
pub(crate) const DEQUANTIZED: Types = Types { output: OutputType::DeclaredOrInput(1), ..ANY };
/// The output has the type of the attribute `value`.
pub(crate) const FILL: Types = Types { output: OutputType::Attribute(fill_type), ..ANY };

/// Returns the element types of a node's outputs from those of its inputs. A type is `None` when the input is omitted or
/// its type is unknown, and for an output when it depends on such an input.
pub fn output_dtypes(
    op: &str,
    attributes: Attributes<'_>,
    inputs: &[Option<DType>],
    count: usize,
) -> Result<Vec<Option<DType>>, InferError> {
    let types = find_operator(op).map_or(ANY, |operator| operator.types);
    let input = |index: usize| inputs.get(index).copied().flatten();
    if let Some(first) = types.equal_from {
        check_same_dtype(op, inputs.iter().skip(first).flatten().copied())?;
    }
    if let Some(dtype) = input(0).filter(|dtype| types.is_float && !dtype.is_float()) {
        return Err(InferError::Types(format!("`{op}` requires a floating-point input, not `{dtype}`")));
    }
    let output = |of: OutputType| match of {
        OutputType::Input(index) => Ok(input(index)),
        OutputType::Fixed(dtype) => Ok(Some(dtype)),
        OutputType::Attribute(read) => read(attributes).map(Some),
        OutputType::DeclaredOrInput(index) => match attributes.int("output_dtype")?.unwrap_or(0) {
            0 => Ok(input(index)),
            code => Ok(crate::file::dtype_from_onnx(code)),
        },
    };
    let first = output(types.output)?;
    let others = types.others.map_or(Ok(first), output)?;
    Ok(std::iter::once(first).chain(std::iter::repeat_n(others, count.saturating_sub(1))).collect())
}

fn check_same_dtype(op: &str, mut dtypes: impl Iterator<Item = DType>) -> Result<(), InferError> {
    let Some(first) = dtypes.next() else { return Ok(()) };
    match dtypes.find(|dtype| *dtype != first) {
        None => Ok(()),
        Some(other) => Err(InferError::Types(format!(
            "`{op}` requires inputs of the same element type, not `{first}` and `{other}`"
        ))),
    }
}

fn cast_to(attributes: Attributes<'_>) -> Result<DType, InferError> {
    let code = attributes.int("to")?.ok_or(InferError::MissingAttribute("to"))?;
    crate::file::dtype_from_onnx(code)
        .ok_or_else(|| InferError::Mismatch(format!("`Cast` has the unknown ONNX element type {code}")))
}

fn fill_type(attributes: Attributes<'_>) -> Result<DType, InferError> {
    Ok(attributes.tensor("value")?.map_or(DType::F32, |tensor| tensor.dtype()))
}
