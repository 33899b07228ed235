//! Notices that files changed while a run read them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest number of files and folders that are looked at.
const ENTRIES_MAX: usize = 100_000;

/// The files and folders below a folder, with what changes when one is written or replaced, even if its content is restored: the
/// inode, and the time of its last change, which no program can set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderState(BTreeMap<PathBuf, (u64, i64, i64)>);

impl FolderState {
    /// Reads the state of a folder. Links are followed to files only.
    pub(super) fn read(folder: &Path) -> Self {
        let mut state = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            for path in paths.chain([folder.clone()]) {
                let Ok(found) = fs::metadata(&path) else { continue };
                if found.is_dir() && path != folder && !path.is_symlink() {
                    folders.push(path.clone());
                }
                state.insert(path, (found.ino(), found.ctime(), found.ctime_nsec()));
                if state.len() >= ENTRIES_MAX {
                    return FolderState(state);
                }
            }
        }
        FolderState(state)
    }

    /// Returns a path that is not in the same state later, if there is one: a file, or a folder in which an entry came or went.
    pub(super) fn first_difference<'s>(&'s self, later: &'s FolderState) -> Option<&'s Path> {
        let differs = |path: &&PathBuf| self.0.get(*path) != later.0.get(*path);
        // A file says more than the folder in which it was replaced.
        let paths = || self.0.keys().chain(later.0.keys()).filter(differs);
        paths().find(|path| !path.is_dir()).or_else(|| paths().next()).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_and_was_restored_is_found_and_one_that_was_only_read_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("engines/own.py");
        fs::create_dir(folder.path().join("engines")).unwrap();
        fs::write(&file, "1").unwrap();
        let changed_by = |change: &dyn Fn()| {
            let before = FolderState::read(folder.path());
            change();
            let after = FolderState::read(folder.path());
            before.first_difference(&after).map(Path::to_owned)
        };
        assert_eq!(changed_by(&|| drop(fs::read(&file).unwrap())), None);
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        let restored = changed_by(&|| {
            fs::write(&file, "2").unwrap();
            fs::write(&file, "1").unwrap();
            fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        });
        assert_eq!(restored, Some(file.clone()));
        let other = folder.path().join("other.py");
        let replaced = changed_by(&|| {
            fs::write(&other, "1").unwrap();
            fs::rename(&other, &file).unwrap();
        });
        assert_eq!(replaced, Some(file));
        let temporary = changed_by(&|| {
            fs::write(&other, "3").unwrap();
            fs::remove_file(&other).unwrap();
        });
        assert_eq!(temporary.as_deref(), Some(folder.path()));
    }
}
