//! Reads the attributes of operators that change the shape of a tensor, or move, cut or repeat its elements.

use super::{Source, required_count, unknown_word};
use crate::OpError;
use crate::op::{Op, PadKind};
use crate::reference::Array;
use flagperf_onnx::Tensor;

pub(super) fn flatten(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Flatten { axis: source.attributes.int("axis", 1)? })
}

pub(super) fn reshape(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Reshape { allow_zero: source.attributes.flag("allowzero", false)? })
}

pub(super) fn transpose(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Transpose { order: source.attributes.ints("perm")? })
}

pub(super) fn concat(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Concat { axis: source.attributes.int("axis", 0)? })
}

pub(super) fn split(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Split { axis: source.attributes.int("axis", 0)?, parts: source.node.outputs.len() })
}

pub(super) fn shape(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Shape { start: attributes.int("start", 0)?, end: attributes.int("end", i64::MAX)? })
}

pub(super) fn constant_of_shape(source: &Source<'_>) -> Result<Op, OpError> {
    let zero = Tensor::scalar(0.0f32);
    let value = Array::from_tensor(source.attributes.tensor("value")?.unwrap_or(&zero));
    // The attribute has one dimension, and the constant perhaps none.
    let value = if value.shape() == [1] { value.reshape(&[])? } else { value };
    Ok(Op::ConstantOfShape { value })
}

pub(super) fn depth_to_space(source: &Source<'_>) -> Result<Op, OpError> {
    let block = required_count(source.attributes, "blocksize")?;
    Ok(Op::DepthToSpace { block, columns_first: columns_first(source)? })
}

pub(super) fn space_to_depth(source: &Source<'_>) -> Result<Op, OpError> {
    let block = required_count(source.attributes, "blocksize")?;
    Ok(Op::SpaceToDepth { block, columns_first: columns_first(source)? })
}

fn columns_first(source: &Source<'_>) -> Result<bool, OpError> {
    match source.attributes.text("mode", "DCR")? {
        "DCR" => Ok(false),
        "CRD" => Ok(true),
        other => Err(unknown_word("mode", other)),
    }
}

pub(super) fn pad(source: &Source<'_>) -> Result<Op, OpError> {
    let mode = match source.attributes.text("mode", "constant")? {
        "constant" => None,
        "reflect" => Some(PadKind::Reflect),
        "edge" => Some(PadKind::Edge),
        other => return Err(unknown_word("mode", other)),
    };
    Ok(Op::Pad { mode })
}
