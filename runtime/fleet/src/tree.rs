//! The files of a checkout that a run needs, with the hashes of their content.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use flagperf_core::hash::{hash_bytes, hash_file};

/// The path at which a host gets the host.yaml of the run.
pub(super) const HOST_FILE: &str = "configs/host.yaml";
/// The folders of a checkout that a run reads.
const FOLDERS: [&str; 5] = ["configs", "datasets", "docker_images", "scripts", "vendors"];
/// Names of folders whose files each host builds or generates itself.
const GENERATED_FOLDERS: [&str; 4] = ["target", "__pycache__", "generated", "node_modules"];
/// Beginning of the names of larger folders beside `generated`.
const GENERATED_PREFIX: &str = "generated-";
/// Largest number of files that are sent to a host, and largest size of a file in bytes.
const FILES_MAX: usize = 20_000;
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A file of a checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFile {
    /// Path in the checkout, with `/`.
    pub path: String,
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether the file is executable.
    pub executable: bool,
}

/// The files of a checkout, and the files on this machine from which their content is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<TreeFile>,
    /// By hash, a file on this machine with that content.
    pub(super) sources: BTreeMap<String, PathBuf>,
}

/// A checkout that cannot be sent to a host.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A file cannot be read.
    #[error("cannot read `{path}`, which is sent to the hosts: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The checkout has too many files, or one is too large.
    #[error("`{path}` cannot be sent to the hosts: {reason}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Returns whether each host builds or generates the files of a folder with this name.
pub(super) fn is_generated(name: &str) -> bool {
    GENERATED_FOLDERS.contains(&name) || name.starts_with(GENERATED_PREFIX)
}

impl Tree {
    /// Reads the files of the checkout at `root`. `host_file` is sent as configs/host.yaml, and `others` are further files
    /// of the checkout, such as libraries that were built in it.
    pub(super) fn read(root: &Path, host_file: &Path, others: &[PathBuf]) -> Result<Self, TreeError> {
        let mut tree = Tree::default();
        for folder in FOLDERS {
            tree.add_folder(root, &root.join(folder))?;
        }
        for other in others.iter().filter(|other| other.starts_with(root)) {
            tree.add(root, other, other)?;
        }
        tree.files.retain(|file| file.path != HOST_FILE);
        tree.add(root, &root.join(HOST_FILE), host_file)?;
        tree.files.sort_by(|one, other| one.path.cmp(&other.path));
        tree.files.dedup_by(|one, other| one.path == other.path);
        Ok(tree)
    }

    fn add_folder(&mut self, root: &Path, folder: &Path) -> Result<(), TreeError> {
        let unreadable = |source| TreeError::Read { path: folder.to_owned(), source };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            // For a link, the host gets the file to which it points.
            match fs::metadata(&path) {
                Ok(found) if found.is_dir() && !is_generated(&name) => self.add_folder(root, &path)?,
                Ok(found) if found.is_file() => self.add(root, &path, &path)?,
                // A broken link or a special file is skipped; whatever needs it reports that it is missing.
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, root: &Path, place: &Path, source: &Path) -> Result<(), TreeError> {
        let unreadable = |error| TreeError::Read { path: source.to_owned(), source: error };
        let too_large = |reason: String| TreeError::TooLarge { path: source.to_owned(), reason };
        let found = fs::metadata(source).map_err(unreadable)?;
        if found.len() > FILE_BYTES_MAX {
            return Err(too_large(format!("it has {} bytes (limit: {FILE_BYTES_MAX})", found.len())));
        }
        if self.files.len() >= FILES_MAX {
            return Err(too_large(format!("the checkout has more than {FILES_MAX} files")));
        }
        let path = place.strip_prefix(root).unwrap_or(place).to_string_lossy().into_owned();
        let sha256 = hash_file(source).map_err(unreadable)?;
        let executable = found.permissions().mode() & 0o100 != 0;
        self.sources.insert(sha256.clone(), source.to_owned());
        self.files.push(TreeFile { path, sha256, size: found.len(), executable });
        Ok(())
    }
}

/// Returns the name of the folder in which a host stores a checkout with these files: the hash of their list.
pub(super) fn tree_name(files: &[TreeFile]) -> String {
    hash_bytes(serde_json::to_string(files).expect("a list of files is plain data").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_is_sent_without_what_is_built_or_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (path, text) in [
            ("configs/host.yaml", "VENDOR: cpu"),
            ("configs/a/parameters.yaml", "x: 1"),
            ("scripts/a/model.rhai", "m"),
            ("vendors/v/plugin/target/debug/x.o", "o"),
            ("vendors/v/.cache", "c"),
            ("runtime/lib.rs", "r"),
            ("target/release/libx.so", "so"),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let site = root.join("site.yaml");
        fs::write(&site, "VENDOR: mock").unwrap();
        let tree = Tree::read(root, &site, &[root.join("target/release/libx.so"), "/etc/hostname".into()]).unwrap();
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let expected =
            ["configs/a/parameters.yaml", "configs/host.yaml", "scripts/a/model.rhai", "target/release/libx.so"];
        assert_eq!(paths, expected);
        assert_eq!(tree.files[1].sha256, hash_bytes(b"VENDOR: mock"));
        assert_eq!(tree.sources[&tree.files[1].sha256], site);
    }
}
