//! Decomposition of TensorScatter.

use super::node_list::{NodeList, input, int, required};
use crate::{Attribute, DType, Node};

/// TensorScatter: each entry of the update along an axis is written at its distance from the first index of its sample.
pub(crate) fn tensor_scatter(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (cache, update) = (required(node, 0)?, required(node, 1)?);
    let rank = nodes.spec(cache)?.dims.len() as i64;
    let axis = int(node, "axis").map_or(rank - 2, |axis| if axis < 0 { axis + rank } else { axis });
    let along = [("start", Attribute::Int(axis)), ("end", Attribute::Int(axis + 1))];
    let count = nodes.add_with("Shape", &[update], along.clone());
    let [count, zero, one] =
        [nodes.add("Squeeze", &[&count]), nodes.number(0.0, DType::I64), nodes.number(1.0, DType::I64)];
    let mut places = nodes.add("Range", &[&zero, &count, &one]);
    let mut missing: Vec<i64> = (0..rank).filter(|other| *other != axis).collect();
    if let Some(first) = input(node, 2) {
        let first = nodes.unsqueeze(first, &[1]);
        places = nodes.add("Add", &[&places, &first]);
        missing.retain(|other| *other != 0);
    }
    if matches!(node.attributes.get("mode"), Some(Attribute::String(mode)) if mode == "circular") {
        let size = nodes.add_with("Shape", &[cache], along);
        places = nodes.add("Mod", &[&places, &size]);
    }
    let places = nodes.unsqueeze(&places, &missing);
    let shape = nodes.add("Shape", &[update]);
    let places = nodes.add("Expand", &[&places, &shape]);
    nodes.define_with("ScatterElements", &[cache, &places, update], &node.outputs[0], [("axis", Attribute::Int(axis))]);
    Ok(())
}
