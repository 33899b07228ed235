//! The manifest of a model: the files of each graph, with size and hash. The export writes it, inference verifies the
//! files against it, and `exist_onnx_path` and `exist_compiler_path` may refer to it for a model of several graphs.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::{open_regular, read_regular_text};
use flagperf_onnx::Model;
use serde::{Deserialize, Serialize};

use flagperf_core::event::FileFacts;
use flagperf_core::file::is_inside;

/// Suffix of every manifest's file name.
const SUFFIX: &str = ".graphs.json";
/// Maximum size of a manifest in bytes; it needs only a few lines per graph.
const BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a graph's name, which becomes part of a file name.
const GRAPH_NAME_MAX: usize = 64;

/// The files of a model, by graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The graphs, in loading order.
    pub graphs: Vec<ManifestGraph>,
}

/// The files of one graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestGraph {
    /// Name of the graph, as the case's scripts use it.
    pub name: String,
    /// First the file that is given to the engine, then every file that is read with it. Paths are relative to the
    /// manifest's folder and do not leave it.
    pub files: Vec<FileFacts>,
}

/// A manifest that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manifest `{path}` {reason}")]
pub struct ManifestError {
    path: String,
    reason: String,
}

impl Manifest {
    /// Reads a manifest without opening the files that it lists.
    ///
    /// # Errors
    /// Fails when the manifest cannot be read, is malformed, or contradicts itself.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let refused = |reason: String| ManifestError { path: path.display().to_string(), reason };
        let text = read_regular_text(path, BYTES_MAX).map_err(|e| refused(format!("cannot be read: {e}")))?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|e| refused(format!("is malformed: {e}")))?;
        manifest.fault().map_or(Ok(manifest), |fault| Err(refused(fault)))
    }

    /// Returns why the manifest is invalid, whatever files exist; `None` when it is valid.
    fn fault(&self) -> Option<String> {
        if self.graphs.is_empty() {
            return Some("contains no graph".to_owned());
        }
        let (mut names, mut paths) = (HashSet::new(), HashSet::new());
        for ManifestGraph { name, files } in &self.graphs {
            if let Some(fault) = graph_name_fault(name) {
                return Some(format!("names a graph {fault}"));
            }
            if !names.insert(name) {
                return Some(format!("lists graph `{name}` twice"));
            }
            let Some(first) = files.first() else { return Some(format!("lists no file of graph `{name}`")) };
            if !paths.insert(&first.path) {
                return Some(format!("lists `{}` for two graphs", first.path));
            }
            if let Some(file) = files.iter().find(|file| !is_inside(Path::new(&file.path))) {
                return Some(format!(
                    "lists `{}` for graph `{name}`, which is outside the manifest's folder",
                    file.path
                ));
            }
        }
        None
    }

    /// Returns whether a path has the file name of a manifest.
    pub fn has_manifest_name(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX))
    }

    /// Returns the path of the manifest beside a model file: `sd.graphs.json` beside `sd.onnx`.
    pub fn path_beside(model: &Path) -> PathBuf {
        model.with_file_name(format!("{}{SUFFIX}", model.file_stem().unwrap_or_default().display()))
    }

    /// Returns the path of the model file beside a manifest: `sd.onnx` beside `sd.graphs.json`. Any other path stays as it
    /// is.
    pub fn model_beside(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(SUFFIX).map_or_else(|| path.to_owned(), |stem| path.with_file_name(format!("{stem}.onnx")))
    }
}

/// Returns why `name` is not a valid graph name, as a fragment that follows "a graph"; `None` when it is valid.
pub fn graph_name_fault(name: &str) -> Option<String> {
    let shown: String = name.chars().take(GRAPH_NAME_MAX).collect();
    if name.is_empty() || name.len() > GRAPH_NAME_MAX {
        return Some(format!("`{shown}`, whose name must have 1 to {GRAPH_NAME_MAX} characters"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!name.chars().all(plain)).then(|| format!("`{shown}`, whose name may contain only letters, digits, `_` and `-`"))
}

/// The model to which `exist_onnx_path` or `exist_compiler_path` refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundModel {
    /// A regular file, or a manifest whose files exist.
    At(PathBuf),
    /// Neither the file nor a manifest beside it exists.
    Missing,
    /// The path exists but cannot be used; the reason.
    Unusable(String),
}

/// Finds the model to which a path refers: the file itself, or else the manifest of several graphs beside it. A file
/// with another name is never used instead.
pub fn find_model(path: &Path) -> FoundModel {
    match open_regular(path) {
        Ok(_) if Manifest::has_manifest_name(path) => check_manifest(path),
        Ok(_) => FoundModel::At(path.to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => match Manifest::path_beside(path) {
            manifest if !Manifest::has_manifest_name(path) && manifest.exists() => match Manifest::read(&manifest) {
                // For a model of one graph, the path must refer to the file itself.
                Ok(read) if read.graphs.len() == 1 && read.graphs[0].name == Model::SINGLE => FoundModel::Missing,
                _ => check_manifest(&manifest),
            },
            _ => FoundModel::Missing,
        },
        Err(error) => FoundModel::Unusable(format!("cannot open `{}`: {error}", path.display())),
    }
}

/// Checks that a manifest can be read and its files can be opened.
fn check_manifest(path: &Path) -> FoundModel {
    let manifest = match Manifest::read(path) {
        Ok(manifest) => manifest,
        Err(error) => return FoundModel::Unusable(error.to_string()),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    for ManifestGraph { name, files } in &manifest.graphs {
        for file in files {
            if let Err(error) = open_regular(&folder.join(&file.path)) {
                let manifest = path.display();
                let reason = format!("the manifest `{manifest}` lists `{}` for graph `{name}`: {error}", file.path);
                return FoundModel::Unusable(reason);
            }
        }
    }
    FoundModel::At(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"path": "sd_unet.onnx", "size_bytes": 3, "sha256": "ab"}"#;

    /// Returns the error for a manifest with this text.
    fn refused(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sd.graphs.json");
        std::fs::write(&path, text).unwrap();
        let error = Manifest::read(&path).unwrap_err().to_string();
        error.replace(&folder.path().display().to_string(), "")
    }

    fn graph(name: &str, files: &str) -> String {
        format!(r#"{{"name": "{name}", "files": [{files}]}}"#)
    }

    fn graphs(graphs: &[String]) -> String {
        format!(r#"{{"graphs": [{}]}}"#, graphs.join(", "))
    }

    #[test]
    fn an_invalid_manifest_is_refused_with_the_reason() {
        let long = "x".repeat(100_000);
        let elsewhere = |path: &str| graphs(&[graph("unet", &FILE.replace("sd_unet.onnx", path))]);
        let refusals = [
            refused("text"),
            refused(r#"{"graph": []}"#),
            refused(&graphs(&[])),
            refused(&graphs(&[graph("unet", "")])),
            refused(&graphs(&[graph("unet", FILE), graph("unet", &FILE.replace("unet", "text"))])),
            refused(&graphs(&[graph("unet", FILE), graph("text", FILE)])),
            refused(&elsewhere("../sd_unet.onnx")),
            refused(&elsewhere("/etc/passwd")),
            refused(&elsewhere("")),
            refused(&graphs(&[graph("../unet", FILE)])),
            refused(&graphs(&[graph(&long, FILE)])),
            refused(&graphs(&[graph("unet", &FILE.replace("size_bytes", "size"))])),
            refused(&format!("\"{}\"", "x".repeat(2 << 20))),
        ];
        insta::assert_snapshot!(refusals.join("\n"), @r"
        the manifest `/sd.graphs.json` is malformed: expected ident at line 1 column 2
        the manifest `/sd.graphs.json` is malformed: unknown field `graph`, expected `graphs` at line 1 column 8
        the manifest `/sd.graphs.json` contains no graph
        the manifest `/sd.graphs.json` lists no file of graph `unet`
        the manifest `/sd.graphs.json` lists graph `unet` twice
        the manifest `/sd.graphs.json` lists `sd_unet.onnx` for two graphs
        the manifest `/sd.graphs.json` lists `../sd_unet.onnx` for graph `unet`, which is outside the manifest's folder
        the manifest `/sd.graphs.json` lists `/etc/passwd` for graph `unet`, which is outside the manifest's folder
        the manifest `/sd.graphs.json` lists `` for graph `unet`, which is outside the manifest's folder
        the manifest `/sd.graphs.json` names a graph `../unet`, whose name may contain only letters, digits, `_` and `-`
        the manifest `/sd.graphs.json` names a graph `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`, whose name must have 1 to 64 characters
        the manifest `/sd.graphs.json` is malformed: unknown field `size`, expected one of `path`, `size_bytes`, `sha256` at line 1 column 70
        the manifest `/sd.graphs.json` cannot be read: is larger than 1048576 bytes
        ");
    }

    #[test]
    fn a_missing_model_is_not_replaced_by_one_with_a_similar_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foo.onnx");
        std::fs::write(folder.path().join("foo_old.onnx"), "an old model").unwrap();
        assert_eq!(find_model(&path), FoundModel::Missing);
    }

    #[test]
    fn a_model_of_several_graphs_is_found_by_its_manifest_or_by_the_name_that_it_was_exported_under() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("sd.graphs.json");
        std::fs::write(&manifest, graphs(&[graph("unet", FILE)])).unwrap();
        let FoundModel::Unusable(reason) = find_model(&manifest) else { panic!("its file is missing") };
        assert!(reason.contains("lists `sd_unet.onnx` for graph `unet`: No such file"), "{reason}");
        std::fs::write(folder.path().join("sd_unet.onnx"), "a graph").unwrap();
        assert_eq!(find_model(&manifest), FoundModel::At(manifest.clone()));
        assert_eq!(find_model(&folder.path().join("sd.onnx")), FoundModel::At(manifest));
        let whole = folder.path().join("sd.onnx");
        std::fs::write(&whole, "a model").unwrap();
        assert_eq!(find_model(&whole), FoundModel::At(whole), "an existing file is used itself");
    }

    #[test]
    fn anything_but_a_regular_file_is_refused_with_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let unusable = |path: &Path, what: &str| {
            assert_eq!(
                find_model(path),
                FoundModel::Unusable(format!("cannot open `{}`: is {what}, not a regular file", path.display()))
            );
        };
        unusable(folder.path(), "a folder");
        unusable(&socket, "a socket");
        unusable(Path::new("/dev/zero"), "a device");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        unusable(&fifo, "a FIFO");
    }
}
