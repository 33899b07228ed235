//! Arithmetic on shapes and axes, alike for every tensor library.

use super::OpError;

/// The shape that two shapes broadcast to, as NumPy does it.
pub(super) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, other) | (other, 1) => Ok(other),
            _ => Err(OpError::operands(format!("{a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// An axis counted from the front; negative ones count from the end of `rank` dimensions.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_front) {
        Ok(front) if front < rank => Ok(front),
        _ => Err(OpError::operands(format!("axis {axis} is out of range for {rank} dimensions"))),
    }
}

/// Axes counted from the front, ascending.
pub(super) fn axes(wanted: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut axes = wanted.iter().map(|wanted| axis(*wanted, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

/// The shape that Reshape asks for: 0 keeps a dimension (unless `allow_zero`), -1 takes what is left.
pub(super) fn reshaped(shape: &[usize], wanted: &[i64], allow_zero: bool) -> Result<Vec<usize>, OpError> {
    let misfit = || OpError::operands(format!("{shape:?} cannot become {wanted:?}"));
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
    let one_left = sizes.iter().filter(|size| size.is_none()).count() <= 1;
    if one_left && full.iter().product::<usize>() == elements { Ok(full) } else { Err(misfit()) }
}

/// First entry and number of entries of a slice `start..end` with `step` over `size` entries, clamped as ONNX does.
pub(super) fn sliced(start: i64, end: i64, step: i64, size: usize) -> Result<(usize, usize), OpError> {
    if step == 0 {
        return Err(OpError::operands("the step of a slice is zero"));
    }
    let size = size as i64;
    let from_front = |place: i64| if place < 0 { place.saturating_add(size) } else { place };
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
    fn a_step_may_be_any_number_but_zero() {
        assert_eq!(sliced(0, i64::MAX, 2, 5).unwrap(), (0, 3));
        assert_eq!(sliced(-1, i64::MIN, i64::MIN, 5).unwrap(), (4, 1));
        assert_eq!(sliced(0, 5, i64::MAX, 5).unwrap(), (0, 1));
        assert!(sliced(0, 5, 0, 5).is_err());
    }

    #[test]
    fn reshape_keeps_and_infers_dimensions() {
        assert_eq!(reshaped(&[2, 3, 4], &[0, -1], false).unwrap(), [2, 12]);
        assert_eq!(reshaped(&[0, 3], &[3, 0], true).unwrap(), [3, 0]);
        assert!(reshaped(&[2, 3], &[4, -1], false).is_err());
        assert!(reshaped(&[4], &[-1, -1], false).is_err());
    }

    #[test]
    fn slices_are_clamped_and_run_backwards() {
        assert_eq!(sliced(1, i64::MAX, 2, 6).unwrap(), (1, 3));
        assert_eq!(sliced(-1, i64::MIN, -1, 4).unwrap(), (3, 4));
        assert_eq!(sliced(5, 2, 1, 4).unwrap(), (4, 0));
        assert_eq!(sliced(-3, -1, 1, 4).unwrap(), (1, 2));
        assert!(sliced(0, 1, 0, 4).is_err());
    }

    #[test]
    fn an_axis_out_of_range_is_refused() {
        assert_eq!(axis(-1, 3).unwrap(), 2);
        assert!(axis(3, 3).is_err());
        assert!(axis(-4, 3).is_err());
    }
}
