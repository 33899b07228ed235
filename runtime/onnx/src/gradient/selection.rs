//! Derivatives of operators that choose elements by indices. What is chosen more than once gets the sum.

use super::Backward;
use super::shape::axis;
use crate::lower::{int, required};
use crate::{Attribute, Node};

/// Adds a ScatterElements along an axis that adds to what is there.
fn scatter_add(b: &mut Backward<'_, '_>, data: &str, indices: &str, updates: &str, axis: usize) -> String {
    let attributes = [("axis", Attribute::Int(axis as i64)), ("reduction", Attribute::String("add".to_owned()))];
    b.nodes.add_with("ScatterElements", &[data, indices, updates], attributes)
}

/// Adds a ScatterND that adds to what is there.
fn scatter_slices(b: &mut Backward<'_, '_>, data: &str, indices: &str, updates: &str) -> String {
    let attributes = [("reduction", Attribute::String("add".to_owned()))];
    b.nodes.add_with("ScatterND", &[data, indices, updates], attributes)
}

pub(crate) fn gather(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis, zeros) = (b.first()?, axis(b, node, 0)?, b.zeros(node, 0)?);
    let (indices, index_sizes, sizes) = (required(node, 1)?, b.sizes(node, 1)?, b.sizes(node, 0)?);
    let gradient = if axis == 0 {
        let positions = b.nodes.unsqueeze(indices, &[-1]);
        scatter_slices(b, &zeros, &positions, &g)
    } else {
        let count: i64 = index_sizes.iter().product();
        let along = |size: i64, others: &dyn Fn(i64) -> i64| -> Vec<i64> {
            sizes.iter().enumerate().map(|(i, other)| if i == axis { size } else { others(*other) }).collect()
        };
        let (full, column) = (along(count, &|other| other), along(count, &|_| 1));
        let flat = b.nodes.reshape(&g, &full);
        let column = b.nodes.reshape(indices, &column);
        let shape = b.nodes.ints(&full);
        let index = b.nodes.add("Expand", &[&column, &shape]);
        scatter_add(b, &zeros, &index, &flat, axis)
    };
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn gather_elements(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis, zeros) = (b.first()?, axis(b, node, 0)?, b.zeros(node, 0)?);
    let gradient = scatter_add(b, &zeros, required(node, 1)?, &g, axis);
    b.set(0, gradient);
    Ok(())
}

pub(crate) fn gather_nd(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    if int(node, "batch_dims").unwrap_or(0) != 0 {
        return Err("`batch_dims` is not 0".to_owned());
    }
    let (g, zeros) = (b.first()?, b.zeros(node, 0)?);
    let gradient = scatter_slices(b, &zeros, required(node, 1)?, &g);
    b.set(0, gradient);
    Ok(())
}

/// The largest values get the gradient of their place.
pub(crate) fn top_k(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis, zeros) = (b.first()?, axis(b, node, -1)?, b.zeros(node, 0)?);
    let indices = b.nodes.output_of(node, 1);
    let gradient = scatter_add(b, &zeros, &indices, &g, axis);
    b.set(0, gradient);
    Ok(())
}

/// What was overwritten has no influence; `reduction` is `none` or `add`.
fn scatter(
    b: &mut Backward<'_, '_>,
    node: &Node,
    (scatter, gather): (&str, &str),
    keep_axis: bool,
) -> Result<(), String> {
    let (g, indices) = (b.first()?, required(node, 1)?);
    let axis = |node: &Node| -> indexmap::IndexMap<String, Attribute> {
        node.attributes
            .iter()
            .filter(|(name, _)| keep_axis && *name == "axis")
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let adds = match node.attributes.get("reduction") {
        Some(Attribute::String(kind)) if kind == "add" => true,
        Some(Attribute::String(kind)) if kind != "none" => return Err(format!("`reduction` is `{kind}`")),
        _ => false,
    };
    if b.needs(2) {
        let updates = b.nodes.add_from(gather, &[&g, indices], axis(node));
        b.set(2, updates);
    }
    if b.needs(0) {
        let gradient = if adds {
            g
        } else {
            let zeros = b.zeros(node, 2)?;
            b.nodes.add_from(scatter, &[&g, indices, &zeros], axis(node))
        };
        b.set(0, gradient);
    }
    Ok(())
}

pub(crate) fn scatter_elements(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    scatter(b, node, ("ScatterElements", "GatherElements"), true)
}

pub(crate) fn scatter_nd(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    scatter(b, node, ("ScatterND", "GatherND"), false)
}
