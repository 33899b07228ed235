//! What exactly was measured: hashes of everything that a figure depends on.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
    /// The model file that was compiled.
    pub model_sha256: Option<String>,
    /// The weights file.
    pub weights_sha256: Option<String>,
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

/// SHA-256 of bytes, hexadecimal.
pub fn hash_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// SHA-256 of a file's content, hexadecimal; read in pieces.
///
/// # Errors
/// When the file cannot be read.
pub fn hash_file(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            count => hasher.update(&piece[..count]),
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_the_same_hash() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.rhai"), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash_bytes(b"abc"), known);
        assert_eq!(hash_file(&folder.path().join("a.rhai")).unwrap(), known);
    }

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
