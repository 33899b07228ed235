//! What exactly was measured: hashes of everything that a figure depends on.

use std::fs;
use std::io;
use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::hash::hash_file;

/// Hashes (SHA-256, hexadecimal) and versions. `None` where there is nothing to hash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this program.
    pub flagperf: String,
    /// The compiler that built it.
    pub rustc: String,
    /// The program's file.
    pub binary_sha256: Option<String>,
    /// The case's scripts and those they share, by path from the scripts' folder.
    pub scripts_sha256: IndexMap<String, String>,
    /// The merged configuration, as JSON.
    pub config_sha256: String,
    /// The model files that inference opened, by path.
    pub model_sha256: IndexMap<String, String>,
    /// The files that validation read weights from, by path. Weights of an ONNX file are in [`Self::model_sha256`].
    pub weights_sha256: IndexMap<String, String>,
    /// The dataset's index.
    pub dataset_sha256: Option<String>,
    /// The last hash of the chain in `events.jsonl`.
    pub events_sha256: String,
}

impl Provenance {
    /// What is known of the program itself.
    pub fn of_this_program() -> Self {
        Provenance {
            flagperf: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("FLAGPERF_RUSTC").to_owned(),
            binary_sha256: std::env::current_exe().ok().and_then(|path| hash_file(&path).ok()),
            ..Provenance::default()
        }
    }
}

/// SHA-256 of every script (`.rhai`) of a case, in its folder and below, and of those in `lib` beside it that all
/// cases share; by path from the folder that holds both, in byte order.
///
/// # Errors
/// When a folder or a file cannot be read.
pub fn hash_scripts(case: &Path) -> io::Result<IndexMap<String, String>> {
    let base = case.parent().unwrap_or(case);
    let (mut hashes, mut folders) = (IndexMap::new(), vec![case.to_owned()]);
    folders.extend(Some(base.join("lib")).filter(|shared| shared.is_dir()));
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rhai") {
                let name = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
                hashes.insert(name, hash_file(&path)?);
            }
        }
    }
    hashes.sort_unstable_keys();
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_the_case_and_of_lib_are_hashed_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["case/model.rhai", "case/README.md", "case/mock/forward.rhai", "lib/norm.rhai", "other/model.rhai"]
        {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let hashes = hash_scripts(&folder.path().join("case")).unwrap();
        assert_eq!(hashes.keys().collect::<Vec<_>>(), ["case/mock/forward.rhai", "case/model.rhai", "lib/norm.rhai"]);
    }
}
