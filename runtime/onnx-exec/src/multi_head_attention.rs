//! ONNX's operator `Attention`: heads in a dimension of their own or side by side in each row, key and value heads shared
//! by several query heads, and keys and values of earlier calls.

use super::OpError;
use super::attention::{masked_attention, swap_last_two};
use super::evaluate::scalar;
use super::normalize::widen;
use super::op::HeadCounts;
use super::operands::Operands;
use super::ops::{Binary, PadMode, Reduce, TensorOps, Unary};
use super::result_size::check_result_size;
use flagperf_onnx::{DType, Tensor};

/// The attributes of an Attention, and which of its outputs are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiHeadAttention {
    pub counts: HeadCounts,
    pub scale: Option<f64>,
    pub causal: bool,
    /// How many columns before and after its own position a row sees, if the attention is limited to a window.
    pub window: [Option<i64>; 2],
    /// The bound of the scores: they become `softcap * tanh(score / softcap)`, unless it is 0.
    pub softcap: f64,
    /// The number of outputs: the result, the present keys, the present values, the scores.
    pub outputs: usize,
    /// The stage of the scores that is the fourth output.
    pub scores: ScoreStage,
    /// Whether the mask is known to be finite, so that it hides no row completely.
    pub has_finite_mask: bool,
    /// Whether the input [`HIDDEN_ROWS`] states for each row whether the mask hides it completely.
    pub reads_hidden_rows: bool,
}

/// The input of an attention behind those of ONNX's operator.
pub(super) const HIDDEN_ROWS: usize = 7;

/// A stage of the computation of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScoreStage {
    /// The scaled products of queries and keys.
    Product,
    /// After the bound is applied.
    Bounded,
    /// After the mask is added.
    Masked,
    /// After the softmax.
    Weights,
}

/// Computes the attention of the inputs q, k, v, an optional mask, and optional keys and values of earlier calls, which
/// precede k and v. Their shape is `batch,heads,rows,width`, or `batch,rows,heads*width` with the heads of a row side by
/// side (never of earlier calls). Consecutive heads of q share one head of k and v.
pub(super) fn multi_head_attention<O: TensorOps>(
    operands: &Operands<O>,
    attention: &MultiHeadAttention,
) -> Result<Vec<O::Tensor>, OpError> {
    let (ops, q) = (operands.ops, operands.tensor(0)?);
    let side_by_side = ops.shape(&q).len() == 3;
    let q = split_heads(ops, q, attention.counts.of_q)?;
    let [_, heads, rows, width] = ops.shape(&q)[..] else {
        return Err(OpError::invalid_operands("q has no head dimension"));
    };
    let split = |i: usize| split_heads(ops, operands.tensor(i)?, attention.counts.of_kv);
    let (present_k, past) = append(ops, operands.optional_tensor(4)?, split(1)?)?;
    let (present_v, past_v) = append(ops, operands.optional_tensor(5)?, split(2)?)?;
    if past != past_v {
        return Err(OpError::invalid_operands(format!("{past} past keys, but {past_v} past values")));
    }
    let columns = ops.shape(&present_k)[2];
    let mut mask = operands
        .optional_tensor(3)?
        .map(|mask| to_additive_mask(ops, &q, pad_mask(ops, mask, columns)?))
        .transpose()?;
    let lengths = operands.ints(6)?;
    let is_bounded = lengths.is_some() || attention.window != [None; 2];
    let may_mask_whole_rows = (mask.is_some() && !attention.has_finite_mask) || is_bounded;
    if attention.causal || is_bounded {
        let hidden = attention.position_mask(rows, columns, past, lengths.as_deref())?;
        let hidden = ops.upload(&hidden.cast(ops.dtype(&q)))?;
        mask = Some(mask.map_or(Ok(hidden.clone()), |mask| ops.binary(Binary::Add, &mask, &hidden))?);
    }
    let scale = attention.scale.unwrap_or((width as f64).sqrt().recip());
    let hidden = match (attention.reads_hidden_rows, may_mask_whole_rows, &mask) {
        (true, ..) => operands.optional_tensor(HIDDEN_ROWS)?,
        (false, true, Some(mask)) => hidden_rows(ops, mask)?,
        _ => None,
    };
    // The queries of one row that share a head of the keys are as many rows of that head: nothing is repeated.
    let kv_heads = ops.shape(&present_k)[1];
    let is_shared = rows == 1 && kv_heads != 0 && heads.is_multiple_of(kv_heads) && heads != kv_heads;
    let for_each_head = |mask: &O::Tensor| ops.shape(mask).iter().rev().skip(1).take(2).all(|size| *size == 1);
    let is_shared = is_shared && mask.as_ref().is_none_or(for_each_head);
    let (q, k, v) = if is_shared {
        let [batch, _, _, width] = ops.shape(&q)[..] else { unreachable!("q has four dimensions") };
        (ops.reshape(&q, &[batch, kv_heads, heads / kv_heads, width])?, present_k.clone(), present_v.clone())
    } else {
        (q, repeat_heads(ops, present_k.clone(), heads)?, repeat_heads(ops, present_v.clone(), heads)?)
    };
    let (mut y, scores) = if attention.softcap == 0.0 && attention.outputs < 4 {
        let y = masked_attention(ops, [&q, &k, &v], mask.as_ref(), scale)?;
        (zero_rows(ops, y, hidden.as_ref())?, None)
    } else {
        let (y, scores) = attention_with_scores(ops, [&q, &k, &v], mask.as_ref(), hidden.as_ref(), scale, attention)?;
        (y, Some(scores))
    };
    let in_heads = |x: O::Tensor| {
        let shape = ops.shape(&x);
        match shape[..] {
            [batch, _, _, width] if is_shared => ops.reshape(&x, &[batch, heads, 1, width]),
            _ => Ok(x),
        }
    };
    y = in_heads(y)?;
    let scores = scores.map(in_heads).transpose()?;
    if side_by_side {
        let [batch, _, _, width] = ops.shape(&y)[..] else {
            return Err(OpError::invalid_operands("the mask adds dimensions to the result"));
        };
        y = ops.reshape(&ops.permute(&y, &[0, 2, 1, 3])?, &[batch, rows, heads * width])?;
    }
    let outputs = [y, present_k, present_v].into_iter().chain(scores);
    Ok(outputs.take(attention.outputs.max(1)).collect())
}

/// Computes attention step by step; returns the result and the scores at the stage that is an output. The weights of the
/// hidden rows are zero.
fn attention_with_scores<O: TensorOps>(
    ops: &O,
    [q, k, v]: [&O::Tensor; 3],
    mask: Option<&O::Tensor>,
    hidden: Option<&O::Tensor>,
    scale: f64,
    attention: &MultiHeadAttention,
) -> Result<(O::Tensor, O::Tensor), OpError> {
    let dtype = ops.dtype(q);
    let (q, k, v) = (widen(ops, q)?, widen(ops, k)?, widen(ops, v)?);
    let order = swap_last_two(vec![0, 1, 2, 3]).expect("there are four dimensions");
    let product = ops.matmul(&q, &ops.permute(&k, &order)?)?;
    let product = ops.binary(Binary::Mul, &product, &scalar(ops, scale, &product)?)?;
    let mut bounded = product.clone();
    if attention.softcap != 0.0 {
        let bound = scalar(ops, attention.softcap, &product)?;
        let ratio = ops.unary(Unary::Tanh, &ops.binary(Binary::Div, &product, &bound)?)?;
        bounded = ops.binary(Binary::Mul, &ratio, &bound)?;
    }
    let mut masked = bounded.clone();
    if let Some(mask) = mask {
        masked = ops.binary(Binary::Add, &masked, &widen(ops, mask)?)?;
    }
    let weights = zero_rows(ops, ops.softmax(&masked, ops.shape(&masked).len() - 1, false)?, hidden)?;
    let y = ops.matmul(&weights, &v)?;
    let scores = match attention.scores {
        ScoreStage::Product => product,
        ScoreStage::Bounded => bounded,
        ScoreStage::Masked => masked,
        ScoreStage::Weights => weights,
    };
    Ok((ops.cast(&y, dtype)?, ops.cast(&scores, dtype)?))
}

/// Returns the earlier rows followed by the new ones, and the number of the earlier ones.
fn append<O: TensorOps>(ops: &O, past: Option<O::Tensor>, new: O::Tensor) -> Result<(O::Tensor, usize), OpError> {
    let Some(past) = past else { return Ok((new, 0)) };
    let [_, _, rows, _] = ops.shape(&past)[..] else {
        return Err(OpError::invalid_operands("the past keys or values do not have four dimensions"));
    };
    Ok((ops.concat(&[past, new], 2)?, rows))
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

/// Returns whether a mask hides all positions of each row; `None` if it has no rows.
fn hidden_rows<O: TensorOps>(ops: &O, mask: &O::Tensor) -> Result<Option<O::Tensor>, OpError> {
    let Some(columns) = ops.shape(mask).len().checked_sub(1) else { return Ok(None) };
    let largest = ops.reduce(Reduce::Max, mask, &[columns])?;
    ops.binary(Binary::Equal, &largest, &scalar(ops, f64::NEG_INFINITY, mask)?).map(Some)
}

/// Sets the hidden rows to zero, as the operator's definition requires.
fn zero_rows<O: TensorOps>(ops: &O, y: O::Tensor, hidden: Option<&O::Tensor>) -> Result<O::Tensor, OpError> {
    hidden.map_or(Ok(y.clone()), |hidden| ops.select(hidden, &scalar(ops, 0.0, &y)?, &y))
}

/// Hides the columns that a mask does not cover.
fn pad_mask<O: TensorOps>(ops: &O, mask: O::Tensor, columns: usize) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(&mask);
    let missing = shape.last().map_or(0, |size| if *size == 1 { 0 } else { columns.saturating_sub(*size) });
    if missing == 0 {
        return Ok(mask);
    }
    let mut pads = vec![(0, 0); shape.len()];
    pads[shape.len() - 1] = (0, missing);
    let hidden = if ops.dtype(&mask).is_float() { f64::NEG_INFINITY } else { 0.0 };
    ops.pad(&mask, &pads, PadMode::Constant(hidden))
}

impl MultiHeadAttention {
    /// Returns a mask that hides columns by their position: those after a row, those outside its window, and those beyond
    /// the length of a sample. The position of the first row is `past` or, with lengths, such that the last row is the last
    /// position of its sample.
    fn position_mask(
        &self,
        rows: usize,
        columns: usize,
        past: usize,
        lengths: Option<&[i64]>,
    ) -> Result<Tensor, OpError> {
        let samples: Vec<(i64, i64)> = match lengths {
            Some(lengths) => lengths.iter().map(|length| (length - rows as i64, *length)).collect(),
            None => vec![(past as i64, i64::MAX)],
        };
        check_result_size(&[samples.len(), rows, columns], DType::F64)?;
        let mut values = Vec::with_capacity(samples.len() * rows * columns);
        for (offset, length) in &samples {
            for place in 0..rows * columns {
                let (position, column) = ((place / columns) as i64 + offset, (place % columns) as i64);
                let is_visible = column < *length
                    && (!self.causal || column <= position)
                    && self.window[0].is_none_or(|before| column >= position - before)
                    && self.window[1].is_none_or(|after| column <= position + after);
                values.push(if is_visible { 0.0 } else { f64::NEG_INFINITY });
            }
        }
        let shape = if lengths.is_some() { vec![samples.len(), 1, rows, columns] } else { vec![rows, columns] };
        Tensor::from_vec(shape, values).map_err(OpError::library)
    }
}
