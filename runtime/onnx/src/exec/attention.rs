//! Attention: as one step of a plan, and out of the plain operations of [`TensorOps`].

use super::OpError;
use super::evaluate::scalar;
use super::movement::broadcast_shape;
use super::operands::Operands;
use super::ops::{Binary, TensorOps};

/// The attention of the inputs q, k (its dimensions in another order), v and perhaps a mask; the inputs from 4 on are the
/// numbers that the scores are multiplied or divided by.
pub(super) fn attention<O: TensorOps>(
    given: &Operands<O>,
    key_order: &[usize],
    scaling: &[Binary],
) -> Result<O::Tensor, OpError> {
    let ops = given.ops;
    let (q, k, v) = (given.tensor(0)?, ops.permute(&given.tensor(1)?, key_order)?, given.tensor(2)?);
    let mask = given.optional_tensor(3)?;
    let mut scale = 1.0;
    for (i, kind) in (4..).zip(scaling) {
        let number = given.number(i)?.ok_or_else(|| OpError::operands(format!("input {i} is missing")))?;
        scale = if *kind == Binary::Div { scale / number } else { scale * number };
    }
    attend(ops, [&q, &k, &v], mask.as_ref(), scale)
}

/// The library's own attention, where its mask fits it.
pub(super) fn attend<O: TensorOps>(
    ops: &O,
    [q, k, v]: [&O::Tensor; 3],
    mask: Option<&O::Tensor>,
    scale: f64,
) -> Result<O::Tensor, OpError> {
    if mask.is_none_or(|mask| fits(ops, q, k, mask)) {
        ops.attention(q, k, v, mask, scale)
    } else {
        by_parts(ops, q, k, v, mask, scale)
    }
}

/// Whether a mask broadcasts to the scores of `q` and `k`. In a graph the scores may as well broadcast to the mask.
fn fits<O: TensorOps>(ops: &O, q: &O::Tensor, k: &O::Tensor, mask: &O::Tensor) -> bool {
    let (q, k) = (ops.shape(q), ops.shape(k));
    let ([q_batch @ .., rows, _], [k_batch @ .., columns, _]) = (&q[..], &k[..]) else { return false };
    let Ok(mut scores) = broadcast_shape(q_batch, k_batch) else { return false };
    scores.extend([*rows, *columns]);
    broadcast_shape(&scores, &ops.shape(mask)).is_ok_and(|shape| shape == scores)
}

/// [`TensorOps::attention`] in the operations that it merges; the scores may also broadcast to the mask.
pub(super) fn by_parts<O: TensorOps + ?Sized>(
    ops: &O,
    q: &O::Tensor,
    k: &O::Tensor,
    v: &O::Tensor,
    mask: Option<&O::Tensor>,
    scale: f64,
) -> Result<O::Tensor, OpError> {
    let order = last_two_swapped((0..ops.shape(k).len()).collect());
    let order = order.ok_or_else(|| OpError::operands("the keys have fewer than two dimensions"))?;
    let q = if scale == 1.0 { q.clone() } else { ops.binary(Binary::Mul, q, &scalar(ops, scale, q)?)? };
    let mut scores = ops.matmul(&q, &ops.permute(k, &order)?)?;
    if let Some(mask) = mask {
        scores = ops.binary(Binary::Add, &scores, mask)?;
    }
    let columns = ops.shape(&scores).len() - 1;
    ops.matmul(&ops.softmax(&scores, columns, false)?, v)
}

/// An order of dimensions with the last two swapped, if there are two.
pub(super) fn last_two_swapped(mut order: Vec<usize>) -> Option<Vec<usize>> {
    let [.., a, b] = &mut order[..] else { return None };
    std::mem::swap(a, b);
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::super::ReferenceOps;
    use super::super::reference::Array;
    use super::*;
    use crate::Tensor;

    #[test]
    fn a_mask_fits_when_it_does_not_change_the_shape_of_the_scores() {
        let zeros = |shape: &[usize]| {
            let zeros = vec![0f32; shape.iter().product()];
            Array::from_tensor(&Tensor::from_vec(shape, zeros).unwrap())
        };
        let fits = |q: &[usize], k: &[usize], mask: &[usize]| fits(&ReferenceOps, &zeros(q), &zeros(k), &zeros(mask));
        for mask in [&[][..], &[7], &[5, 1], &[2, 1, 7], &[3, 1, 1, 7], &[3, 2, 5, 7]] {
            assert!(fits(&[3, 2, 5, 4], &[1, 7, 4], mask), "{mask:?}");
        }
        for mask in [&[1, 3, 2, 5, 7][..], &[3, 3, 5, 7], &[6]] {
            assert!(!fits(&[3, 2, 5, 4], &[1, 7, 4], mask), "{mask:?}");
        }
        assert!(!fits(&[1, 2, 5, 4], &[1, 2, 7, 4], &[3, 1, 5, 7]), "the scores would broadcast");
        assert!(!fits(&[4], &[7, 4], &[7]), "a vector");
    }
}
