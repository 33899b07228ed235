//! Functions of two tensors, or of a tensor and a number: arithmetic, comparisons and logic, as operators and by name.
//! Shapes are broadcast; both tensors have the same element type, and a number takes the type of the tensor.

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Dynamic, Module, NativeCallContext};

use super::Tensor;
use super::documented::documented;
use super::work::{Work, compute};
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

struct PairwiseFunction {
    /// The operator of Rhai, which also accepts a number on the left.
    symbol: Option<&'static str>,
    method: Option<&'static str>,
    /// The operator of ONNX.
    op: &'static str,
    text: &'static str,
    /// The tensor and the number of the examples.
    operands: [&'static str; 2],
}

impl PairwiseFunction {
    const fn new(
        (symbol, method): (Option<&'static str>, Option<&'static str>),
        op: &'static str,
        operands: [&'static str; 2],
        text: &'static str,
    ) -> Self {
        PairwiseFunction { symbol, method, op, text, operands }
    }
}

const FLOATS: &str = r#"tensor::full("2,f32", 4.0)"#;
const WHOLE: &str = "tensor::arange(1, 5)";
const BOOLEANS: &str = "(tensor::arange(4) > 0)";

const FUNCTIONS: [PairwiseFunction; 16] = [
    PairwiseFunction::new(
        (Some("+"), None),
        "Add",
        [FLOATS, "2"],
        "Adds two tensors, or a number to every element. For this and all other operators, two tensors have the same type, \
         and a tensor of integers combines only with whole numbers written without a point: convert it first.",
    ),
    PairwiseFunction::new(
        (Some("-"), None),
        "Sub",
        [FLOATS, "0.5"],
        "Subtracts two tensors, or a number from every element.",
    ),
    PairwiseFunction::new(
        (Some("*"), None),
        "Mul",
        [FLOATS, "2.5"],
        "Multiplies two tensors, or every element by a number.",
    ),
    PairwiseFunction::new(
        (Some("/"), None),
        "Div",
        [FLOATS, "2"],
        "Divides two tensors, or every element by a number; integers are truncated towards zero.",
    ),
    PairwiseFunction::new(
        (Some("%"), None),
        "Mod",
        [WHOLE, "3"],
        "Returns the remainder of a division: of integers with the sign of the divisor, of floats with the sign of the \
         dividend.",
    ),
    PairwiseFunction::new((Some("**"), Some("pow")), "Pow", [FLOATS, "2"], "Raises the elements to a power."),
    PairwiseFunction::new(
        (None, Some("minimum")),
        "Min",
        [WHOLE, "3"],
        "Returns the smaller of each pair of elements; NaN if one of them is.",
    ),
    PairwiseFunction::new(
        (None, Some("maximum")),
        "Max",
        [WHOLE, "3"],
        "Returns the larger of each pair of elements; NaN if one of them is.",
    ),
    PairwiseFunction::new(
        (Some("&"), Some("and")),
        "And",
        [BOOLEANS, "true"],
        "Returns true where both tensors of booleans are true.",
    ),
    PairwiseFunction::new(
        (Some("|"), Some("or")),
        "Or",
        [BOOLEANS, "false"],
        "Returns true where at least one of two tensors of booleans is true.",
    ),
    PairwiseFunction::new(
        (Some("<"), Some("less")),
        "Less",
        [WHOLE, "2"],
        "Returns true where an element of the left operand is below that of the right one.",
    ),
    PairwiseFunction::new(
        (Some("<="), Some("less_or_equal")),
        "LessOrEqual",
        [WHOLE, "2"],
        "Returns true where an element of the left operand is not above that of the right one.",
    ),
    PairwiseFunction::new(
        (Some(">"), Some("greater")),
        "Greater",
        [WHOLE, "2"],
        "Returns true where an element of the left operand is above that of the right one.",
    ),
    PairwiseFunction::new(
        (Some(">="), Some("greater_or_equal")),
        "GreaterOrEqual",
        [WHOLE, "2"],
        "Returns true where an element of the left operand is not below that of the right one.",
    ),
    PairwiseFunction::new(
        (Some("=="), Some("equal")),
        "Equal",
        [WHOLE, "2"],
        "Returns true where the elements are equal. With the operator, a tensor can be compared with `()`, which it never \
         equals.",
    ),
    PairwiseFunction::new(
        (Some("!="), Some("not_equal")),
        "NotEqual",
        [WHOLE, "2"],
        "Returns true where the elements differ. With the operator, a tensor can be compared with `()`, which it never \
         equals.",
    ),
];

/// Registers the functions of the table.
pub(super) fn register(module: &mut Module) {
    for function in &FUNCTIONS {
        let [tensor, number] = function.operands;
        if let Some(symbol) = function.symbol {
            documented(symbol, &["a: Tensor", "b: Dynamic"], function.text, &format!("{tensor} {symbol} {number}"))
                .set_into_module(module, move |context: NativeCallContext<'_>, a: Tensor, b: Dynamic| {
                    operator(&context, (symbol, function.op), &Dynamic::from(a), &b)
                });
            let text = format!("{} The left operand is a number, or a truth value for booleans.", function.text);
            documented(symbol, &["a: Dynamic", "b: Tensor"], &text, &format!("{number} {symbol} {tensor}"))
                .set_into_module(module, move |context: NativeCallContext<'_>, a: Dynamic, b: Tensor| {
                    operator(&context, (symbol, function.op), &a, &Dynamic::from(b))
                });
        }
        if let Some(method) = function.method {
            documented(method, &["a: Tensor", "b: Dynamic"], function.text, &format!("{tensor}.{method}({number})"))
                .set_into_module(module, move |context: NativeCallContext<'_>, a: Tensor, b: Dynamic| {
                    apply(&context, (method, function.op), &Dynamic::from(a), &b)
                });
        }
    }
}

/// Applies an operator of Rhai. A tensor never equals `()`.
fn operator(
    context: &NativeCallContext<'_>,
    names: (&'static str, &str),
    a: &Dynamic,
    b: &Dynamic,
) -> Fallible<Dynamic> {
    match names.1 {
        "Equal" | "NotEqual" if a.is_unit() || b.is_unit() => Ok(Dynamic::from(names.1 == "NotEqual")),
        _ => apply(context, names, a, b),
    }
}

/// Applies the ONNX operator `op`, for the script's `function`, to two operands of which at least one is a tensor.
fn apply(
    context: &NativeCallContext<'_>,
    (function, op): (&'static str, &str),
    a: &Dynamic,
    b: &Dynamic,
) -> Fallible<Dynamic> {
    let tensor = compute(context, function, &|work| {
        let [a, b] = operands(work, a, b)?;
        match op {
            "Mod" if a.dtype().is_float() => work.apply(op, &[("fmod", Attribute::Int(1))], &[&a, &b]),
            "NotEqual" => work.apply("Not", &[], &[&work.apply("Equal", &[], &[&a, &b])?]),
            _ => work.apply(op, &[], &[&a, &b]),
        }
    });
    tensor.map(Dynamic::from)
}

/// Returns two operands as tensors: a number gets the type of the tensor.
fn operands(work: &Work<'_>, a: &Dynamic, b: &Dynamic) -> Fallible<[HostTensor; 2]> {
    match a.read_lock::<Tensor>() {
        Some(a) => {
            let a = work.host(&a)?;
            let b = work.operand(&a, b)?;
            Ok([a, b])
        }
        None => {
            let Some(b) = b.read_lock::<Tensor>() else {
                return Err(work.refuse("`a` or `b` must be a tensor, which determines the type"));
            };
            let b = work.host(&b)?;
            Ok([work.operand(&b, a)?, b])
        }
    }
}

#[export_module]
pub(super) mod functions {
    /// Returns the elements of `a` where `condition`, a tensor of booleans, is true, else those of `b`. `a` and `b` are
    /// tensors, or one of them is a number.
    ///
    /// ```rhai
    /// let x = tensor::from([-1, 2], "2,f32");
    /// tensor::where(x > 0, x, 0)
    /// ```
    #[rhai_fn(name = "where", return_raw)]
    pub fn elements_where(context: NativeCallContext, condition: Tensor, a: Dynamic, b: Dynamic) -> Fallible<Tensor> {
        compute(&context, "where", &|work| {
            let condition = work.host(&condition)?;
            let [a, b] = operands(work, &a, &b)?;
            work.apply("Where", &[], &[&condition, &a, &b])
        })
    }
}
