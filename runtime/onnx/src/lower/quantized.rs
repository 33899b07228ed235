//! Decompositions of quantised operators. Products are added in integers or, in a convolution, in f64, which is exact.

use super::node_list::{NodeList, input, int, output, required};
use crate::{Attribute, DType, Node};

/// Returns the number of dimensions of a value, if it is known.
fn rank(nodes: &NodeList<'_>, value: &str) -> Option<i64> {
    nodes.spec(value).ok().map(|spec| spec.dims.len() as i64)
}

/// Adds dimensions of size 1 to a scale or zero point, so that its elements belong to `axis` of a tensor of `rank`
/// dimensions. A single number stays.
fn along(nodes: &mut NodeList<'_>, value: &str, axis: i64, rank: Option<i64>) -> Result<String, String> {
    let dims = &nodes.spec(value)?.dims;
    match dims.len() {
        0 => Ok(value.to_owned()),
        1 if dims[0].fixed() == Some(1) => Ok(nodes.reshape(value, &[])),
        1 => {
            let rank = rank.ok_or("the number of dimensions is not known")?;
            let axis = if axis < 0 { axis + rank } else { axis };
            let added: Vec<i64> = (0..rank).filter(|dim| *dim != axis).collect();
            Ok(if added.is_empty() { value.to_owned() } else { nodes.unsqueeze(value, &added) })
        }
        _ => Err("scales of blocks are not supported".to_owned()),
    }
}

/// Returns the smallest and the largest number of a quantised type.
fn bounds(dtype: DType) -> Result<[f64; 2], String> {
    match dtype {
        DType::U8 => Ok([0.0, 255.0]),
        DType::I8 => Ok([-128.0, 127.0]),
        DType::U16 => Ok([0.0, 65_535.0]),
        DType::I16 => Ok([-32_768.0, 32_767.0]),
        other => Err(format!("quantisation to `{other}` is not supported")),
    }
}

/// Adds the rounding of numbers in f32 to a quantised type: nearest even, moved by the zero point, saturated.
fn define_quantized(
    nodes: &mut NodeList<'_>,
    scaled: &str,
    zero_point: Option<&str>,
    dtype: DType,
    output: &str,
) -> Result<(), String> {
    let mut number = nodes.add("Round", &[scaled]);
    if let Some(zero_point) = zero_point {
        let offset = nodes.cast(zero_point, DType::F32);
        number = nodes.add("Add", &[&number, &offset]);
    }
    let [least, most] = bounds(dtype)?.map(|bound| nodes.number(bound, DType::F32));
    let bounded = nodes.add("Clip", &[&number, &least, &most]);
    nodes.define_cast(&bounded, dtype, output);
    Ok(())
}

/// QuantizeLinear with one scale, or one for each entry of an axis.
pub(crate) fn quantize_linear(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, scale, zero_point) = (required(node, 0)?, required(node, 1)?, input(node, 2));
    let (axis, rank) = (int(node, "axis").unwrap_or(1), rank(nodes, x));
    let dtype = match (zero_point, int(node, "output_dtype").filter(|code| *code != 0)) {
        (Some(zero_point), _) => nodes.spec(zero_point)?.dtype,
        (None, Some(code)) => {
            crate::file::dtype_from_onnx(code).ok_or_else(|| format!("ONNX element type {code} is not supported"))?
        }
        (None, None) => DType::U8,
    };
    let scale = along(nodes, scale, axis, rank)?;
    let zero_point = zero_point.map(|value| along(nodes, value, axis, rank)).transpose()?;
    let [x, scale] = [x, &scale].map(|value| nodes.cast(value, DType::F32));
    let scaled = nodes.add("Div", &[&x, &scale]);
    define_quantized(nodes, &scaled, zero_point.as_deref(), dtype, &node.outputs[0])
}

/// DequantizeLinear with one scale, or one for each entry of an axis.
pub(crate) fn dequantize_linear(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, scale) = (required(node, 0)?, required(node, 1)?);
    let (axis, rank, dtype) = (int(node, "axis").unwrap_or(1), rank(nodes, x), nodes.spec(scale)?.dtype);
    if int(node, "output_dtype").is_some_and(|code| code != 0 && code != i64::from(crate::file::onnx_code(dtype))) {
        return Err("`output_dtype` is not the type of the scale".to_owned());
    }
    let scale = along(nodes, scale, axis, rank)?;
    let numbers = match input(node, 2) {
        None => nodes.cast(x, DType::F32),
        zero_point => {
            let integers = centred(nodes, x, zero_point, |nodes, value| along(nodes, value, axis, rank))?;
            nodes.cast(&integers, DType::F32)
        }
    };
    let wide = nodes.widen(&scale, dtype);
    let result = nodes.add("Mul", &[&numbers, &wide]);
    nodes.define_as(&result, dtype, &node.outputs[0]);
    Ok(())
}

/// Adds the integers of a quantised tensor minus its zero point, in i32.
fn centred(
    nodes: &mut NodeList<'_>,
    x: &str,
    zero_point: Option<&str>,
    place: impl Fn(&mut NodeList<'_>, &str) -> Result<String, String>,
) -> Result<String, String> {
    let integers = nodes.cast(x, DType::I32);
    let Some(zero_point) = zero_point else { return Ok(integers) };
    let placed = place(nodes, zero_point)?;
    let offset = nodes.cast(&placed, DType::I32);
    Ok(nodes.add("Sub", &[&integers, &offset]))
}

/// DynamicQuantizeLinear to u8, with the scale and the zero point as outputs.
pub(crate) fn dynamic_quantize_linear(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let [zero, most] = [0.0, 255.0].map(|number| nodes.number(number, DType::F32));
    let whole = |nodes: &mut NodeList<'_>, op: &str| nodes.add_with(op, &[x], [("keepdims", Attribute::Int(0))]);
    let (largest, smallest) = (whole(nodes, "ReduceMax"), whole(nodes, "ReduceMin"));
    let largest = nodes.add("Max", &[&largest, &zero]);
    let smallest = nodes.add("Min", &[&smallest, &zero]);
    let range = nodes.add("Sub", &[&largest, &smallest]);
    let scale = nodes.add("Div", &[&range, &most]);
    let first = nodes.add("Div", &[&smallest, &scale]);
    let first = nodes.add("Neg", &[&first]);
    let first = nodes.add("Round", &[&first]);
    let bounded = nodes.add("Clip", &[&first, &zero, &most]);
    let zero_point = nodes.cast(&bounded, DType::U8);
    let scaled = nodes.add("Div", &[x, &scale]);
    define_quantized(nodes, &scaled, Some(&zero_point), DType::U8, &node.outputs[0])?;
    for (place, value) in [(1, &scale), (2, &zero_point)] {
        if let Some(name) = output(node, place) {
            nodes.define("Identity", &[value], name);
        }
    }
    Ok(())
}

/// Adds the product of two quantised matrices in i32. A zero point of `a` may belong to its rows, one of `b` to its
/// columns.
fn integer_product(nodes: &mut NodeList<'_>, a: [Option<&str>; 2], b: [Option<&str>; 2]) -> Result<String, String> {
    let [(a, a_zero), (b, b_zero)] = [a, b].map(|[value, zero]| (value.unwrap_or_default(), zero));
    let (a_rank, b_rank) = (rank(nodes, a), rank(nodes, b));
    let a = centred(nodes, a, a_zero, |nodes, value| along(nodes, value, -2, a_rank))?;
    let b = centred(nodes, b, b_zero, |nodes, value| along(nodes, value, -1, b_rank))?;
    Ok(nodes.add("MatMul", &[&a, &b]))
}

/// MatMulInteger.
pub(crate) fn matmul_integer(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let product =
        integer_product(nodes, [Some(required(node, 0)?), input(node, 2)], [Some(required(node, 1)?), input(node, 3)])?;
    nodes.define("Identity", &[&product], &node.outputs[0]);
    Ok(())
}

/// QLinearMatMul.
pub(crate) fn qlinear_matmul(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (a, b) = (required(node, 0)?, required(node, 3)?);
    let product = integer_product(nodes, [Some(a), input(node, 2)], [Some(b), input(node, 5)])?;
    let (a_rank, b_rank) = (rank(nodes, a), rank(nodes, b));
    let a_scale = along(nodes, required(node, 1)?, -2, a_rank)?;
    let b_scale = along(nodes, required(node, 4)?, -1, b_rank)?;
    requantize(nodes, node, &product, [&a_scale, &b_scale], a_rank.max(b_rank))
}

/// Adds the product of integers and scales, rounded to the type of the result. Inputs 6 and 7 are the scale and the zero
/// point of the result.
fn requantize(
    nodes: &mut NodeList<'_>,
    node: &Node,
    integers: &str,
    scales: [&str; 2],
    rank: Option<i64>,
) -> Result<(), String> {
    let (scale, zero_point) = (required(node, 6)?, required(node, 7)?);
    let dtype = nodes.spec(zero_point)?.dtype;
    let scale = along(nodes, scale, -2, rank)?;
    let zero_point = along(nodes, zero_point, -2, rank)?;
    let [a, b, y] = [scales[0], scales[1], &scale].map(|value| nodes.cast(value, DType::F32));
    let factor = nodes.add("Mul", &[&a, &b]);
    let factor = nodes.add("Div", &[&factor, &y]);
    let numbers = nodes.cast(integers, DType::F32);
    let scaled = nodes.add("Mul", &[&numbers, &factor]);
    define_quantized(nodes, &scaled, Some(&zero_point), dtype, &node.outputs[0])
}

/// Adds the convolution of two quantised tensors in i32. A zero point of the weight may belong to its filters.
fn integer_convolution(
    nodes: &mut NodeList<'_>,
    node: &Node,
    x: [Option<&str>; 2],
    weight: [Option<&str>; 2],
) -> Result<String, String> {
    let [(x, x_zero), (weight, weight_zero)] = [x, weight].map(|[value, zero]| (value.unwrap_or_default(), zero));
    let rank = rank(nodes, weight);
    let x = centred(nodes, x, x_zero, |nodes, value| along(nodes, value, 1, rank))?;
    let weight = centred(nodes, weight, weight_zero, |nodes, value| along(nodes, value, 0, rank))?;
    let [x, weight] = [&x, &weight].map(|value| nodes.cast(value, DType::F64));
    let sums = nodes.add_from("Conv", &[&x, &weight], node.attributes.clone());
    Ok(nodes.cast(&sums, DType::I32))
}

/// ConvInteger.
pub(crate) fn conv_integer(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, weight) = ([Some(required(node, 0)?), input(node, 2)], [Some(required(node, 1)?), input(node, 3)]);
    let sums = integer_convolution(nodes, node, x, weight)?;
    nodes.define("Identity", &[&sums], &node.outputs[0]);
    Ok(())
}

/// QLinearConv. The bias is in i32.
pub(crate) fn qlinear_conv(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, weight) = ([Some(required(node, 0)?), input(node, 2)], [Some(required(node, 3)?), input(node, 5)]);
    let rank = rank(nodes, required(node, 3)?);
    let mut sums = integer_convolution(nodes, node, x, weight)?;
    if let Some(bias) = input(node, 8) {
        let bias = along(nodes, bias, 1, rank)?;
        sums = nodes.add("Add", &[&sums, &bias]);
    }
    let x_scale = along(nodes, required(node, 1)?, 1, rank)?;
    let weight_scale = along(nodes, required(node, 4)?, 1, rank)?;
    requantize(nodes, node, &sums, [&x_scale, &weight_scale], rank)
}
