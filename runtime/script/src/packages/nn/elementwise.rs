//! Elementwise functions of mathematics: methods of a graph's values.

use flagperf_onnx::layers;
use rhai::Dynamic;
use rhai::plugin::*;

use super::graph::Node;
use super::operand::value_or_number;
use crate::names::script_type;
use crate::packages::options::number;
use crate::sandbox::Fallible;

#[export_module]
pub(super) mod functions {
    /// e to the power `x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").exp()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn exp(x: Node) -> Fallible<Node> {
        x.numbered_layer("exp", layers::exp)
    }

    /// Natural logarithm.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").log()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn log(x: Node) -> Fallible<Node> {
        x.numbered_layer("log", layers::log)
    }

    /// Square root.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").sqrt()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sqrt(x: Node) -> Fallible<Node> {
        x.numbered_layer("sqrt", layers::sqrt)
    }

    /// Absolute value.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").abs()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn abs(x: Node) -> Fallible<Node> {
        x.numbered_layer("abs", layers::abs)
    }

    /// Sine.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").sin()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sin(x: Node) -> Fallible<Node> {
        x.numbered_layer("sin", layers::sin)
    }

    /// Cosine.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").cos()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn cos(x: Node) -> Fallible<Node> {
        x.numbered_layer("cos", layers::cos)
    }

    /// Error function.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").erf()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn erf(x: Node) -> Fallible<Node> {
        x.numbered_layer("erf", layers::erf)
    }

    /// `1 / x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").reciprocal()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn reciprocal(x: Node) -> Fallible<Node> {
        x.numbered_layer("reciprocal", layers::reciprocal)
    }

    /// The largest integer not above `x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").floor()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn floor(x: Node) -> Fallible<Node> {
        x.numbered_layer("floor", layers::floor)
    }

    /// The smallest integer not below `x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").ceil()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn ceil(x: Node) -> Fallible<Node> {
        x.numbered_layer("ceil", layers::ceil)
    }

    /// The nearest integer; halves are rounded to the even one.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").round()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn round(x: Node) -> Fallible<Node> {
        x.numbered_layer("round", layers::round)
    }

    /// -1, 0 or 1 with the sign of `x`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").sign()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn sign(x: Node) -> Fallible<Node> {
        x.numbered_layer("sign", layers::sign)
    }

    /// `min(max(x, low), high)`; `()` in place of a bound omits it.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").clip(0.0, ())
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn clip(x: Node, low: Dynamic, high: Dynamic) -> Fallible<Node> {
        let bound = |bound: &Dynamic| match number(bound) {
            Some(value) => Ok(Some(value as f32)),
            None if bound.is_unit() => Ok(None),
            None => Err(format!("a bound must be a number or (), not {}", script_type(bound))),
        };
        let bounds = (bound(&low)?, bound(&high)?);
        x.numbered_layer("clip", |builder, name, x| layers::clip(builder, name, x, bounds))
    }

    /// `x` to the power of a number or a value, elementwise.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").pow(2)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn pow(x: Node, exponent: Dynamic) -> Fallible<Node> {
        let exponent = value_or_number(&x, &exponent)?;
        x.numbered_layer("pow", |builder, name, x| layers::pow(builder, name, x, &exponent))
    }

    /// Logical negation of bools.
    ///
    /// ```rhai
    /// !(nn::graph("small").input("x", "N,3,f32") > 0)
    /// ```
    #[rhai_fn(name = "!", global, return_raw)]
    pub fn not(x: Node) -> Fallible<Node> {
        x.numbered_layer("not", layers::not)
    }

    /// `-x`.
    ///
    /// ```rhai
    /// -nn::graph("small").input("x", "N,3,f32")
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn neg(x: Node) -> Fallible<Node> {
        x.numbered_layer("neg", layers::neg)
    }
}
