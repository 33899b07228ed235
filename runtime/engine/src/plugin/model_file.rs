//! The model file that a plug-in loads. The host checks every model that it can read itself.

use std::path::PathBuf;

use flagperf_onnx::Graph;
use flagperf_plugin::abi::{FLAGPERF_COMPILED, FLAGPERF_ONNX};
use tempfile::TempDir;

use super::library::PluginLibrary;
use crate::model::ModelSource;
use crate::options::describe_artifact;
use crate::{Artifact, Engine as _, EngineError, LoadOptions, model};
use flagperf_core::tensor::DType;

/// A model for a plug-in, always as a file.
pub(super) struct ModelFile {
    /// `FLAGPERF_ONNX` or `FLAGPERF_COMPILED`.
    pub(super) kind: u32,
    pub(super) path: PathBuf,
    /// The parsed graph; `None` for a vendor's own format.
    pub(super) graph: Option<Graph>,
    /// The first weight or input of the type to compute in, for messages.
    pub(super) first_tensor: Option<String>,
    /// The temporary folder of a file that the host wrote; it lives as long as the session.
    pub(super) folder: Option<TempDir>,
}

impl ModelFile {
    /// Checks that the library accepts the artifact, and writes a graph in memory to a file.
    pub(super) fn prepare(
        library: &'static PluginLibrary,
        artifact: Artifact<'_>,
        options: &LoadOptions,
    ) -> Result<Self, EngineError> {
        if !library.accepts(artifact) {
            let (engine, accepts) = (library.name, library.accepted_artifacts());
            return Err(EngineError::Artifact { engine, accepts, given: describe_artifact(artifact) });
        }
        match artifact {
            Artifact::Compiled(path) => Ok(ModelFile {
                kind: FLAGPERF_COMPILED,
                path: path.to_owned(),
                graph: None,
                first_tensor: None,
                folder: None,
            }),
            Artifact::Onnx(path) => {
                let ModelSource { path, graph, folder, .. } =
                    model::read_lowered(&library.description(), path, &options.scratch)?;
                check_model(library, &graph, options.precision)?;
                let first_tensor = model::first_tensor(&graph, options.precision);
                Ok(ModelFile { kind: FLAGPERF_ONNX, path, graph: Some(graph), first_tensor, folder })
            }
            Artifact::Graph(graph) => {
                let graph = model::lower_for(&library.description(), graph)?;
                check_model(library, &graph, options.precision)?;
                let (path, folder) = model::write_temporary(&graph, &options.scratch).map_err(EngineError::Failed)?;
                let first_tensor = model::first_tensor(&graph, options.precision);
                let (graph, folder) = (Some(signature(&graph)), Some(folder));
                Ok(ModelFile { kind: FLAGPERF_ONNX, path, graph, first_tensor, folder })
            }
        }
    }
}

/// Checks the model against the precisions and the operator-set version that the plug-in declares.
fn check_model(library: &'static PluginLibrary, graph: &Graph, precision: DType) -> Result<(), EngineError> {
    model::check(library, graph, precision)?;
    if graph.opset <= library.description().opset_max {
        return Ok(());
    }
    let (model, opset, name, max) = (&graph.name, graph.opset, library.name, library.description().opset_max);
    let reason = format!("the model `{model}` uses operator set `{opset}`, plug-in `{name}` supports up to `{max}`");
    Err(EngineError::Failed(reason))
}

/// Returns the inputs and outputs of a graph, without its nodes and weights.
fn signature(graph: &Graph) -> Graph {
    Graph { inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), ..Graph::default() }
}
