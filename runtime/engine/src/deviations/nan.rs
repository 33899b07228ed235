//! Which values of a graph can be NaN although every input is finite.
//!
//! An operator makes NaN of numbers that it is not defined for, unless their bounds exclude these: `Sqrt` of a variance makes
//! none. Element-wise operators and those that move elements pass NaN on. Others do, too, but a sum over many elements is
//! followed no further: nearly every model divides somewhere. Infinite numbers, which also make NaN, are not considered.

use std::collections::HashSet;

use super::ranges::Bound;
use super::{KnownValues, NodeUse};

/// Operators that move elements, or select some of them.
#[rustfmt::skip]
const MOVING: [&str; 24] = [
    "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad",
    "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Trilu", "Unsqueeze", "Cast", "CastLike",
];
/// Element-wise operators.
#[rustfmt::skip]
const ELEMENT_WISE: [&str; 52] = [
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div",
    "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max", "Mean", "Min",
    "Mish", "Mod", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin",
    "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where",
];

/// Returns the names of the values that can be NaN.
pub(super) fn nan_values(known: &KnownValues<'_>) -> HashSet<String> {
    let mut found = HashSet::new();
    for node in &known.graph.nodes {
        let usage = NodeUse { node, known };
        if makes_nan(&usage) || passes_nan(&usage, &found) {
            let is_integer = |name: &&String| known.specs.get(*name).is_some_and(|spec| !spec.dtype.is_float());
            found.extend(node.outputs.iter().filter(|name| !is_integer(name)).cloned());
        }
    }
    found
}

/// Returns whether a node can make NaN of finite numbers.
fn makes_nan(usage: &NodeUse<'_>) -> bool {
    let bound = |input| usage.input(input).map(|name| usage.known.ranges().bound(usage.known, name));
    let is_outside = |low: f64, high: f64| bound(0).is_some_and(|x| x.low < low || x.high > high);
    let has_every = |input, condition: fn(&f64) -> bool| {
        usage.constant(input).is_some_and(|numbers| numbers.to_f64().iter().all(condition))
    };
    match usage.node.op.as_str() {
        "Log" | "ReduceLogSum" | "Sqrt" => is_outside(0.0, f64::INFINITY),
        "Acos" | "Asin" | "Atanh" => is_outside(-1.0, 1.0),
        "Acosh" => is_outside(1.0, f64::INFINITY),
        // Another number than 0 divided by 0 is infinite.
        "Div" if !bound(0).is_some_and(Bound::has_zero) => false,
        "Div" | "Mod" => !has_every(1, |x| *x != 0.0) && bound(1).is_some_and(Bound::has_zero),
        "Pow" => !has_every(1, |x| x.fract() == 0.0) && is_outside(0.0, f64::INFINITY),
        _ => false,
    }
}

/// Returns whether a node passes on what can be NaN.
fn passes_nan(usage: &NodeUse<'_>, found: &HashSet<String>) -> bool {
    let op = usage.node.op.as_str();
    let replaced = if op == "Where" { replaced_nan(usage) } else { None };
    let is_nan = |name: &String| found.contains(name) && replaced != Some(name.as_str());
    (MOVING.contains(&op) || ELEMENT_WISE.contains(&op)) && usage.node.inputs.iter().any(is_nan)
}

/// Returns the value whose NaN a `Where` replaces: `Where(IsNaN(x), y, x)`.
fn replaced_nan<'a>(usage: &NodeUse<'a>) -> Option<&'a str> {
    let (condition, kept) = (usage.input(0)?, usage.input(2)?);
    let tests =
        |name: &str| usage.known.graph.nodes.iter().find(|node| node.outputs.iter().any(|output| output == name));
    let test = tests(condition)?;
    (test.op == "IsNaN" && test.inputs.first().is_some_and(|tested| tested == kept)).then_some(kept)
}

#[cfg(test)]
mod tests {
    use crate::deviations::apply;
    use crate::deviations::fragment::parse;

    fn warnings(engine: &str, fragment: &str) -> Vec<String> {
        let engine = crate::find(engine).unwrap().name();
        apply(engine, parse(fragment)).unwrap().1
    }

    #[test]
    fn a_limit_after_what_can_make_nan_gives_a_warning() {
        let fragments = [
            "a logarithm: x N,f32; a = Log(x); y = Relu(a)",
            "a root, moved: x N,f32; a = Sqrt(x); b = Unsqueeze(a, [0]); c = Mul(b, 2.0); y = Clip(c, 0.0, 6.0)",
            "an angle: x N,f32; a = Acos(x); y = Relu(a)",
            "an angle: x N,f32; a = Asin(x); y = Relu(a)",
            "an area: x N,f32; a = Acosh(x); y = Relu(a)",
            "an area: x N,f32; a = Atanh(x); y = Relu(a)",
            "a quotient: x N,f32; z N,f32; a = Div(x, z); y = Relu(a)",
            "a quotient by zero: x N,f32; a = Div(x, 0.0); y = Relu(a)",
            "a remainder: x N,f32; z N,f32; a = Mod<fmod=1>(x, z); y = Relu(a)",
            "a power: x N,f32; a = Pow(x, 0.5); y = Relu(a)",
            "a part: x N,4,f32; a = Log(x); b, c = Split<axis=1>(a, [2, 2]); d = Concat<axis=1>(c, x); y = Relu(d)",
        ];
        for fragment in fragments {
            for engine in ["openvino", "rten"] {
                let warnings = warnings(engine, fragment);
                let expected = if fragment.contains("Clip") { ": NaN becomes a bound" } else { ": NaN becomes 0" };
                assert!(warnings.len() == 1 && warnings[0].ends_with(expected), "{engine}: {fragment}: {warnings:?}");
                assert!(warnings[0].contains("(node `node of y`)"), "{warnings:?}");
            }
            assert!(warnings("onnxruntime", fragment).is_empty(), "{fragment}");
        }
    }

    #[test]
    fn a_limit_of_what_cannot_be_nan_gives_no_warning() {
        let fragments = [
            "an input: x N,f32; y = Relu(x)",
            "a block: x N,8,8,8,f32; w 8,8,3,3,f32; a = Conv(x, w); b = Add(a, 1.0); y = Clip(b, 0.0, 6.0)",
            "a sum over elements: x 4,4,f32; a = Log(x); b = MatMul(a, x); y = Relu(b)",
            "a normalization: x N,64,f32; m = ReduceMean<keepdims=1>(x, [1]); d = Sub(x, m); p = Pow(d, 2.0); \
             v = ReduceMean(p, [1]); e = Add(v, 0.00001); s = Sqrt(e); q = Div(d, s); y = Relu(q)",
            "a norm: x N,64,f32; a = ReduceL2(x, [1]); b = Clip(a, 0.000001); c = Div(x, b); y = Relu(c)",
            "a square: x N,f32; a = Mul(x, x); b = Sqrt(a); y = Relu(b)",
            "a sigmoid: x N,f32; n = Neg(x); e = Exp(n); a = Add(e, 1.0); b = Div(1.0, a); y = Relu(b)",
            "a constant divisor: x N,f32; a = Div(x, -6.0); y = Relu(a)",
            "a constant dividend: x N,f32; a = Div(1.0, x); y = Relu(a)",
            "a logarithm of probabilities: x N,4,f32; s = Softmax<axis=1>(x); a = Log(s); y = Relu(a)",
            "a cube: x N,f32; a = Pow(x, 3.0); y = Relu(a)",
            "NaN replaced: x N,f32; a = Log(x); n = IsNaN(a); b = Where(n, 0.0, a); y = Relu(b)",
            "whole numbers: x N,f32; a = Log(x); b = Cast<to=7>(a); y = Clip(b, 0, 6)",
            "whole numbers: x N,i64; a = Div(x, 7); y = Clip(a, 0, 6)",
        ];
        for fragment in fragments {
            let warnings = warnings("rten", fragment);
            assert!(!warnings.iter().any(|warning| warning.contains("NaN")), "{fragment}: {warnings:?}");
        }
    }
}
