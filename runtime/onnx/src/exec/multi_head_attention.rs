//! ONNX's operator `Attention`: heads in a dimension of their own or side by side in each row, with key and value heads
//! shared by several query heads.

use super::OpError;
use super::attention::masked_attention;
use super::evaluate::scalar;
use super::op::HeadCounts;
use super::operands::Operands;
use super::ops::{Binary, Reduce, TensorOps};
use crate::Tensor;

/// Computes the attention of the inputs q, k, v and an optional mask. Their shape is `batch,heads,rows,width`, or
/// `batch,rows,heads*width` with the heads of a row side by side. Consecutive heads of q share one head of k and v.
pub(super) fn multi_head_attention<O: TensorOps>(
    operands: &Operands<O>,
    counts: HeadCounts,
    scale: Option<f64>,
    causal: bool,
) -> Result<O::Tensor, OpError> {
    let (ops, q) = (operands.ops, operands.tensor(0)?);
    let side_by_side = ops.shape(&q).len() == 3;
    let q = split_heads(ops, q, counts.of_q)?;
    let [_, heads, rows, width] = ops.shape(&q)[..] else {
        return Err(OpError::invalid_operands("q has no head dimension"));
    };
    let k = repeat_heads(ops, split_heads(ops, operands.tensor(1)?, counts.of_kv)?, heads)?;
    let v = repeat_heads(ops, split_heads(ops, operands.tensor(2)?, counts.of_kv)?, heads)?;
    let mut mask = operands.optional_tensor(3)?.map(|mask| to_additive_mask(ops, &q, mask)).transpose()?;
    let may_mask_whole_rows = mask.is_some();
    if causal {
        let past = ops.upload(&causal_mask(rows, ops.shape(&k)[2]).cast(ops.dtype(&q)))?;
        mask = Some(mask.map_or(Ok(past.clone()), |mask| ops.binary(Binary::Add, &mask, &past))?);
    }
    let mut y = masked_attention(ops, [&q, &k, &v], mask.as_ref(), scale.unwrap_or((width as f64).sqrt().recip()))?;
    if let Some(mask) = mask.filter(|_| may_mask_whole_rows) {
        y = zero_masked_rows(ops, y, &mask)?;
    }
    if !side_by_side {
        return Ok(y);
    }
    let [batch, _, _, width] = ops.shape(&y)[..] else {
        return Err(OpError::invalid_operands("the mask adds dimensions to the result"));
    };
    ops.reshape(&ops.permute(&y, &[0, 2, 1, 3])?, &[batch, rows, heads * width])
}

/// Returns the tensor as `batch,heads,rows,width`.
fn split_heads<O: TensorOps>(ops: &O, x: O::Tensor, heads: Option<usize>) -> Result<O::Tensor, OpError> {
    match (&ops.shape(&x)[..], heads) {
        ([_, _, _, _], _) => Ok(x),
        ([batch, rows, all], Some(heads)) if all % heads == 0 => {
            ops.permute(&ops.reshape(&x, &[*batch, *rows, heads, all / heads])?, &[0, 2, 1, 3])
        }
        (shape, Some(heads)) => Err(OpError::invalid_operands(format!("{shape:?} cannot be split into {heads} heads"))),
        (shape, None) => Err(OpError::invalid_operands(format!(
            "{shape:?} has no head dimension, and the number of heads is not given"
        ))),
    }
}

/// Repeats each head of `x` equally often, to `heads` heads in total.
fn repeat_heads<O: TensorOps>(ops: &O, x: O::Tensor, heads: usize) -> Result<O::Tensor, OpError> {
    let [batch, own, rows, width] = ops.shape(&x)[..] else {
        return Err(OpError::invalid_operands("k or v has no head dimension"));
    };
    if own == heads {
        return Ok(x);
    }
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(OpError::invalid_operands(format!("{heads} heads of q cannot share {own} heads of k and v")));
    }
    let grouped = ops.reshape(&x, &[batch, own, 1, rows, width])?;
    let repeated = ops.expand(&grouped, &[batch, own, heads / own, rows, width])?;
    ops.reshape(&repeated, &[batch, heads, rows, width])
}

/// Converts a boolean mask, which is true at visible positions, to one that is added to the scores. A mask of numbers
/// is returned unchanged.
fn to_additive_mask<O: TensorOps>(ops: &O, q: &O::Tensor, mask: O::Tensor) -> Result<O::Tensor, OpError> {
    if ops.dtype(&mask).is_float() {
        return Ok(mask);
    }
    ops.select(&mask, &scalar(ops, 0.0, q)?, &scalar(ops, f64::NEG_INFINITY, q)?)
}

/// Sets the rows in which the mask hides all positions to zero, as the operator's definition requires.
fn zero_masked_rows<O: TensorOps>(ops: &O, y: O::Tensor, mask: &O::Tensor) -> Result<O::Tensor, OpError> {
    let Some(columns) = ops.shape(mask).len().checked_sub(1) else { return Ok(y) };
    let largest = ops.reduce(Reduce::Max, mask, &[columns])?;
    let hidden = ops.binary(Binary::Equal, &largest, &scalar(ops, f64::NEG_INFINITY, mask)?)?;
    ops.select(&hidden, &scalar(ops, 0.0, &y)?, &y)
}

/// Returns a mask that hides from each row the columns after its own index, counted from the upper left.
fn causal_mask(rows: usize, columns: usize) -> Tensor {
    let summand = |row: usize, column: usize| if column <= row { 0.0 } else { f64::NEG_INFINITY };
    let values: Vec<f64> = (0..rows * columns).map(|at| summand(at / columns, at % columns)).collect();
    Tensor::from_vec([rows, columns], values).expect("the number of values is rows times columns")
}
