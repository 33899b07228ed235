//! Elementwise functions, softmax, dropout and arithmetic: methods and operators of a graph's values.

use flagperf_onnx::layers;
use flagperf_onnx::{BuildError, GraphBuilder, Tensor, Var};
use rhai::Dynamic;
use rhai::plugin::*;

use super::graph::Node;
use crate::script::packages::options::number;
use crate::script::sandbox::Fallible;

type BinaryLayer = fn(&mut GraphBuilder, &str, &Var, &Var) -> Result<Var, BuildError>;

/// Adds a binary layer whose right operand is a value of the graph, or a number that is converted to the type of `a`.
fn binary_layer(name: &str, layer: BinaryLayer, a: &Node, b: &Dynamic) -> Fallible<Node> {
    if let Some(b) = b.read_lock::<Node>() {
        return a.numbered_layer(name, |builder, name, a| layer(builder, name, a, &b.var));
    }
    let Some(b) = number(b) else {
        return Err(format!("the right operand must be a number or a value of the graph, not {}", b.type_name()).into());
    };
    a.numbered_layer(name, |builder, name, a| {
        let b = builder.constant(&format!("{name}.number"), Tensor::scalar(b).cast(a.spec().dtype))?;
        layer(builder, name, a, &b)
    })
}

#[export_module]
pub(super) mod functions {
    /// `max(x, 0)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").relu()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn relu(x: Node) -> Fallible<Node> {
        x.numbered_layer("relu", layers::relu)
    }

    /// `min(max(x, 0), 6)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").relu6()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn relu6(x: Node) -> Fallible<Node> {
        x.numbered_layer("relu6", layers::relu6)
    }

    /// `x` where `x` is positive, otherwise `slope * x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").leaky_relu(0.1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn leaky_relu(x: Node, slope: f64) -> Fallible<Node> {
        x.numbered_layer("leaky_relu", |builder, name, x| layers::leaky_relu(builder, name, x, slope as f32))
    }

    /// `x * sigmoid(x)`, also called swish.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").silu()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn silu(x: Node) -> Fallible<Node> {
        x.numbered_layer("silu", layers::silu)
    }

    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").gelu()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn gelu(x: Node) -> Fallible<Node> {
        x.numbered_layer("gelu", layers::gelu)
    }

    /// `1 / (1 + exp(-x))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").sigmoid()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sigmoid(x: Node) -> Fallible<Node> {
        x.numbered_layer("sigmoid", layers::sigmoid)
    }

    /// Hyperbolic tangent.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").tanh()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn tanh(x: Node) -> Fallible<Node> {
        x.numbered_layer("tanh", layers::tanh)
    }

    /// `x * hard_sigmoid(x)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").hard_swish()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn hard_swish(x: Node) -> Fallible<Node> {
        x.numbered_layer("hard_swish", layers::hard_swish)
    }

    /// `min(max(x / 6 + 1/2, 0), 1)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").hard_sigmoid()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn hard_sigmoid(x: Node) -> Fallible<Node> {
        x.numbered_layer("hard_sigmoid", layers::hard_sigmoid)
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

    /// Dropout: returns its input unchanged, except in training.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").dropout(0.2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn dropout(x: Node, probability: f64) -> Fallible<Node> {
        x.numbered_layer("dropout", |builder, name, x| layers::dropout(builder, name, x, probability as f32))
    }

    /// Matrix product over the last two dimensions; the preceding ones are broadcast.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// x.matmul(x.transpose([0, 2, 1]))
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn matmul(x: Node, y: Node) -> Fallible<Node> {
        x.numbered_layer("matmul", |builder, name, x| layers::matmul(builder, name, x, &y.var))
    }

    /// Adds a value, with broadcasting, or a number. A residual connection is `y + x`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32");
    /// (x.conv2d("conv", #{out: 16, kernel: 3, padding: 1}) + x).relu()
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("add", layers::add, &a, &b)
    }

    /// Subtracts a value, with broadcasting, or a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") - 0.5
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("sub", layers::sub, &a, &b)
    }

    /// Multiplies elementwise by a value, with broadcasting, or by a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") * 2
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("mul", layers::mul, &a, &b)
    }

    /// Divides by a value, with broadcasting, or by a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") / 2
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("div", layers::div, &a, &b)
    }
}
