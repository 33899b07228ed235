//! The derivative of Resize, which is linear along each axis.

use super::Backward;
use crate::{Attribute, DType, Node};

/// Along each resized axis, the gradient is multiplied by the transposed matrix of the operator. The matrix is the operator applied
/// to the identity matrix, so that its attributes have one meaning in both directions.
pub(crate) fn resize(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    if let Some(Attribute::String(policy)) = node.attributes.get("keep_aspect_ratio_policy")
        && policy != "stretch"
    {
        return Err(format!("`keep_aspect_ratio_policy` is `{policy}`"));
    }
    let (mut gradient, sizes, dtype) = (b.first()?, b.sizes(node, 0)?, b.dtype(node)?);
    let resized = b.nodes.spec(&node.outputs[0])?.fixed_shape().ok_or("the shape of the output is not known")?;
    let rank = sizes.len() as i64;
    let axes: Vec<i64> = match node.attributes.get("axes") {
        Some(Attribute::Ints(axes)) => axes.iter().map(|axis| if *axis < 0 { axis + rank } else { *axis }).collect(),
        _ => (0..rank).collect(),
    };
    let known = |i: usize| match node.inputs.get(i).filter(|name| !name.is_empty()) {
        None => Ok(None),
        Some(name) => b.nodes.known(name).map(|list| Some(list.to_f64())).ok_or(format!("input {i} is not a constant")),
    };
    let of_axes = |list: Option<Vec<f64>>, parts: usize| list.filter(|list| list.len() == parts * axes.len());
    let (region, scales) = (of_axes(known(1)?, 2), of_axes(known(2)?, 1));
    for (i, axis) in axes.iter().enumerate() {
        let (size, resized) = (sizes[*axis as usize], resized[*axis as usize] as i64);
        let scale = scales.as_ref().map(|scales| scales[i]);
        let region = region.as_ref().map(|region| [region[i], region[axes.len() + i]]);
        if size == resized && scale.is_none_or(|scale| scale == 1.0) && region.is_none_or(|region| region == [0.0, 1.0])
        {
            continue;
        }
        let matrix = matrix(b, node, [size, resized], scale, region, dtype);
        let mut order: Vec<i64> = (0..rank).collect();
        order.swap(*axis as usize, rank as usize - 1);
        let is_last = *axis == rank - 1;
        let lines = if is_last { gradient } else { b.nodes.transpose(&gradient, &order) };
        let product = b.nodes.add("MatMul", &[&lines, &matrix]);
        gradient = if is_last { product } else { b.nodes.transpose(&product, &order) };
    }
    b.set(0, gradient);
    Ok(())
}

/// Adds the matrix `resized,size` of one axis. The identity matrix is resized as an image, which every engine can.
fn matrix(
    b: &mut Backward<'_, '_>,
    node: &Node,
    [size, resized]: [i64; 2],
    scale: Option<f64>,
    region: Option<[f64; 2]>,
    dtype: DType,
) -> String {
    let places: Vec<i64> = (0..size).collect();
    let places = b.nodes.ints(&places);
    let [rows, columns] = [[-1, 1], [1, -1]].map(|shape| b.nodes.reshape(&places, &shape));
    let equal = b.nodes.add("Equal", &[&rows, &columns]);
    let identity = b.nodes.cast(&equal, dtype);
    let image = b.nodes.reshape(&identity, &[1, 1, size, size]);
    let region = region.map(|[start, end]| b.nodes.numbers(&[0.0, 0.0, 0.0, start, 1.0, 1.0, 1.0, end], dtype));
    let scales = scale.map(|scale| b.nodes.numbers(&[1.0, 1.0, 1.0, scale], DType::F32));
    let mut inputs = vec![image, region.unwrap_or_default(), scales.clone().unwrap_or_default()];
    if scales.is_none() {
        inputs.push(b.nodes.ints(&[1, 1, size, resized]));
    }
    let mut attributes = node.attributes.clone();
    attributes.shift_remove("axes");
    attributes.insert("extrapolation_value".to_owned(), Attribute::Float(0.0));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let resized_identity = b.nodes.add_from("Resize", &inputs, attributes);
    let rows = b.nodes.reshape(&resized_identity, &[size, resized]);
    b.nodes.transpose(&rows, &[1, 0])
}
