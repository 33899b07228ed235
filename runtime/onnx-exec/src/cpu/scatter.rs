//! Rows of a tensor that are replaced by, or combined with, rows of another.

use ndarray::{ArrayD, IxDyn};

use super::OpError;
use super::number::Number;
use super::precision::in_compute_type;
use super::storage::{Dense, DenseElement, Elements, row_major, with_elements, with_numbers};
use crate::ops::Binary;

/// Computes [`TensorOps::scatter_rows`](crate::TensorOps::scatter_rows), update after update. Updates in 16 bits are combined in f32,
/// and the result is rounded once.
pub(super) fn scatter_rows(
    x: &Dense,
    rows: &[usize],
    updates: &Dense,
    combination: Option<Binary>,
) -> Result<Dense, OpError> {
    let Some(kind) = combination else {
        return with_elements!(x, x => scatter(x, rows, DenseElement::elements(updates)?, |_, update| update).map(Dense::from));
    };
    in_compute_type(
        [x, updates],
        |[x, updates]| with_numbers!(x, x => combine(x, rows, DenseElement::elements(updates)?, kind)),
    )
}

fn combine<T: Number>(x: &Elements<T>, rows: &[usize], updates: &Elements<T>, kind: Binary) -> Result<Dense, OpError>
where
    Dense: From<ArrayD<T>>,
{
    match kind {
        Binary::Add => scatter(x, rows, updates, T::plus),
        Binary::Mul => scatter(x, rows, updates, T::times),
        Binary::Min => scatter(x, rows, updates, T::smaller),
        Binary::Max => scatter(x, rows, updates, T::larger),
        other => return Err(OpError::unsupported(format!("updates combined by `{other:?}`"))),
    }
    .map(Dense::from)
}

fn scatter<T: DenseElement>(
    x: &Elements<T>,
    rows: &[usize],
    updates: &Elements<T>,
    combine: impl Fn(T, T) -> T,
) -> Result<ArrayD<T>, OpError> {
    let (mut result, updates) = (row_major(x), row_major(updates));
    let width = result.len() / x.shape().first().copied().unwrap_or(1).max(1);
    for (row, update) in rows.iter().zip(updates.chunks_exact(width.max(1))) {
        let places = &mut result[row * width..][..width];
        places.iter_mut().zip(update).for_each(|(place, update)| *place = combine(*place, *update));
    }
    ArrayD::from_shape_vec(IxDyn(x.shape()), result).map_err(OpError::library)
}
