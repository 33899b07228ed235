//! ONNX's operator `RotaryEmbedding`: rotates pairs of elements of each head by an angle that depends on the position
//! (Su et al. 2021, "RoFormer").

use super::OpError;
use super::normalize::widen;
use super::operands::Operands;
use super::ops::{Binary, TensorOps};

/// The attributes of a RotaryEmbedding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotary {
    /// Whether the elements of a pair are adjacent instead of half the width apart.
    pub interleaved: bool,
    /// The number of heads that lie side by side in an input of three dimensions.
    pub heads: Option<usize>,
    /// The number of elements of each head that are rotated, if not all.
    pub width: Option<usize>,
}

/// Rotates input 0, `batch,heads,rows,width` or `batch,rows,heads*width`. Inputs 1 and 2 are the cosines and sines: of
/// each row, or by position, with the positions of the rows in input 3.
pub(super) fn rotary_embedding<O: TensorOps>(operands: &Operands<O>, rotary: &Rotary) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let rows = match (&shape[..], rotary.heads) {
        ([_, _, _, _], _) => ops.permute(&x, &[0, 2, 1, 3])?,
        ([batch, rows, all], Some(heads)) if heads > 0 && all % heads == 0 => {
            ops.reshape(&x, &[*batch, *rows, heads, all / heads])?
        }
        (shape, heads) => {
            return Err(OpError::invalid_operands(format!(
                "{shape:?} cannot be split into heads (`num_heads`: {heads:?})"
            )));
        }
    };
    let size = ops.shape(&rows)[3];
    let width = rotary.width.unwrap_or(size);
    if width > size || !width.is_multiple_of(2) {
        return Err(OpError::invalid_operands(format!("{width} of {size} elements cannot be rotated in pairs")));
    }
    let (cos, sin) = (angle_table(operands, 1, width / 2)?, angle_table(operands, 2, width / 2)?);
    let rotated = ops.rotate(&ops.slice(&rows, 3, 0, width, 1)?, &cos, &sin, rotary.interleaved)?;
    let whole =
        if width == size { rotated } else { ops.concat(&[rotated, ops.slice(&rows, 3, width, size - width, 1)?], 3)? };
    if shape.len() == 4 { ops.permute(&whole, &[0, 2, 1, 3]) } else { ops.reshape(&whole, &shape) }
}

/// Returns the cosines or sines as `batch,rows,1,pairs`.
fn angle_table<O: TensorOps>(operands: &Operands<O>, i: usize, pairs: usize) -> Result<O::Tensor, OpError> {
    let (ops, mut table) = (operands.ops, operands.tensor(i)?);
    if let Some(positions) = operands.optional_tensor(3)? {
        table = ops.gather(&table, &positions, 0)?;
    }
    match ops.shape(&table)[..] {
        [batch, rows, width] if width == pairs => ops.reshape(&widen(ops, &table)?, &[batch, rows, 1, width]),
        ref shape => Err(OpError::invalid_operands(format!("the angles {shape:?} do not match {pairs} pairs"))),
    }
}

/// Composes [`TensorOps::rotate`] of other operations.
pub(super) fn rotate_from_primitives<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    [cos, sin]: [&O::Tensor; 2],
    interleaved: bool,
) -> Result<O::Tensor, OpError> {
    let (shape, dtype, x) = (ops.shape(x), ops.dtype(x), &widen(ops, x)?);
    let half = shape[3] / 2;
    let (first, second) = if interleaved {
        (ops.slice(x, 3, 0, half, 2)?, ops.slice(x, 3, 1.min(shape[3]), half, 2)?)
    } else {
        (ops.slice(x, 3, 0, half, 1)?, ops.slice(x, 3, half, half, 1)?)
    };
    let product = |a: &O::Tensor, b: &O::Tensor| ops.binary(Binary::Mul, a, b);
    let real = ops.binary(Binary::Sub, &product(&first, cos)?, &product(&second, sin)?)?;
    let imaginary = ops.binary(Binary::Add, &product(&first, sin)?, &product(&second, cos)?)?;
    if !interleaved {
        return ops.cast(&ops.concat(&[real, imaginary], 3)?, dtype);
    }
    let [batch, rows, heads, _] = shape[..] else { return Err(OpError::invalid_operands("the heads are not split")) };
    let column = |x: &O::Tensor| ops.reshape(x, &[batch, rows, heads, half, 1]);
    ops.cast(&ops.reshape(&ops.concat(&[column(&real)?, column(&imaginary)?], 4)?, &shape)?, dtype)
}
