//! Arithmetic and comparisons: operators of a graph's values. A comparison is a value of bools.

use flagperf_onnx::layers;
use flagperf_onnx::{BuildError, GraphBuilder, Tensor, Var};
use rhai::plugin::*;
use rhai::{Array, Dynamic, NativeCallContext};

use super::graph::Node;
use super::operand::{nodes, value_or_number};
use crate::sandbox::{Fallible, script_state};

type BinaryLayer = fn(&mut GraphBuilder, &str, &Var, &Var) -> Result<Var, BuildError>;

/// Adds a binary layer whose right operand is a value of the graph, or a number that is converted to the type of `a`.
fn binary_layer(name: &str, layer: BinaryLayer, a: &Node, b: &Dynamic) -> Fallible<Node> {
    let b = value_or_number(a, b)?;
    a.numbered_layer(name, |builder, name, a| layer(builder, name, a, &b))
}

/// Adds a binary layer whose left operand is a number, which is converted to the type of `b`.
fn layer_of_number(name: &str, layer: BinaryLayer, a: f64, b: &Node) -> Fallible<Node> {
    b.numbered_layer(name, |builder, name, b| {
        let a = builder.constant(&format!("{name}.number"), Tensor::scalar(a).cast(b.spec().dtype))?;
        layer(builder, name, &a, b)
    })
}

#[export_module]
pub(super) mod functions {
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

    /// The remainder of a division between integers, with the sign of the divisor.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,i64") % 2
    /// ```
    #[rhai_fn(name = "%", global, return_raw)]
    pub fn modulo(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("modulo", layers::modulo, &a, &b)
    }

    /// Whether elements are equal, as a value of bools. A value of the graph is never equal to `()`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,i64") == 0
    /// ```
    #[rhai_fn(name = "==", global, return_raw)]
    pub fn equal(a: Node, b: Dynamic) -> Fallible<Dynamic> {
        if b.is_unit() {
            return Ok(Dynamic::from(false));
        }
        binary_layer("equal", layers::equal, &a, &b).map(Dynamic::from)
    }

    /// Whether elements differ, as a value of bools. A value of the graph is never equal to `()`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,i64") != 0
    /// ```
    #[rhai_fn(name = "!=", global, return_raw)]
    pub fn not_equal(a: Node, b: Dynamic) -> Fallible<Dynamic> {
        if b.is_unit() {
            return Ok(Dynamic::from(true));
        }
        binary_layer("not_equal", layers::not_equal, &a, &b).map(Dynamic::from)
    }

    /// Whether elements are less, as a value of bools.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") < 0.5
    /// ```
    #[rhai_fn(name = "<", global, return_raw)]
    pub fn less(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("less", layers::less, &a, &b)
    }

    /// Whether elements are less or equal, as a value of bools.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") <= 0.5
    /// ```
    #[rhai_fn(name = "<=", global, return_raw)]
    pub fn less_or_equal(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("less_or_equal", layers::less_or_equal, &a, &b)
    }

    /// Whether elements are greater, as a value of bools.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") > 0.5
    /// ```
    #[rhai_fn(name = ">", global, return_raw)]
    pub fn greater(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("greater", layers::greater, &a, &b)
    }

    /// Whether elements are greater or equal, as a value of bools.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32") >= 0.5
    /// ```
    #[rhai_fn(name = ">=", global, return_raw)]
    pub fn greater_or_equal(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("greater_or_equal", layers::greater_or_equal, &a, &b)
    }

    /// Logical and of bools.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// (x > 0) & (x < 1)
    /// ```
    #[rhai_fn(name = "&", global, return_raw)]
    pub fn and(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("and", layers::and, &a, &b)
    }

    /// Logical or of bools.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// (x < 0) | (x > 1)
    /// ```
    #[rhai_fn(name = "|", global, return_raw)]
    pub fn or(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("or", layers::or, &a, &b)
    }

    /// Adds a value to a number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1.0 + x
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add_to_f64(a: f64, b: Node) -> Fallible<Node> {
        layer_of_number("add", layers::add, a, &b)
    }

    /// Adds a value to a whole number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1 + x
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add_to_i64(a: i64, b: Node) -> Fallible<Node> {
        layer_of_number("add", layers::add, a as f64, &b)
    }

    /// Subtracts a value from a number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1.0 - x
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract_to_f64(a: f64, b: Node) -> Fallible<Node> {
        layer_of_number("sub", layers::sub, a, &b)
    }

    /// Subtracts a value from a whole number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1 - x
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract_to_i64(a: i64, b: Node) -> Fallible<Node> {
        layer_of_number("sub", layers::sub, a as f64, &b)
    }

    /// Multiplies a number by a value.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 2.0 * x
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply_to_f64(a: f64, b: Node) -> Fallible<Node> {
        layer_of_number("mul", layers::mul, a, &b)
    }

    /// Multiplies a whole number by a value.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 2 * x
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply_to_i64(a: i64, b: Node) -> Fallible<Node> {
        layer_of_number("mul", layers::mul, a as f64, &b)
    }

    /// Divides a number by a value.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1.0 / x
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide_to_f64(a: f64, b: Node) -> Fallible<Node> {
        layer_of_number("div", layers::div, a, &b)
    }

    /// Divides a whole number by a value.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,f32");
    /// 1 / x
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide_to_i64(a: i64, b: Node) -> Fallible<Node> {
        layer_of_number("div", layers::div, a as f64, &b)
    }

    /// The smaller of two values, elementwise, with broadcasting; the second may be a number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").minimum(1.0);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn minimum(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("minimum", layers::minimum, &a, &b)
    }

    /// The larger of two values, elementwise, with broadcasting; the second may be a number.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").maximum(0.0);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn maximum(a: Node, b: Dynamic) -> Fallible<Node> {
        binary_layer("maximum", layers::maximum, &a, &b)
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

    /// Einstein's sum over the indices of the equation.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// let products = nn::einsum("bij,bkj->bik", [x, x]);
    /// ```
    #[rhai_fn(return_raw)]
    pub fn einsum(context: NativeCallContext, equation: &str, values: Array) -> Fallible<Node> {
        script_state(&context)?.budget.check()?;
        let nodes = nodes("einsum", &values)?;
        let vars: Vec<&Var> = nodes.iter().map(|node| &node.var).collect();
        nodes[0].numbered_layer("einsum", |builder, name, _| layers::einsum(builder, name, equation, &vars))
    }
}
