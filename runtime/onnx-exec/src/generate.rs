//! Operators that create elements, repeat them, or number them.

use super::OpError;
use super::evaluate::scalar;
use super::indexing::{row_major_strides, upload_indices};
use super::operands::Operands;
use super::ops::{Binary, PadMode, TensorOps};
use super::result_size::check_result_size;
use super::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor};

/// Returns the numbers from input 0 to input 1, exclusively, in steps of input 2.
pub(super) fn range<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, dtype) = (operands.ops, operands.dtype(0)?);
    let number =
        |i: usize| operands.number(i)?.ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")));
    let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
    let count = ((limit - start) / step).ceil().max(0.0);
    if step == 0.0 || !count.is_finite() {
        return Err(OpError::invalid_operands(format!(
            "the range from {start} to {limit} in steps of {step} is infinite"
        )));
    }
    // The conversion saturates, so a larger count is refused, too.
    let count = count as usize;
    check_result_size(&[count], DType::F64)?;
    let numbers: Vec<f64> = (0..count).map(|i| start + i as f64 * step).collect();
    ops.upload(&Tensor::from_vec([count], numbers).map_err(OpError::library)?.cast(dtype))
}

/// Returns a tensor with a new dimension of size input 1 at `axis`: the second number of input 2 at the index of input 0,
/// the first number elsewhere.
pub(super) fn one_hot<O: TensorOps>(operands: &Operands<O>, axis: i64) -> Result<O::Tensor, OpError> {
    let (ops, values) = (operands.ops, operands.tensor(2)?);
    let depth = operands.ints(1)?.and_then(|depth| depth.first().copied());
    let depth = depth.and_then(|depth| usize::try_from(depth).ok()).filter(|depth| *depth > 0);
    let depth = depth.ok_or_else(|| OpError::invalid_operands("`depth` must be a positive number"))?;
    let mut shape = operands.shape(0)?;
    let axis = resolve_axis(axis, shape.len() + 1)?;
    shape.insert(axis, 1);
    let result: Vec<usize> = shape.iter().enumerate().map(|(i, size)| if i == axis { depth } else { *size }).collect();
    check_result_size(&result, DType::F64)?;
    let indices = ops.reshape(&ops.cast(&operands.tensor(0)?, DType::I64)?, &shape)?;
    let is_negative = ops.binary(Binary::Less, &indices, &scalar(ops, 0.0, &indices)?)?;
    let from_front = ops.binary(Binary::Add, &indices, &scalar(ops, depth as f64, &indices)?)?;
    let indices = ops.select(&is_negative, &from_front, &indices)?;
    let numbers: Vec<usize> = (0..depth).collect();
    let along: Vec<usize> = (0..result.len()).map(|i| if i == axis { depth } else { 1 }).collect();
    let is_hot = ops.binary(Binary::Equal, &indices, &upload_indices(ops, &along, &numbers)?)?;
    ops.select(&is_hot, &ops.slice(&values, 0, 1, 1, 1)?, &ops.slice(&values, 0, 0, 1, 1)?)
}

/// Repeats input 0 along each dimension as often as input 1 says.
pub(super) fn tile<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let (shape, repeats) = (ops.shape(&x), operands.required_ints(1)?);
    let misfit = || OpError::invalid_operands(format!("{shape:?} cannot be repeated {repeats:?} times"));
    let repeats: Option<Vec<usize>> = repeats.iter().map(|count| usize::try_from(*count).ok()).collect();
    let repeats = repeats.filter(|repeats| repeats.len() == shape.len()).ok_or_else(misfit)?;
    let result: Option<Vec<usize>> = shape.iter().zip(&repeats).map(|(size, count)| size.checked_mul(*count)).collect();
    let result = result.ok_or_else(misfit)?;
    check_result_size(&result, ops.dtype(&x))?;
    let (mut split, mut repeated) = (Vec::new(), Vec::new());
    for (size, count) in shape.iter().zip(&repeats) {
        if *count != 1 {
            split.push(1);
            repeated.push(*count);
        }
        split.push(*size);
        repeated.push(*size);
    }
    ops.reshape(&ops.expand(&ops.reshape(&x, &split)?, &repeated)?, &result)
}

/// Returns input 0 with zeros below (or above) a diagonal of its last two dimensions. Input 1 counts diagonals upwards
/// from the main one.
pub(super) fn triangle<O: TensorOps>(operands: &Operands<O>, upper: bool) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let diagonal = operands.ints(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
    let [.., rows, columns] = ops.shape(&x)[..] else {
        return Err(OpError::invalid_operands("the input has fewer than two dimensions"));
    };
    if let Some(triangle) = ops.triangle(&x, diagonal, upper) {
        return triangle;
    }
    let keeps = |place: usize| {
        let offset = (place % columns) as i64 - (place / columns) as i64;
        if upper { offset >= diagonal } else { offset <= diagonal }
    };
    let mask: Vec<bool> = (0..rows * columns).map(keeps).collect();
    let mask = ops.upload(&Tensor::from_bools([rows, columns], &mask).map_err(OpError::library)?)?;
    ops.select(&mask, &x, &scalar(ops, 0.0, &x)?)
}

/// Returns the coordinates of the elements that are not zero, one column each.
pub(super) fn nonzero<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let flags = ops.download(&x, DType::Bool)?;
    let places: Vec<usize> = (0..flags.len()).filter(|place| flags.bytes()[*place] != 0).collect();
    let strides = row_major_strides(&shape);
    let coordinates: Vec<usize> = strides
        .iter()
        .zip(&shape)
        .flat_map(|(stride, size)| places.iter().map(move |place| place / stride % size))
        .collect();
    upload_indices(ops, &[shape.len(), places.len()], &coordinates)
}

/// Returns the largest (or smallest) elements of input 0 along `axis`, and their indices. Their number is input 1.
pub(super) fn top_k<O: TensorOps>(operands: &Operands<O>, axis: i64, largest: bool) -> Result<Vec<O::Tensor>, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let axis = resolve_axis(axis, shape.len())?;
    let wanted = operands.ints(1)?.and_then(|k| k.first().copied());
    let size = shape[axis];
    let count = wanted.and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= size);
    let count = count.ok_or_else(|| {
        OpError::invalid_operands(format!("`k` is {} (0 to {size} are possible)", wanted.unwrap_or_default()))
    })?;
    ops.top(&x, axis, count, largest).map(Vec::from)
}

/// Returns the sums of the elements of input 0 along the axis in input 1 up to each element (exclusively, if
/// `exclusive`), or from each element on (if `reverse`).
pub(super) fn cumulative_sum<O: TensorOps>(
    operands: &Operands<O>,
    exclusive: bool,
    reverse: bool,
) -> Result<O::Tensor, OpError> {
    let (ops, mut x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let axis = operands.required_ints(1)?.first().copied();
    let axis = resolve_axis(axis.ok_or_else(|| OpError::invalid_operands("`axis` is empty"))?, shape.len())?;
    let size = shape[axis];
    if size == 0 {
        return Ok(x);
    }
    let flip = |x: &O::Tensor| ops.slice(x, axis, size - 1, size, -1);
    if reverse {
        x = flip(&x)?;
    }
    let mut sums = ops.cumulative_sum(&x, axis)?;
    if exclusive {
        sums = shift(ops, &sums, axis, 1)?;
    }
    if reverse { flip(&sums) } else { Ok(sums) }
}

/// Computes [`TensorOps::cumulative_sum`] with primitive operations: after each step, every element is the sum of twice
/// as many.
pub(super) fn sums_by_doubling<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    axis: usize,
) -> Result<O::Tensor, OpError> {
    let size = ops.shape(x)[axis];
    let mut sums = x.clone();
    let mut distance = 1;
    while distance < size {
        sums = ops.binary(Binary::Add, &sums, &shift(ops, &sums, axis, distance)?)?;
        distance *= 2;
    }
    Ok(sums)
}

/// Moves the elements along an axis towards its end, behind zeros. The distance is less than the size of the axis.
fn shift<O: TensorOps + ?Sized>(ops: &O, x: &O::Tensor, axis: usize, distance: usize) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    let mut pads = vec![(0, 0); shape.len()];
    pads[axis] = (distance, 0);
    ops.pad(&ops.slice(x, axis, 0, shape[axis] - distance, 1)?, &pads, PadMode::Constant(0.0))
}
