//! Converts between dimensions and the symbolic expressions of `rten-shape-inference`.
//!
//! Knows nothing about operators.

use rten_shape_inference::{SymExpr, SymTensor, SymbolGen};

use super::InferError;
use crate::{DType, Dim, Tensor};

/// The most elements of an integer tensor that is tracked by value: a shape, axes, indices.
const MAX_TRACKED: usize = 256;

/// The most levels of an expression; a deeper one becomes an unknown size. The rules traverse expressions recursively.
const MAX_DEPTH: u32 = 16;

/// Converts dimensions to symbolic sizes. A size beyond 32 bits becomes an unknown size.
pub(super) fn symbolic_shape(dims: &[Dim], symbols: &mut SymbolGen) -> SymTensor {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => i32::try_from(*size).map_or_else(|_| symbols.gen_positive(), SymExpr::Value),
        Dim::Named(name) => SymExpr::pos_var(name),
        Dim::Unknown => symbols.gen_positive(),
    };
    SymTensor::from_shape(dims.iter().map(size).collect())
}

/// Converts a known tensor to its elements if they can stand for sizes, else to its shape.
pub(super) fn symbolic_value(tensor: &Tensor, symbols: &mut SymbolGen) -> SymTensor {
    let integers = matches!(tensor.dtype(), DType::I64 | DType::I32);
    if !integers || tensor.shape().len() > 1 || tensor.len() > MAX_TRACKED {
        let dims: Vec<Dim> = tensor.shape().iter().map(|size| Dim::Fixed(*size)).collect();
        return symbolic_shape(&dims, symbols);
    }
    // The conversion saturates: a slice end of i64::MAX means "to the end", and so does i32::MAX.
    let mut elements = tensor.to_f64().into_iter().map(|x| SymExpr::Value(x as i32));
    match tensor.shape() {
        [] => elements.next().map_or_else(|| SymTensor::unknown("empty scalar"), SymTensor::from_scalar),
        _ => SymTensor::from_vec(elements.collect()),
    }
}

/// Converts symbolic sizes to dimensions; `None` when the number of dimensions is unknown.
pub(super) fn dims(tensor: &SymTensor) -> Option<Vec<Dim>> {
    let dim = |size: SymExpr| match size {
        SymExpr::Value(size) => usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed),
        SymExpr::Var(symbol) if !symbol.synthetic => Dim::Named(symbol.name.clone()),
        _ => Dim::Unknown,
    };
    Some(tensor.shape()?.map(dim).collect())
}

/// Returns whether a list is too long to be tracked by value.
pub(super) fn is_too_long(elements: usize) -> bool {
    elements > MAX_TRACKED
}

/// Simplifies a tensor, and limits the length of lists and the depth of expressions, which could otherwise grow from
/// node to node without end.
pub(super) fn bound_complexity(tensor: SymTensor, symbols: &mut SymbolGen) -> SymTensor {
    let too_long = tensor.values().is_some_and(|values| is_too_long(values.len()));
    let shape: Option<Vec<SymExpr>> = too_long.then(|| tensor.shape().into_iter().flatten().collect());
    let mut tensor = shape.map_or_else(|| tensor.simplify(), SymTensor::from_shape);
    tensor.replace_complex_expressions(MAX_DEPTH, symbols);
    tensor
}

/// Returns the tensor unchanged.
///
/// # Errors
/// When a size is negative, because a window is larger than its input.
pub(super) fn check_sizes(tensor: SymTensor) -> Result<SymTensor, InferError> {
    let negative = |size: SymExpr| matches!(size, SymExpr::Value(size) if size < 0);
    let impossible = tensor.shape().is_some_and(|mut sizes| sizes.any(negative));
    if impossible {
        return Err(InferError::Mismatch("the output would have a negative size".to_owned()));
    }
    Ok(tensor)
}
