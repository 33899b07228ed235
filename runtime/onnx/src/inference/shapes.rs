//! The shapes of a node's outputs.
//!
//! Knows no element type.

use rten_shape_inference::{
    InferShapes, InferShapesContext, InferShapesError, ReductionOp, SymExpr, SymTensor, SymbolGen, UnaryOp, ops,
};

use super::rules::rule;
use super::symbols::{bounded, is_long};
use super::window::{Slide, slide};
use super::{Attributes, InferError};

/// Inputs that a rule is given at once: it makes an expression of all of them, as deep as they are many.
const MAX_INPUTS: usize = 64;

/// Shapes of a node's inputs; `None` is an optional input left out.
pub(super) type Inputs<'a> = &'a [Option<SymTensor>];

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

/// Shapes of a node's outputs, with no expression that is deeper than a rule can walk.
pub(super) fn outputs(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let shapes = if inputs.len() > MAX_INPUTS && matches!(op, "Concat" | "Max" | "Mean" | "Min" | "Sum") {
        in_parts(op, attributes, inputs, symbols)
    } else {
        at_once(op, attributes, inputs, count, symbols)
    };
    Ok(shapes?.into_iter().map(|shape| bounded(shape, symbols)).collect())
}

fn at_once(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let slide = |kind, symbols: &mut SymbolGen| Ok(vec![slide(&kind, attributes, inputs, symbols)?; count]);
    match op {
        "Conv" => slide(Slide::Conv, symbols),
        "ConvTranspose" => slide(Slide::ConvTranspose, symbols),
        "AveragePool" | "LpPool" | "MaxPool" => slide(Slide::Pool, symbols),
        "ArgMax" | "ArgMin" => reduce(op, attributes, inputs, symbols),
        _ if op.starts_with("Reduce") => reduce(op, attributes, inputs, symbols),
        "ConstantOfShape" if makes_long_list(inputs) => infer(&ops::ConstantOfShape { value: None }, inputs, symbols),
        "Transpose" => infer(&ops::Transpose { perm: attributes.sizes("perm")?.as_deref() }, inputs, symbols),
        _ => {
            // The sizes of a split are the second input; without them the outputs are equal.
            let evenly = inputs.get(1).is_none_or(Option::is_none).then(|| u32::try_from(count).unwrap_or(u32::MAX));
            let rule = rule(op, attributes, evenly)?.ok_or_else(|| InferError::UnknownOperator(op.to_owned()))?;
            infer(&*rule, &prepared(op, attributes, inputs)?, symbols)
        }
    }
}

/// The shape of what takes any number of inputs, a part of them at a time: whatever comes of the parts before is the first
/// input of the next.
fn in_parts(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let (first, rest) = inputs.split_at(MAX_INPUTS);
    let mut made = outputs(op, attributes, first, 1, symbols)?;
    for part in rest.chunks(MAX_INPUTS - 1) {
        let part: Vec<_> = made.into_iter().map(Some).chain(part.iter().cloned()).collect();
        made = outputs(op, attributes, &part, 1, symbols)?;
    }
    Ok(made)
}

/// Whether `ConstantOfShape` would make a list that is too long to be followed by value.
fn makes_long_list(inputs: Inputs<'_>) -> bool {
    let sizes = inputs.first().and_then(Option::as_ref).and_then(SymTensor::values);
    matches!(sizes, Some([SymExpr::Value(size)]) if usize::try_from(*size).is_ok_and(is_long))
}

/// The inputs as the rules take them.
fn prepared(op: &str, attributes: Attributes<'_>, inputs: Inputs<'_>) -> Result<Vec<Option<SymTensor>>, InferError> {
    match op {
        "Squeeze" | "Unsqueeze" => with_axes(attributes, inputs),
        // The rules multiply sizes in 32 bits.
        "Flatten" | "Reshape" | "Size" if inputs.first().is_some_and(beyond_32_bits) => Ok(unknown_first(inputs)),
        _ => Ok(inputs.to_vec()),
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
