//! Reads the attributes of operators that generate or select elements, or that read or write them at indices.

use super::Source;
use crate::OpError;
use crate::attributes::Attributes;
use crate::op::Op;
use crate::ops::Binary;
use crate::tensor_scatter::TensorScatter;

pub(super) fn arg_max(source: &Source<'_>) -> Result<Op, OpError> {
    arg_extremum(source, false)
}

pub(super) fn arg_min(source: &Source<'_>) -> Result<Op, OpError> {
    arg_extremum(source, true)
}

fn arg_extremum(source: &Source<'_>, smallest: bool) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::ArgMax {
        axis: attributes.int("axis", 0)?,
        keep: attributes.flag("keepdims", true)?,
        last: attributes.flag("select_last_index", false)?,
        smallest,
    })
}

pub(super) fn gather(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Gather { axis: source.attributes.int("axis", 0)? })
}

pub(super) fn gather_elements(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::GatherElements { axis: source.attributes.int("axis", 0)? })
}

pub(super) fn gather_nd(source: &Source<'_>) -> Result<Op, OpError> {
    let batch_dims = source.attributes.sizes("batch_dims")?.and_then(|dims| dims.first().copied());
    Ok(Op::GatherNd { batch_dims: batch_dims.unwrap_or(0) })
}

pub(super) fn scatter_elements(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::ScatterElements { axis: attributes.int("axis", 0)?, combination: combination(attributes)? })
}

pub(super) fn scatter_nd(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::ScatterNd { combination: combination(source.attributes)? })
}

pub(super) fn tensor_scatter(source: &Source<'_>) -> Result<Op, OpError> {
    let is_circular = match source.attributes.text("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(super::unknown_word("mode", other)),
    };
    Ok(Op::TensorScatter(TensorScatter { axis: source.attributes.int("axis", -2)?, is_circular, in_place: false }))
}

pub(super) fn one_hot(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::OneHot { axis: source.attributes.int("axis", -1)? })
}

pub(super) fn triangle(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Trilu { upper: source.attributes.flag("upper", true)? })
}

pub(super) fn cumulative_sum(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::CumSum { exclusive: attributes.flag("exclusive", false)?, reverse: attributes.flag("reverse", false)? })
}

pub(super) fn top_k(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::TopK { axis: attributes.int("axis", -1)?, largest: attributes.flag("largest", true)? })
}

/// Returns how updates are combined with the elements that they change; `None` if they replace them.
fn combination(attributes: Attributes) -> Result<Option<Binary>, OpError> {
    Ok(Some(match attributes.text("reduction", "none")? {
        "none" => return Ok(None),
        "add" => Binary::Add,
        "mul" => Binary::Mul,
        "min" => Binary::Min,
        "max" => Binary::Max,
        other => return Err(OpError::unsupported(format!("`reduction` `{other}`"))),
    }))
}
