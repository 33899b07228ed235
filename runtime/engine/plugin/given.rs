//! A model as a plug-in takes it, checked as far as the host can read it.

use std::path::{Path, PathBuf};

use flagperf_onnx::{Graph, write_onnx};
use flagperf_plugin::abi::{FLAGPERF_COMPILED, FLAGPERF_ONNX};
use tempfile::TempDir;

use super::library::Library;
use crate::engine::options::in_words;
use crate::engine::{Artifact, Engine as _, EngineError, Options, model};
use crate::tensor::DType;

/// A model as a plug-in takes it: a file.
pub(super) struct Model {
    pub(super) kind: u32,
    pub(super) path: PathBuf,
    /// What the file says, where it is the host's to know.
    pub(super) graph: Option<Graph>,
    /// Where the host wrote the file; stays as long as the session.
    pub(super) folder: Option<TempDir>,
}

impl Model {
    /// What the library takes, written where it is in memory only.
    pub(super) fn new(
        library: &'static Library,
        artifact: Artifact<'_>,
        options: &Options,
    ) -> Result<Self, EngineError> {
        if !library.takes(artifact) {
            let (engine, takes) = (library.name, library.taken());
            return Err(EngineError::Artifact { engine, takes, given: in_words(artifact) });
        }
        match artifact {
            Artifact::Compiled(path) => {
                Ok(Model { kind: FLAGPERF_COMPILED, path: path.to_owned(), graph: None, folder: None })
            }
            Artifact::Onnx(path) => {
                let graph = model::read(path)?;
                check(library, &graph, options.precision)?;
                Ok(Model { kind: FLAGPERF_ONNX, path: path.to_owned(), graph: Some(graph), folder: None })
            }
            Artifact::Graph(graph) => {
                check(library, graph, options.precision)?;
                let (path, folder) = write(graph, &options.scratch).map_err(EngineError::Failed)?;
                Ok(Model { kind: FLAGPERF_ONNX, path, graph: Some(signature(graph)), folder: Some(folder) })
            }
        }
    }
}

/// What only the host can hold a plug-in to, because it has read the model.
fn check(library: &'static Library, graph: &Graph, precision: DType) -> Result<(), EngineError> {
    model::check(library, graph, precision)?;
    if graph.opset <= library.facts().opset_max {
        return Ok(());
    }
    let (model, opset, name, has) = (&graph.name, graph.opset, library.name, library.facts().opset_max);
    let reason = format!("the model `{model}` is of operator set `{opset}`, plug-in `{name}` knows up to `{has}`");
    Err(EngineError::Failed(reason))
}

/// The graph's inputs and outputs alone.
fn signature(graph: &Graph) -> Graph {
    Graph { inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), ..Graph::default() }
}

/// The graph as an ONNX file in a folder of its own.
fn write(graph: &Graph, scratch: &Path) -> Result<(PathBuf, TempDir), String> {
    let folder = std::fs::create_dir_all(scratch).and_then(|()| tempfile::tempdir_in(scratch));
    let folder = folder.map_err(|error| format!("`{}` cannot be written: {error}", scratch.display()))?;
    let path = folder.path().join("model.onnx");
    write_onnx(graph, &path).map_err(|error| error.to_string())?;
    Ok((path, folder))
}
