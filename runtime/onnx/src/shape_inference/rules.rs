//! The shape rules that are those of `rten-shape-inference`, constructed from a node's attributes.
//!
//! Knows nothing about element types.

use rten_shape_inference::{BinaryOp, InferShapes, ReductionOp, SymExpr, SymTensor, UnaryOp, VariadicOp, ops};

use super::input_checks as check;
use super::shapes::{Inferred, ShapeRule, ShapedNode, apply_rule};
use super::symbols::is_too_long;
use super::window::{WindowKind, window_shape};
use super::{Attributes, InferError, own_rules};

pub(crate) use super::own_rules::{class_loss, recurrent, resize, space_to_depth};

/// The outputs are not inferred.
pub(crate) const UNKNOWN: Option<ShapeRule> = None;
/// The output has the shape of the first input.
pub(crate) const FIRST: Option<ShapeRule> = Some(|node| node.apply(&UnaryOp));
/// The two inputs are broadcast.
pub(crate) const BROADCAST: Option<ShapeRule> = Some(|node| node.apply(&BinaryOp));
/// Any number of inputs are broadcast.
pub(crate) const VARIADIC: Option<ShapeRule> = Some(|node| node.apply_in_chunks(&VariadicOp));

/// How the largest result of an operator on two integers depends on them.
#[derive(Clone, Copy)]
pub(crate) enum Arithmetic {
    Sum,
    Product,
    /// It is not larger than both.
    Other,
}

/// Applies a rule that computes with sizes, which has 32 bits for them. Of numbers that need more, only the shape is known.
pub(crate) fn arithmetic(node: &mut ShapedNode<'_>, rule: &dyn InferShapes, kind: Arithmetic) -> Inferred {
    let largest = |input: &Option<SymTensor>| {
        let values = input.as_ref().and_then(SymTensor::values).into_iter().flatten();
        let number = |value: &SymExpr| match value {
            SymExpr::Value(number) => i64::from(*number).abs(),
            _ => 0,
        };
        values.map(number).max().unwrap_or(0)
    };
    let [a, b] = [0, 1].map(|place| node.inputs.get(place).map_or(0, largest));
    // A number that is too large for 32 bits is known as the largest one.
    let largest = match kind {
        Arithmetic::Sum => a + b,
        Arithmetic::Product => a.max(b).max(a * b),
        Arithmetic::Other => a.max(b),
    };
    if largest < i64::from(i32::MAX) {
        return node.apply(rule);
    }
    let shape_only = |input: &Option<SymTensor>| Some(SymTensor::from_shape(input.as_ref()?.shape()?.collect()));
    let inputs: Vec<_> = node.inputs.iter().map(shape_only).collect();
    apply_rule(&BinaryOp, &inputs, node.symbols)
}

pub(crate) fn batch_normalization(node: &mut ShapedNode<'_>) -> Inferred {
    check::batch_normalization(node)?;
    let mut shapes = node.apply(&UnaryOp)?;
    shapes.extend(
        node.inputs
            .iter()
            .skip(3)
            .take(node.outputs - 1)
            .map(|statistic| statistic.clone().unwrap_or_else(|| SymTensor::unknown("unknown input shape"))),
    );
    Ok(shapes)
}

pub(crate) fn layer_normalization(node: &mut ShapedNode<'_>) -> Inferred {
    check::layer_normalization(node)?;
    let mut shapes = node.apply(&UnaryOp)?;
    if node.outputs > 1 {
        shapes.extend(own_rules::layer_statistics(node)?);
    }
    Ok(shapes)
}

/// An integer that may stand for a size keeps its value in another integer type.
pub(crate) fn cast(node: &mut ShapedNode<'_>) -> Inferred {
    if matches!(node.attributes.int("to")?, Some(6 | 7)) { node.apply(&ops::Identity) } else { node.apply(&UnaryOp) }
}

pub(crate) fn gemm(node: &mut ShapedNode<'_>) -> Inferred {
    check::gemm(node)?;
    let flag = |name| node.attributes.flag(name);
    let rule = ops::Gemm { transpose_a: flag("transA")?, transpose_b: flag("transB")? };
    node.apply(&rule)
}

pub(crate) fn matmul(node: &mut ShapedNode<'_>) -> Inferred {
    check::matmul(node)?;
    let has_vector = node.inputs.iter().flatten().any(|input| input.ndim() == Some(1));
    if has_vector { own_rules::matmul_with_vector(node) } else { node.apply(&ops::MatMul) }
}

/// The zero points, inputs 2 and 3, do not concern the shape.
pub(crate) fn matmul_integer(node: &mut ShapedNode<'_>) -> Inferred {
    node.inputs = &node.inputs[..node.inputs.len().min(2)];
    matmul(node)
}

/// The fourth output contains the scores.
pub(crate) fn attention(node: &mut ShapedNode<'_>) -> Inferred {
    let heads = |name| Ok::<_, InferError>(node.attributes.small_int(name)?.map(i32::unsigned_abs));
    let rule = ops::Attention { q_num_heads: heads("q_num_heads")?, kv_num_heads: heads("kv_num_heads")? };
    let mut shapes = node.apply(&rule)?;
    if let [_, present_key, _] = &shapes[..] {
        shapes.push(own_rules::attention_scores(node, present_key)?);
    }
    Ok(shapes)
}

pub(crate) fn einsum(node: &mut ShapedNode<'_>) -> Inferred {
    let equation = node.attributes.string("equation")?.ok_or(InferError::MissingAttribute("equation"))?;
    node.apply(&ops::Einsum { equation })
}

pub(crate) fn conv(node: &mut ShapedNode<'_>) -> Inferred {
    check::conv(node)?;
    windowed(node, &WindowKind::Conv)
}

pub(crate) fn conv_transpose(node: &mut ShapedNode<'_>) -> Inferred {
    windowed(node, &WindowKind::ConvTranspose)
}

pub(crate) fn pool(node: &mut ShapedNode<'_>) -> Inferred {
    windowed(node, &WindowKind::Pool)
}

fn windowed(node: &mut ShapedNode<'_>, kind: &WindowKind) -> Inferred {
    Ok(vec![window_shape(kind, node.attributes, node.inputs, node.symbols)?; node.outputs])
}

/// A list that is too long is not tracked by value.
pub(crate) fn constant_of_shape(node: &mut ShapedNode<'_>) -> Inferred {
    let sizes = node.inputs.first().and_then(Option::as_ref).and_then(SymTensor::values);
    let is_long = matches!(sizes, Some([SymExpr::Value(size)]) if usize::try_from(*size).is_ok_and(is_too_long));
    let value = if is_long { None } else { fill_value(node.attributes)? };
    node.apply(&ops::ConstantOfShape { value })
}

/// Returns the value that `ConstantOfShape` repeats, if it can be part of a shape.
fn fill_value(attributes: Attributes<'_>) -> Result<Option<i32>, InferError> {
    let value = attributes.tensor("value")?;
    Ok(value.filter(|tensor| !tensor.dtype().is_float()).and_then(|tensor| Some(*tensor.to_f64().first()? as i32)))
}

pub(crate) fn one_hot(node: &mut ShapedNode<'_>) -> Inferred {
    let axis = node.axis(-1)?;
    node.apply(&ops::OneHot { axis })
}

pub(crate) fn top_k(node: &mut ShapedNode<'_>) -> Inferred {
    let axis = node.attributes.small_int("axis")?;
    node.apply(&ops::TopK { axis })
}

pub(crate) fn non_max_suppression(node: &mut ShapedNode<'_>) -> Inferred {
    node.apply(&ops::NonMaxSuppression)
}

pub(crate) fn reduction(node: &mut ShapedNode<'_>) -> Inferred {
    let axes = node.attributes.ints("axes")?;
    reduce(node, axes.map(|axes| axes.iter().map(|axis| *axis as i32).collect()))
}

pub(crate) fn arg_reduction(node: &mut ShapedNode<'_>) -> Inferred {
    let axis = node.axis(0)?;
    reduce(node, Some(vec![axis]))
}

fn reduce(node: &mut ShapedNode<'_>, axes: Option<Vec<i32>>) -> Inferred {
    let keep_dims = node.attributes.int("keepdims")?.unwrap_or(1) != 0;
    let has_axes = node.inputs.get(1).is_some_and(Option::is_some) || axes.is_some();
    if !has_axes && node.attributes.flag("noop_with_empty_axes")? {
        return node.apply(&UnaryOp);
    }
    node.apply(&ReductionOp { axes: axes.as_deref(), keep_dims })
}

pub(crate) fn transpose(node: &mut ShapedNode<'_>) -> Inferred {
    let order = node.attributes.sizes("perm")?;
    node.apply(&ops::Transpose { perm: order.as_deref() })
}

pub(crate) fn concat(node: &mut ShapedNode<'_>) -> Inferred {
    check::concat(node)?;
    let axis = node.axis(0)?;
    node.apply_in_chunks(&ops::Concat { axis })
}

pub(crate) fn slice(node: &mut ShapedNode<'_>) -> Inferred {
    check::slice(node)?;
    node.apply(&ops::Slice)
}

pub(crate) fn split(node: &mut ShapedNode<'_>) -> Inferred {
    let axis = node.axis(0)?;
    if node.inputs.get(1).is_some_and(Option::is_some) {
        return node.apply(&ops::Split { axis, num_outputs: None });
    }
    own_rules::equal_split(node, axis)
}

pub(crate) fn gather(node: &mut ShapedNode<'_>) -> Inferred {
    let axis = node.axis(0)?;
    node.apply(&ops::Gather { axis })
}

pub(crate) fn gather_nd(node: &mut ShapedNode<'_>) -> Inferred {
    let batch_dims = node.attributes.int("batch_dims")?.unwrap_or(0);
    node.apply(&ops::GatherND { batch_dims: usize::try_from(batch_dims).map_err(|_| InferError::Value)? })
}

pub(crate) fn depth_to_space(node: &mut ShapedNode<'_>) -> Inferred {
    let block = node.attributes.int("blocksize")?.ok_or(InferError::MissingAttribute("blocksize"))?;
    node.apply(&ops::DepthToSpace { block_size: u32::try_from(block).map_err(|_| InferError::Value)? })
}

pub(crate) fn shape(node: &mut ShapedNode<'_>) -> Inferred {
    let bound = |name| node.attributes.small_int(name);
    let rule = ops::Shape { start: bound("start")?, end: bound("end")? };
    node.apply(&rule)
}

pub(crate) fn size(node: &mut ShapedNode<'_>) -> Inferred {
    apply_rule(&ops::Size, &within_32_bits(node), node.symbols)
}

pub(crate) fn flatten(node: &mut ShapedNode<'_>) -> Inferred {
    apply_rule(&ops::Flatten { axis: node.axis(1)? }, &within_32_bits(node), node.symbols)
}

pub(crate) fn reshape(node: &mut ShapedNode<'_>) -> Inferred {
    check::reshape(node)?;
    let rule = ops::Reshape { allow_zero: node.attributes.flag("allowzero")? };
    apply_rule(&rule, &within_32_bits(node), node.symbols)
}

/// Returns the inputs, the first as unknown if it has more elements than symbolic arithmetic can count: the rules
/// multiply sizes as 32-bit integers.
fn within_32_bits(node: &ShapedNode<'_>) -> Vec<Option<SymTensor>> {
    let mut inputs = node.inputs.to_vec();
    if let Some(first) = inputs.first_mut().filter(|first| exceeds_32_bits(first)) {
        *first = Some(SymTensor::unknown("too large"));
    }
    inputs
}

fn exceeds_32_bits(tensor: &Option<SymTensor>) -> bool {
    let sizes = tensor.as_ref().and_then(SymTensor::shape).into_iter().flatten();
    let known = sizes.filter_map(|size| if let SymExpr::Value(size) = size { Some(size) } else { None });
    known.map(i64::from).try_fold(1i64, i64::checked_mul).is_none_or(|count| i32::try_from(count).is_err())
}

pub(crate) fn squeeze(node: &mut ShapedNode<'_>) -> Inferred {
    apply_rule(&ops::Squeeze, &with_axes(node)?, node.symbols)
}

pub(crate) fn unsqueeze(node: &mut ShapedNode<'_>) -> Inferred {
    apply_rule(&ops::Unsqueeze, &with_axes(node)?, node.symbols)
}

/// Returns the inputs, with the attribute `axes`, if present, as the second input. Up to operator set 12, `axes` was an
/// attribute.
fn with_axes(node: &ShapedNode<'_>) -> Result<Vec<Option<SymTensor>>, InferError> {
    let mut inputs = node.inputs.to_vec();
    if let Some(axes) = node.attributes.ints("axes")? {
        inputs.truncate(1);
        inputs.push(Some(SymTensor::from_vec(axes.iter().map(|axis| SymExpr::Value(*axis as i32)).collect())));
    }
    Ok(inputs)
}
