//! Functions of every element, softmax, dropout and arithmetic: methods and operators of a graph's values.

use flagperf_onnx::layers;
use flagperf_onnx::{BuildError, GraphBuilder, Tensor, Var};
use rhai::Dynamic;
use rhai::plugin::*;

use super::graph::Node;
use crate::script::packages::options::number;
use crate::script::sandbox::Fallible;

type Binary = fn(&mut GraphBuilder, &str, &Var, &Var) -> Result<Var, BuildError>;

/// The right side is a value of the graph, or a number of the left side's type.
fn binary(name: &str, layer: Binary, a: &Node, b: &Dynamic) -> Fallible<Node> {
    if let Some(b) = b.read_lock::<Node>() {
        return a.unnamed(name, |builder, name, a| layer(builder, name, a, &b.var));
    }
    let Some(b) = number(b) else {
        return Err(format!("a value of a graph and {} cannot be computed with", b.type_name()).into());
    };
    a.unnamed(name, |builder, name, a| {
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
        x.unnamed("relu", layers::relu)
    }

    /// `min(max(x, 0), 6)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").relu6()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn relu6(x: Node) -> Fallible<Node> {
        x.unnamed("relu6", layers::relu6)
    }

    /// `x` where positive, else `slope * x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").leaky_relu(0.1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn leaky_relu(x: Node, slope: f64) -> Fallible<Node> {
        x.unnamed("leaky_relu", |builder, name, x| layers::leaky_relu(builder, name, x, slope as f32))
    }

    /// `x * sigmoid(x)`, also called swish.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").silu()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn silu(x: Node) -> Fallible<Node> {
        x.unnamed("silu", layers::silu)
    }

    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").gelu()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn gelu(x: Node) -> Fallible<Node> {
        x.unnamed("gelu", layers::gelu)
    }

    /// `1 / (1 + exp(-x))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").sigmoid()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sigmoid(x: Node) -> Fallible<Node> {
        x.unnamed("sigmoid", layers::sigmoid)
    }

    /// Hyperbolic tangent.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").tanh()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn tanh(x: Node) -> Fallible<Node> {
        x.unnamed("tanh", layers::tanh)
    }

    /// `x * hard_sigmoid(x)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").hard_swish()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn hard_swish(x: Node) -> Fallible<Node> {
        x.unnamed("hard_swish", layers::hard_swish)
    }

    /// `min(max(x / 6 + 1/2, 0), 1)`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").hard_sigmoid()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn hard_sigmoid(x: Node) -> Fallible<Node> {
        x.unnamed("hard_sigmoid", layers::hard_sigmoid)
    }

    /// Softmax over an axis; a negative one counts from the end.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").softmax(-1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn softmax(x: Node, axis: i64) -> Fallible<Node> {
        x.unnamed("softmax", |builder, name, x| layers::softmax(builder, name, x, axis))
    }

    /// Dropout: passes its input through outside training.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").dropout(0.2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn dropout(x: Node, probability: f64) -> Fallible<Node> {
        x.unnamed("dropout", |builder, name, x| layers::dropout(builder, name, x, probability as f32))
    }

    /// Matrix product of the last two dimensions; those before are broadcast.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// x.matmul(x.transpose([0, 2, 1]))
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn matmul(x: Node, y: Node) -> Fallible<Node> {
        x.unnamed("matmul", |builder, name, x| layers::matmul(builder, name, x, &y.var))
    }

    /// Sum with a value, broadcast, or a number. A residual is `y + x`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32");
    /// (x.conv2d("conv", #{out: 16, kernel: 3, padding: 1}) + x).relu()
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add(a: Node, b: Dynamic) -> Fallible<Node> {
        binary("add", layers::add, &a, &b)
    }

    /// Difference with a value, broadcast, or a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") - 0.5
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract(a: Node, b: Dynamic) -> Fallible<Node> {
        binary("sub", layers::sub, &a, &b)
    }

    /// Product with a value, element by element and broadcast, or a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") * 2
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply(a: Node, b: Dynamic) -> Fallible<Node> {
        binary("mul", layers::mul, &a, &b)
    }

    /// Quotient with a value, broadcast, or a number.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") / 2
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide(a: Node, b: Dynamic) -> Fallible<Node> {
        binary("div", layers::div, &a, &b)
    }
}
