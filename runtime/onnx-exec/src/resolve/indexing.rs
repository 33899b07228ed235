//! Reads the attributes of operators that generate elements, or that read or write them at indices.

use super::super::OpError;
use super::super::attributes::Attributes;
use super::super::op::Op;
use super::super::ops::Binary;
use flagperf_onnx::Node;

pub(super) fn resolve_indexing(node: &Node, attributes: Attributes, _: i64) -> Result<Option<Op>, OpError> {
    let axis = |default| attributes.int("axis", default);
    Ok(Some(match node.op.as_str() {
        "GatherElements" => Op::GatherElements { axis: axis(0)? },
        "GatherND" => {
            let batch_dims = attributes.sizes("batch_dims")?.and_then(|dims| dims.first().copied());
            Op::GatherNd { batch_dims: batch_dims.unwrap_or(0) }
        }
        "ScatterElements" | "Scatter" => Op::ScatterElements { axis: axis(0)?, combination: combination(attributes)? },
        "ScatterND" => Op::ScatterNd { combination: combination(attributes)? },
        "Range" => Op::Range,
        "OneHot" => Op::OneHot { axis: axis(-1)? },
        "Tile" => Op::Tile,
        "Trilu" => Op::Trilu { upper: attributes.flag("upper", true)? },
        "NonZero" => Op::NonZero,
        "Size" => Op::Size,
        "CumSum" => {
            Op::CumSum { exclusive: attributes.flag("exclusive", false)?, reverse: attributes.flag("reverse", false)? }
        }
        "TopK" => Op::TopK {
            axis: axis(-1)?,
            largest: attributes.flag("largest", true)?,
            count: attributes.sizes("k")?.and_then(|count| count.first().copied()),
        },
        _ => return Ok(None),
    }))
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
