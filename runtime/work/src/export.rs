//! Writes a model as ONNX files and the manifest that lists them.

use std::io::Write;
use std::path::Path;

use flagperf_onnx::{Graph, Model};

use super::phase::failure;
use flagperf_core::event::{Event, Failure, FileFacts};
use flagperf_core::file;
use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::units::Bytes;
use flagperf_plan::{Manifest, ManifestGraph, graph_name_fault};

/// Writes every graph of a model, and the manifest. `path` is the file of a single graph; the files of several graphs
/// are named after its stem.
///
/// # Errors
/// When a file cannot be written, or the name of a graph cannot be part of a file name.
pub fn write_model(model: &Model, path: &Path) -> Result<Vec<Event>, Failure> {
    let mut graphs = Vec::new();
    for (name, graph) in &model.graphs {
        if let Some(fault) = graph_name_fault(name) {
            return Err(failure(
                &format!("the model has a graph {fault}"),
                "rename the graph in the script that creates the model",
            ));
        }
        let file = match model.graphs.len() {
            1 => path.to_owned(),
            _ => path.with_file_name(format!("{}_{name}.onnx", path.file_stem().unwrap_or_default().display())),
        };
        graphs.push(ManifestGraph { name: name.clone(), files: write_graph(graph, &file)? });
    }
    let files = graphs.iter().flat_map(|graph| &graph.files);
    let with_folder =
        |file: &FileFacts| FileFacts { path: path.with_file_name(&file.path).display().to_string(), ..file.clone() };
    let mut events: Vec<Event> = files.map(|file| written("onnx", with_folder(file))).collect();
    events.push(written("manifest", write_manifest(&Manifest { graphs }, &Manifest::path_beside(path))?));
    Ok(events)
}

/// Writes one graph and returns its files by name, first the one that is passed to an engine.
fn write_graph(graph: &Graph, path: &Path) -> Result<Vec<FileFacts>, Failure> {
    let written = flagperf_onnx::write_onnx(graph, path).map_err(|e| failure(&e, file::write_hint(&e)))?;
    let named = |file: std::path::PathBuf| {
        let name = file.file_name().unwrap_or_default().display().to_string();
        Ok(FileFacts { path: name, ..file_facts(&file)? })
    };
    written.into_iter().map(named).collect()
}

/// Returns the path, the size and the hash of a file that was written.
///
/// # Errors
/// When the file cannot be read.
pub fn file_facts(file: &Path) -> Result<FileFacts, Failure> {
    let path = file.display().to_string();
    let failed = |e: std::io::Error| failure(&format!("`{path}`: {e}"), file::write_hint(&e));
    let size_bytes = Bytes(std::fs::metadata(file).map_err(failed)?.len());
    Ok(FileFacts { size_bytes, sha256: hash_file(file).map_err(failed)?, path: path.clone() })
}

fn write_manifest(manifest: &Manifest, path: &Path) -> Result<FileFacts, Failure> {
    let text = serde_json::to_string_pretty(manifest).expect("a manifest is plain data") + "\n";
    file::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| failure(&format!("cannot write the manifest `{}`: {e}", path.display()), file::write_hint(&e)))?;
    let (path, size_bytes) = (path.display().to_string(), Bytes(text.len() as u64));
    Ok(FileFacts { path, size_bytes, sha256: hash_bytes(text.as_bytes()) })
}

/// Returns the event of a file that was written.
pub fn written(what: &str, FileFacts { path, size_bytes, sha256 }: FileFacts) -> Event {
    Event::Wrote { what: what.to_owned(), path, size_bytes, sha256 }
}
