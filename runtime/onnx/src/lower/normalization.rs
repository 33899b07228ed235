//! Decompositions of normalizations and of Gelu. 16-bit floats are normalized in f32.

use super::node_list::{NodeList, float, int, output, required};
use crate::{Attribute, DType, Node};

/// Gelu: `x / 2 * (1 + erf(x / √2))`, or its tanh approximation.
pub(crate) fn gelu(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let dtype = nodes.spec(x)?.dtype;
    let is_tanh = matches!(node.attributes.get("approximate"), Some(Attribute::String(kind)) if kind == "tanh");
    let curve = if is_tanh {
        let square = nodes.add("Mul", &[x, x]);
        let cube = nodes.add("Mul", &[&square, x]);
        let cubic = nodes.scale(&cube, 0.044_715, dtype);
        let sum = nodes.add("Add", &[x, &cubic]);
        let inner = nodes.scale(&sum, (2.0 / std::f64::consts::PI).sqrt(), dtype);
        nodes.add("Tanh", &[&inner])
    } else {
        let inner = nodes.scale(x, std::f64::consts::FRAC_1_SQRT_2, dtype);
        nodes.add("Erf", &[&inner])
    };
    let one = nodes.number(1.0, dtype);
    let gate = nodes.add("Add", &[&curve, &one]);
    let half = nodes.scale(x, 0.5, dtype);
    nodes.define("Mul", &[&half, &gate], &node.outputs[0]);
    Ok(())
}

/// Adds a normalization over axes: to mean 0 (if `centred`) and a mean square of 1.
fn normalize(nodes: &mut NodeList<'_>, x: &str, axes: &[i64], epsilon: f64, centred: bool, dtype: DType) -> String {
    let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let mut x = nodes.widen(x, dtype);
    if centred {
        let mean = nodes.reduce("ReduceMean", &x, axes);
        x = nodes.add("Sub", &[&x, &mean]);
    }
    let square = nodes.add("Mul", &[&x, &x]);
    let mean = nodes.reduce("ReduceMean", &square, axes);
    let epsilon = nodes.number(epsilon, wide);
    let sum = nodes.add("Add", &[&mean, &epsilon]);
    let root = nodes.add("Sqrt", &[&sum]);
    let normal = nodes.add("Div", &[&x, &root]);
    if wide == dtype { normal } else { nodes.cast(&normal, dtype) }
}

/// Returns the axes from `axis` to the last, counted from the end.
fn trailing_axes(nodes: &NodeList<'_>, node: &Node) -> Result<Vec<i64>, String> {
    let axis = int(node, "axis").unwrap_or(-1);
    let rank = nodes.spec(required(node, 0)?)?.dims.len() as i64;
    let first = if axis < 0 { axis } else { axis - rank };
    if (-rank..0).contains(&first) { Ok((first..0).collect()) } else { Err(format!("`axis` is {axis}")) }
}

/// LayerNormalization without the outputs `Mean` and `InvStdDev`.
pub(crate) fn layer_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    if output(node, 1).is_some() || output(node, 2).is_some() {
        return Err("the outputs `Mean` and `InvStdDev` are read".to_owned());
    }
    let (x, axes) = (required(node, 0)?, trailing_axes(nodes, node)?);
    let dtype = nodes.spec(x)?.dtype;
    let normal = normalize(nodes, x, &axes, float(node, "epsilon", 1e-5), true, dtype);
    match node.inputs.get(2).filter(|name| !name.is_empty()) {
        None => nodes.define("Mul", &[&normal, required(node, 1)?], &node.outputs[0]),
        Some(bias) => {
            let scaled = nodes.add("Mul", &[&normal, required(node, 1)?]);
            nodes.define("Add", &[&scaled, bias], &node.outputs[0]);
        }
    }
    Ok(())
}

/// RMSNormalization.
pub(crate) fn rms_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, axes) = (required(node, 0)?, trailing_axes(nodes, node)?);
    let dtype = nodes.spec(x)?.dtype;
    let normal = normalize(nodes, x, &axes, float(node, "epsilon", 1e-5), false, dtype);
    nodes.define("Mul", &[&normal, required(node, 1)?], &node.outputs[0]);
    Ok(())
}

/// GroupNormalization; before version 21, scale and bias have one element per group.
pub(crate) fn group_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, scale, bias) = (required(node, 0)?, required(node, 1)?, required(node, 2)?);
    let groups = int(node, "num_groups").ok_or("`num_groups` is missing")?;
    let (rank, dtype) = (nodes.spec(x)?.dims.len() as i64, nodes.spec(x)?.dtype);
    let grouped = nodes.reshape(x, &[0, groups, -1]);
    let mut normal = normalize(nodes, &grouped, &[-1], float(node, "epsilon", 1e-5), true, dtype);
    let shape = nodes.add("Shape", &[x]);
    let per_group = nodes.opset() < 21;
    let axes: Vec<i64> = if per_group { vec![1] } else { (1..rank - 1).collect() };
    if !per_group {
        normal = nodes.add("Reshape", &[&normal, &shape]);
    }
    let factors = [scale, bias].map(|factor| nodes.unsqueeze(factor, &axes));
    let scaled = nodes.add("Mul", &[&normal, &factors[0]]);
    if per_group {
        let shifted = nodes.add("Add", &[&scaled, &factors[1]]);
        nodes.define("Reshape", &[&shifted, &shape], &node.outputs[0]);
    } else {
        nodes.define("Add", &[&scaled, &factors[1]], &node.outputs[0]);
    }
    Ok(())
}

/// InstanceNormalization.
pub(crate) fn instance_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, scale, bias) = (required(node, 0)?, required(node, 1)?, required(node, 2)?);
    let spec = nodes.spec(x)?;
    let axes: Vec<i64> = (2..spec.dims.len() as i64).collect();
    let normal = normalize(nodes, x, &axes, float(node, "epsilon", 1e-5), true, spec.dtype);
    let channel: Vec<i64> = (1..=axes.len() as i64).collect();
    let [scale, bias] = [scale, bias].map(|factor| nodes.unsqueeze(factor, &channel));
    let scaled = nodes.add("Mul", &[&normal, &scale]);
    nodes.define("Add", &[&scaled, &bias], &node.outputs[0]);
    Ok(())
}
