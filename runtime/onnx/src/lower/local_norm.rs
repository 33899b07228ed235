//! Decompositions of norms: over channels, over an axis, and over windows.

use super::activation::widened;
use super::node_list::{NodeList, float, int, required};
use crate::{Attribute, Node};

/// LRN: each number is divided by a power of the mean square of `size` channels around it.
pub(crate) fn local_response(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let dtype = nodes.spec(x)?.dtype;
    let size = int(node, "size").filter(|size| *size > 0).ok_or("`size` is missing")?;
    let wide = nodes.widen(x, dtype);
    let square = nodes.add("Mul", &[&wide, &wide]);
    let images = nodes.unsqueeze(&square, &[1]);
    let images = nodes.reshape(&images, &[0, 0, 0, -1]);
    let before = (size - 1) / 2;
    let window = [
        ("kernel_shape", Attribute::Ints(vec![size, 1])),
        ("pads", Attribute::Ints(vec![before, 0, size - 1 - before, 0])),
        ("count_include_pad", Attribute::Int(1)),
    ];
    let mean = nodes.add_with("AveragePool", &[&images], window);
    let shape = nodes.add("Shape", &[x]);
    let mean = nodes.add("Reshape", &[&mean, &shape]);
    let scaled = nodes.scale(&mean, float(node, "alpha", 1e-4), widened(dtype));
    let [bias, beta] =
        [float(node, "bias", 1.0), float(node, "beta", 0.75)].map(|number| nodes.number(number, widened(dtype)));
    let sum = nodes.add("Add", &[&scaled, &bias]);
    let power = nodes.add("Pow", &[&sum, &beta]);
    let result = nodes.add("Div", &[&wide, &power]);
    nodes.define_as(&result, dtype, &node.outputs[0]);
    Ok(())
}

/// LpNormalization: each number is divided by the norm along an axis; a norm of zero gives zero.
pub(crate) fn lp_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, axis) = (required(node, 0)?, int(node, "axis").unwrap_or(-1));
    let op = match int(node, "p").unwrap_or(2) {
        1 => "ReduceL1",
        2 => "ReduceL2",
        other => return Err(format!("`p` is {other}")),
    };
    let norm = nodes.reduce(op, x, &[axis]);
    let zero = nodes.number(0.0, nodes.spec(x)?.dtype);
    let is_zero = nodes.add("Equal", &[&norm, &zero]);
    let quotient = nodes.add("Div", &[x, &norm]);
    nodes.define("Where", &[&is_zero, &zero, &quotient], &node.outputs[0]);
    Ok(())
}

/// MeanVarianceNormalization: mean 0 and deviation 1 over axes.
pub(crate) fn mean_variance(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let axes = match node.attributes.get("axes") {
        Some(Attribute::Ints(axes)) => axes.clone(),
        _ => vec![0, 2, 3],
    };
    let dtype = nodes.spec(x)?.dtype;
    let wide = nodes.widen(x, dtype);
    let mean = nodes.reduce("ReduceMean", &wide, &axes);
    let centred = nodes.add("Sub", &[&wide, &mean]);
    let square = nodes.add("Mul", &[&centred, &centred]);
    let variance = nodes.reduce("ReduceMean", &square, &axes);
    let deviation = nodes.add("Sqrt", &[&variance]);
    // The summand of the standard's definition.
    let least = nodes.number(1e-9, widened(dtype));
    let deviation = nodes.add("Add", &[&deviation, &least]);
    let result = nodes.add("Div", &[&centred, &deviation]);
    nodes.define_as(&result, dtype, &node.outputs[0]);
    Ok(())
}

/// LpPool: the norm of each window, as a mean times the size of the window.
pub(crate) fn lp_pool(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, p) = (required(node, 0)?, int(node, "p").unwrap_or(2));
    if int(node, "ceil_mode").unwrap_or(0) != 0 {
        return Err("`ceil_mode` is 1".to_owned());
    }
    let dtype = nodes.spec(x)?.dtype;
    let Some(Attribute::Ints(kernel)) = node.attributes.get("kernel_shape") else {
        return Err("`kernel_shape` is missing".to_owned());
    };
    let count: i64 = kernel.iter().product();
    let powers = powers(nodes, x, p)?;
    let mut attributes = node.attributes.clone();
    attributes.shift_remove("p");
    attributes.insert("count_include_pad".to_owned(), Attribute::Int(1));
    let mean = nodes.add_from("AveragePool", &[&powers], attributes);
    let sum = nodes.scale(&mean, count as f64, widened(dtype));
    define_root(nodes, &sum, p, x, &node.outputs[0])
}

/// GlobalLpPool: the norm of each channel.
pub(crate) fn global_lp_pool(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, p) = (required(node, 0)?, int(node, "p").unwrap_or(2));
    let rank = nodes.spec(x)?.dims.len() as i64;
    let powers = powers(nodes, x, p)?;
    let sum = nodes.reduce("ReduceSum", &powers, &(2..rank).collect::<Vec<_>>());
    define_root(nodes, &sum, p, x, &node.outputs[0])
}

fn powers(nodes: &mut NodeList<'_>, x: &str, p: i64) -> Result<String, String> {
    let dtype = nodes.spec(x)?.dtype;
    let wide = nodes.widen(x, dtype);
    let size = nodes.add("Abs", &[&wide]);
    let exponent = nodes.number(p as f64, widened(dtype));
    Ok(nodes.add("Pow", &[&size, &exponent]))
}

fn define_root(nodes: &mut NodeList<'_>, sum: &str, p: i64, like: &str, output: &str) -> Result<(), String> {
    let dtype = nodes.spec(like)?.dtype;
    let exponent = nodes.number(1.0 / p as f64, widened(dtype));
    let root = nodes.add("Pow", &[sum, &exponent]);
    nodes.define_as(&root, dtype, output);
    Ok(())
}
