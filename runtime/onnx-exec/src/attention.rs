//! Attention: as one step of a plan, and composed of the plain operations of [`TensorOps`].

use super::OpError;
use super::evaluate::scalar;
use super::normalize::widen;
use super::operands::Operands;
use super::ops::{Binary, TensorOps};
use super::shape_arithmetic::broadcast_shape;

/// Computes the attention of a fused step. Its inputs are q, k (with its dimensions permuted by `key_order`), v and an
/// optional mask; the inputs from 4 on are the numbers by which the scores are multiplied or divided.
pub(super) fn fused_attention<O: TensorOps>(
    operands: &Operands<O>,
    key_order: &[usize],
    scaling: &[Binary],
) -> Result<O::Tensor, OpError> {
    let ops = operands.ops;
    let (q, k, v) = (operands.tensor(0)?, ops.permute(&operands.tensor(1)?, key_order)?, operands.tensor(2)?);
    let mask = operands.optional_tensor(3)?;
    let mut scale = 1.0;
    for (i, kind) in (4..).zip(scaling) {
        let number = operands.number(i)?.ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")))?;
        scale = if *kind == Binary::Div { scale / number } else { scale * number };
    }
    masked_attention(ops, [&q, &k, &v], mask.as_ref(), scale)
}

/// Computes attention with the library's own operation if the mask permits, else with primitive operations.
pub(super) fn masked_attention<O: TensorOps>(
    ops: &O,
    [q, k, v]: [&O::Tensor; 3],
    mask: Option<&O::Tensor>,
    scale: f64,
) -> Result<O::Tensor, OpError> {
    if mask.is_none_or(|mask| mask_fits_scores(ops, q, k, mask)) {
        ops.attention(q, k, v, mask, scale)
    } else {
        attention_from_primitives(ops, q, k, v, mask, scale)
    }
}

/// Returns whether a mask broadcasts to the scores of `q` and `k`. In a graph, the scores may also broadcast to the
/// mask.
fn mask_fits_scores<O: TensorOps>(ops: &O, q: &O::Tensor, k: &O::Tensor, mask: &O::Tensor) -> bool {
    let (q, k) = (ops.shape(q), ops.shape(k));
    let ([q_batch @ .., rows, _], [k_batch @ .., columns, _]) = (&q[..], &k[..]) else { return false };
    let Ok(mut scores) = broadcast_shape(q_batch, k_batch) else { return false };
    scores.extend([*rows, *columns]);
    broadcast_shape(&scores, &ops.shape(mask)).is_ok_and(|shape| shape == scores)
}

/// Computes [`TensorOps::attention`] with primitive operations. The scores may also broadcast to the mask.
pub(super) fn attention_from_primitives<O: TensorOps + ?Sized>(
    ops: &O,
    q: &O::Tensor,
    k: &O::Tensor,
    v: &O::Tensor,
    mask: Option<&O::Tensor>,
    scale: f64,
) -> Result<O::Tensor, OpError> {
    let order = swap_last_two((0..ops.shape(k).len()).collect());
    let order = order.ok_or_else(|| OpError::invalid_operands("the keys have fewer than two dimensions"))?;
    let (dtype, q, k) = (ops.dtype(q), widen(ops, q)?, widen(ops, k)?);
    let q = if scale == 1.0 { q.clone() } else { ops.binary(Binary::Mul, &q, &scalar(ops, scale, &q)?)? };
    let mut scores = ops.matmul(&q, &ops.permute(&k, &order)?)?;
    if let Some(mask) = mask {
        scores = ops.binary(Binary::Add, &scores, &widen(ops, mask)?)?;
    }
    let columns = ops.shape(&scores).len() - 1;
    let y = ops.matmul(&ops.softmax(&scores, columns, false)?, &widen(ops, v)?)?;
    if ops.dtype(&y) == dtype { Ok(y) } else { ops.cast(&y, dtype) }
}

/// Swaps the last two elements of an order of dimensions; `None` if there are fewer than two.
pub(super) fn swap_last_two(mut order: Vec<usize>) -> Option<Vec<usize>> {
    let [.., a, b] = &mut order[..] else { return None };
    std::mem::swap(a, b);
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::super::ReferenceOps;
    use super::super::reference::Array;
    use super::*;
    use flagperf_onnx::Tensor;

    #[test]
    fn a_mask_fits_when_it_does_not_change_the_shape_of_the_scores() {
        let zeros = |shape: &[usize]| {
            let zeros = vec![0f32; shape.iter().product()];
            Array::from_tensor(&Tensor::from_vec(shape, zeros).unwrap())
        };
        let fits = |q: &[usize], k: &[usize], mask: &[usize]| {
            mask_fits_scores(&ReferenceOps, &zeros(q), &zeros(k), &zeros(mask))
        };
        for mask in [&[][..], &[7], &[5, 1], &[2, 1, 7], &[3, 1, 1, 7], &[3, 2, 5, 7]] {
            assert!(fits(&[3, 2, 5, 4], &[1, 7, 4], mask), "{mask:?}");
        }
        for mask in [&[1, 3, 2, 5, 7][..], &[3, 3, 5, 7], &[6]] {
            assert!(!fits(&[3, 2, 5, 4], &[1, 7, 4], mask), "{mask:?}");
        }
        assert!(!fits(&[1, 2, 5, 4], &[1, 2, 7, 4], &[3, 1, 5, 7]), "the scores would be broadcast");
        assert!(!fits(&[4], &[7, 4], &[7]), "a vector");
    }
}
