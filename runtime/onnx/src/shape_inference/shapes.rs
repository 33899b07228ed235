//! Infers the shapes of a node's outputs.
//!
//! Knows nothing about element types.

use rten_shape_inference::{
    InferShapes, InferShapesContext, InferShapesError, ReductionOp, SymExpr, SymTensor, SymbolGen, UnaryOp, ops,
};

use super::rules::find_rule;
use super::symbols::{bound_complexity, is_too_long};
use super::window::{WindowKind, window_shape};
use super::{Attributes, InferError, own_rules};

/// The most inputs passed to a rule at once. A rule combines them into one expression whose depth is their number.
const MAX_INPUTS: usize = 64;

/// The shapes of a node's inputs; `None` stands for an omitted optional input.
pub(super) type Inputs<'a> = &'a [Option<SymTensor>];

/// Applies one shape rule.
pub(super) fn apply_rule(
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

/// Returns the shapes of a node's outputs. No expression in them is deeper than a rule can traverse.
pub(super) fn output_shapes(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let shapes = if inputs.len() > MAX_INPUTS && matches!(op, "Concat" | "Max" | "Mean" | "Min" | "Sum") {
        infer_in_chunks(op, attributes, inputs, symbols)
    } else {
        infer_at_once(op, attributes, inputs, count, symbols)
    };
    Ok(shapes?.into_iter().map(|shape| bound_complexity(shape, symbols)).collect())
}

fn infer_at_once(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    count: usize,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let windowed = |kind, symbols: &mut SymbolGen| Ok(vec![window_shape(&kind, attributes, inputs, symbols)?; count]);
    match op {
        "Conv" => windowed(WindowKind::Conv, symbols),
        "ConvTranspose" => windowed(WindowKind::ConvTranspose, symbols),
        "AveragePool" | "LpPool" | "MaxPool" => windowed(WindowKind::Pool, symbols),
        "SpaceToDepth" => own_rules::space_to_depth(attributes, inputs),
        "MatMul" if own_rules::has_vector(inputs) => own_rules::matmul_with_vector(inputs, symbols),
        "ArgMax" | "ArgMin" => infer_reduction(op, attributes, inputs, symbols),
        _ if op.starts_with("Reduce") => infer_reduction(op, attributes, inputs, symbols),
        "ConstantOfShape" if makes_long_list(inputs) => {
            apply_rule(&ops::ConstantOfShape { value: None }, inputs, symbols)
        }
        "Transpose" => apply_rule(&ops::Transpose { perm: attributes.sizes("perm")?.as_deref() }, inputs, symbols),
        _ => {
            // The second input of a split contains the sizes; without it, the parts are equal.
            let equal_parts =
                inputs.get(1).is_none_or(Option::is_none).then(|| u32::try_from(count).unwrap_or(u32::MAX));
            let rule =
                find_rule(op, attributes, equal_parts)?.ok_or_else(|| InferError::UnknownOperator(op.to_owned()))?;
            let mut shapes = apply_rule(&*rule, &prepare_inputs(op, attributes, inputs)?, symbols)?;
            if let ("Attention", [_, present_key, _]) = (op, &shapes[..]) {
                shapes.push(own_rules::attention_scores(attributes, inputs, present_key)?);
            }
            Ok(shapes)
        }
    }
}

/// Returns the output shape of an operator with any number of inputs, inferred from one chunk of inputs at a time. The
/// result of the previous chunks is the first input of the next.
fn infer_in_chunks(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let (first, rest) = inputs.split_at(MAX_INPUTS);
    let mut shapes = output_shapes(op, attributes, first, 1, symbols)?;
    for part in rest.chunks(MAX_INPUTS - 1) {
        let part: Vec<_> = shapes.into_iter().map(Some).chain(part.iter().cloned()).collect();
        shapes = output_shapes(op, attributes, &part, 1, symbols)?;
    }
    Ok(shapes)
}

/// Returns whether `ConstantOfShape` would create a list that is too long to be tracked by value.
fn makes_long_list(inputs: Inputs<'_>) -> bool {
    let sizes = inputs.first().and_then(Option::as_ref).and_then(SymTensor::values);
    matches!(sizes, Some([SymExpr::Value(size)]) if usize::try_from(*size).is_ok_and(is_too_long))
}

/// Returns the inputs in the form that the rules accept.
fn prepare_inputs(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
) -> Result<Vec<Option<SymTensor>>, InferError> {
    match op {
        "Squeeze" | "Unsqueeze" => with_axes(attributes, inputs),
        // The rules multiply sizes as 32-bit integers.
        "Flatten" | "Reshape" | "Size" if inputs.first().is_some_and(exceeds_32_bits) => Ok(with_unknown_first(inputs)),
        _ => Ok(inputs.to_vec()),
    }
}

/// Returns whether a tensor has more elements than symbolic arithmetic can count.
fn exceeds_32_bits(tensor: &Option<SymTensor>) -> bool {
    let sizes = tensor.as_ref().and_then(SymTensor::shape).into_iter().flatten();
    let known = sizes.filter_map(|size| if let SymExpr::Value(size) = size { Some(size) } else { None });
    known.map(i64::from).try_fold(1i64, i64::checked_mul).is_none_or(|count| i32::try_from(count).is_err())
}

fn with_unknown_first(inputs: Inputs<'_>) -> Vec<Option<SymTensor>> {
    std::iter::once(Some(SymTensor::unknown("too large"))).chain(inputs.iter().skip(1).cloned()).collect()
}

/// Returns the inputs, with the attribute `axes`, if present, as the second input. Up to operator set 12, `axes` was an
/// attribute.
fn with_axes(attributes: Attributes<'_>, inputs: Inputs<'_>) -> Result<Vec<Option<SymTensor>>, InferError> {
    let mut inputs = inputs.to_vec();
    if let Some(axes) = attributes.ints("axes")? {
        inputs.truncate(1);
        inputs.push(Some(SymTensor::from_vec(axes.iter().map(|axis| SymExpr::Value(*axis as i32)).collect())));
    }
    Ok(inputs)
}

fn infer_reduction(
    op: &str,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, InferError> {
    let axes: Option<Vec<i32>> = match op {
        "ArgMax" | "ArgMin" => Some(vec![attributes.small_int("axis")?.unwrap_or(0)]),
        _ => attributes.ints("axes")?.map(|axes| axes.iter().map(|axis| *axis as i32).collect()),
    };
    let keep_dims = attributes.int("keepdims")?.unwrap_or(1) != 0;
    let has_axes = inputs.get(1).is_some_and(Option::is_some) || axes.is_some();
    if !has_axes && attributes.flag("noop_with_empty_axes")? {
        return apply_rule(&UnaryOp, inputs, symbols);
    }
    apply_rule(&ReductionOp { axes: axes.as_deref(), keep_dims }, inputs, symbols)
}
