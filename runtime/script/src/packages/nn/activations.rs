//! Activation functions and dropout: methods of a graph's values.

use flagperf_onnx::layers;
use rhai::plugin::*;

use super::super::options::{Number, finite_number};
use super::graph::Node;
use crate::sandbox::Fallible;

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
    pub fn leaky_relu(x: Node, slope: Number) -> Fallible<Node> {
        let slope = finite_number("the slope", &slope)?;
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

    /// Dropout: returns its input unchanged, except in training.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").dropout(0.2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn dropout(x: Node, probability: Number) -> Fallible<Node> {
        let probability = finite_number("the probability", &probability)?;
        x.numbered_layer("dropout", |builder, name, x| layers::dropout(builder, name, x, probability as f32))
    }

    /// The tanh approximation of `gelu` with `"tanh"`; the exact one with `"none"`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").gelu("tanh")
    /// ```
    #[rhai_fn(name = "gelu", global, return_raw)]
    pub fn gelu_with(x: Node, approximate: &str) -> Fallible<Node> {
        match approximate {
            "tanh" => x.numbered_layer("gelu", layers::gelu_tanh),
            "none" => gelu(x),
            other => Err(format!("unknown approximation `{other}` (known: none, tanh)").into()),
        }
    }

    /// `x * tanh(log(1 + exp(x)))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").mish()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn mish(x: Node) -> Fallible<Node> {
        x.numbered_layer("mish", layers::mish)
    }

    /// `log(1 + exp(x))`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").softplus()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn softplus(x: Node) -> Fallible<Node> {
        x.numbered_layer("softplus", layers::softplus)
    }
}
