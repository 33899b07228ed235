//! Converts the arguments of layers: values of a graph, numbers, lists.

use flagperf_onnx::layers::Size;
use flagperf_onnx::{Tensor, Var};
use rhai::{Array, Dynamic, ImmutableString};

use super::graph::Node;
use crate::names::script_type;
use crate::packages::options::number;
use crate::sandbox::Fallible;
use flagperf_core::tensor::DType;

/// Largest number of values that one call combines: shape inference nests a sum to a depth of this number.
pub(super) const VALUES_MAX: usize = 1024;

/// Converts an array of whole numbers; `what` describes it in the error.
pub(super) fn integers(what: &str, values: &Array) -> Fallible<Vec<i64>> {
    let integers: Option<Vec<i64>> = values.iter().map(|value: &Dynamic| value.as_int().ok()).collect();
    integers.ok_or_else(|| format!("{what} must contain only whole numbers").into())
}

/// Converts a nonempty array of values of a graph; `function` is named in the error.
pub(super) fn nodes(function: &str, values: &Array) -> Fallible<Vec<Node>> {
    if values.len() > VALUES_MAX {
        return Err(format!("`{function}` accepts at most {VALUES_MAX} values, not {}", values.len()).into());
    }
    let nodes: Option<Vec<Node>> = values.iter().map(|value| value.clone().try_cast::<Node>()).collect();
    nodes
        .filter(|nodes| !nodes.is_empty())
        .ok_or_else(|| format!("`{function}` needs at least one value, and only values of a graph").into())
}

/// Converts the sizes of a shape: whole numbers, names of dimensions, and integers that the graph computes.
pub(super) fn shape(sizes: &Array) -> Fallible<Vec<Size>> {
    let size = |size: &Dynamic| {
        if let Ok(number) = size.as_int() {
            return Ok(Size::Number(number));
        }
        if let Some(node) = size.read_lock::<Node>() {
            return Ok(Size::Value(node.var.clone()));
        }
        match size.read_lock::<ImmutableString>() {
            Some(name) => Ok(Size::Named(name.to_string())),
            None => Err(format!(
                "a size must be a whole number, the name of a dimension or a value of the graph, not {}",
                script_type(size)
            )
            .into()),
        }
    };
    sizes.iter().map(size).collect()
}

/// Converts the name of an element type.
pub(super) fn dtype(name: &str) -> Fallible<DType> {
    name.parse().map_err(|error: flagperf_onnx::SpecError| error.to_string().into())
}

/// Returns a value of the graph as it is, or a number as a constant of the type of `like`.
pub(super) fn value_or_number(like: &Node, operand: &Dynamic) -> Fallible<Var> {
    if let Some(node) = operand.read_lock::<Node>() {
        return Ok(node.var.clone());
    }
    number_of_type(like, operand, like.var.spec().dtype)
}

/// Adds a number as a constant of the given type to the graph of `node`.
pub(super) fn number_of_type(node: &Node, operand: &Dynamic, dtype: DType) -> Fallible<Var> {
    let Some(number) = number(operand) else {
        return Err(
            format!("the operand must be a number or a value of the graph, not {}", script_type(operand)).into()
        );
    };
    node.graph.build(|builder| {
        let name = builder.unused_name("number");
        builder.constant(&name, Tensor::scalar(number).cast(dtype))
    })
}
