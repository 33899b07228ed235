//! The checks by which a shape rule compares the inputs of a node, in addition to those of `rten-shape-inference`.
//!
//! Only known sizes are compared. A named or unknown size is assumed to match.

use rten_shape_inference::SymTensor;

use super::InferError;
use super::shapes::ShapedNode;
use crate::Dim;

pub(super) fn batch_normalization(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let Some(data) = node.dims(0) else { return Ok(()) };
    (1..5).try_for_each(|index| match (data.get(1), node.dims(index).as_deref()) {
        (Some(channels), Some([length])) => check_equal("channels", channels, length),
        _ => Ok(()),
    })
}

pub(super) fn gemm(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let (a, b) = (node.dims(0), node.dims(1));
    let (Some([a0, a1]), Some([b0, b1])) = (a.as_deref(), b.as_deref()) else { return Ok(()) };
    let inner_a = if node.attributes.flag("transA")? { a0 } else { a1 };
    let inner_b = if node.attributes.flag("transB")? { b1 } else { b0 };
    check_equal("inner dimensions", inner_a, inner_b)
}

pub(super) fn matmul(node: &ShapedNode<'_>) -> Result<(), InferError> {
    match (node.dims(0).as_deref(), node.dims(1).as_deref()) {
        (Some([.., inner_a]), Some([.., inner_b, _])) => check_equal("inner dimensions", inner_a, inner_b),
        _ => Ok(()),
    }
}

pub(super) fn layer_normalization(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let (Some(data), Some(scale)) = (node.dims(0), node.dims(1)) else { return Ok(()) };
    data.iter().rev().zip(scale.iter().rev()).try_for_each(|(a, b)| check_equal("normalised dimension", a, b))
}

fn check_equal(what: &str, a: &Dim, b: &Dim) -> Result<(), InferError> {
    match (a.fixed(), b.fixed()) {
        (Some(a), Some(b)) if a != b => Err(InferError::Mismatch(format!("{what}: {a} and {b} differ"))),
        _ => Ok(()),
    }
}

pub(super) fn conv(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let (Some(data), Some(weight)) = (node.dims(0), node.dims(1)) else { return Ok(()) };
    let groups = node.attributes.groups()?;
    let (Some(channels), Some(per_group)) = (data.get(1).and_then(Dim::fixed), weight.get(1).and_then(Dim::fixed))
    else {
        return Ok(());
    };
    if channels != per_group * groups {
        return Err(InferError::Mismatch(format!(
            "the input has {channels} channels, the weight expects {} ({per_group} per group, groups: {groups})",
            per_group * groups
        )));
    }
    let out = &weight[0];
    match out.fixed() {
        Some(out) if out % groups != 0 => {
            Err(InferError::Mismatch(format!("{out} output channels cannot be split into {groups} groups")))
        }
        _ => match node.dims(2).as_deref() {
            Some([length]) => check_equal("output channels and bias length", out, length),
            _ => Ok(()),
        },
    }
}

pub(super) fn concat(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let Some(first) = node.dims(0) else { return Ok(()) };
    let axis = node.attributes.small_int("axis")?.ok_or(InferError::MissingAttribute("axis"))?;
    let axis = if axis < 0 { first.len().checked_sub(axis.unsigned_abs() as usize) } else { Some(axis as usize) };
    for other in (1..node.inputs.len()).filter_map(|input| node.dims(input)) {
        if other.len() != first.len() {
            return Err(InferError::Rank);
        }
        for (index, (a, b)) in first.iter().zip(&other).enumerate() {
            if Some(index) != axis {
                check_equal(&format!("dimension {index}"), a, b)?;
            }
        }
    }
    Ok(())
}

pub(super) fn slice(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let steps = node.inputs.get(4).and_then(Option::as_ref).and_then(SymTensor::to_constant);
    match steps {
        Some(steps) if steps.values().contains(&0) => Err(InferError::Mismatch("a slice step is 0".to_owned())),
        _ => Ok(()),
    }
}

/// Checks that a reshape keeps the number of elements, if all sizes are known.
pub(super) fn reshape(node: &ShapedNode<'_>) -> Result<(), InferError> {
    let Some(data) = node.dims(0) else { return Ok(()) };
    let product = |sizes: &[usize]| sizes.iter().try_fold(1u64, |all, size| all.checked_mul(*size as u64));
    let sizes: Option<Vec<usize>> = data.iter().map(Dim::fixed).collect();
    let target = node.inputs.get(1).and_then(Option::as_ref).and_then(SymTensor::to_constant);
    let (Some(before), Some(target)) = (sizes.as_deref().and_then(product), target) else { return Ok(()) };
    let kept = |(index, size): (usize, &i32)| match size {
        0 => data.get(index).and_then(Dim::fixed),
        size => usize::try_from(*size).ok(),
    };
    let has_wildcard = target.values().contains(&-1);
    let known: Vec<usize> =
        target.values().iter().enumerate().filter(|(_, size)| **size != -1).filter_map(kept).collect();
    let Some(after) = product(&known) else { return Err(InferError::Value) };
    let fits = if has_wildcard { after != 0 && before.is_multiple_of(after) } else { before == after };
    let target = target.values();
    if fits { Ok(()) } else { Err(InferError::Mismatch(format!("{before} elements cannot be reshaped to {target:?}"))) }
}
