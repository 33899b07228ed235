//! Hashes of the modules that a sidecar has imported.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use flagperf_core::hash::{hash_bytes, hash_reader};
use flagperf_core::regular_file::open_regular;
use flagperf_core::text::one_line;

/// The folders of installed packages.
const PACKAGE_FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];
/// The folders in which the folder of the standard library lies, and the beginning of its name.
const LIBRARY_FOLDERS: [&str; 2] = ["lib", "lib64"];
const LIBRARY_NAME: &str = "python3";
/// Largest file that is hashed.
const BYTES_MAX: u64 = 2 << 30;
/// Largest number of files that are named with the reason why they have no hash.
const NAMED_MAX: usize = 100;

/// The hashes of modules.
#[derive(Debug, Default, PartialEq)]
pub struct ModuleHashes {
    /// SHA-256, hexadecimal, by the path of a file or of a folder of several files.
    pub sha256: IndexMap<String, String>,
    /// Files that could not be hashed, with the reasons.
    pub not_hashed: Vec<String>,
}

/// Hashes the files of modules, those of one package and those of the standard library together.
pub fn hash_modules(files: BTreeSet<PathBuf>) -> ModuleHashes {
    let mut by_folder: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        // As in the list of mappings of the process, in which the conductor finds libraries.
        let file = file.canonicalize().unwrap_or(file);
        by_folder.entry(folder_of(&file)).or_default().push(file);
    }
    let mut hashes = ModuleHashes::default();
    for (folder, files) in by_folder {
        let mut lines = String::new();
        let mut last = None;
        for file in files {
            match hash_regular(&file) {
                Ok(hash) => {
                    let name = file.strip_prefix(&folder).unwrap_or(&file).display();
                    lines += &format!("{name}\t{hash}\n");
                    last = Some(hash);
                }
                Err(error) => hashes.not_hashed.push(one_line(&format!("{}: {error}", file.display())).into_owned()),
            }
        }
        let Some(last) = last else { continue };
        let hash = if folder.is_dir() { hash_bytes(lines.as_bytes()) } else { last };
        hashes.sha256.insert(one_line(&folder.display().to_string()).into_owned(), hash);
    }
    if hashes.not_hashed.len() > NAMED_MAX {
        let others = hashes.not_hashed.len() - NAMED_MAX;
        hashes.not_hashed.truncate(NAMED_MAX);
        hashes.not_hashed.push(format!("{others} other files"));
    }
    hashes
}

/// Hashes a regular file of limited size, as the path comes from the sidecar.
fn hash_regular(path: &Path) -> io::Result<String> {
    let file = open_regular(path)?;
    if file.metadata()?.len() > BYTES_MAX {
        return Err(io::Error::other(format!("larger than {BYTES_MAX} bytes")));
    }
    hash_reader(file.take(BYTES_MAX))
}

/// Returns the folder of the package or of the standard library that contains a file; otherwise the file.
fn folder_of(file: &Path) -> PathBuf {
    let parts: Vec<_> = file.components().map(|part| part.as_os_str()).collect();
    let is = |index: usize, names: &[&str]| names.iter().any(|name| parts[index] == *name);
    let packages = (0..parts.len()).rfind(|index| is(*index, &PACKAGE_FOLDERS)).map(|index| index + 1);
    let is_library = |index: &usize| {
        is(*index, &LIBRARY_FOLDERS)
            && parts.get(index + 1).is_some_and(|name| name.to_string_lossy().starts_with(LIBRARY_NAME))
    };
    let library = || (0..parts.len()).rfind(is_library).map(|index| index + 1);
    packages.or_else(library).map_or_else(|| file.to_owned(), |last| parts.iter().take(last + 1).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_of_a_package_have_one_hash_and_a_file_without_one_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let packages = "venv/lib/python3.11/site-packages";
        let own = write("vendors/chip/own.py", "1");
        let files = BTreeSet::from([
            own.clone(),
            write(&format!("{packages}/torch/__init__.py"), "2"),
            write(&format!("{packages}/torch/nn/__init__.py"), "3"),
            write(&format!("{packages}/six.py"), "4"),
            write("usr/lib/python3.11/json/__init__.py", "5"),
            root.path().join("none.py"),
        ]);
        let found = hash_modules(files.clone());
        let name = |path: &str| root.path().join(path).display().to_string();
        let paths: Vec<&String> = found.sha256.keys().collect();
        let expected = [
            name("usr/lib/python3.11"),
            name("vendors/chip/own.py"),
            name(&format!("{packages}/six.py")),
            name(&format!("{packages}/torch")),
        ];
        assert_eq!(paths, expected.iter().collect::<Vec<_>>());
        assert_eq!(found.sha256[&name("vendors/chip/own.py")], hash_bytes(b"1"));
        assert!(found.not_hashed.len() == 1 && found.not_hashed[0].contains("none.py: No such file"), "{found:?}");
        write(&format!("{packages}/torch/nn/__init__.py"), "changed");
        let changed = hash_modules(files);
        let differs: Vec<_> = changed.sha256.iter().filter(|(path, hash)| found.sha256[*path] != **hash).collect();
        assert!(differs.len() == 1 && differs[0].0.ends_with("torch"), "{differs:?}");
    }
}
