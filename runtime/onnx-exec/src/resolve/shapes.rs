//! Reads the attributes of operators that change the shape of a tensor, or move, cut or repeat its elements.

use super::{Source, required_count, unknown_word};
use crate::OpError;
use crate::op::{Op, PadKind, SliceAttributes};
use crate::reference::Array;
use flagperf_onnx::Tensor;

pub(super) fn flatten(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Flatten { axis: source.attributes.int("axis", 1)? })
}

pub(super) fn reshape(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Reshape { allow_zero: source.attributes.flag("allowzero", false)? })
}

pub(super) fn squeeze(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Squeeze { axes: source.attributes.ints("axes")? })
}

pub(super) fn unsqueeze(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Unsqueeze { axes: source.attributes.ints("axes")? })
}

pub(super) fn transpose(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Transpose { order: source.attributes.ints("perm")? })
}

pub(super) fn concat(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Concat { axis: source.attributes.int("axis", 0)? })
}

pub(super) fn split(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let (axis, sizes) = (attributes.int("axis", 0)?, attributes.ints("split")?);
    Ok(Op::Split { axis, sizes, parts: source.node.outputs.len() })
}

/// Before operator set 10, all parameters are attributes.
pub(super) fn slice(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    if source.opset >= 10 {
        return Ok(Op::Slice { attributes: None });
    }
    Ok(Op::Slice {
        attributes: Some(SliceAttributes {
            starts: attributes.ints("starts")?.unwrap_or_default(),
            ends: attributes.ints("ends")?.unwrap_or_default(),
            axes: attributes.ints("axes")?,
        }),
    })
}

pub(super) fn shape(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Shape { start: attributes.int("start", 0)?, end: attributes.int("end", i64::MAX)? })
}

pub(super) fn constant_of_shape(source: &Source<'_>) -> Result<Op, OpError> {
    let zero = Tensor::scalar(0.0f32);
    Ok(Op::ConstantOfShape { value: Array::from_tensor(source.attributes.tensor("value")?.unwrap_or(&zero)) })
}

pub(super) fn depth_to_space(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::DepthToSpace {
        block: required_count(attributes, "blocksize")?,
        columns_first: match attributes.text("mode", "DCR")? {
            "DCR" => false,
            "CRD" => true,
            other => return Err(unknown_word("mode", other)),
        },
    })
}

pub(super) fn space_to_depth(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::SpaceToDepth { block: required_count(source.attributes, "blocksize")? })
}

pub(super) fn pad(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let mode = match attributes.text("mode", "constant")? {
        "constant" => None,
        "reflect" => Some(PadKind::Reflect),
        "edge" => Some(PadKind::Edge),
        other => return Err(unknown_word("mode", other)),
    };
    Ok(Op::Pad { mode, pads: attributes.ints("pads")?, value: attributes.float("value", 0.0)? })
}
