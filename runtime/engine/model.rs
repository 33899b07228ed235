//! What a model file says of itself: inputs, outputs and the types it computes in.
//!
//! Knows no engine.

use std::path::Path;

use flagperf_onnx::{Graph, Role, check_limits, read_onnx};

use super::{Engine, EngineError};
use crate::tensor::DType;

/// Reads an ONNX file.
///
/// # Errors
/// When it is not there or not whole; names the file.
pub(super) fn read(path: &Path) -> Result<Graph, EngineError> {
    read_onnx(path).map_err(|error| EngineError::Failed(error.to_string()))
}

/// Refuses a model that would overflow an engine's stack, and one in another floating-point type than was asked for: an
/// engine would convert it without a word.
///
/// A model is in the type asked for when one of its learned weights is (some may stay wider on purpose); without such
/// weights its inputs decide. Every type in it must be one of the engine's.
///
/// # Errors
/// [`EngineError::Precision`] or [`EngineError::Failed`].
pub(super) fn check(engine: &dyn Engine, graph: &Graph, asked: DType) -> Result<(), EngineError> {
    check_limits(graph).map_err(|error| EngineError::Failed(format!("the model `{}`: {error}", graph.name)))?;
    let learned = graph.weights.values().filter(|weight| weight.role != Role::Constant).map(|weight| weight.spec.dtype);
    let mut floats: Vec<DType> = learned.filter(|dtype| dtype.is_float()).collect();
    if floats.is_empty() {
        floats = graph.inputs.iter().map(|info| info.spec.dtype).filter(|dtype| dtype.is_float()).collect();
    }
    if let Some(lacking) = floats.iter().find(|dtype| !engine.precisions().contains(dtype)) {
        return Err(super::options::lacks_precision(engine, *lacking));
    }
    if floats.is_empty() || floats.contains(&asked) {
        return Ok(());
    }
    let (name, is) = (&graph.name, floats[0]);
    Err(EngineError::Failed(format!("the model `{name}` is in `{is}`, it was to be computed in `{asked}`")))
}
