//! Reads the attributes of normalizations and of softmax.

use super::{Source, required_count};
use crate::OpError;
use crate::normalize::GroupNorm;
use crate::op::Op;

fn epsilon(source: &Source<'_>) -> Result<f64, OpError> {
    source.attributes.float("epsilon", 1e-5)
}

pub(super) fn dropout(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Dropout { mask: source.node.outputs.len() > 1, is_seeded: source.attributes.contains("seed") })
}

pub(super) fn batch_normalization(source: &Source<'_>) -> Result<Op, OpError> {
    let epsilon = epsilon(source)?;
    if source.attributes.flag("training_mode", false)? {
        return Ok(Op::BatchNormalizationInTraining { epsilon, momentum: source.attributes.float("momentum", 0.9)? });
    }
    Ok(Op::BatchNormalization { epsilon })
}

pub(super) fn layer_normalization(source: &Source<'_>) -> Result<Op, OpError> {
    let statistics = source.node.outputs.len() > 1;
    Ok(Op::LayerNormalization { axis: source.attributes.int("axis", -1)?, epsilon: epsilon(source)?, statistics })
}

pub(super) fn instance_normalization(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::InstanceNormalization { epsilon: epsilon(source)? })
}

pub(super) fn group_normalization(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::GroupNormalization(GroupNorm {
        groups: required_count(source.attributes, "num_groups")?,
        epsilon: epsilon(source)?,
        per_group: source.opset < 21,
    }))
}

pub(super) fn rms_normalization(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::RmsNormalization { axis: source.attributes.int("axis", -1)?, epsilon: epsilon(source)? })
}

pub(super) fn softmax(source: &Source<'_>) -> Result<Op, OpError> {
    softmax_of(source, false)
}

pub(super) fn log_softmax(source: &Source<'_>) -> Result<Op, OpError> {
    softmax_of(source, true)
}

fn softmax_of(source: &Source<'_>, log: bool) -> Result<Op, OpError> {
    Ok(Op::Softmax { axis: source.attributes.int("axis", -1)?, log })
}
