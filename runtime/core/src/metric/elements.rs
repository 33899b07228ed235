//! The elements of tensors as the numbers that metrics compute with.

use super::MetricError;
use crate::tensor::{DType, Tensor};

/// Returns the elements of an integer or boolean tensor; `None` for a float tensor.
pub(super) fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    if tensor.dtype().is_float() {
        return None;
    }
    tensor.cast(DType::I64).as_slice::<i64>().ok().map(<[i64]>::to_vec)
}

/// Returns the error for a tensor whose shape or type is not supported.
pub(super) fn unsupported(what: &'static str, tensor: &Tensor, expected: &str) -> MetricError {
    MetricError::Unsupported { what, found: tensor.spec().to_string(), expected: expected.to_owned() }
}

/// Calls `visit` with every row of the last dimension that is `needed`, as f64. Only these are converted, one at a time.
pub(super) fn for_each_row<E>(
    tensor: &Tensor,
    needed: impl Fn(usize) -> bool,
    mut visit: impl FnMut(usize, &[f64]) -> Result<(), E>,
) -> Result<(), E> {
    let length = tensor.shape().last().copied().unwrap_or(1);
    if length == 0 {
        return Ok(());
    }
    let rows = tensor.len() / length;
    let flat = tensor.reshape([rows, length]).expect("the number of elements is the same");
    let mut values = Vec::with_capacity(length);
    for row in (0..rows).filter(|row| needed(*row)) {
        values.clear();
        extend_f64(&flat, row * length..(row + 1) * length, &mut values);
        visit(row, &values)?;
    }
    Ok(())
}

/// Appends a range of elements, converted to f64.
fn extend_f64(tensor: &Tensor, range: std::ops::Range<usize>, values: &mut Vec<f64>) {
    if let Ok(floats) = tensor.as_slice::<f32>() {
        values.extend(floats[range].iter().map(|value| f64::from(*value)));
    } else if let Ok(halves) = tensor.as_slice::<half::f16>() {
        values.extend(halves[range].iter().map(|value| value.to_f64()));
    } else if let Ok(halves) = tensor.as_slice::<half::bf16>() {
        values.extend(halves[range].iter().map(|value| value.to_f64()));
    } else if let Ok(doubles) = tensor.as_slice::<f64>() {
        values.extend_from_slice(&doubles[range]);
    }
}
