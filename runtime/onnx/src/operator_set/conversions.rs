//! Conversions of nodes of operator sets before 13 to their form in that version: what became an input, was renamed, or
//! changed its meaning.
//!
//! Knows nothing about engines.

use crate::lower::{NodeList, float, int, required};
use crate::{Attribute, DType, Node, Tensor};

type Converted = Result<(), String>;

/// Removes an attribute with integers.
fn take_ints(node: &mut Node, name: &str) -> Option<Vec<i64>> {
    match node.attributes.shift_remove(name)? {
        Attribute::Ints(values) => Some(values),
        Attribute::Int(value) => Some(vec![value]),
        _ => None,
    }
}

/// Appends an input.
fn push_input(node: &mut Node, place: usize, name: String) {
    node.inputs.resize(place, String::new());
    node.inputs.push(name);
}

/// Before version 7, the second operand is broadcast only if `broadcast` says so, from dimension `axis` on.
pub(crate) fn broadcast(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let (broadcasts, axis) = (int(&node, "broadcast").unwrap_or(0) != 0, int(&node, "axis"));
    node.attributes.retain(|name, _| name != "broadcast" && name != "axis");
    if let Some(axis) = axis.filter(|_| broadcasts) {
        node.inputs[1] = aligned(nodes, required(&node, 0)?, required(&node, 1)?, axis)?;
    }
    nodes.keep(node);
    Ok(())
}

/// Adds dimensions after those of `b`, so that its first is dimension `axis` of `a`.
fn aligned(nodes: &mut NodeList<'_>, a: &str, b: &str, axis: i64) -> Result<String, String> {
    let (rank, width) = (nodes.spec(a)?.dims.len() as i64, nodes.spec(b)?.dims.len() as i64);
    let axis = if axis < 0 { axis + rank } else { axis };
    let missing = rank - axis - width;
    if axis < 0 || missing < 0 {
        return Err(format!("`axis` is {axis} for {rank} and {width} dimensions"));
    }
    let added: Vec<i64> = (width..width + missing).collect();
    Ok(if added.is_empty() { b.to_owned() } else { nodes.unsqueeze(b, &added) })
}

/// Before version 7, `broadcast` states whether the summand is broadcast.
pub(crate) fn gemm(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    node.attributes.shift_remove("broadcast");
    nodes.keep(node);
    Ok(())
}

/// Before version 7, several slopes are those of the channels.
pub(crate) fn parametric_relu(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let (x, slope) = (required(&node, 0)?.to_owned(), required(&node, 1)?.to_owned());
    if nodes.spec(&slope)?.fixed_shape() != Some(vec![1]) {
        node.inputs[1] = aligned(nodes, &x, &slope, 1)?;
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 9, `spatial` 0 asks for statistics of each element.
pub(crate) fn batch_normalization(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    if int(&node, "spatial") == Some(0) {
        return Err("`spatial` is 0".to_owned());
    }
    require_test_mode(nodes, &mut node)?;
    node.attributes.shift_remove("spatial");
    nodes.keep(node);
    Ok(())
}

/// Before version 7, a node trains unless `is_test` says otherwise.
fn require_test_mode(nodes: &NodeList<'_>, node: &mut Node) -> Converted {
    let is_test = int(node, "is_test").unwrap_or(0) != 0;
    node.attributes.shift_remove("is_test");
    if nodes.opset() < 7 && !is_test { Err("it trains (`is_test` is 0)".to_owned()) } else { Ok(()) }
}

/// Before version 12, the ratio is an attribute, and a node never trains: the ratio is that of a training step.
pub(crate) fn dropout(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    require_test_mode(nodes, &mut node)?;
    let ratio = float(&node, "ratio", 0.5);
    node.attributes.shift_remove("ratio");
    node.inputs.truncate(1);
    node.inputs.push(nodes.number(ratio, DType::F32));
    nodes.keep(node);
    Ok(())
}

/// Before version 6, the type is a name.
pub(crate) fn cast(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    if let Some(Attribute::String(name)) = node.attributes.get("to") {
        const NAMES: [(&str, DType); 13] = [
            ("BFLOAT16", DType::BF16),
            ("BOOL", DType::Bool),
            ("DOUBLE", DType::F64),
            ("FLOAT", DType::F32),
            ("FLOAT16", DType::F16),
            ("INT16", DType::I16),
            ("INT32", DType::I32),
            ("INT64", DType::I64),
            ("INT8", DType::I8),
            ("UINT16", DType::U16),
            ("UINT32", DType::U32),
            ("UINT64", DType::U64),
            ("UINT8", DType::U8),
        ];
        let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, dtype) = known.ok_or_else(|| format!("the element type `{name}` is not supported"))?;
        node.attributes.insert("to".to_owned(), Attribute::Int(i64::from(crate::file::onnx_code(*dtype))));
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 11, the bounds are attributes.
pub(crate) fn clip(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let dtype = nodes.spec(required(&node, 0)?).map_or(DType::F32, |spec| spec.dtype);
    for (place, name) in [(1, "min"), (2, "max")] {
        if let Some(Attribute::Float(bound)) = node.attributes.shift_remove(name) {
            let bound = nodes.number(f64::from(bound), dtype);
            push_input(&mut node, place, bound);
        }
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 4, the axis is 1 by default.
pub(crate) fn concat(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    node.attributes.entry("axis".to_owned()).or_insert(Attribute::Int(1));
    nodes.keep(node);
    Ok(())
}

/// Before version 11, the amounts and the value are attributes; in version 1, the amounts have another name.
pub(crate) fn pad(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let pads = take_ints(&mut node, "pads").or_else(|| take_ints(&mut node, "paddings"));
    let pads = nodes.ints(&pads.ok_or("`pads` is missing")?);
    push_input(&mut node, 1, pads);
    if node.attributes.contains_key("value") {
        let dtype = nodes.spec(required(&node, 0)?).map_or(DType::F32, |spec| spec.dtype);
        let value = nodes.number(float(&node, "value", 0.0), dtype);
        node.attributes.shift_remove("value");
        push_input(&mut node, 2, value);
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 5, the shape is an attribute.
pub(crate) fn reshape(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let shape = take_ints(&mut node, "shape").ok_or("`shape` is missing")?;
    let shape = nodes.ints(&shape);
    push_input(&mut node, 1, shape);
    nodes.keep(node);
    Ok(())
}

/// `Upsample`, and `Resize` before version 11: places are rounded down, and coordinates only scaled.
pub(crate) fn resize(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = Node { op: "Resize".to_owned(), ..node.clone() };
    let text = |text: &str| Attribute::String(text.to_owned());
    if let Some(Attribute::String(mode)) = node.attributes.get("mode").filter(|mode| **mode == text("bilinear")) {
        let mode = mode.trim_start_matches("bi").to_owned();
        node.attributes.insert("mode".to_owned(), Attribute::String(mode));
    }
    node.attributes.insert("coordinate_transformation_mode".to_owned(), text("asymmetric"));
    node.attributes.insert("nearest_mode".to_owned(), text("floor"));
    let scales = match node.attributes.shift_remove("scales") {
        Some(Attribute::Floats(scales)) => Some(scales),
        _ => match (node.attributes.shift_remove("height_scale"), node.attributes.shift_remove("width_scale")) {
            (Some(Attribute::Float(height)), Some(Attribute::Float(width))) => Some(vec![1.0, 1.0, height, width]),
            _ => None,
        },
    };
    let scales = match scales {
        Some(scales) => {
            let count = scales.len();
            nodes.constant(Tensor::from_vec([count], scales).map_err(|error| error.to_string())?)
        }
        None => required(&node, 1)?.to_owned(),
    };
    node.inputs.truncate(1);
    push_input(&mut node, 2, scales);
    nodes.keep(node);
    Ok(())
}

/// Before version 9, each entry of a batch is scanned.
pub(crate) fn scan(_: &mut NodeList<'_>, _: &Node) -> Converted {
    Err("it scans a batch".to_owned())
}

/// `Scatter` is the older name of `ScatterElements`.
pub(crate) fn scatter(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    nodes.keep(Node { op: "ScatterElements".to_owned(), ..node.clone() });
    Ok(())
}

/// Before version 10, the bounds are attributes.
pub(crate) fn slice(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let mut count = 0;
    for (place, name) in [(1, "starts"), (2, "ends"), (3, "axes")] {
        match take_ints(&mut node, name) {
            Some(values) => {
                count = values.len();
                let values = nodes.ints(&values);
                push_input(&mut node, place, values);
            }
            None if place < 3 => return Err(format!("`{name}` is missing")),
            None => {
                let axes = nodes.ints(&(0..count as i64).collect::<Vec<_>>());
                push_input(&mut node, place, axes);
            }
        }
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 13, the dimensions from `axis` on are one.
pub(crate) fn softmax(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let (x, axis) = (required(node, 0)?, int(node, "axis").unwrap_or(1));
    let rank = nodes.spec(x).map(|spec| spec.dims.len() as i64);
    let last = [("axis".to_owned(), Attribute::Int(-1))];
    if axis == -1 || rank.is_ok_and(|rank| axis == rank - 1) {
        nodes.keep(Node { attributes: last.into_iter().collect(), ..node.clone() });
        return Ok(());
    }
    let flat = nodes.add_with("Flatten", &[x], [("axis", Attribute::Int(axis))]);
    let result =
        nodes.add_with(&node.op, &[&flat], last.each_ref().map(|(name, value)| (name.as_str(), value.clone())));
    let shape = nodes.add("Shape", &[x]);
    nodes.define("Reshape", &[&result, &shape], &node.outputs[0]);
    Ok(())
}

/// Before version 13, the sizes are an attribute.
pub(crate) fn split(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    if let Some(sizes) = take_ints(&mut node, "split") {
        let sizes = nodes.ints(&sizes);
        push_input(&mut node, 1, sizes);
    }
    nodes.keep(node);
    Ok(())
}

/// Before version 10, the number of elements is an attribute.
pub(crate) fn top_k(nodes: &mut NodeList<'_>, node: &Node) -> Converted {
    let mut node = node.clone();
    let count = take_ints(&mut node, "k").ok_or("`k` is missing")?;
    let count = nodes.ints(&count);
    push_input(&mut node, 1, count);
    nodes.keep(node);
    Ok(())
}
