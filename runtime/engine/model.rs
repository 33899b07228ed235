//! Reading model files, and checking their floating-point types before an engine loads them.
//!
//! Knows nothing about particular engines.

use std::path::Path;

use flagperf_onnx::{Graph, WeightRole, check_limits, read_onnx};

use super::{Engine, EngineError};
use crate::tensor::DType;

/// Reads an ONNX file.
///
/// # Errors
/// When the file is missing or malformed; the message contains its path.
pub(super) fn read(path: &Path) -> Result<Graph, EngineError> {
    read_onnx(path).map_err(|error| EngineError::Failed(error.to_string()))
}

/// Rejects a model that would overflow an engine's stack, and a model in another floating-point type than the requested
/// one, which an engine would convert silently.
///
/// A model has the requested type when at least one of its learned weights has it (others may stay wider on purpose);
/// a model without learned floating-point weights is judged by its inputs. The engine must support every
/// floating-point type found.
///
/// # Errors
/// [`EngineError::Precision`] or [`EngineError::Failed`].
pub(super) fn check(engine: &dyn Engine, graph: &Graph, requested: DType) -> Result<(), EngineError> {
    check_limits(graph).map_err(|error| EngineError::Failed(format!("the model `{}`: {error}", graph.name)))?;
    let learned =
        graph.weights.values().filter(|weight| weight.role != WeightRole::Constant).map(|weight| weight.spec.dtype);
    let mut floats: Vec<DType> = learned.filter(|dtype| dtype.is_float()).collect();
    if floats.is_empty() {
        floats = graph.inputs.iter().map(|info| info.spec.dtype).filter(|dtype| dtype.is_float()).collect();
    }
    if let Some(unsupported) = floats.iter().find(|dtype| !engine.precisions().contains(dtype)) {
        return Err(super::options::precision_error(engine, *unsupported));
    }
    if floats.is_empty() || floats.contains(&requested) {
        return Ok(());
    }
    let (name, actual) = (&graph.name, floats[0]);
    Err(EngineError::Failed(format!("the model `{name}` is in `{actual}`, but the case computes in `{requested}`")))
}
