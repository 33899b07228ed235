//! ONNX's operator Attention: heads side by side or one after the other, and shared by several queries.

use super::OpError;
use super::attention::attend;
use super::evaluate::scalar;
use super::op::Heads;
use super::operands::Operands;
use super::ops::{Binary, Reduce, TensorOps};
use crate::Tensor;

/// The attention of the inputs q, k, v and perhaps a mask: `batch,heads,rows,width`, or with the heads of a row side by
/// side as `batch,rows,heads*width`. Several heads of q in a row share one of k and v.
pub(super) fn heads<O: TensorOps>(
    given: &Operands<O>,
    counts: Heads,
    scale: Option<f64>,
    causal: bool,
) -> Result<O::Tensor, OpError> {
    let (ops, q) = (given.ops, given.tensor(0)?);
    let side_by_side = ops.shape(&q).len() == 3;
    let q = apart(ops, q, counts.of_q)?;
    let [_, heads, rows, width] = ops.shape(&q)[..] else { return Err(OpError::operands("q has no heads")) };
    let k = shared(ops, apart(ops, given.tensor(1)?, counts.of_kv)?, heads)?;
    let v = shared(ops, apart(ops, given.tensor(2)?, counts.of_kv)?, heads)?;
    let mut mask = given.optional_tensor(3)?.map(|mask| as_summand(ops, &q, mask)).transpose()?;
    let may_bar_all = mask.is_some();
    if causal {
        let past = ops.upload(&past_only(rows, ops.shape(&k)[2]).cast(ops.dtype(&q)))?;
        mask = Some(mask.map_or(Ok(past.clone()), |mask| ops.binary(Binary::Add, &mask, &past))?);
    }
    let mut y = attend(ops, [&q, &k, &v], mask.as_ref(), scale.unwrap_or((width as f64).sqrt().recip()))?;
    if let Some(mask) = mask.filter(|_| may_bar_all) {
        y = without_barred_rows(ops, y, &mask)?;
    }
    if !side_by_side {
        return Ok(y);
    }
    let [batch, _, _, width] = ops.shape(&y)[..] else { return Err(OpError::operands("the mask adds dimensions")) };
    ops.reshape(&ops.permute(&y, &[0, 2, 1, 3])?, &[batch, rows, heads * width])
}

/// The tensor as `batch,heads,rows,width`.
fn apart<O: TensorOps>(ops: &O, x: O::Tensor, heads: Option<usize>) -> Result<O::Tensor, OpError> {
    match (&ops.shape(&x)[..], heads) {
        ([_, _, _, _], _) => Ok(x),
        ([batch, rows, all], Some(heads)) if all % heads == 0 => {
            ops.permute(&ops.reshape(&x, &[*batch, *rows, heads, all / heads])?, &[0, 2, 1, 3])
        }
        (shape, Some(heads)) => Err(OpError::operands(format!("{shape:?} does not part into {heads} heads"))),
        (shape, None) => Err(OpError::operands(format!("{shape:?} has no heads, and their number is not given"))),
    }
}

/// Each head of `x` as often as makes `heads` of them.
fn shared<O: TensorOps>(ops: &O, x: O::Tensor, heads: usize) -> Result<O::Tensor, OpError> {
    let [batch, own, rows, width] = ops.shape(&x)[..] else { return Err(OpError::operands("k or v has no heads")) };
    if own == heads {
        return Ok(x);
    }
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(OpError::operands(format!("{heads} heads of q cannot share {own} of k and v")));
    }
    let alone = ops.reshape(&x, &[batch, own, 1, rows, width])?;
    let repeated = ops.expand(&alone, &[batch, own, heads / own, rows, width])?;
    ops.reshape(&repeated, &[batch, heads, rows, width])
}

/// A mask of bools, true where something is seen, as what is added to scores; another stays.
fn as_summand<O: TensorOps>(ops: &O, q: &O::Tensor, mask: O::Tensor) -> Result<O::Tensor, OpError> {
    if ops.dtype(&mask).is_float() {
        return Ok(mask);
    }
    ops.select(&mask, &scalar(ops, 0.0, q)?, &scalar(ops, f64::NEG_INFINITY, q)?)
}

/// With zeros in the rows where the mask leaves nothing to see, as the operator has it.
fn without_barred_rows<O: TensorOps>(ops: &O, y: O::Tensor, mask: &O::Tensor) -> Result<O::Tensor, OpError> {
    let Some(columns) = ops.shape(mask).len().checked_sub(1) else { return Ok(y) };
    let most = ops.reduce(Reduce::Max, mask, &[columns])?;
    let barred = ops.binary(Binary::Equal, &most, &scalar(ops, f64::NEG_INFINITY, mask)?)?;
    ops.select(&barred, &scalar(ops, 0.0, &y)?, &y)
}

/// Bars the columns beyond the row's own, counted from the upper left.
fn past_only(rows: usize, columns: usize) -> Tensor {
    let seen = |row: usize, column: usize| if column <= row { 0.0 } else { f64::NEG_INFINITY };
    let values: Vec<f64> = (0..rows * columns).map(|at| seen(at / columns, at % columns)).collect();
    Tensor::from_vec([rows, columns], values).expect("there are as many as rows times columns")
}
