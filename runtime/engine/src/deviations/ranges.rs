//! Bounds of the values of a graph, and the integers that may need more than 32 bits.
//!
//! Every value gets an interval from those of the operands. Constants are exact; an open size is at most 46,340, and the
//! number of elements of a tensor fits in 32 bits. An operator without a rule gives what its element type can be, and an
//! integer that no operator limits is *assumed* to fit in 32 bits, because the host checks the inputs. An input whose name
//! contains `mask` has the numbers 0 and 1.
//!
//! An int64 result of `Add`, `Sub`, `Mul`, `Pow`, `MatMul`, `ReduceSum`, `ReduceProd`, `CumSum`, a scatter with a reduction
//! or a `Cast` of floats may exceed 32 bits if its interval does, except in these cases, so that ordinary models (ids,
//! positions, masks, shapes) give no warning:
//!
//! - It is computed from constants and sizes alone: engines could not hold the tensors of a shape that is too large.
//! - It is used as a shape or an index only, perhaps after sums and products: numbers that are too large would be errors.
//! - It is an index of a dimension of known size: the interval is that of the indices, also for other uses.
//! - It is a sum with an assumed operand, all of which fit: ids with an offset, sums of masks, positions. A product of such a
//!   number with anything beyond ±1 may exceed 32 bits.
//!
//! A result that may exceed 32 bits is assumed to fit in further nodes, so that each cause is named once.

mod bound;
mod rules;
mod uses;

use std::collections::{HashMap, HashSet};

use flagperf_onnx::{Attribute, DType, ValueInfo};

use super::{KnownValues, NodeUse};
use bound::Basis;
pub(super) use bound::Bound;
use uses::Uses;

/// The operators whose results are larger than their operands.
const GROWING: [&str; 11] =
    ["Add", "Cast", "CumSum", "MatMul", "Mul", "Pow", "ReduceProd", "ReduceSum", "ScatterElements", "ScatterND", "Sub"];

/// The bounds of the values of a graph.
#[derive(Default)]
pub(super) struct Ranges {
    bounds: HashMap<String, Bound>,
    /// The integers that may need more than 32 bits.
    exceeding: HashSet<String>,
}

impl Ranges {
    /// Computes the bounds of all values.
    pub(super) fn of(known: &KnownValues<'_>) -> Self {
        let uses = Uses::of(known);
        let mut ranges = Ranges::default();
        for (name, weight) in &known.graph.weights {
            let numbers = weight.tensor().and_then(|tensor| Bound::of_numbers(&tensor.to_f64()));
            let bound = numbers.unwrap_or_else(|| Bound::of_type(Some(weight.spec.dtype), false));
            ranges.bounds.insert(name.clone(), bound);
        }
        for input in &known.graph.inputs {
            let bound = indexing(of_input(input), uses.indexed_size(&input.name));
            ranges.bounds.insert(input.name.clone(), bound);
        }
        for node in &known.graph.nodes {
            let usage = NodeUse { node, known };
            for (index, output) in node.outputs.iter().enumerate().filter(|(_, output)| !output.is_empty()) {
                ranges.add(&usage, index, output, &uses);
            }
        }
        ranges
    }

    /// Returns the bound of a value; that of its element type for a value from outside the graph.
    pub(super) fn bound(&self, known: &KnownValues<'_>, name: &str) -> Bound {
        let dtype = || known.specs.get(name).map(|spec| spec.dtype);
        self.bounds.get(name).copied().unwrap_or_else(|| Bound::of_type(dtype(), true))
    }

    /// Returns whether a value is an int64 that may need more than 32 bits.
    pub(super) fn may_exceed(&self, name: &str) -> bool {
        self.exceeding.contains(name)
    }

    /// Adds the bound of an output.
    fn add(&mut self, usage: &NodeUse<'_>, index: usize, output: &str, uses: &Uses) {
        let dtype = usage.known.specs.get(output).map(|spec| spec.dtype);
        let rule = rules::result(usage, index, &|input| self.operand(usage, input));
        let of_type = || Bound::of_type(dtype, self.depends_on_inputs(usage));
        let is_narrow = matches!(dtype, Some(DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16));
        let computed = rule.filter(|bound| !is_narrow || of_type().contains(*bound)).unwrap_or_else(of_type);
        let bound = indexing(computed, uses.indexed_size(output));
        let is_integer = dtype.is_some_and(|dtype| !dtype.is_float());
        if !is_integer || bound.fits() {
            self.bounds.insert(output.to_owned(), bound);
            return;
        }
        let is_watched = dtype == Some(DType::I64) && GROWING.contains(&usage.node.op.as_str());
        if is_watched && bound.basis > Basis::Model && !uses.is_place(output) {
            self.exceeding.insert(output.to_owned());
        }
        let basis = if bound.basis == Basis::Model { Basis::Model } else { Basis::Assumed };
        self.bounds.insert(output.to_owned(), Bound { basis, ..bound.within_limit() });
    }

    /// Returns whether an operand of a node depends on an input.
    fn depends_on_inputs(&self, usage: &NodeUse<'_>) -> bool {
        let is_encoded = |attribute: &Attribute| matches!(attribute, Attribute::Encoded(_));
        let depends = |index| self.operand(usage, index).is_some_and(|bound| bound.basis > Basis::Model);
        usage.node.attributes.values().any(is_encoded) || (0..usage.node.inputs.len()).any(depends)
    }

    /// Returns the bound of an input of a node; `None` if it is omitted.
    fn operand(&self, usage: &NodeUse<'_>, index: usize) -> Option<Bound> {
        usage.input(index).map(|name| self.bound(usage.known, name))
    }
}

/// Returns the bound of an input of the graph.
fn of_input(input: &ValueInfo) -> Bound {
    let dtype = input.spec.dtype;
    let is_mask = !dtype.is_float() && input.name.to_lowercase().contains("mask");
    Bound::of_type(Some(if is_mask { DType::Bool } else { dtype }), true)
}

/// Returns the bound of a value that is an index of a dimension of this size.
fn indexing(bound: Bound, size: Option<usize>) -> Bound {
    size.map_or(bound, |size| {
        let size = size as f64;
        let basis = bound.basis.min(Basis::Inputs);
        Bound::new(bound.low.clamp(-size, size), bound.high.clamp(-size, size), basis)
    })
}

#[cfg(test)]
mod tests {
    use crate::deviations::apply;
    use crate::deviations::fragment::parse;

    /// Returns the operator and the node of each warning of both engines.
    fn warned(fragment: &str) -> Vec<String> {
        let [first, second] = ["openvino", "rten"].map(|engine| {
            let (_, warnings) = apply(engine, parse(fragment)).unwrap();
            let reason = ": a 64-bit integer that may need more than 32 bits is computed in 32";
            let prefix = format!("engine `{engine}` deviates from ONNX in operator ");
            let place = |warning: &String| Some(warning.strip_suffix(reason)?.strip_prefix(&prefix)?.to_owned());
            warnings.iter().filter_map(place).collect::<Vec<_>>()
        });
        assert_eq!(first, second, "{fragment}");
        first
    }

    #[test]
    fn ordinary_integers_give_no_warning() {
        let fragments = [
            "positions: attention_mask N,L,i64; a = CumSum(attention_mask, 1); b = Sub(a, 1); y = Clip(b, 0)",
            "positions of tokens: ids N,L,i64; a = Equal(ids, 1); b = Not(a); i = Cast<to=7>(b); c = CumSum(i, 1); \
             m = Mul(c, i); y = Add(m, 1)",
            "an unnamed mask: x N,L,i64; a = CumSum(x, 1); b = Sub(a, 1); s = ReduceSum(x, [1]); y = Add(s, b)",
            "a count of places: x N,H,W,f32; a = Greater(x, 0.5); b = Cast<to=7>(a); y = ReduceSum(b, [0, 1, 2])",
            "two masks: mask N,L,i64; mask_pairs N,L,i64; y = Mul(mask, mask_pairs)",
            "a shape: x N,L,768,f32; s = Shape(x); b = Gather(s, 0); l = Gather(s, 1); m = Mul(b, l); n = Mul(m, 768); \
             u = Unsqueeze(n, [0]); y = Reshape(x, u)",
            "a shape as output: x N,L,768,f32; s = Shape(x); y = ReduceProd(s, [0])",
            "a size of the input: n 1,i64; x N,L,f32; m = Mul(n, 4); c = Concat<axis=0>([1], m); y = Expand(x, c)",
            "a range: x N,L,8,f32; s = Shape(x); n = Gather(s, 0); l = Gather(s, 1); r = Range(0, n, 1); y = Mul(r, l)",
            "an offset: ids N,L,i64; y = Add(ids, 50257)",
            "rows of a table: ids N,L,i64; t 50257,8,f32; a = Mul(ids, 4); b = Add(a, 3); y = Gather(t, b)",
            "windows: x 4,L,i64; t 100,i64; f = Unsqueeze(x, [0]); g = Gather(t, f); y = Mul(x, 10000)",
            "the last token: ids N,L,i64; x N,L,8,f32; a = ArgMax<axis=1,keepdims=0>(ids); y = Mul(a, 768)",
            "the largest: x N,V,f32; v, i = TopK(x, [4]); y = Mul(i, 768)",
            "buckets: x N,L,f32; s = Shape(x); n = Gather(s, 1); r = Range(0, n, 1); f = Cast<to=1>(r); l = Log(f); \
             m = Mul(l, 8.0); c = Cast<to=7>(m); d = Add(c, 16); y = Min(d, 31)",
            "a limited number: x N,L,f32; s = Sigmoid(x); m = Mul(s, 255.0); r = Round(m); y = Cast<to=7>(r)",
            "a selection: ids N,L,i64; c = Equal(ids, 0); y = Where(c, -100, ids)",
            "integers of 32 bits: x N,L,i32; y = Mul(x, x)",
            "a remainder: x N,L,i64; m = Mod(x, 32); y = Mul(m, 1024)",
            "a quotient: x N,L,i64; d = Div(x, 2); y = Add(d, d)",
            "updates: x 8,i64; i 2,i64; u 2,i64; y = ScatterElements(x, i, u)",
        ];
        for fragment in fragments {
            assert!(warned(fragment).is_empty(), "{fragment}: {:?}", warned(fragment));
        }
    }

    #[test]
    fn integers_that_may_exceed_32_bits_give_a_warning_with_operator_and_node() {
        let fragments = [
            ("a product with a constant: x N,L,i64; y = Mul(x, 4096)", "Mul"),
            ("a product: x N,L,i64; z N,L,i64; y = Mul(x, z)", "Mul"),
            ("rows and another use: ids N,i64; t 100000,8,f32; e = Gather(t, ids); y = Mul(ids, 30000)", "Mul"),
            ("a hash: ids N,L,i64; t 1000,8,f32; y = Mul(ids, 31337); m = Mod(y, 1000); z = Gather(t, m)", "Mul"),
            ("a square: x N,i64; y = Pow(x, 2)", "Pow"),
            ("matrices: x 4,4,i64; z 4,4,i64; y = MatMul(x, z)", "MatMul"),
            ("a product of all: x 4,i64; y = ReduceProd(x)", "ReduceProd"),
            ("known limits: x N,i64; c = Clip(x, 0, 2000000000); y = Add(c, 2000000000)", "Add"),
            ("known limits: x N,i64; c = Clip(x, 0, 2000000000); y = Sub(-2000000000, c)", "Sub"),
            ("a sum: x N,4096,i64; c = Clip(x, 0, 1000000); y = ReduceSum(c, [1])", "ReduceSum"),
            ("sums: x N,4096,i64; c = Clip(x, 0, 1000000); y = CumSum(c, 1)", "CumSum"),
            (
                "updates: x 8,i64; i 2,i64; c = Clip(x, 0, 2000000000); u = Slice(c, [0], [2]); \
              y = ScatterElements<reduction=add>(c, i, u)",
                "ScatterElements",
            ),
            ("products of updates: x 8,i64; i 2,1,i64; u 2,i64; y = ScatterND<reduction=mul>(x, i, u)", "ScatterND"),
            ("floats: x N,f32; y = Cast<to=7>(x)", "Cast"),
        ];
        for (fragment, op) in fragments {
            assert_eq!(warned(fragment), [format!("`{op}` (node `node of y`)")], "{fragment}");
        }
    }

    #[test]
    fn each_cause_is_named_once() {
        let fragment = "powers: x N,i64; y = Mul(x, 4096); z = Add(y, 1); w = Mul(y, 7)";
        assert_eq!(warned(fragment), ["`Mul` (node `node of y` and 1 more)"]);
        assert!(apply("onnxruntime", parse(fragment)).unwrap().1.is_empty());
    }

    #[test]
    fn a_node_that_is_replaced_gives_its_warning_too() {
        let (graph, warnings) = apply("rten", parse("a vector: x 4,4,i64; z 4,i64; y = MatMul(x, z)")).unwrap();
        assert!(graph.nodes.len() > 1 && warnings[0].contains("`MatMul` (node `node of y`)"), "{warnings:?}");
    }
}
