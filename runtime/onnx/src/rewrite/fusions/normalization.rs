//! Normalizations.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::{template, trailing};
use crate::{Attribute, Dim, Tensor, TensorSpec};

/// A sum that is divided by the number of its terms is a mean. Conversions enclose what is computed in f32 for an input of
/// 16 bits.
pub(super) const LAYER: &[&str] = &[
    "
    xf       = Cast(x) | x
    mean     = ReduceMean<axes=$axes, keepdims=1>(xf) | GlobalAveragePool(xf)
             | Div(ReduceSum<axes=$axes, keepdims=1>(xf), count) | Mul(ReduceSum<axes=$axes, keepdims=1>(xf), part)
    again    = mean | ReduceMean<axes=$axes, keepdims=1>(xf)
    d        = Sub(xf, mean)
    c        = Cast(d) | d
    e        = c | Sub(xf, again)
    square   = Pow(e, 2) | Mul(e, e)
    variance = ReduceMean<axes=$axes, keepdims=1>(square) | GlobalAveragePool(square)
             | Div(ReduceSum<axes=$axes, keepdims=1>(square), count)
             | Mul(ReduceSum<axes=$axes, keepdims=1>(square), part)
             | Reshape(ReduceMean<axes=$axes, keepdims=0>(square), sizes)
             | Sub(ReduceMean<axes=$axes, keepdims=1>(Mul(xf, xf) | Pow(xf, 2)), Mul(mean, mean) | Pow(mean, 2))
    sum      = Add(variance, epsilon) | variance
    std      = Sqrt(sum) | Pow(sum, 0.5)
    inverse  = Reciprocal(std) | Div(1, std) | Pow(sum, -0.5)
    m        = Div(c, std) | Mul(c, inverse)
    n        = Cast(m) | m
    s        = Mul(n, scale) | n
    z        = Add(s, bias) | s
    y        = Cast(z) | z
    epsilon: number
    count: number
    part: number
    sizes: constant
    scale: constant
    bias: constant
    ",
    // Keras 2, whose rows become the channels of a batch normalization.
    "
    rows     = Reshape(x, _rows_sizes)
    mean     = ReduceMean<axes=$row_axes, keepdims=1>(rows)
    square   = ReduceSumSquare<axes=$row_axes, keepdims=0>(Sub(rows, mean))
    one      = Expand(1, _rows) | 1
    zero     = Expand(0, _rows) | 0
    n        = BatchNormalization<epsilon=$epsilon>(rows, one, zero, Squeeze(mean, _at), Div(square, row_size))
    s        = Mul(Reshape(n, _sizes), scale)
    y        = Add(s, bias)
    row_size: number
    scale: constant
    bias: constant
    ",
    // PyTorch's newer exporter, of a normalization that is written by hand.
    "
    d = Sub(x, ReduceMean<axes=$axes, keepdims=1>(x))
    s = RMSNormalization<axis=$axis, epsilon=$epsilon>(d, scale)
    y = Add(s, bias)
    scale: constant
    bias: constant
    ",
    // TensorFlow: x * a + (bias - mean * a), with a = scale / std. tf2onnx writes means over the dimensions from the third on
    // as GlobalAveragePool.
    "
    mean     = ReduceMean<axes=$axes, keepdims=1>(x) | GlobalAveragePool(x)
    d        = Sub(x, mean)
    square   = Pow(d, 2) | Mul(d, d)
    variance = ReduceMean<axes=$axes, keepdims=1>(square) | GlobalAveragePool(square)
    std      = Sqrt(Add(variance, epsilon) | variance)
    inverse  = Reciprocal(std) | Div(1, std)
    a        = Mul(inverse, scale) | inverse
    shift    = Sub(bias, Mul(mean, a)) | Add(Mul(Neg(mean), a), bias) | Mul(Neg(mean), a)
    y        = Add(Mul(x, a), shift)
    epsilon: number
    scale: constant
    bias: constant
    ",
];

pub(super) const RMS: &[&str] = &["
    xf      = Cast(x) | x
    square  = Pow(xf, 2) | Mul(xf, xf)
    mean    = ReduceMean<axes=$axes, keepdims=1>(square) | GlobalAveragePool(square)
            | Div(ReduceSum<axes=$axes, keepdims=1>(square), count)
            | Mul(ReduceSum<axes=$axes, keepdims=1>(square), part)
    sum     = Add(mean, epsilon) | mean
    std     = Sqrt(sum) | Pow(sum, 0.5)
    inverse = Reciprocal(std) | Div(1, std) | Pow(sum, -0.5)
    m       = Div(xf, std) | Mul(xf, inverse)
    n       = Cast(m) | m
    s       = Mul(n, scale) | Mul(xf, Mul(inverse, scale)) | n
    y       = Cast(s) | s
    epsilon: number
    count: number
    part: number
    scale: constant
"];

/// LayerNormalization: the operator of version 17, in which `Scale` is required.
pub(super) fn layer(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let Normalized { axis, scale, ones } = normalized(found)?;
    if let Some(Attribute::Int(first)) = found.attribute("axis")
        && *first != axis
        && found.spec("x").is_none_or(|x| first - x.dims.len() as i64 != axis)
    {
        return Err("its mean and its root mean square have different axes".to_owned());
    }
    let bias = weight(found, "bias", axis)?.map(|bias| format!(", {bias}")).unwrap_or_default();
    let epsilon = if found.attribute("epsilon").is_some() { "$epsilon" } else { epsilon(found) };
    let text = format!("y = LayerNormalization<axis={axis}, epsilon={epsilon}>(x, {scale}{bias})");
    Ok(template(&text).with_constant("ones", ones))
}

/// RMSNormalization: the operator of version 23.
pub(super) fn rms(found: &Match<'_, '_>) -> Result<Replacement, String> {
    if is_centred(found) {
        // The second half of a LayerNormalization, which is no near miss.
        return Err(String::new());
    }
    let Normalized { axis, scale, ones } = normalized(found)?;
    let epsilon = epsilon(found);
    let text = format!("y = RMSNormalization<axis={axis}, epsilon={epsilon}>(x, {scale})");
    Ok(template(&text).with_constant("ones", ones))
}

/// Returns the epsilon; some exporters leave out a small one.
fn epsilon(found: &Match<'_, '_>) -> &'static str {
    if found.has("epsilon") { "$epsilon" } else { "0.0" }
}

/// Returns whether the input is a difference whose second operand has one element for each row: its mean.
fn is_centred(found: &Match<'_, '_>) -> bool {
    let mut node = found.node_of("x");
    if node.op == "Cast" {
        node = found.producer_of(&node.inputs[0]).unwrap_or(node);
    }
    let last = |name: &str| found.value_spec(name).and_then(|spec| spec.dims.last()?.fixed());
    node.op == "Sub" && last(&node.inputs[1]) == Some(1) && last(&node.inputs[0]) != Some(1)
}

/// What both normalizations need.
struct Normalized {
    /// The first normalized dimension, counted from the end.
    axis: i64,
    /// The scale in the replacement.
    scale: String,
    /// A scale that changes nothing.
    ones: Tensor,
}

fn normalized(found: &Match<'_, '_>) -> Result<Normalized, String> {
    let x = found.spec("x").ok_or("the shape of its input is not known")?;
    let output = found.output().ok_or("the shape of its output is not known")?;
    if x.dtype != output.dtype {
        return Err(format!("its input is {} and its output {}", x.dtype, output.dtype));
    }
    let axes: Vec<i64> = match found.attribute("axes") {
        None if found.has("rows") => vec![normalized_rows(found, x)?],
        Some(Attribute::Ints(axes)) => axes.clone(),
        None if found.node_of("mean").op == "GlobalAveragePool" => (2..x.dims.len() as i64).collect(),
        _ => return Err("its axes are not known".to_owned()),
    };
    let axis = trailing(&axes, x.dims.len())?;
    check_count(found, x, axis)?;
    let sizes: Option<Vec<usize>> = trailing_dims(x, axis).iter().map(Dim::fixed).collect();
    let (scale, ones) = match (weight(found, "scale", axis)?, sizes) {
        (Some(scale), _) => (scale, Tensor::scalar(1.0f32)),
        (None, Some(sizes)) => {
            let ones = Tensor::from_vec(sizes.clone(), vec![1.0f32; sizes.iter().product()]);
            ("ones".to_owned(), ones.map_err(|error| error.to_string())?.cast(x.dtype))
        }
        (None, None) => return Err("it has no scale, and the size of a normalized dimension is not known".to_owned()),
    };
    Ok(Normalized { axis, scale, ones })
}

/// Returns the axis of `1,rows,columns,1` that Keras 2 normalizes: the last one of the input.
fn normalized_rows(found: &Match<'_, '_>, x: &TensorSpec) -> Result<i64, String> {
    let other = || "its rows are not those of its input".to_owned();
    let rows = found.spec("rows").ok_or("the shape of its rows is not known")?;
    let (Some(columns), [Dim::Fixed(1), _, Dim::Fixed(row), Dim::Fixed(1)]) = (x.dims.last(), &rows.dims[..]) else {
        return Err(other());
    };
    let is_row = columns.fixed() == Some(*row) && found.number("row_size") == Some(*row as f64);
    let axes = matches!(found.attribute("row_axes"), Some(Attribute::Ints(axes)) if axes == &[0, 2, 3]);
    if is_row && axes && found.output().is_some_and(|y| y.dims == x.dims) { Ok(-1) } else { Err(other()) }
}

fn trailing_dims(x: &TensorSpec, axis: i64) -> &[Dim] {
    &x.dims[x.dims.len() - axis.unsigned_abs() as usize..]
}

/// Checks that a sum is divided by the number of its terms.
fn check_count(found: &Match<'_, '_>, x: &TensorSpec, axis: i64) -> Result<(), String> {
    let divisor = found.number("count").or_else(|| found.number("part").map(f64::recip));
    let Some(divisor) = divisor else { return Ok(()) };
    let terms: Option<usize> = trailing_dims(x, axis).iter().map(Dim::fixed).product();
    let terms = terms.ok_or("it divides by a number, and the number of its terms is not known")?;
    let is_mean = (divisor - terms as f64).abs() <= 1e-5 * terms as f64;
    is_mean.then_some(()).ok_or_else(|| format!("a sum of {terms} terms is divided by {divisor}"))
}

/// Returns a weight as the operator needs it: with the type of the input and the shape of the normalized dimensions. `None` if
/// the match has no such weight.
fn weight(found: &Match<'_, '_>, name: &str, axis: i64) -> Result<Option<String>, String> {
    let (Some(weight), Some(x)) = (found.spec(name), found.spec("x")) else { return Ok(None) };
    let expected = TensorSpec { dims: trailing_dims(x, axis).to_vec(), dtype: x.dtype };
    let is_one = |dim: &Dim| dim.fixed() == Some(1);
    let leading = weight.dims.len().saturating_sub(expected.dims.len());
    match () {
        () if weight == &expected => Ok(Some(name.to_owned())),
        () if weight.dtype != x.dtype => Err(format!("the {name} is {}, but its input {}", weight.dtype, x.dtype)),
        () if weight.dims[leading..] == expected.dims && weight.dims[..leading].iter().all(is_one) => {
            let sizes: Vec<String> = expected.dims.iter().map(ToString::to_string).collect();
            Ok(Some(format!("Reshape({name}, [{}])", sizes.join(", "))))
        }
        () => Err(format!("the {name} is `{weight}` instead of `{expected}`")),
    }
}
