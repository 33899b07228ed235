//! Checks between the shapes of a node's inputs, in addition to those of shape inference itself.
//!
//! Only known sizes are compared. A named or unknown size is assumed to match.

use super::{Attributes, InferError, KnownValue};
use crate::Dim;

/// Checks that the known sizes of a node's inputs do not contradict each other.
pub(super) fn check_inputs(
    op: &str,
    attributes: Attributes<'_>,
    inputs: &[Option<KnownValue>],
) -> Result<(), InferError> {
    let shapes: Vec<Option<Vec<Dim>>> = inputs.iter().map(|known| known.as_ref().and_then(KnownValue::dims)).collect();
    let shape = |index: usize| shapes.get(index).and_then(Option::as_deref);
    match (op, shape(0), shape(1)) {
        ("Conv", Some(data), Some(weight)) => check_conv(data, weight, shape(2), attributes.groups()?),
        ("BatchNormalization", Some(data), _) => (1..5).try_for_each(|index| match (data.get(1), shape(index)) {
            (Some(channels), Some([length])) => check_equal("channels", channels, length),
            _ => Ok(()),
        }),
        ("Gemm", Some([a0, a1]), Some([b0, b1])) => {
            let inner_a = if attributes.flag("transA")? { a0 } else { a1 };
            let inner_b = if attributes.flag("transB")? { b1 } else { b0 };
            check_equal("inner dimensions", inner_a, inner_b)
        }
        ("MatMul", Some([.., inner_a]), Some([.., inner_b, _])) => check_equal("inner dimensions", inner_a, inner_b),
        ("LayerNormalization", Some(data), Some(scale)) => {
            data.iter().rev().zip(scale.iter().rev()).try_for_each(|(a, b)| check_equal("normalised dimension", a, b))
        }
        ("Concat", Some(first), _) => check_concat(first, &shapes, attributes),
        ("Reshape", Some(data), _) => check_reshape(data, inputs),
        ("Slice", ..) => check_slice(inputs),
        _ => Ok(()),
    }
}

fn check_equal(what: &str, a: &Dim, b: &Dim) -> Result<(), InferError> {
    match (a.fixed(), b.fixed()) {
        (Some(a), Some(b)) if a != b => Err(InferError::Mismatch(format!("{what}: {a} and {b} differ"))),
        _ => Ok(()),
    }
}

fn check_conv(data: &[Dim], weight: &[Dim], bias: Option<&[Dim]>, groups: usize) -> Result<(), InferError> {
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
        _ => match bias {
            Some([length]) => check_equal("output channels and bias length", out, length),
            _ => Ok(()),
        },
    }
}

fn check_concat(first: &[Dim], shapes: &[Option<Vec<Dim>>], attributes: Attributes<'_>) -> Result<(), InferError> {
    let axis = attributes.small_int("axis")?.ok_or(InferError::MissingAttribute("axis"))?;
    let axis = if axis < 0 { first.len().checked_sub(axis.unsigned_abs() as usize) } else { Some(axis as usize) };
    for other in shapes.iter().skip(1).flatten() {
        if other.len() != first.len() {
            return Err(InferError::Rank);
        }
        for (index, (a, b)) in first.iter().zip(other).enumerate() {
            if Some(index) != axis {
                check_equal(&format!("dimension {index}"), a, b)?;
            }
        }
    }
    Ok(())
}

fn check_slice(inputs: &[Option<KnownValue>]) -> Result<(), InferError> {
    let steps = inputs.get(4).and_then(Option::as_ref).and_then(|known| known.shape.to_constant());
    match steps {
        Some(steps) if steps.values().contains(&0) => Err(InferError::Mismatch("a slice step is 0".to_owned())),
        _ => Ok(()),
    }
}

/// Checks that a reshape keeps the number of elements, if all sizes are known.
fn check_reshape(data: &[Dim], inputs: &[Option<KnownValue>]) -> Result<(), InferError> {
    let product = |sizes: &[usize]| sizes.iter().try_fold(1u64, |all, size| all.checked_mul(*size as u64));
    let sizes: Option<Vec<usize>> = data.iter().map(Dim::fixed).collect();
    let target = inputs.get(1).and_then(Option::as_ref).and_then(|known| known.shape.to_constant());
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
