//! Selecting, combining and moving elements: methods of a graph's values.

use flagperf_onnx::layers::{self, Fill, Slice};
use flagperf_onnx::{BuildError, GraphBuilder, Var};
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use super::graph::Node;
use super::operand::{VALUES_MAX, integers, nodes, number_of_type, value_or_number};
use crate::packages::options::{number, size, sizes};
use crate::packages::parts::{axis_place, equal_parts};
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::DType;

type JoinLayer = fn(&mut GraphBuilder, &str, &[&Var], i64) -> Result<Var, BuildError>;

/// Joins values along an axis.
fn join(
    context: &NativeCallContext<'_>,
    function: &str,
    layer: JoinLayer,
    values: &Array,
    axis: i64,
) -> Fallible<Node> {
    script_state(context)?.budget.check()?;
    let nodes = nodes(function, values)?;
    let vars: Vec<&Var> = nodes.iter().map(|node| &node.var).collect();
    nodes[0].numbered_layer(function, |builder, name, _| layer(builder, name, &vars, axis))
}

/// Splits a dimension into parts of the given sizes.
fn split_into(x: &Node, parts: &[usize], axis: i64) -> Fallible<Array> {
    let vars = x.graph.build(|builder| {
        let name = builder.unused_name("split");
        layers::split(builder, &name, &x.var, parts, axis)
    })?;
    Ok(vars.into_iter().map(|var| Dynamic::from(x.graph.node(var))).collect())
}

/// Returns the size of the dimension `axis`, which counts from the end if it is negative.
fn axis_size(x: &Node, function: &str, axis: i64) -> Fallible<usize> {
    let dims = &x.var.spec().dims;
    let size = axis_place(axis, dims.len()).and_then(|place| dims[place].fixed());
    size.ok_or_else(|| format!("`{function}` needs an axis of fixed size: axis {axis} of `{}`", x.var.spec()).into())
}

#[export_module]
pub(super) mod functions {
    /// Concatenates values along an axis.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,32,32,f32");
    /// let y = nn::concat([x, x.relu()], 1);
    /// ```
    #[rhai_fn(return_raw)]
    pub fn concat(context: NativeCallContext, values: Array, axis: i64) -> Fallible<Node> {
        join(&context, "concat", layers::concat, &values, axis)
    }

    /// Concatenates values of the same shape along a new dimension.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// let pair = nn::stack([x, x.relu()], 1);
    /// ```
    #[rhai_fn(return_raw)]
    pub fn stack(context: NativeCallContext, values: Array, axis: i64) -> Fallible<Node> {
        join(&context, "stack", layers::stack, &values, axis)
    }

    /// Splits a dimension and returns an array: `parts` is an array of sizes, or the size of every part, of which the
    /// last may be smaller.
    ///
    /// ```rhai
    /// let parts = nn::graph("small").input("x", "N,16,64,f32").split([16, 48], -1);
    /// let halves = nn::graph("small").input("x", "N,16,64,f32").split(32, -1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn split(x: Node, parts: Dynamic, axis: i64) -> Fallible<Array> {
        let parts = match parts.read_lock::<Array>() {
            Some(parts) => sizes("the sizes of the parts", &parts)?,
            None => {
                let all = axis_size(&x, "split", axis)?;
                let each = parts.as_int().map_err(|actual| format!("the parts must be sizes, not {actual}"))?;
                equal_parts(all, size("the size of a part", each)?, VALUES_MAX)?
            }
        };
        split_into(&x, &parts, axis)
    }

    /// Splits a dimension into `count` equal parts and returns an array; the last part may be smaller.
    ///
    /// ```rhai
    /// let qkv = nn::graph("small").input("x", "N,16,64,f32").linear("qkv", 192).chunk(3, -1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn chunk(x: Node, count: i64, axis: i64) -> Fallible<Array> {
        let all = axis_size(&x, "chunk", axis)?;
        let parts = equal_parts(all, all.div_ceil(size("the number of parts", count)?.max(1)), VALUES_MAX)?;
        split_into(&x, &parts, axis)
    }

    /// Keeps the elements of a dimension from `start` up to, but not including,
    /// `end`; negative places count from the end.
    /// With `()` as `end`, the slice reaches to the end.
    ///
    /// ```rhai
    /// let first = nn::graph("small").input("x", "N,16,64,f32").slice(1, 0, 8);
    /// let last = nn::graph("small").input("x", "N,16,64,f32").slice(-1, -8, ());
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn slice(x: Node, axis: i64, start: i64, end: Dynamic) -> Fallible<Node> {
        slice_with_step(x, axis, start, end, 1)
    }

    /// Keeps every `step`-th element from `start` up to, but not including, `end`; a negative step reverses the order.
    ///
    /// ```rhai
    /// let even = nn::graph("small").input("x", "N,16,64,f32").slice(-1, 0, (), 2);
    /// ```
    #[rhai_fn(name = "slice", global, return_raw)]
    pub fn slice_with_step(x: Node, axis: i64, start: i64, end: Dynamic, step: i64) -> Fallible<Node> {
        let far = if step < 0 { i64::MIN } else { i64::MAX };
        let end = if end.is_unit() { Ok(far) } else { end.as_int() };
        let end = end.map_err(|actual| format!("the end of a slice must be a whole number or (), not {actual}"))?;
        let slice = Slice { axis, start, end, step };
        x.numbered_layer("slice", |builder, name, x| layers::slice(builder, name, x, &[slice]))
    }

    /// Keeps the element at `index` of a dimension and removes the dimension; a negative index counts from the end.
    ///
    /// ```rhai
    /// let class_token = nn::graph("small").input("x", "N,16,64,f32").select(1, 0);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn select(x: Node, axis: i64, index: i64) -> Fallible<Node> {
        x.numbered_layer("select", |builder, name, x| layers::select(builder, name, x, axis, index))
    }

    /// Selects the entries of an axis at `indices` (`i64`), whose shape replaces the axis. It looks up embeddings, too.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let words = graph.parameter("word.weight", "1000,64,f32", 0.02);
    /// let x = words.gather(graph.input("tokens", "N,512,i64"), 0);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn gather(x: Node, indices: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("gather", |builder, name, x| layers::gather(builder, name, x, &indices.var, axis))
    }

    /// Selects one element for each element of `indices` (`i64`) along an axis, as PyTorch's `gather`.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let scores = graph.input("scores", "N,10,f32").gather_elements(graph.input("labels", "N,1,i64"), 1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn gather_elements(x: Node, indices: Node, axis: i64) -> Fallible<Node> {
        x.numbered_layer("gather_elements", |b, name, x| layers::gather_elements(b, name, x, &indices.var, axis))
    }

    /// Returns `a` where `condition` (`bool`) is true, otherwise `b`, with broadcasting. Each may be a number: of the
    /// type of the other one, or `f32`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32");
    /// let y = nn::where(x > 0, x, 0.0);
    /// ```
    #[rhai_fn(name = "where", return_raw)]
    pub fn choose(condition: Node, a: Dynamic, b: Dynamic) -> Fallible<Node> {
        let like = [&a, &b].into_iter().find_map(|operand| operand.read_lock::<Node>().map(|node| node.clone()));
        let operand = |operand: &Dynamic| match &like {
            Some(like) => value_or_number(like, operand),
            None => number_of_type(&condition, operand, DType::F32),
        };
        let (a, b) = (operand(&a)?, operand(&b)?);
        condition.numbered_layer("where", |builder, name, condition| layers::choose(builder, name, condition, &a, &b))
    }

    /// Adds elements around `x`: for each dimension an array of two numbers, those before and after. `fill` is a
    /// number, "reflect" or "edge".
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,32,32,f32").pad([[0, 0], [0, 0], [1, 1], [2, 2]], 0.0);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn pad(x: Node, pads: Array, fill: Dynamic) -> Fallible<Node> {
        let pairs = pads.iter().map(|pair| pair.read_lock::<Array>().and_then(|pair| sizes("a pair", &pair).ok()));
        let pairs = pairs.map(|pair| pair.and_then(|pair| <[usize; 2]>::try_from(pair).ok()).map(|[a, b]| (a, b)));
        let pairs: Option<Vec<(usize, usize)>> = pairs.collect();
        let pairs = pairs.ok_or("the padding must be one array of two whole numbers for each dimension")?;
        let fill = match (number(&fill), fill.read_lock::<ImmutableString>().as_deref().map(|text| text.as_str())) {
            (Some(value), _) => Fill::Constant(value as f32),
            (None, Some("reflect")) => Fill::Reflect,
            (None, Some("edge")) => Fill::Edge,
            _ => return Err("the padding is filled with a number, \"reflect\" or \"edge\"".into()),
        };
        x.numbered_layer("pad", |builder, name, x| layers::pad(builder, name, x, &pairs, fill))
    }

    /// Moves the elements of `axes` by `shifts` towards the end; those beyond it return at the beginning.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,56,56,96,f32").roll([-3, -3], [1, 2]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn roll(x: Node, shifts: Array, axes: Array) -> Fallible<Node> {
        let (shifts, axes) = (integers("the shifts", &shifts)?, integers("the axes", &axes)?);
        if shifts.len() != axes.len() {
            return Err(format!("`roll` needs one shift for each axis, not {} for {}", shifts.len(), axes.len()).into());
        }
        let moves: Vec<(i64, i64)> = axes.into_iter().zip(shifts).collect();
        x.numbered_layer("roll", |builder, name, x| layers::roll(builder, name, x, &moves))
    }

    /// Returns the `k` largest elements along an axis and their indices (`i64`), as an array of two values.
    ///
    /// ```rhai
    /// let best = nn::graph("small").input("x", "N,16,64,f32").topk(5, -1)[1];
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn topk(x: Node, k: i64, axis: i64) -> Fallible<Array> {
        let k = size("`k`", k)?;
        let vars = x.graph.build(|builder| {
            let name = builder.unused_name("topk");
            layers::top_k(builder, &name, &x.var, (k, axis), true)
        })?;
        Ok(vars.into_iter().map(|var| Dynamic::from(x.graph.node(var))).collect())
    }
}
