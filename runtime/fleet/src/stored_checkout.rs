//! Makes a stored checkout contain exactly the files that were sent: a file that differs is copied again, and a file
//! that was not sent is removed. Whoever changed the files on the host meanwhile does not matter.
//!
//! Does not know where the content is stored.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::tree::{TreeFile, is_generated};
use flagperf_core::file::is_inside;
use flagperf_core::hash::hash_file;

/// Compiled Python files: Python believes them without reading the source.
const COMPILED_FOLDER: &str = "__pycache__";

/// Makes the folder `root` contain exactly `files`. `copy` writes the content of a file to a path. Returns the paths that
/// differed. Folders in which a host builds or generates files keep them.
///
/// # Errors
/// When a path leaves the folder, or a file cannot be read, copied or removed.
pub(super) fn restore(
    root: &Path,
    files: &[TreeFile],
    copy: impl Fn(&TreeFile, &Path) -> io::Result<()>,
) -> io::Result<Vec<String>> {
    if let Some(outside) = files.iter().find(|file| !is_inside(Path::new(&file.path))) {
        return Err(io::Error::other(format!("`{}` is not a path within a checkout", outside.path)));
    }
    let mut changed = remove_others(root, files)?;
    for file in files {
        let target = root.join(&file.path);
        if is_same(&target, file) {
            continue;
        }
        fs::create_dir_all(target.parent().unwrap_or(root))?;
        copy(file, &target)?;
        changed.push(file.path.clone());
    }
    Ok(changed)
}

/// Returns whether a path is a regular file, not a link, with the content and the permission of `file`.
fn is_same(path: &Path, file: &TreeFile) -> bool {
    let is_alike = fs::symlink_metadata(path).is_ok_and(|found| {
        let is_executable = found.permissions().mode() & 0o100 != 0;
        found.is_file() && found.len() == file.size && is_executable == file.executable
    });
    is_alike && hash_file(path).is_ok_and(|found| found == file.sha256)
}

/// Removes whatever is not a file in `files` or a folder of one. Returns the removed paths, without compiled Python files, which
/// every run creates.
fn remove_others(root: &Path, files: &[TreeFile]) -> io::Result<Vec<String>> {
    let known: BTreeSet<&Path> = files.iter().flat_map(|file| Path::new(&file.path).ancestors()).collect();
    let is_file: BTreeSet<&Path> = files.iter().map(|file| Path::new(&file.path)).collect();
    let (mut removed, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (path, is_folder) = (folder.join(entry.file_name()), entry.file_type()?.is_dir());
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_expected = known.contains(path.as_path()) && is_folder != is_file.contains(path.as_path());
            match (name.as_str(), is_folder) {
                (COMPILED_FOLDER, true) if !is_expected => fs::remove_dir_all(entry.path())?,
                // Nothing that a case reads has such a name, and other agents copy files to such names.
                (name, _) if name.starts_with('.') => {}
                (name, true) if is_generated(name) => {}
                (_, true) if is_expected => folders.push(path),
                (_, false) if is_expected => {}
                (_, true) => {
                    fs::remove_dir_all(entry.path())?;
                    removed.push(path.display().to_string());
                }
                (_, false) => {
                    fs::remove_file(entry.path())?;
                    removed.push(path.display().to_string());
                }
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::hash::hash_bytes;

    #[test]
    fn a_checkout_contains_exactly_the_files_that_were_sent_whatever_happened_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = |path: &str| TreeFile {
            path: path.to_owned(),
            sha256: hash_bytes(path.as_bytes()),
            size: path.len() as u64,
            executable: path.ends_with(".sh"),
        };
        let files = ["configs/a/parameters.yaml", "scripts/a/model.rhai", "target/x.so", "vendors/v/run.sh"].map(file);
        let copy = |file: &TreeFile, path: &Path| {
            let _ = fs::remove_file(path);
            fs::write(path, &file.path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(if file.executable { 0o755 } else { 0o644 }))
        };
        let restored = || restore(root, &files, copy).unwrap();
        assert_eq!(restored().len(), 4);
        assert_eq!(restored(), [""; 0]);
        // What a host generates stays, and compiled Python files are removed.
        for name in ["datasets/generated/x", "target/other.so", "vendors/v/__pycache__/x.pyc", "scripts/.copying"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        fs::remove_dir_all(root.join("datasets")).unwrap();
        assert_eq!(restored(), [""; 0]);
        assert!(!root.join("vendors/v/__pycache__").exists() && root.join("target/other.so").exists());
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        let is_found = |path: &str| {
            assert!(restored().contains(&path.to_owned()), "{path}");
            assert_eq!(restored(), [""; 0]);
        };
        for (path, other) in [("configs/a/parameters.yaml", "x".repeat(25)), ("target/x.so", String::new())] {
            write(path, &other);
            is_found(path);
        }
        fs::set_permissions(root.join("vendors/v/run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
        is_found("vendors/v/run.sh");
        write("scripts/a/added.rhai", "");
        is_found("scripts/a/added.rhai");
        fs::create_dir(root.join("configs/b")).unwrap();
        is_found("configs/b");
        let script = root.join("scripts/a/model.rhai");
        fs::remove_file(&script).unwrap();
        is_found("scripts/a/model.rhai");
        // A link may lead to other content later.
        fs::rename(&script, root.join("scripts/.model")).unwrap();
        std::os::unix::fs::symlink(root.join("scripts/.model"), &script).unwrap();
        is_found("scripts/a/model.rhai");
        assert!(restore(root, &[file("../x")], copy).unwrap_err().to_string().contains("not a path within"));
    }
}
