//! Reading model files, and checking their floating-point types before an engine loads them.
//!
//! Knows nothing about particular engines.

use std::path::{Path, PathBuf};

use flagperf_onnx::{Graph, WeightRole, check_limits, check_paths, lower, read_onnx, write_onnx};
use tempfile::TempDir;

use super::{Engine, EngineError, deviations};
use flagperf_core::description::EngineDescription;
use flagperf_core::tensor::DType;

/// Reads an ONNX file.
///
/// # Errors
/// When the file is missing or malformed; the message contains its path.
pub(super) fn read(path: &Path) -> Result<Graph, EngineError> {
    read_onnx(path).map_err(|error| EngineError::Failed(error.to_string()))
}

/// Decomposes the composite operators that are newer than the operator set of the engine.
///
/// # Errors
/// When an operator is used in a way that cannot be decomposed.
pub(super) fn lower_for(engine: &EngineDescription, graph: &Graph) -> Result<Graph, EngineError> {
    let failed = |error| EngineError::Failed(format!("the model `{}`: {error}", graph.name));
    lower(graph, engine.opset_max, &[]).map_err(failed)
}

/// A model file that an engine can load.
pub(super) struct ModelSource {
    pub path: PathBuf,
    pub graph: Graph,
    /// The folder of the file, if it was written for the engine. It is removed with this value.
    pub folder: Option<TempDir>,
    /// What the engine computes in another way than the standard, for the record.
    pub warnings: Vec<String>,
}

/// Reads an ONNX file. If the engine lacks some of its operators or computes them in another way than the standard, the graph
/// with others in their place is written below `scratch`.
///
/// # Errors
/// As [`read`], [`lower_for`] and [`deviations::apply`], and when the file cannot be written.
pub(super) fn read_lowered(
    engine: &EngineDescription,
    path: &Path,
    scratch: &Path,
) -> Result<ModelSource, EngineError> {
    let graph = read(path)?;
    let (computable, warnings) = deviations::apply(engine.name, graph.clone())?;
    let lowered = lower_for(engine, &computable)?;
    if lowered.nodes == graph.nodes {
        return Ok(ModelSource { path: path.to_owned(), graph, folder: None, warnings });
    }
    let (path, folder) = write_temporary(&lowered, scratch).map_err(EngineError::Failed)?;
    Ok(ModelSource { path, graph: lowered, folder: Some(folder), warnings })
}

/// Writes a graph as an ONNX file into a new temporary folder below `scratch`.
///
/// # Errors
/// When the folder or the file cannot be written.
pub(super) fn write_temporary(graph: &Graph, scratch: &Path) -> Result<(PathBuf, TempDir), String> {
    let folder = std::fs::create_dir_all(scratch).and_then(|()| tempfile::tempdir_in(scratch));
    let folder = folder.map_err(|error| format!("`{}` cannot be written: {error}", scratch.display()))?;
    let path = folder.path().join("model.onnx");
    write_onnx(graph, &path).map_err(|error| error.to_string())?;
    Ok((path, folder))
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
    check_limits(graph)
        .and_then(|()| check_paths(graph))
        .map_err(|error| EngineError::Failed(format!("the model `{}`: {error}", graph.name)))?;
    let floats = float_types(graph);
    if let Some(unsupported) = floats.iter().find(|dtype| !engine.precisions().contains(dtype)) {
        return Err(name_first_tensor(super::options::precision_error(engine, *unsupported), graph));
    }
    if floats.is_empty() || floats.contains(&requested) {
        return Ok(());
    }
    let (name, actual) = (&graph.name, floats[0]);
    let first = first_tensor(graph, actual).map_or_else(String::new, |tensor| format!(", the type of {tensor}"));
    let reason = format!("the model `{name}` is in `{actual}`{first}, but the case computes in `{requested}`");
    Err(EngineError::Failed(reason))
}

/// Returns the floating-point types of the learned weights or, if there are none, of the inputs.
fn float_types(graph: &Graph) -> Vec<DType> {
    let learned = graph.weights.values().filter(|weight| weight.role != WeightRole::Constant);
    let learned: Vec<DType> = learned.map(|weight| weight.spec.dtype).filter(|dtype| dtype.is_float()).collect();
    if learned.is_empty() {
        return graph.inputs.iter().map(|info| info.spec.dtype).filter(|dtype| dtype.is_float()).collect();
    }
    learned
}

/// Returns the first learned weight of a type or, if there is none, the first input, with the first node that reads it, for
/// messages.
pub(super) fn first_tensor(graph: &Graph, dtype: DType) -> Option<String> {
    let mut learned = graph.weights.iter().filter(|(_, weight)| weight.role != WeightRole::Constant);
    let weight = learned.find(|(_, weight)| weight.spec.dtype == dtype).map(|(name, _)| ("weight", name));
    let input = || graph.inputs.iter().find(|info| info.spec.dtype == dtype).map(|info| ("input", &info.name));
    let (kind, name) = weight.or_else(input)?;
    let node = graph.nodes.iter().find(|node| node.inputs.contains(name));
    let node = node.map_or_else(String::new, |node| format!(" of node `{}` ({})", node.name, node.op));
    Some(format!("{kind} `{name}`{node}"))
}

/// Names the first weight or input in an error about an unsupported type.
pub(super) fn name_first_tensor(error: EngineError, graph: &Graph) -> EngineError {
    match &error {
        EngineError::Precision { requested, .. } => {
            let first = first_tensor(graph, *requested);
            error.with_first_tensor(first)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::{GraphBuilder, Init, layers};

    use super::*;

    fn refusal(weight: Option<&str>, input: &str) -> String {
        let mut builder = GraphBuilder::new("half");
        let mut x = builder.input("x", format!("N,4,{input}").parse().unwrap()).unwrap();
        for (name, dtype) in
            weight.into_iter().flat_map(|dtype| [("first", "f32"), ("second", dtype), ("third", dtype)])
        {
            let spec = format!("4,{dtype}").parse().unwrap();
            let weight = builder.weight(name, spec, WeightRole::Parameter, Init::Constant(1.0)).unwrap();
            x = layers::relu(&mut builder, &format!("{name}.relu"), &weight).unwrap();
        }
        builder.output("y", &x).unwrap();
        let graph = builder.finish().unwrap();
        check(crate::find("rten").unwrap(), &graph, DType::F32).unwrap_err().to_string()
    }

    #[test]
    fn a_refused_type_is_named_with_the_first_weight_or_input_that_has_it() {
        let expected =
            |tensor| format!("engine `rten` does not compute in `f16`, the type of {tensor} (supported: f32)");
        assert_eq!(refusal(Some("f16"), "f32"), expected("weight `second` of node `second.relu` (Relu)"));
        assert_eq!(refusal(None, "f16"), expected("input `x` of node `y` (Identity)"));
    }

    #[test]
    fn the_error_for_a_model_in_another_type_names_the_first_weight_that_has_it() {
        let mut builder = GraphBuilder::new("half");
        builder.input("x", "N,4,f32".parse().unwrap()).unwrap();
        let weight = builder.weight("w", "4,f16".parse().unwrap(), WeightRole::Parameter, Init::Constant(1.0)).unwrap();
        builder.output("y", &weight).unwrap();
        let graph = builder.finish().unwrap();
        let error = check(crate::find("onnxruntime").unwrap(), &graph, DType::F32).unwrap_err().to_string();
        assert_eq!(
            error,
            "the model `half` is in `f16`, the type of weight `w` of node `y` (Identity), but the case computes in `f32`"
        );
    }
}
