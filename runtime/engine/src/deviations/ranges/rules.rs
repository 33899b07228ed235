//! The bound of each operator's result.
//!
//! Knows no engine.

use flagperf_onnx::{Attribute, Dim, Tensor};

use super::bound::{Basis, Bound};
use crate::deviations::NodeUse;
use crate::deviations::conditions::{int, text};

/// Returns the bound of an operand; `None` if it is omitted.
type Operands<'a> = &'a dyn Fn(usize) -> Option<Bound>;

/// Returns the bound of an output by the rule of the operator; `None` without one.
pub(super) fn result(usage: &NodeUse<'_>, output: usize, operand: Operands<'_>) -> Option<Bound> {
    if !matches!(usage.node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    match (usage.node.op.as_str(), output) {
        ("Split", _) => operand(0),
        ("TopK", 1) => {
            let indices = axis_size(usage, int(usage, "axis").unwrap_or(-1)).positions();
            Some(indices.selected_by(operand(0)?))
        }
        (_, 0) => moved(usage, operand)
            .or_else(|| calculated(usage, operand))
            .or_else(|| limited(usage, operand))
            .or_else(|| accumulated(usage, operand))
            .or_else(|| positions(usage, operand)),
        _ => None,
    }
}

/// Operators whose results are elements of their operands.
fn moved(usage: &NodeUse<'_>, operand: Operands<'_>) -> Option<Bound> {
    let zero = Bound::new(0.0, 0.0, Basis::Model);
    match usage.node.op.as_str() {
        "Cast" | "CastLike" | "Compress" | "DepthToSpace" | "Dropout" | "Expand" | "Flatten" | "Identity"
        | "ReduceMax" | "ReduceMean" | "ReduceMin" | "Reshape" | "ReverseSequence" | "Slice" | "SpaceToDepth"
        | "Squeeze" | "Tile" | "TopK" | "Transpose" | "Unique" | "Unsqueeze" => operand(0),
        "Gather" | "GatherElements" | "GatherND" => Some(operand(0)?.selected_by(operand(1)?)),
        "Concat" => (0..usage.node.inputs.len()).filter_map(operand).reduce(Bound::hull),
        "Constant" => numbers(&usage.node.constant()?),
        "ConstantOfShape" => match usage.node.attributes.get("value") {
            Some(Attribute::Tensor(value)) => numbers(value),
            _ => Some(zero),
        },
        "OneHot" => Some(operand(2)?.selected_by(operand(0)?)),
        "Pad" => Some(operand(0)?.hull(operand(2).unwrap_or(zero))),
        "Range" => Some(operand(0)?.hull(operand(1)?)),
        "Trilu" => Some(operand(0)?.hull(zero)),
        "Where" => Some(operand(1)?.hull(operand(2)?).selected_by(operand(0)?)),
        _ => None,
    }
}

/// Element-wise operators with the arithmetic of intervals.
fn calculated(usage: &NodeUse<'_>, operand: Operands<'_>) -> Option<Bound> {
    let is_integer = usage.spec(0).is_some_and(|spec| !spec.dtype.is_float());
    let is_square = usage.input(0) == usage.input(1);
    let all = |combine: fn(Bound, Bound) -> Bound| (0..usage.node.inputs.len()).filter_map(operand).reduce(combine);
    match usage.node.op.as_str() {
        "Abs" => Some(operand(0)?.magnitude()),
        "Add" | "Sum" => all(Bound::plus),
        "Ceil" => Some(operand(0)?.map(f64::ceil)),
        "Clip" => {
            let x = operand(0)?;
            let raised = operand(1).map_or(x, |low| x.larger(low));
            Some(operand(2).map_or(raised, |high| raised.smaller(high)))
        }
        "Div" if is_integer => Some(operand(0)?.over_integer(operand(1)?)),
        "Div" => Some(operand(0)?.over(operand(1)?)),
        "Floor" => Some(operand(0)?.map(f64::floor)),
        "Max" => all(Bound::larger),
        "Min" => all(Bound::smaller),
        "Mod" => Some(operand(0)?.remainder(operand(1)?)),
        "Mul" if is_square => Some(Bound { low: 0.0, ..operand(0)?.times(operand(1)?) }),
        "Mul" => Some(operand(0)?.times(operand(1)?)),
        "Neg" => Some(operand(0)?.negative()),
        "Pow" => {
            let is_even = |exponents: Tensor| exponents.to_f64().iter().all(|x| x % 2.0 == 0.0);
            Some(operand(0)?.power(operand(1)?, usage.constant(1).is_some_and(is_even)))
        }
        "Round" => Some(operand(0)?.map(f64::round)),
        "Sub" => Some(operand(0)?.plus(operand(1)?.negative())),
        _ => None,
    }
}

/// Functions whose results are limited.
fn limited(usage: &NodeUse<'_>, operand: Operands<'_>) -> Option<Bound> {
    let within = |low, high| operand(0).map(|x| Bound::new(low, high, x.basis.min(Basis::Inputs)));
    match usage.node.op.as_str() {
        "Cos" | "Erf" | "Sign" | "Sin" | "Tanh" => within(-1.0, 1.0),
        "HardSigmoid" | "Hardmax" | "Sigmoid" | "Softmax" => within(0.0, 1.0),
        // A small number becomes 0.
        "Exp" => Some(operand(0)?.map(|x| if x < 0.0 { 0.0 } else { x.exp() })),
        "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "Softplus" => within(0.0, f64::INFINITY),
        "Relu" => Some(operand(0)?.map(|x| x.max(0.0))),
        "Sqrt" => Some(operand(0)?.map(|x| x.max(0.0).sqrt())),
        _ => None,
    }
}

/// Sums and products over elements.
fn accumulated(usage: &NodeUse<'_>, operand: Operands<'_>) -> Option<Bound> {
    let product_of = |x: Bound, count: Bound| {
        let high = if x.magnitude().high <= 1.0 { 1.0 } else { x.magnitude().high.powf(count.high) };
        Bound::new(if x.low >= 0.0 { 0.0 } else { -high }, high, x.basis)
    };
    match usage.node.op.as_str() {
        "CumSum" => {
            Some(operand(0)?.repeated(single(usage, 1).map_or(Bound::of_size(None), |axis| axis_size(usage, axis))))
        }
        "MatMul" => Some(operand(0)?.times(operand(1)?).repeated(axis_size(usage, -1))),
        "ReduceProd" => Some(product_of(operand(0)?, reduced_count(usage))),
        "ReduceSum" => Some(operand(0)?.repeated(reduced_count(usage))),
        "ScatterElements" | "ScatterND" => {
            let (x, updates) = (operand(0)?, operand(2)?);
            let count = usage
                .spec(2)
                .map_or(Bound::of_count([None].into_iter()), |spec| Bound::of_count(spec.dims.iter().map(Some)));
            let scattered = match text(usage, "reduction") {
                Some("add") => x.plus(updates.repeated(count)),
                Some("mul") => x.times(product_of(updates, count)),
                _ => x.hull(updates),
            };
            Some(scattered.selected_by(operand(1)?))
        }
        _ => None,
    }
}

/// Sizes, and positions in a tensor.
fn positions(usage: &NodeUse<'_>, operand: Operands<'_>) -> Option<Bound> {
    let dims = usage.spec(0).map(|spec| &spec.dims);
    let largest = || dims.and_then(|dims| dims.iter().map(|dim| Bound::of_size(Some(dim))).reduce(Bound::hull));
    let indices = |size: Bound| Some(size.positions().selected_by(operand(0)?));
    match usage.node.op.as_str() {
        "ArgMax" | "ArgMin" => indices(axis_size(usage, int(usage, "axis").unwrap_or(0))),
        "NonZero" => indices(largest().unwrap_or(Bound::of_size(None))),
        "Shape" => largest().or(Some(Bound::of_size(None))),
        "Size" => Some(dims.map_or(Bound::of_size(None), |dims| Bound::of_count(dims.iter().map(Some)))),
        _ => None,
    }
}

fn numbers(tensor: &Tensor) -> Option<Bound> {
    Bound::of_numbers(&tensor.to_f64())
}

/// Returns the only number of a constant input.
fn single(usage: &NodeUse<'_>, input: usize) -> Option<i64> {
    usage.constant(input)?.to_f64().first().map(|number| *number as i64)
}

/// Returns the size of a dimension of the first input.
fn axis_size(usage: &NodeUse<'_>, axis: i64) -> Bound {
    Bound::of_size(usage.spec(0).and_then(|spec| dim(&spec.dims, axis)))
}

fn dim(dims: &[Dim], axis: i64) -> Option<&Dim> {
    let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
    dims.get(usize::try_from(axis).ok()?)
}

/// Returns the number of elements that each result of a reduction combines.
fn reduced_count(usage: &NodeUse<'_>) -> Bound {
    let axes = match (usage.node.attributes.get("axes"), usage.constant(1)) {
        (Some(Attribute::Ints(axes)), _) => Some(axes.clone()),
        (_, Some(axes)) => Some(axes.to_f64().iter().map(|axis| *axis as i64).collect()),
        _ => None,
    };
    match (usage.spec(0), axes) {
        (Some(spec), Some(axes)) if !axes.is_empty() => Bound::of_count(axes.iter().map(|axis| dim(&spec.dims, *axis))),
        (Some(spec), _) => Bound::of_count(spec.dims.iter().map(Some)),
        (None, axes) => Bound::of_count(axes.unwrap_or(vec![0, 1]).iter().map(|_| None)),
    }
}
