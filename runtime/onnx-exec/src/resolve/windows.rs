//! Reads the attributes of convolutions and pools.

use super::Source;
use crate::OpError;
use crate::attributes::Attributes;
use crate::conv_transpose::TransposedConv;
use crate::host::HostOp;
use crate::host::numeric::max_pool_with_places;
use crate::op::{Op, ReduceDefault, Reduction};
use crate::ops::Reduce;
use crate::window::{Padding, Window};

pub(super) fn conv(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Conv {
        window: resolve_window(attributes)?,
        groups: attributes.count("group")?.unwrap_or(1),
        residual: false,
        activation: None,
    })
}

pub(super) fn conv_transpose(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::ConvTranspose(TransposedConv {
        window: resolve_window(attributes)?,
        groups: attributes.count("group")?.unwrap_or(1),
        output_padding: attributes.sizes("output_padding")?.unwrap_or_default(),
        output_shape: attributes.sizes("output_shape")?,
    }))
}

pub(super) fn max_pool(source: &Source<'_>) -> Result<Op, OpError> {
    let window = resolve_window(source.attributes)?;
    let column_major = source.attributes.flag("storage_order", false)?;
    if source.node.outputs.len() > 1 {
        return Ok(Op::Host(HostOp(max_pool_with_places(window, column_major))));
    }
    Ok(Op::MaxPool(window))
}

pub(super) fn average_pool(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let include_pad = attributes.flag("count_include_pad", false);
    Ok(Op::AveragePool { window: resolve_window(attributes)?, include_pad: include_pad? })
}

pub(super) fn global_average_pool(_: &Source<'_>) -> Result<Op, OpError> {
    Ok(global_pool(Reduce::Mean))
}

pub(super) fn global_max_pool(_: &Source<'_>) -> Result<Op, OpError> {
    Ok(global_pool(Reduce::Max))
}

fn global_pool(kind: Reduce) -> Op {
    Op::Reduce { kind: Reduction::Plain(kind), axes: None, default: ReduceDefault::Spatial, keep: true }
}

fn resolve_window(attributes: Attributes) -> Result<Window, OpError> {
    let explicit = || attributes.sizes("pads").map(|pads| Padding::Explicit(pads.unwrap_or_default()));
    let padding = match attributes.text("auto_pad", "NOTSET")? {
        "NOTSET" => explicit()?,
        "VALID" => Padding::default(),
        "SAME_UPPER" => Padding::Same { lower: false },
        "SAME_LOWER" => Padding::Same { lower: true },
        other => return Err(OpError::unsupported(format!("`auto_pad` `{other}`"))),
    };
    Ok(Window {
        kernel: attributes.counts("kernel_shape")?,
        strides: attributes.counts("strides")?.unwrap_or_default(),
        dilations: attributes.counts("dilations")?.unwrap_or_default(),
        padding,
        ceil: attributes.flag("ceil_mode", false)?,
    })
}
