//! Arithmetic on shapes and axes that is the same for every tensor library.

use super::OpError;

/// Returns the shape to which two shapes broadcast under NumPy's rules.
pub(super) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, other) | (other, 1) => Ok(other),
            _ => Err(OpError::invalid_operands(format!("{a:?} and {b:?} cannot be broadcast together"))),
        })
        .collect()
}

/// The dimensions of a matrix product over the last two dimensions.
pub(super) struct MatmulDims {
    /// The broadcast dimensions of the batch.
    pub(super) batch: Vec<usize>,
    /// Rows of the left matrix.
    pub(super) m: usize,
    /// Columns of the left matrix and rows of the right one.
    pub(super) k: usize,
    /// Columns of the right matrix.
    pub(super) n: usize,
}

/// Returns the dimensions of the product of two shapes.
pub(super) fn matmul_dims(a: &[usize], b: &[usize]) -> Result<MatmulDims, OpError> {
    let (batch_a, [m, k]) = split_matrix(a)?;
    let (batch_b, [k_b, n]) = split_matrix(b)?;
    if k != k_b {
        return Err(OpError::invalid_operands(format!("{a:?} and {b:?} cannot be multiplied as matrices")));
    }
    Ok(MatmulDims { batch: broadcast_shape(batch_a, batch_b)?, m, k, n })
}

/// Returns the dimensions of the batch and those of one matrix.
fn split_matrix(shape: &[usize]) -> Result<(&[usize], [usize; 2]), OpError> {
    match shape {
        [batch @ .., rows, columns] => Ok((batch, [*rows, *columns])),
        shape => Err(OpError::invalid_operands(format!("{shape:?} has fewer than two dimensions"))),
    }
}

/// Returns an axis counted from the front. A negative `axis` counts from the end of `rank` dimensions.
pub(super) fn resolve_axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_front) {
        Ok(front) if front < rank => Ok(front),
        _ => Err(OpError::invalid_operands(format!("axis {axis} is out of range for rank {rank}"))),
    }
}

/// Returns axes counted from the front, in ascending order without duplicates.
pub(super) fn resolve_axes(wanted: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut axes = wanted.iter().map(|wanted| resolve_axis(*wanted, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

/// Returns the shape that a Reshape produces: 0 keeps a dimension (unless `allow_zero`), -1 stands for the size that
/// remains.
pub(super) fn resolve_reshape(shape: &[usize], wanted: &[i64], allow_zero: bool) -> Result<Vec<usize>, OpError> {
    let misfit = || OpError::invalid_operands(format!("{shape:?} cannot be reshaped to {wanted:?}"));
    let sizes: Vec<Option<usize>> = wanted
        .iter()
        .enumerate()
        .map(|(i, size)| match size {
            0 if !allow_zero => shape.get(i).copied().map(Some).ok_or_else(misfit),
            -1 => Ok(None),
            size => usize::try_from(*size).map(Some).map_err(|_| misfit()),
        })
        .collect::<Result<_, _>>()?;
    let known: usize = sizes.iter().flatten().product();
    let elements: usize = shape.iter().product();
    let rest = elements.checked_div(known).unwrap_or(0);
    let full: Vec<usize> = sizes.iter().map(|size| size.unwrap_or(rest)).collect();
    let at_most_one_open = sizes.iter().filter(|size| size.is_none()).count() <= 1;
    if at_most_one_open && full.iter().product::<usize>() == elements { Ok(full) } else { Err(misfit()) }
}

/// Returns the first index and the number of entries of a slice `start..end` with `step` over `size` entries, clamped
/// as ONNX specifies.
pub(super) fn resolve_slice(start: i64, end: i64, step: i64, size: usize) -> Result<(usize, usize), OpError> {
    if step == 0 {
        return Err(OpError::invalid_operands("a slice step is 0"));
    }
    let size = size as i64;
    let from_front = |index: i64| if index < 0 { index.saturating_add(size) } else { index };
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let start = from_front(start).clamp(low.max(0), high.max(0));
    let end = from_front(end).clamp(low, high);
    let span = if step > 0 { end - start } else { start - end };
    let count = if span > 0 && size > 0 { (span - 1) as u64 / step.unsigned_abs() + 1 } else { 0 };
    Ok((start as usize, count as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_from_the_right() {
        assert_eq!(broadcast_shape(&[4, 1, 3], &[5, 1]).unwrap(), [4, 5, 3]);
        assert_eq!(broadcast_shape(&[], &[2]).unwrap(), [2]);
        assert!(broadcast_shape(&[2], &[3]).is_err());
    }

    #[test]
    fn a_slice_step_may_be_any_number_except_zero() {
        assert_eq!(resolve_slice(0, i64::MAX, 2, 5).unwrap(), (0, 3));
        assert_eq!(resolve_slice(-1, i64::MIN, i64::MIN, 5).unwrap(), (4, 1));
        assert_eq!(resolve_slice(0, 5, i64::MAX, 5).unwrap(), (0, 1));
        assert!(resolve_slice(0, 5, 0, 5).is_err());
    }

    #[test]
    fn reshape_keeps_and_infers_dimensions() {
        assert_eq!(resolve_reshape(&[2, 3, 4], &[0, -1], false).unwrap(), [2, 12]);
        assert_eq!(resolve_reshape(&[0, 3], &[3, 0], true).unwrap(), [3, 0]);
        assert!(resolve_reshape(&[2, 3], &[4, -1], false).is_err());
        assert!(resolve_reshape(&[4], &[-1, -1], false).is_err());
    }

    #[test]
    fn slices_are_clamped_and_run_backwards() {
        assert_eq!(resolve_slice(1, i64::MAX, 2, 6).unwrap(), (1, 3));
        assert_eq!(resolve_slice(-1, i64::MIN, -1, 4).unwrap(), (3, 4));
        assert_eq!(resolve_slice(5, 2, 1, 4).unwrap(), (4, 0));
        assert_eq!(resolve_slice(-3, -1, 1, 4).unwrap(), (1, 2));
        assert!(resolve_slice(0, 1, 0, 4).is_err());
    }

    #[test]
    fn an_axis_out_of_range_is_refused() {
        assert_eq!(resolve_axis(-1, 3).unwrap(), 2);
        assert!(resolve_axis(3, 3).is_err());
        assert!(resolve_axis(-4, 3).is_err());
    }
}
