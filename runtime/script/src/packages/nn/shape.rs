//! Changes of shape: methods of a graph's values.

use flagperf_onnx::layers;
use rhai::Array;
use rhai::plugin::*;

use super::graph::Node;
use super::operand::{dtype, integers, shape};
use crate::packages::options::sizes;
use crate::sandbox::Fallible;

#[export_module]
pub(super) mod functions {
    /// Reshapes to two dimensions: the first, and the product of the others.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,1,1,f32").flatten();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn flatten(x: Node) -> Fallible<Node> {
        x.numbered_layer("flatten", |builder, name, x| layers::flatten(builder, name, x, 1))
    }

    /// Changes the shape. Each size is a whole number (0 keeps the dimension at the same position, and one -1 is
    /// inferred from the others), the name of a dimension of the graph's inputs, or an integer that the graph computes.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// let heads = x.reshape([0, 0, 4, 16]);
    /// let rows = x.reshape([-1, 64]).reshape(["N", 16, 64]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn reshape(x: Node, sizes: Array) -> Fallible<Node> {
        let target = shape(&sizes)?;
        x.numbered_layer("reshape", |builder, name, x| layers::reshape_to(builder, name, x, &target))
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `order[i]` of `x`, as PyTorch's `permute`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").transpose([0, 2, 1]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn transpose(x: Node, order: Array) -> Fallible<Node> {
        let order = sizes("the order", &order)?;
        x.numbered_layer("transpose", |builder, name, x| layers::transpose(builder, name, x, &order))
    }

    /// Exchanges two dimensions, as PyTorch's `transpose`; negative axes count from the end.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").transpose(-1, -2);
    /// ```
    #[rhai_fn(name = "transpose", global, return_raw)]
    pub fn swap_axes(x: Node, first: i64, second: i64) -> Fallible<Node> {
        x.numbered_layer("transpose", |builder, name, x| layers::swap_axes(builder, name, x, first, second))
    }

    /// Removes the dimension `axis`, which has size 1.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,1,64,f32").squeeze(1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn squeeze(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("squeeze", |builder, name, x| layers::squeeze(builder, name, x, &[axis]))
    }

    /// Inserts a dimension of size 1 at `axis`, a place in the result.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").unsqueeze(1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn unsqueeze(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("unsqueeze", |builder, name, x| layers::unsqueeze(builder, name, x, &[axis]))
    }

    /// Repeats dimensions of size 1 up to the given sizes: whole numbers (-1 keeps a size), names of dimensions, or
    /// integers that the graph computes. Dimensions may be added in front.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,64,f32");
    /// let token = graph.parameter("class_token", "1,64,f32", 0.02).expand(["N", -1]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn expand(x: Node, sizes: Array) -> Fallible<Node> {
        let target = shape(&sizes)?;
        x.numbered_layer("expand", |builder, name, x| layers::expand(builder, name, x, &target))
    }

    /// Repeats the whole tensor: `repeats[i]` times along dimension `i`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,1,64,f32").tile([1, 2, 1]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn tile(x: Node, repeats: Array) -> Fallible<Node> {
        let repeats = integers("the repeats", &repeats)?;
        x.numbered_layer("tile", |builder, name, x| layers::tile(builder, name, x, &repeats))
    }

    /// Returns the shape as a value that the graph computes: one integer (`i64`) for each dimension.
    ///
    /// ```rhai
    /// let length = nn::graph("small").input("x", "N,16,64,f32").shape_of().select(0, 1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn shape_of(x: Node) -> Fallible<Node> {
        x.numbered_layer("shape", layers::shape_of)
    }

    /// Converts the elements to another type. Floats are truncated to integers; every number except zero is true.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").cast("i64");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn cast(x: Node, name: &str) -> Fallible<Node> {
        let to = dtype(name)?;
        x.numbered_layer("cast", |builder, name, x| layers::cast(builder, name, x, to))
    }
}
