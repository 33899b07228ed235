//! Reductions along axes, cumulative sums and softmax: methods of a graph's values.

use flagperf_onnx::layers::{self, Reduction};
use rhai::Array;
use rhai::plugin::*;

use super::graph::Node;
use super::operand::integers;
use crate::sandbox::Fallible;

fn reduced(x: &Node, name: &str, reduction: Reduction, axes: &Array, keep: bool) -> Fallible<Node> {
    let axes = integers("the list of axes", axes)?;
    x.numbered_layer(name, |builder, name, x| layers::reduce(builder, name, x, reduction, (&axes, keep)))
}

#[export_module]
pub(super) mod functions {
    /// Takes the sum over `axes`; with `keep`, they remain as dimensions of size 1.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").sum([1], false);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sum(x: Node, axes: Array, keep: bool) -> Fallible<Node> {
        reduced(&x, "sum", Reduction::Sum, &axes, keep)
    }

    /// Takes the mean over `axes`; with `keep`, they remain as dimensions of size 1.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").mean([1], false);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn mean(x: Node, axes: Array, keep: bool) -> Fallible<Node> {
        reduced(&x, "mean", Reduction::Mean, &axes, keep)
    }

    /// Takes the maximum over `axes`; with `keep`, they remain as dimensions of size 1.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").max([1], false);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn max(x: Node, axes: Array, keep: bool) -> Fallible<Node> {
        reduced(&x, "max", Reduction::Max, &axes, keep)
    }

    /// Takes the minimum over `axes`; with `keep`, they remain as dimensions of size 1.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").min([1], false);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn min(x: Node, axes: Array, keep: bool) -> Fallible<Node> {
        reduced(&x, "min", Reduction::Min, &axes, keep)
    }

    /// Returns the index (`i64`) of the largest element along an axis, which is removed; the first of equal ones.
    ///
    /// ```rhai
    /// let token = nn::graph("small").input("x", "N,16,64,f32").argmax(-1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn argmax(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("argmax", |builder, name, x| layers::arg_max(builder, name, x, (axis, false), false))
    }

    /// Returns the index (`i64`) of the smallest element along an axis, which is removed; the first of equal ones.
    ///
    /// ```rhai
    /// let nearest = nn::graph("small").input("x", "N,16,64,f32").argmin(-1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn argmin(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("argmin", |builder, name, x| layers::arg_max(builder, name, x, (axis, false), true))
    }

    /// Returns the sum of each element and all before it along an axis.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").cumsum(1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn cumsum(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("cumsum", |builder, name, x| layers::cumulative_sum(builder, name, x, axis))
    }

    /// Softmax over an axis; a negative axis counts from the end.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").softmax(-1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn softmax(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("softmax", |builder, name, x| layers::softmax(builder, name, x, axis))
    }

    /// The logarithm of softmax over an axis.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").log_softmax(-1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn log_softmax(x: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("log_softmax", |builder, name, x| layers::log_softmax(builder, name, x, axis))
    }
}
