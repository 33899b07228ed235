//! The inputs on which graphs are compared, and how much work that may be.

use super::ProofError;
use super::reached::values_from_inputs;
use flagperf_onnx::{DType, Dim, Graph, NamedSizes, Node, RandomStream, Tensor, TensorSpec, ValueInfo, multiply_adds};

/// The most multiply-adds of a comparison: about a minute of the reference library on one core.
const MULTIPLY_ADDS_MAX: u64 = 50_000_000_000;
/// The most bytes of the weights of a graph that is executed in f64.
const WEIGHT_BYTES_MAX: u64 = 2 << 30;

pub(super) fn check_work(graph: &Graph, sizes: &[(String, usize)]) -> Result<(), ProofError> {
    let spec = TensorSpec { dims: sizes.iter().map(|(name, _)| Dim::Named(name.clone())).collect(), dtype: DType::F32 };
    let mut named = NamedSizes::default();
    let values: Vec<usize> = sizes.iter().map(|(_, size)| *size).collect();
    named.bind(&spec, &values).expect("each name is listed once");
    let work = multiply_adds(graph, &named).unwrap_or(0);
    if work > MULTIPLY_ADDS_MAX {
        let reason = format!(
            "{:.0}e9 multiply-adds take too long in f64 (at most {:.0}e9)",
            work as f64 / 1e9,
            MULTIPLY_ADDS_MAX as f64 / 1e9
        );
        return Err(ProofError::Unproved(reason));
    }
    let elements =
        graph.weights.values().filter_map(|weight| Some(weight.spec.fixed_shape()?.iter().product::<usize>()));
    let bytes = 8 * elements.map(|count| count as u64).sum::<u64>();
    if bytes > WEIGHT_BYTES_MAX {
        let reason = format!("its weights have {} MiB in f64 (at most {} MiB)", bytes >> 20, WEIGHT_BYTES_MAX >> 20);
        return Err(ProofError::Unproved(reason));
    }
    Ok(())
}

/// Returns a size for each named dimension: 2, 3, 4 and so on, so that no two are mistaken for each other.
pub(super) fn drawn_sizes(graph: &Graph) -> Vec<(String, usize)> {
    let mut sizes: Vec<(String, usize)> = Vec::new();
    for dim in graph.inputs.iter().flat_map(|input| &input.spec.dims) {
        if let Dim::Named(name) = dim
            && !sizes.iter().any(|(known, _)| known == name)
        {
            sizes.push((name.clone(), sizes.len() + 2));
        }
    }
    sizes
}

/// Which integers are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Draw {
    /// 0 and 1, which nearly every graph accepts: as masks, as indices, as sizes.
    Bits,
    /// From the first number to below the second.
    Range(i64, i64),
}

/// The ranges of further integers, from which the first is taken that a graph can be computed with.
const RANGES: [(i64, i64); 4] = [(-1000, 1000), (0, 1000), (0, 100), (0, 10)];

/// Operators whose outputs have sizes that depend on the elements of an input.
const SIZED: [&str; 15] = [
    "CenterCropPad",
    "Col2Im",
    "ConstantOfShape",
    "Expand",
    "Loop",
    "OneHot",
    "Pad",
    "Range",
    "Reshape",
    "Resize",
    "Slice",
    "Split",
    "Tile",
    "TopK",
    "Upsample",
];

/// Returns how further integers may be drawn: not at all without integers as inputs, nor where a size depends on them, because drawn
/// sizes could need any amount of memory.
pub(super) fn wide_draws(graph: &Graph) -> Vec<Draw> {
    let is_integer = |dtype: DType| !dtype.is_float() && dtype != DType::Bool;
    let inputs = graph.inputs.iter().filter(|input| is_integer(input.spec.dtype));
    let depending = values_from_inputs(graph, inputs.map(|input| input.name.as_str()));
    if depending.is_empty() {
        return Vec::new();
    }
    let is_sized = |node: &Node| {
        let sizes = if matches!(node.op.as_str(), "ConstantOfShape" | "Range" | "Loop") { 0 } else { 1 };
        let mut read = node.inputs.iter().skip(sizes);
        SIZED.contains(&node.op.as_str()) && read.any(|name| depending.contains(name.as_str()))
    };
    if graph.nodes.iter().any(is_sized) {
        return Vec::new();
    }
    RANGES.map(|(from, to)| Draw::Range(from, to)).to_vec()
}

pub(super) fn draw_inputs(
    graph: &Graph,
    sizes: &[(String, usize)],
    seed: u64,
    integers: Draw,
) -> Result<Vec<Tensor>, String> {
    graph.inputs.iter().map(|input| draw(input, sizes, seed, integers)).collect()
}

/// Draws an input: normally distributed numbers, integers, and bools.
fn draw(input: &ValueInfo, sizes: &[(String, usize)], seed: u64, integers: Draw) -> Result<Tensor, String> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Ok(*size),
        Dim::Named(name) => {
            let known = sizes.iter().find(|(known, _)| known == name);
            known.map(|(_, size)| *size).ok_or_else(|| format!("the size of `{name}` is not known"))
        }
        Dim::Unknown => Err(format!("the shape of `{}` is not known", input.name)),
    };
    let shape: Vec<usize> = input.spec.dims.iter().map(size).collect::<Result<_, _>>()?;
    let count: usize = shape.iter().product();
    let mut random = RandomStream::new(seed, &input.name);
    let numbers: Vec<f64> = if input.spec.dtype.is_float() {
        (0..count.div_ceil(2)).flat_map(|_| random.normal_pair()).take(count).collect()
    } else {
        let (from, to) = match integers {
            Draw::Range(from, to) if input.spec.dtype != DType::Bool => in_type(input.spec.dtype, (from, to)),
            _ => (0, 2),
        };
        (0..count).map(|_| (random.below((to - from) as u64) as i64 + from) as f64).collect()
    };
    let tensor = Tensor::from_vec(shape, numbers).map_err(|error| error.to_string())?;
    Ok(tensor.cast(input.spec.dtype))
}

/// Returns the part of a range that an integer type has.
fn in_type(dtype: DType, (from, to): (i64, i64)) -> (i64, i64) {
    match dtype {
        DType::U8 => (from.max(0), to.min(1 << 8)),
        DType::I8 => (from.max(-(1 << 7)), to.min(1 << 7)),
        DType::I16 | DType::I32 | DType::I64 => (from, to),
        _ => (from.max(0), to),
    }
}

/// Returns the number of elements of a value, as far as the sizes are known.
pub(super) fn elements(spec: &TensorSpec, sizes: &[(String, usize)]) -> Option<usize> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Named(name) => sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size),
        Dim::Unknown => None,
    };
    spec.dims.iter().try_fold(1usize, |product, dim| product.checked_mul(size(dim)?))
}
