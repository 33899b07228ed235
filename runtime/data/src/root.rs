//! The data directory as a boundary: paths that lead out of it are refused.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::DataError;
use flagperf_core::event::DatasetFacts;

/// A file which says that accuracy on the data beside it is meaningless, because flagperf generated them.
pub const SAMPLE_MARK: &str = "SAMPLE.txt";

/// The data directory, with all symbolic links in its path resolved.
#[derive(Clone, Debug)]
pub struct DataRoot {
    path: PathBuf,
}

impl DataRoot {
    /// Opens the directory at `path`, which may be a symbolic link.
    ///
    /// # Errors
    /// [`DataError::NoDirectory`] when there is no such directory.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        match path.canonicalize() {
            Ok(resolved) if resolved.is_dir() => Ok(DataRoot { path: resolved }),
            _ => Err(DataError::NoDirectory { path: path.to_owned() }),
        }
    }

    /// Returns the resolved path of the data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the facts about a dataset whose samples are in the file or folder `location`. Accuracy on it is meaningless
    /// if [`SAMPLE_MARK`] lies in the data directory or in that folder.
    pub fn facts(&self, location: &Path, samples: usize, index_sha256: String, pipeline: Vec<String>) -> DatasetFacts {
        DatasetFacts {
            samples: samples as u64,
            index_sha256,
            pipeline,
            synthetic: self.path.join(SAMPLE_MARK).exists() || location.join(SAMPLE_MARK).exists(),
            location: location.display().to_string(),
        }
    }

    /// Resolves `relative` to the path of a file or folder, following symbolic links.
    ///
    /// # Errors
    /// [`DataError::Escapes`] when `relative` is absolute, contains `..` or leads out of the directory through a
    /// symbolic link; [`DataError::Missing`] when nothing exists there; [`DataError::Unreadable`] when a folder in the
    /// path may not be searched, or symbolic links lead to each other.
    pub fn resolve(&self, relative: &Path) -> Result<PathBuf, DataError> {
        let escapes = |how| DataError::Escapes { path: relative.to_owned(), root: self.path.clone(), how };
        for component in relative.components() {
            match component {
                Component::Normal(_) | Component::CurDir => {}
                Component::ParentDir => return Err(escapes("`..`")),
                Component::RootDir | Component::Prefix(_) => return Err(escapes("an absolute path")),
            }
        }
        let resolved = self.path.join(relative).canonicalize().map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                DataError::Missing { path: relative.to_owned(), root: self.path.clone() }
            }
            _ => DataError::Unreadable { path: relative.to_owned(), reason: error.to_string() },
        })?;
        if resolved.starts_with(&self.path) { Ok(resolved) } else { Err(escapes("a symbolic link")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_inside_the_directory_is_resolved() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        let root = DataRoot::open(folder.path()).unwrap();
        assert_eq!(root.resolve(Path::new("./images")).unwrap(), root.path().join("images"));
    }

    #[test]
    fn a_path_that_leads_outside_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        let root = DataRoot::open(folder.path()).unwrap();
        for (path, how) in [("a/../../b", "`..`"), ("/etc/passwd", "an absolute path"), ("link", "a symbolic link")] {
            match root.resolve(Path::new(path)) {
                Err(DataError::Escapes { how: seen, .. }) => assert_eq!(seen, how),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_symbolic_link_that_stays_inside_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        std::os::unix::fs::symlink("images", folder.path().join("link")).unwrap();
        let root = DataRoot::open(folder.path()).unwrap();
        assert_eq!(root.resolve(Path::new("link")).unwrap(), root.path().join("images"));
    }

    #[test]
    fn links_that_lead_to_each_other_are_reported_and_not_called_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        let error = DataRoot::open(folder.path()).unwrap().resolve(Path::new("a")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read `a`: ") && error.contains("symbolic links"), "{error}");
    }

    #[test]
    fn a_missing_directory_is_reported_with_the_option_that_sets_it() {
        let error = DataRoot::open(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("`/nowhere/at/all`") && error.hint().contains("--data"), "{error}");
    }
}
