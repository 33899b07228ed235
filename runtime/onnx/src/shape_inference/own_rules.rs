//! Shape rules of operators that `rten-shape-inference` lacks, or of which it covers a part.
//!
//! Knows nothing about element types.

use rten_shape_inference::{SymExpr, SymTensor, ops};

use super::InferError;
use super::shapes::{Inferred, ShapedNode, apply_rule};

/// Returns the shape of `SpaceToDepth`.
pub(crate) fn space_to_depth(node: &mut ShapedNode<'_>) -> Inferred {
    let block = node.attributes.small_int("blocksize")?.ok_or(InferError::MissingAttribute("blocksize"))?;
    let area = block.checked_mul(block).filter(|area| *area > 0).ok_or(InferError::Value)?;
    let Some(shape) = node.sizes(0) else { return Ok(vec![SymTensor::unknown("unknown input shape")]) };
    let [batch, channels, height, width] = &shape[..] else { return Err(InferError::Rank) };
    let divided = |size: &SymExpr| match size {
        SymExpr::Value(size) if size % block != 0 => Err(InferError::Value),
        size => Ok(size.clone() / SymExpr::Value(block)),
    };
    let channels = channels.clone() * SymExpr::Value(area);
    Ok(vec![SymTensor::from_shape(vec![batch.clone(), channels, divided(height)?, divided(width)?])])
}

/// Returns the shapes of the parts of a `Split` without sizes: equal ones, of which the last may be smaller.
pub(super) fn equal_split(node: &mut ShapedNode<'_>, axis: i32) -> Inferred {
    let parts = i32::try_from(node.outputs).ok().filter(|parts| *parts > 0).ok_or(InferError::Value)?;
    let unknown = || vec![SymTensor::unknown("unknown input shape"); node.outputs];
    let Some(shape) = node.sizes(0) else { return Ok(unknown()) };
    let rank = i32::try_from(shape.len()).map_err(|_| InferError::Rank)?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let axis = usize::try_from(axis).ok().filter(|axis| *axis < shape.len()).ok_or(InferError::Rank)?;
    let part = |number: i32| {
        let mut shape = shape.clone();
        shape[axis] = match &shape[axis] {
            SymExpr::Value(size) => {
                let whole = (size + parts - 1) / parts;
                SymExpr::Value((size - number * whole).clamp(0, whole))
            }
            _ => node.symbols.gen_positive(),
        };
        SymTensor::from_shape(shape)
    };
    Ok((0..parts).map(part).collect())
}

/// Returns the shapes of a loss over classes: of the loss, and of the log-probabilities if they are an output.
pub(crate) fn class_loss(node: &mut ShapedNode<'_>) -> Inferred {
    let unknown = || SymTensor::unknown("unknown input shape");
    let loss = match node.attributes.string("reduction")? {
        Some("none") => node.sizes(1).map_or_else(unknown, SymTensor::from_shape),
        _ => SymTensor::from_shape(Vec::new()),
    };
    let logarithms = node.sizes(0).map_or_else(unknown, SymTensor::from_shape);
    Ok([loss, logarithms].into_iter().take(node.outputs).collect())
}

/// Returns the shape of a matrix product with a vector: a row on the left, a column on the right.
pub(super) fn matmul_with_vector(node: &mut ShapedNode<'_>) -> Inferred {
    let (Some(mut a), Some(mut b)) = (node.sizes(0), node.sizes(1)) else {
        return Ok(vec![SymTensor::unknown("unknown input shape")]);
    };
    let (row, column) = (a.len() == 1, b.len() == 1);
    if row {
        a.insert(0, SymExpr::Value(1));
    }
    if column {
        b.push(SymExpr::Value(1));
    }
    let matrices = [a, b].map(|shape| Some(SymTensor::from_shape(shape)));
    let product = apply_rule(&ops::MatMul, &matrices, node.symbols)?;
    let mut shape: Vec<SymExpr> = product[0].shape().ok_or(InferError::Rank)?.collect();
    if column {
        shape.pop();
    }
    if row {
        shape.remove(shape.len().checked_sub(if column { 1 } else { 2 }).ok_or(InferError::Rank)?);
    }
    Ok(vec![SymTensor::from_shape(shape)])
}

/// Returns the shape of the scores of an `Attention`, its fourth output.
pub(super) fn attention_scores(node: &ShapedNode<'_>, present_key: &SymTensor) -> Result<SymTensor, InferError> {
    let unknown = || SymTensor::unknown("unknown input shape");
    let (Some(q), Some(columns)) = (node.sizes(0), present_key.size(2)) else { return Ok(unknown()) };
    let (batch, heads, rows) = match &q[..] {
        [batch, heads, rows, _] => (batch, heads.clone(), rows),
        [batch, rows, _] => {
            let heads = node.attributes.small_int("q_num_heads")?.ok_or(InferError::MissingAttribute("q_num_heads"))?;
            (batch, SymExpr::Value(heads), rows)
        }
        _ => return Err(InferError::Rank),
    };
    Ok(SymTensor::from_shape(vec![batch.clone(), heads, rows.clone(), columns]))
}

/// Returns the shapes of the statistics of a `LayerNormalization`, in which the normalized dimensions are 1.
pub(super) fn layer_statistics(node: &ShapedNode<'_>) -> Result<[SymTensor; 2], InferError> {
    let Some(mut shape) = node.sizes(0) else { return Ok([(); 2].map(|()| SymTensor::unknown("unknown input shape"))) };
    let axis = node.axis(-1)?;
    let first = if axis < 0 { shape.len().checked_sub(axis.unsigned_abs() as usize) } else { Some(axis as usize) };
    let first = first.filter(|first| *first < shape.len()).ok_or(InferError::Value)?;
    shape[first..].fill(SymExpr::Value(1));
    Ok([SymTensor::from_shape(shape.clone()), SymTensor::from_shape(shape)])
}

/// Returns the shapes of the outputs of `RNN`, `GRU` or `LSTM`: all steps, and the last state.
pub(crate) fn recurrent(node: &mut ShapedNode<'_>) -> Inferred {
    let (Some(x), Some(weights)) = (node.sizes(0), node.sizes(2)) else {
        return Ok(vec![SymTensor::unknown("unknown input shape"); node.outputs]);
    };
    let ([first, second, _], [directions, _, hidden]) = (&x[..], &weights[..]) else { return Err(InferError::Rank) };
    let (first, second, directions, hidden) = (first.clone(), second.clone(), directions.clone(), hidden.clone());
    let (steps, state) = if node.attributes.flag("layout")? {
        (vec![first.clone(), second, directions.clone(), hidden.clone()], vec![first, directions, hidden])
    } else {
        (vec![first, directions.clone(), second.clone(), hidden.clone()], vec![directions, second, hidden])
    };
    let state = SymTensor::from_shape(state);
    Ok(vec![SymTensor::from_shape(steps), state.clone(), state])
}

/// Returns the shape of a `Resize` or an `Upsample`, whose scales or sizes may be known.
pub(crate) fn resize(node: &mut ShapedNode<'_>) -> Inferred {
    let (attributes, inputs) = (node.attributes, node.values);
    let input = |i: usize| inputs.get(i).and_then(Option::as_ref);
    let data = input(0).ok_or(InferError::InputCount)?;
    let Some(shape) = data.shape.shape() else { return Ok(vec![SymTensor::unknown("unknown input shape")]) };
    let mut shape: Vec<SymExpr> = shape.collect();
    let rank = shape.len();
    let axes: Vec<usize> = match attributes.ints("axes")? {
        None => (0..rank).collect(),
        Some(axes) => {
            let from_front = |axis: &i64| if *axis < 0 { axis + rank as i64 } else { *axis };
            let axis = |axis: &i64| usize::try_from(from_front(axis)).ok().filter(|axis| *axis < rank);
            axes.iter().map(axis).collect::<Option<_>>().ok_or(InferError::Value)?
        }
    };
    // The scales are input 1 up to operator set 10.
    let scales = input(if inputs.len() == 2 { 1 } else { 2 }).and_then(|known| known.numbers.as_deref());
    let scales = scales.filter(|scales| !scales.is_empty());
    let requested = input(3).and_then(|known| known.shape.as_vector()).filter(|sizes| !sizes.is_empty());
    let keeps_ratio = attributes.string("keep_aspect_ratio_policy")?.is_some_and(|policy| policy != "stretch");
    let count = scales.map(<[f64]>::len).or(requested.map(<[SymExpr]>::len));
    if count.is_some_and(|count| count != axes.len()) {
        return Err(InferError::Mismatch(format!("{} values for {} axes", count.unwrap_or(0), axes.len())));
    }
    for (i, axis) in axes.iter().enumerate() {
        let resized = match (scales, requested) {
            (Some(scales), _) => scaled(&shape[*axis], scales[i]),
            (None, Some(sizes)) if !keeps_ratio => Some(sizes[i].clone()),
            _ => None,
        };
        shape[*axis] = resized.unwrap_or_else(|| node.symbols.gen_positive());
    }
    Ok(vec![SymTensor::from_shape(shape)])
}

/// Returns a size times a scale, rounded down as ONNX Runtime does.
fn scaled(size: &SymExpr, scale: f64) -> Option<SymExpr> {
    match size {
        SymExpr::Value(size) => Some(SymExpr::Value((*size as f32 * scale as f32).floor() as i32)),
        size if scale == 1.0 => Some(size.clone()),
        size if scale.fract() == 0.0 && scale > 0.0 => Some(size.clone() * SymExpr::Value(scale as i32)),
        _ => None,
    }
}
