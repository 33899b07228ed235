//! The operators of a vendor in a graph: nodes whose domain is the name of the vendor's folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flagperf_config::{OPERATORS_FOLDER, operator_libraries};
use flagperf_core::hash::hash_file;
use flagperf_onnx::Graph;
use indexmap::IndexMap;

/// The option by which an engine learns where the libraries of the vendor's operators are.
pub(crate) const OPERATORS_OPTION: &str = "operators";

/// Returns the operators of the vendor that a graph uses, by their names with the domain, each with the folder of its libraries.
pub(crate) fn used_operators(graph: &Graph, vendor: &Path) -> IndexMap<String, PathBuf> {
    let Some(vendor) = vendor.canonicalize().ok() else { return IndexMap::new() };
    let Some(domain) = vendor.file_name().and_then(|name| name.to_str()) else { return IndexMap::new() };
    let nodes = graph.nodes.iter().filter(|node| node.domain == domain);
    let names: BTreeSet<&str> = nodes.map(|node| node.op.as_str()).collect();
    let libraries = |name: &str| {
        let folder = vendor.join(OPERATORS_FOLDER).join(name);
        // What is missing is found when the library is opened.
        (format!("{domain}.{name}"), operator_libraries(&folder).unwrap_or(folder))
    };
    names.into_iter().map(libraries).collect()
}

/// Returns the libraries of operators, each by the operator's name and the file, with their SHA-256.
pub(crate) fn hashed_libraries(operators: &IndexMap<String, PathBuf>) -> IndexMap<String, String> {
    let mut hashes = IndexMap::new();
    for (name, folder) in operators {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files: BTreeSet<PathBuf> = entries.map(|entry| entry.path()).collect();
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "so")) {
            if let (Some(file_name), Ok(hash)) = (file.file_name(), hash_file(file)) {
                hashes.insert(format!("{name}/{}", file_name.to_string_lossy()), hash);
            }
        }
    }
    hashes
}
