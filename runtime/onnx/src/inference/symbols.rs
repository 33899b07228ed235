//! Between our dimensions and the symbolic expressions of `rten-shape-inference`.
//!
//! Knows no operator.

use rten_shape_inference::{SymExpr, SymTensor, SymbolGen};

use super::InferError;
use crate::{DType, Dim, Tensor};

/// Integer tensors of up to so many elements are followed by value: shapes, axes, indices.
const MAX_FOLLOWED: usize = 256;

/// Levels of an expression; a deeper one becomes an unknown size. The rules walk expressions by recursion.
const MAX_DEPTH: u32 = 16;

/// Our dimensions as symbolic sizes. A size beyond 32 bits becomes an unknown one.
pub(super) fn shape(dims: &[Dim], symbols: &mut SymbolGen) -> SymTensor {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => i32::try_from(*size).map_or_else(|_| symbols.gen_positive(), SymExpr::Value),
        Dim::Named(name) => SymExpr::pos_var(name),
        Dim::Unknown => symbols.gen_positive(),
    };
    SymTensor::from_shape(dims.iter().map(size).collect())
}

/// A known tensor: its elements when they can stand for sizes, else its shape.
pub(super) fn value(tensor: &Tensor, symbols: &mut SymbolGen) -> SymTensor {
    let integers = matches!(tensor.dtype(), DType::I64 | DType::I32);
    if !integers || tensor.shape().len() > 1 || tensor.len() > MAX_FOLLOWED {
        let dims: Vec<Dim> = tensor.shape().iter().map(|size| Dim::Fixed(*size)).collect();
        return shape(&dims, symbols);
    }
    // Saturating: an end of i64::MAX means "to the end", and so does i32::MAX.
    let mut elements = tensor.to_f64().into_iter().map(|x| SymExpr::Value(x as i32));
    match tensor.shape() {
        [] => elements.next().map_or_else(|| SymTensor::unknown("empty scalar"), SymTensor::from_scalar),
        _ => SymTensor::from_vec(elements.collect()),
    }
}

/// Symbolic sizes as our dimensions; `None` when the number of dimensions is unknown.
pub(super) fn dims(tensor: &SymTensor) -> Option<Vec<Dim>> {
    let dim = |size: SymExpr| match size {
        SymExpr::Value(size) => usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed),
        SymExpr::Var(symbol) if !symbol.synthetic => Dim::Named(symbol.name.clone()),
        _ => Dim::Unknown,
    };
    Some(tensor.shape()?.map(dim).collect())
}

/// Whether a list of so many elements is too long to be followed by value.
pub(super) fn is_long(elements: usize) -> bool {
    elements > MAX_FOLLOWED
}

/// The tensor simplified, with no list and no expression that could grow from node to node without end.
pub(super) fn bounded(tensor: SymTensor, symbols: &mut SymbolGen) -> SymTensor {
    let too_long = tensor.values().is_some_and(|values| is_long(values.len()));
    let shape: Option<Vec<SymExpr>> = too_long.then(|| tensor.shape().into_iter().flatten().collect());
    let mut tensor = shape.map_or_else(|| tensor.simplify(), SymTensor::from_shape);
    tensor.replace_complex_expressions(MAX_DEPTH, symbols);
    tensor
}

/// The same tensor, refused when a size came out negative: a window larger than what it slides over.
pub(super) fn checked(tensor: SymTensor) -> Result<SymTensor, InferError> {
    let negative = |size: SymExpr| matches!(size, SymExpr::Value(size) if size < 0);
    let impossible = tensor.shape().is_some_and(|mut sizes| sizes.any(negative));
    if impossible {
        return Err(InferError::Mismatch("the output would have a negative size".to_owned()));
    }
    Ok(tensor)
}
