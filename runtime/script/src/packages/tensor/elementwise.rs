//! Elementwise functions of one tensor.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use rhai::plugin::*;
use rhai::{Module, NativeCallContext};

use super::Tensor;
use super::documented::documented;
use super::work::compute;
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// The name in scripts, the operator of ONNX, the text, and the tensor of the example.
type ElementwiseFunction = (&'static str, &'static str, &'static str, &'static str);

const TWO: &str = r#"tensor::from([0, 1], "2,f32")"#;
const BOOLEANS: &str = "(tensor::arange(4) > 1)";

const FUNCTIONS: [ElementwiseFunction; 18] = [
    ("exp", "Exp", "Returns e to the power of every element.", TWO),
    ("log", "Log", "Returns the natural logarithm of every element.", r#"tensor::from([1, 2], "2,f32")"#),
    ("sqrt", "Sqrt", "Returns the square root of every element.", r#"tensor::from([4, 9], "2,f32")"#),
    ("abs", "Abs", "Returns the absolute value of every element.", r#"tensor::from([-1, 2], "2,i64")"#),
    ("neg", "Neg", "Returns every element with the opposite sign.", r#"tensor::from([-1, 2], "2,i64")"#),
    ("-", "Neg", "Returns every element with the opposite sign.", r#"tensor::from([-1, 2], "2,i64")"#),
    (
        "floor",
        "Floor",
        "Returns the largest whole number that is not above each element.",
        r#"tensor::from([1.5, -1.5], "2,f32")"#,
    ),
    (
        "ceil",
        "Ceil",
        "Returns the smallest whole number that is not below each element.",
        r#"tensor::from([1.5, -1.5], "2,f32")"#,
    ),
    (
        "round",
        "Round",
        "Returns the whole number nearest to each element; of two equally near ones the even one.",
        r#"tensor::from([0.5, 1.5], "2,f32")"#,
    ),
    (
        "sign",
        "Sign",
        "Returns -1, 0 or 1 for every element that is below, equal to or above 0.",
        r#"tensor::from([-3, 0, 2], "3,i64")"#,
    ),
    ("sin", "Sin", "Returns the sine of every element, an angle in radians.", TWO),
    ("cos", "Cos", "Returns the cosine of every element, an angle in radians.", TWO),
    ("tanh", "Tanh", "Returns the hyperbolic tangent of every element.", TWO),
    ("erf", "Erf", "Returns the error function of every element.", TWO),
    ("sigmoid", "Sigmoid", "Returns 1 / (1 + e^-x) for every element x.", TWO),
    ("relu", "Relu", "Returns every element, or 0 where the element is negative.", r#"tensor::from([-1, 2], "2,f32")"#),
    ("not", "Not", "Returns the opposite of every boolean.", BOOLEANS),
    ("!", "Not", "Returns the opposite of every boolean.", BOOLEANS),
];

/// Registers the functions of the table.
pub(super) fn register(module: &mut Module) {
    for &(name, op, text, tensor) in &FUNCTIONS {
        let example = match name {
            "-" | "!" => format!("{name}{tensor}"),
            _ => format!("{tensor}.{name}()"),
        };
        documented(name, &["tensor: Tensor"], text, &example)
            .set_into_module(module, move |context: NativeCallContext<'_>, tensor: &mut Tensor| {
                unary(&context, name, op, tensor)
            });
    }
}

fn unary(context: &NativeCallContext<'_>, function: &'static str, op: &str, tensor: &Tensor) -> Fallible<Tensor> {
    compute(context, function, &|work| {
        let x = work.host(tensor)?;
        if op == "Neg" && x.dtype() == DType::Bool {
            return Err(work.refuse_for(&[Some(&x)], "booleans have no negative: `!` inverts them"));
        }
        work.apply(op, &[], &[&x])
    })
}

#[export_module]
pub(super) mod functions {
    /// Returns every element, limited to the range from `low` to `high`; `()` stands for no limit.
    ///
    /// ```rhai
    /// tensor::from([-5, 0, 5], "3,f32").clip(-1, ())
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn clip(context: NativeCallContext, tensor: &mut Tensor, low: Dynamic, high: Dynamic) -> Fallible<Tensor> {
        compute(&context, "clip", &|work| {
            let x = work.host(tensor)?;
            let bound = |bound: &Dynamic| -> Fallible<Option<HostTensor>> {
                if bound.is_unit() { Ok(None) } else { work.scalar(x.dtype(), bound).map(Some) }
            };
            let (low, high) = (bound(&low)?, bound(&high)?);
            let mut outputs = work.apply_all("Clip", &[], &[Some(&x), low.as_ref(), high.as_ref()], 1)?;
            Ok(outputs.remove(0))
        })
    }
}
