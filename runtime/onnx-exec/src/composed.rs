//! Applies the operators that are composed of several operations of a tensor library.

use super::OpError;
use super::conv_transpose::conv_transpose;
use super::einsum::einsum;
use super::evaluate::scalar;
use super::generate::{cumulative_sum, nonzero, one_hot, range, tile, top_k, triangle};
use super::indexing::{gather_elements, gather_nd, scatter_elements, scatter_nd};
use super::multi_head_attention::multi_head_attention;
use super::normalize::{group_normalization, rms_normalization, widen};
use super::op::{Op, Reduction};
use super::operands::Operands;
use super::ops::{Binary, Reduce, TensorOps, Unary};
use super::rearrange::rearrange;
use super::recurrent::recurrent;
use super::resize::resize;
use super::rotary::rotary_embedding;
use super::tensor_scatter::tensor_scatter;

/// Returns the outputs of an operator that [`super::evaluate::evaluate`] delegates to this module.
pub(super) fn evaluate_composed<O: TensorOps>(op: &Op, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
    let output = match op {
        Op::MultiHeadAttention(attention) => return multi_head_attention(operands, attention),
        Op::TopK { axis, largest } => return top_k(operands, *axis, *largest),
        Op::Recurrent(attributes) => return recurrent(operands, attributes),
        Op::Mean => mean(operands)?,
        Op::PRelu => parametric_relu(operands)?,
        Op::ConvTranspose(conv) => conv_transpose(operands, conv)?,
        Op::GroupNormalization(norm) => group_normalization(operands, Some(*norm), norm.epsilon)?,
        Op::InstanceNormalization { epsilon } => group_normalization(operands, None, *epsilon)?,
        Op::RmsNormalization { axis, epsilon } => rms_normalization(operands, *axis, *epsilon)?,
        Op::RotaryEmbedding(rotary) => rotary_embedding(operands, rotary)?,
        Op::Einsum(equation) => einsum(operands, equation)?,
        Op::Resize(attributes) => resize(operands, attributes)?,
        Op::GatherElements { axis } => gather_elements(operands, *axis)?,
        Op::GatherNd { batch_dims } => gather_nd(operands, *batch_dims)?,
        Op::ScatterElements { axis, combination } => scatter_elements(operands, *axis, *combination)?,
        Op::ScatterNd { combination } => scatter_nd(operands, *combination)?,
        Op::TensorScatter(scatter) => tensor_scatter(operands, *scatter)?,
        Op::Range => range(operands)?,
        Op::OneHot { axis } => one_hot(operands, *axis)?,
        Op::Tile => tile(operands)?,
        Op::Trilu { upper } => triangle(operands, *upper)?,
        Op::NonZero => nonzero(operands)?,
        Op::CumSum { exclusive, reverse } => cumulative_sum(operands, *exclusive, *reverse)?,
        movement => return rearrange(movement, operands),
    };
    Ok(vec![output])
}

/// Returns the mean of all inputs.
fn mean<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, first) = (operands.ops, operands.tensor(0)?);
    let add = |sum, i| ops.binary(Binary::Add, &sum, &widen(ops, &operands.tensor(i)?)?);
    let sum = (1..operands.len()).try_fold(widen(ops, &first)?, add)?;
    let count = scalar(ops, operands.len() as f64, &sum)?;
    ops.cast(&ops.binary(Binary::Div, &sum, &count)?, ops.dtype(&first))
}

/// Returns input 0 where it is not negative, else its product with input 1.
fn parametric_relu<O: TensorOps>(operands: &Operands<O>) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let is_negative = ops.binary(Binary::Less, &x, &scalar(ops, 0.0, &x)?)?;
    let y = ops.select(&is_negative, &ops.binary(Binary::Mul, &x, &operands.tensor(1)?)?, &x)?;
    if ops.shape(&y) == ops.shape(&x) {
        Ok(y)
    } else {
        Err(OpError::invalid_operands(format!("the slopes cannot be broadcast to {:?}", ops.shape(&x))))
    }
}

/// Reduces a tensor over `axes`, each of which remains with size 1.
pub(super) fn reduce_composed<O: TensorOps>(
    ops: &O,
    kind: Reduction,
    x: &O::Tensor,
    axes: &[usize],
) -> Result<O::Tensor, OpError> {
    if let Reduction::Plain(kind) = kind {
        return ops.reduce(kind, x, axes);
    }
    let dtype = ops.dtype(x);
    let x = widen(ops, x)?;
    let sum = |x: &O::Tensor| ops.reduce(Reduce::Sum, x, axes);
    let reduced = match kind {
        Reduction::Plain(kind) => ops.reduce(kind, &x, axes)?,
        Reduction::L1 => sum(&ops.unary(Unary::Abs, &x)?)?,
        Reduction::L2 => ops.unary(Unary::Sqrt, &ops.sum_of_squares(&x, axes)?)?,
        Reduction::SumSquare => ops.sum_of_squares(&x, axes)?,
        Reduction::LogSum => ops.unary(Unary::Log, &sum(&x)?)?,
        Reduction::LogSumExp => {
            let largest = ops.reduce(Reduce::Max, &x, axes)?;
            // The difference of two infinities is not a number.
            let bound = Unary::Clip { min: -f64::from(f32::MAX), max: f64::from(f32::MAX) };
            let largest = ops.unary(bound, &largest)?;
            let shifted = ops.unary(Unary::Exp, &ops.binary(Binary::Sub, &x, &largest)?)?;
            ops.binary(Binary::Add, &ops.unary(Unary::Log, &sum(&shifted)?)?, &largest)?
        }
    };
    ops.cast(&reduced, dtype)
}
