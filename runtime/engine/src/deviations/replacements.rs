//! Nodes that compute what a deviating node should.
//!
//! Knows no engine.

use flagperf_onnx::{Attribute, DType, Node, NodeList, Tensor};

/// Above this, softplus is the identity in f32.
const SOFTPLUS_LINEAR: f64 = 20.0;

fn input(node: &Node, index: usize) -> Result<&str, String> {
    node.inputs.get(index).map(String::as_str).ok_or_else(|| format!("input {index} is missing"))
}

fn output(node: &Node) -> Result<&str, String> {
    node.outputs.first().map(String::as_str).ok_or_else(|| "it has no output".to_owned())
}

fn int(node: &Node, name: &str, default: i64) -> i64 {
    match node.attributes.get(name) {
        Some(Attribute::Int(value)) => *value,
        _ => default,
    }
}

/// A softmax over all dimensions from `axis` on, as before operator set 13: flattens to two dimensions, and restores the
/// shape. If only one dimension is larger than 1, that dimension suffices.
pub(super) fn flattened_softmax(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y, axis) = (input(node, 0)?, output(node)?, int(node, "axis", 1));
    let over = |axis| [("axis", Attribute::Int(axis))];
    if let Ok(spec) = list.spec(x) {
        let first = usize::try_from(if axis < 0 { axis + spec.dims.len() as i64 } else { axis }).unwrap_or(0);
        if spec.dims.iter().skip(first + 1).all(|dim| dim.fixed() == Some(1)) {
            list.define_with(&node.op, &[x], y, over(axis));
            return Ok(());
        }
    }
    let shape = list.add("Shape", &[x]);
    let flat = list.add_with("Flatten", &[x], over(axis));
    let result = list.add_with(&node.op, &[&flat], over(1));
    list.define("Reshape", &[&result, &shape], y);
    Ok(())
}

/// The index of the first of the largest or smallest elements: the last in reverse order or, if their number is not known, that
/// of `TopK`, which prefers lower indices and takes longer.
pub(super) fn first_index(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y, axis) = (input(node, 0)?, output(node)?, int(node, "axis", 0));
    let rank = list.spec(x).map_or(0, |spec| spec.dims.len() as i64);
    let position = usize::try_from(if axis < 0 { axis + rank } else { axis }).unwrap_or(usize::MAX);
    if let Ok(size) = list.size(x, position) {
        let size = size as i64;
        let reversed = list.slice(x, axis, [-1, -size - 1, -1]);
        let attributes =
            ["axis", "keepdims"].map(|name| (name, Attribute::Int(int(node, name, i64::from(name != "axis")))));
        let index = list.add_with(&node.op, &[&reversed], attributes);
        let last = list.number((size - 1) as f64, DType::I64);
        list.define("Sub", &[&last, &index], y);
        return Ok(());
    }
    let largest = i64::from(node.op == "ArgMax");
    let one = list.ints(&[1]);
    let values = list.name("values");
    let keeps = int(node, "keepdims", 1) != 0;
    let indices = if keeps { y.to_owned() } else { list.name("indices") };
    let attributes = [("axis", Attribute::Int(axis)), ("largest", Attribute::Int(largest))];
    list.keep(Node {
        name: node.name.clone(),
        op: "TopK".to_owned(),
        inputs: vec![x.to_owned(), one],
        outputs: vec![values, indices.clone()],
        attributes: attributes.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
        ..Node::default()
    });
    if !keeps {
        let axes = list.ints(&[axis]);
        list.define("Squeeze", &[&indices, &axes], y);
    }
    Ok(())
}

/// The sign as the difference of two comparisons with zero.
pub(super) fn sign(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y) = (input(node, 0)?, output(node)?);
    let dtype = list.spec(x)?.dtype;
    let zero = list.number(0.0, dtype);
    let is_positive = list.add("Greater", &[x, &zero]);
    let is_negative = list.add("Less", &[x, &zero]);
    let [positive, negative] = [is_positive, is_negative].map(|is| list.cast(&is, dtype));
    list.define("Sub", &[&positive, &negative], y);
    Ok(())
}

/// Softplus, and the identity where the exponential would overflow.
pub(super) fn softplus(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y) = (input(node, 0)?, output(node)?);
    let limit = list.number(SOFTPLUS_LINEAR, list.spec(x)?.dtype);
    let is_linear = list.add("Greater", &[x, &limit]);
    let soft = list.add("Softplus", &[x]);
    list.define("Where", &[&is_linear, x, &soft], y);
    Ok(())
}

/// Whether a number is not zero.
pub(super) fn is_not_zero(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y) = (input(node, 0)?, output(node)?);
    let dtype = list.spec(x)?.dtype;
    let (x, dtype) = if matches!(dtype, DType::I8 | DType::U8) {
        (list.cast(x, DType::I32), DType::I32)
    } else {
        (x.to_owned(), dtype)
    };
    let zero = list.number(0.0, dtype);
    let is_zero = list.add("Equal", &[&x, &zero]);
    list.define("Not", &[&is_zero], y);
    Ok(())
}

/// A product with a vector as one with a matrix of one column.
pub(super) fn product_with_column(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (a, b, y) = (input(node, 0)?, input(node, 1)?, output(node)?);
    let column = list.unsqueeze(b, &[1]);
    let product = list.add("MatMul", &[a, &column]);
    let axes = list.ints(&[-1]);
    list.define("Squeeze", &[&product, &axes], y);
    Ok(())
}

/// Adds the attributes of a window that the file leaves to their defaults.
pub(super) fn with_window_attributes(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let mut filled = node.clone();
    let is_pool = matches!(node.op.as_str(), "MaxPool" | "AveragePool");
    let kernel = match node.attributes.get("kernel_shape") {
        Some(Attribute::Ints(kernel)) => kernel.clone(),
        _ if is_pool => return Err("it has no kernel_shape".to_owned()),
        _ => {
            let dims = &list.spec(input(node, 1)?)?.dims;
            let size = |dim: &flagperf_onnx::Dim| dim.fixed().map(|size| size as i64);
            let sizes: Option<Vec<i64>> = dims.iter().skip(2).map(size).collect();
            sizes.ok_or("the size of its kernel is not known")?
        }
    };
    let rank = kernel.len();
    let mut fill = |name: &str, values: Vec<i64>| {
        filled.attributes.entry(name.to_owned()).or_insert(Attribute::Ints(values));
    };
    fill("kernel_shape", kernel);
    fill("strides", vec![1; rank]);
    if !is_pool {
        fill("dilations", vec![1; rank]);
    }
    let mode = node.attributes.get("auto_pad");
    if mode.is_none_or(|mode| *mode == Attribute::String("NOTSET".to_owned())) {
        fill("pads", vec![0; 2 * rank]);
    }
    list.keep(filled);
    Ok(())
}

/// The largest element of each window with its index: a comparison for each element of the window.
pub(super) fn max_pool_with_indices(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (x, y) = (input(node, 0)?, output(node)?);
    let is_unpadded = |mode: &Attribute| *mode == Attribute::String("NOTSET".to_owned());
    let [&[batch, channels, height, width], &[_, _, rows, columns]] =
        [&fixed_sizes(list, x)?[..], &fixed_sizes(list, y)?]
    else {
        return Err("only images are pooled with indices".to_owned());
    };
    if !node.attributes.get("auto_pad").is_none_or(is_unpadded) || int(node, "storage_order", 0) != 0 {
        return Err("its indices need explicit pads and storage_order 0".to_owned());
    }
    let ints = |name: &str, default: i64, count: usize| match node.attributes.get(name) {
        Some(Attribute::Ints(values)) => values.clone(),
        _ => vec![default; count],
    };
    let (kernel, strides, dilations) = (ints("kernel_shape", 1, 2), ints("strides", 1, 2), ints("dilations", 1, 2));
    let pads = ints("pads", 0, 4);
    // With ceil_mode, the last window may reach beyond the padding.
    let reach = |axis: usize, places: i64| (places - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1;
    let after = |axis: usize, size: i64, places: i64| (reach(axis, places) - pads[axis] - size).max(0);
    let widths = [0, 0, pads[0], pads[1], 0, 0, after(0, height, rows), after(1, width, columns)];
    let (widths, lowest) = (list.ints(&widths), list.number(f64::NEG_INFINITY, list.spec(x)?.dtype));
    let padded = list.add("Pad", &[x, &widths, &lowest]);
    let mut best: Option<[String; 2]> = None;
    for (i, j) in (0..kernel[0]).flat_map(|i| (0..kernel[1]).map(move |j| (i, j))) {
        let taken = |start: i64, places: i64, axis: usize| {
            let start = start * dilations[axis];
            [start, start + (places - 1) * strides[axis] + 1, strides[axis]]
        };
        let of_rows = list.slice(&padded, 2, taken(i, rows, 0));
        let element = list.slice(&of_rows, 3, taken(j, columns, 1));
        // Relative to the first element of the window.
        let offset = list.number((i * dilations[0] * width + j * dilations[1]) as f64, DType::I64);
        best = Some(match best {
            None => [element, offset],
            Some([largest, index]) => {
                let is_larger = list.add("Greater", &[&element, &largest]);
                [list.add("Max", &[&largest, &element]), list.add("Where", &[&is_larger, &offset, &index])]
            }
        });
    }
    let [largest, offset] = best.ok_or("its window is empty")?;
    list.define("Identity", &[&largest], y);
    let first_of_row = |row: i64| (row * strides[0] - pads[0]) * width;
    let planes: Vec<i64> = (0..batch * channels).map(|plane| plane * height * width).collect();
    let of_rows: Vec<i64> = (0..rows).map(first_of_row).collect();
    let of_columns: Vec<i64> = (0..columns).map(|column| column * strides[1] - pads[1]).collect();
    let mut index = offset;
    for (values, shape) in
        [(planes, [batch, channels, 1, 1]), (of_rows, [1, 1, rows, 1]), (of_columns, [1, 1, 1, columns])]
    {
        let tensor = Tensor::from_vec(shape.map(|size| size as usize), values).map_err(|e| e.to_string())?;
        let first = list.constant(tensor);
        index = list.add("Add", &[&index, &first]);
    }
    list.define("Identity", &[&index], &node.outputs[1]);
    Ok(())
}

fn fixed_sizes(list: &NodeList<'_>, value: &str) -> Result<Vec<i64>, String> {
    let sizes = list.spec(value)?.dims.iter().map(|dim| dim.fixed().map(|size| size as i64));
    sizes.collect::<Option<_>>().ok_or_else(|| format!("the shape of `{value}` is not known"))
}

/// Attention with the mask repeated for every row of the products.
pub(super) fn attention_with_full_mask(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (query, mask) = (input(node, 0)?, input(node, 3)?);
    let rows = list.size(query, list.spec(query)?.dims.len() - 2)?;
    let rows = i64::try_from(rows).map_err(|_| "too many rows".to_owned())?;
    let shape = list.ints(&[rows, 1]);
    let full = list.add("Expand", &[mask, &shape]);
    let mut attention = node.clone();
    attention.inputs[3] = full;
    list.keep(attention);
    Ok(())
}

/// A product of integers without zero points, from which the sums that belong to them are subtracted:
/// (A - a)(B - b) = AB - a sum(B) - sum(A - a) b, with the sums over the common dimension.
pub(super) fn product_without_zero_points(list: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let (a, b, y) = (input(node, 0)?, input(node, 1)?, output(node)?);
    let zero = |index: usize| node.inputs.get(index).filter(|name| !name.is_empty());
    let [columns, rows] = [-2, -1].map(|axis| list.ints(&[axis]));
    let mut product = list.add("MatMulInteger", &[a, b]);
    let mut left = list.cast(a, DType::I32);
    if let Some(zero) = zero(2) {
        let is_per_row = list.spec(zero)?.dims.len() == 1;
        let mut zero = list.cast(zero, DType::I32);
        if is_per_row {
            zero = list.unsqueeze(&zero, &[1]);
        }
        left = list.add("Sub", &[&left, &zero]);
        let right = list.cast(b, DType::I32);
        let sums = list.add("ReduceSum", &[&right, &columns]);
        let correction = list.add("Mul", &[&zero, &sums]);
        product = list.add("Sub", &[&product, &correction]);
    }
    if let Some(zero) = zero(3) {
        let zero = list.cast(zero, DType::I32);
        let sums = list.add("ReduceSum", &[&left, &rows]);
        let correction = list.add("Mul", &[&sums, &zero]);
        product = list.add("Sub", &[&product, &correction]);
    }
    list.define("Identity", &[&product], y);
    Ok(())
}
