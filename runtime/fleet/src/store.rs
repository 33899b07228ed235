//! The files that an agent stores on its host: files named by the hashes of their content, checkouts made from them, and
//! sessions.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::store_cleaning::note_use;
use super::stored_checkout::restore;
use super::tree::{TreeFile, tree_name};
use flagperf_config::cache_folder;
use flagperf_core::hash::{hash_file, hash_reader};

/// The folder in which an agent stores its files.
#[derive(Clone, Debug)]
pub(super) struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens the store in the user's cache folder, and creates it if it does not exist. Only the user may read it.
    pub(super) fn open() -> io::Result<Self> {
        let none =
            || io::Error::other("neither XDG_CACHE_HOME nor HOME is set, so the agent has no folder for its files");
        Store::at(cache_folder().ok_or_else(none)?)
    }

    /// Opens the store in this folder.
    pub(super) fn at(root: PathBuf) -> io::Result<Self> {
        for name in ["files", "trees", "sessions", "ended", "reservations"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(root.join(name))?;
        }
        Ok(Store { root })
    }

    /// Returns the folder of a session, whether it exists or not; `None` for a name that is not a hash.
    pub(super) fn session(&self, name: &str) -> Option<PathBuf> {
        is_hash(name).then(|| self.root.join("sessions").join(name))
    }

    /// Returns the file that names the process which holds the reservation of a run.
    pub(super) fn reservation(&self, run_id: &str) -> io::Result<PathBuf> {
        let refused = || io::Error::other(format!("`{run_id}` is not the id of a run"));
        is_hash(run_id).then(|| self.root.join("reservations").join(run_id)).ok_or_else(refused)
    }

    /// Returns the hashes of the files whose content is not stored, and the paths of those among them for which something else is
    /// stored.
    pub(super) fn missing(&self, files: &[TreeFile]) -> (Vec<String>, Vec<String>) {
        let (mut missing, mut changed) = (Vec::new(), Vec::new());
        let by_hash: BTreeMap<&String, &TreeFile> = files.iter().map(|file| (&file.sha256, file)).collect();
        for (sha256, file) in by_hash {
            let found = self.file(sha256).ok_or(io::ErrorKind::InvalidInput.into()).and_then(|path| hash_file(&path));
            if found.as_ref().is_ok_and(|found| found == sha256) {
                self.file(sha256).iter().for_each(|path| note_use(path));
                continue;
            }
            if !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                changed.push(file.path.clone());
            }
            missing.push(sha256.clone());
        }
        (missing, changed)
    }

    /// Returns the path of the file that marks a session as removed.
    pub(super) fn ended_mark(&self, session: &Path) -> PathBuf {
        self.root.join("ended").join(session.file_name().unwrap_or_default())
    }

    fn file(&self, sha256: &str) -> Option<PathBuf> {
        is_hash(sha256).then(|| self.root.join("files").join(sha256))
    }

    /// Creates a file whose content must have this hash.
    pub(super) fn create(&self, sha256: &str) -> io::Result<FileReceiver> {
        let path = self.file(sha256).ok_or(io::ErrorKind::InvalidInput)?;
        let file = tempfile::NamedTempFile::new_in(self.root.join("files"))?;
        Ok(FileReceiver { file, path, sha256: sha256.to_owned() })
    }

    /// Returns the folder of a checkout with exactly these files, and creates it if it does not exist. In a checkout that exists,
    /// files that somebody changed are replaced; their paths are returned, too.
    pub(super) fn checkout(&self, files: &[TreeFile]) -> io::Result<(PathBuf, Vec<String>)> {
        let place = self.root.join("trees").join(tree_name(files));
        if place.is_dir() {
            note_use(&place);
            let changed = restore(&place, files, |file, target| self.copy(file, target))?;
            return Ok((place, changed));
        }
        let folder = tempfile::Builder::new().prefix(".new").tempdir_in(self.root.join("trees"))?;
        restore(folder.path(), files, |file, target| self.copy(file, target))?;
        let folder = folder.keep();
        match fs::rename(&folder, &place) {
            // Another agent has created the same checkout in the meantime.
            Err(_) if place.is_dir() => fs::remove_dir_all(&folder)?,
            renamed => renamed?,
        }
        Ok((place, Vec::new()))
    }

    /// Copies the stored content of a file to `target`, which it replaces as a whole.
    fn copy(&self, file: &TreeFile, target: &Path) -> io::Result<()> {
        let source = self.file(&file.sha256).ok_or(io::ErrorKind::InvalidInput)?;
        let mut copy = tempfile::NamedTempFile::new_in(target.parent().unwrap_or(self.root()))?;
        io::copy(&mut File::open(&source)?, &mut copy)?;
        if hash_file(copy.path())? != file.sha256 {
            fs::remove_file(&source)?;
            return Err(io::Error::other(format!(
                "the copy of `{}` that this host had stored was modified and is now deleted; the next run sends it again",
                file.path
            )));
        }
        fs::set_permissions(copy.path(), Permissions::from_mode(if file.executable { 0o755 } else { 0o644 }))?;
        copy.persist(target).map(drop).map_err(|error| error.error)
    }
}

/// Receives a file.
pub(super) struct FileReceiver {
    file: tempfile::NamedTempFile,
    path: PathBuf,
    pub(super) sha256: String,
}

impl FileReceiver {
    /// Appends a part of the content.
    pub(super) fn append(&mut self, part: &[u8]) -> io::Result<()> {
        self.file.write_all(part)
    }

    /// Checks the hash of the content and adds the file to the store.
    ///
    /// # Errors
    /// When the content has another hash, or the file cannot be stored.
    pub(super) fn finish(self) -> io::Result<()> {
        let found = hash_reader(File::open(self.file.path())?)?;
        if found != self.sha256 {
            return Err(io::Error::other(format!("a received file has the hash {found} instead of {}", self.sha256)));
        }
        self.file.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// Returns whether `text` is a SHA-256 in hexadecimal, and therefore safe as a file name.
fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the free space in bytes on the disk of `path`; 0 if it is unknown.
pub(super) fn free_bytes(path: &Path) -> u64 {
    nix::sys::statvfs::statvfs(path).map_or(0, |found| found.blocks_available() * found.fragment_size())
}

impl Store {
    /// Returns the folder of the store.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::hash::hash_bytes;

    #[test]
    fn a_checkout_is_made_of_files_that_were_checked() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("flagperf")).unwrap();
        let file = |path: &str, text: &str, executable| TreeFile {
            path: path.to_owned(),
            sha256: hash_bytes(text.as_bytes()),
            size: text.len() as u64,
            executable,
        };
        let files = [file("scripts/a/model.rhai", "model", false), file("vendors/v/run", "#!", true)];
        assert_eq!(store.missing(&files).0.len(), 2);
        for (file, text) in files.iter().zip(["model", "#!"]) {
            let mut incoming = store.create(&file.sha256).unwrap();
            incoming.append(text.as_bytes()).unwrap();
            incoming.finish().unwrap();
        }
        assert_eq!(store.missing(&files), (Vec::new(), Vec::new()));
        let (checkout, _) = store.checkout(&files).unwrap();
        assert_eq!(fs::read_to_string(checkout.join("scripts/a/model.rhai")).unwrap(), "model");
        assert_eq!(fs::metadata(checkout.join("vendors/v/run")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(store.checkout(&files).unwrap(), (checkout.clone(), Vec::new()));
        // Files of the same size that somebody changed, in the checkout and in the store.
        fs::write(checkout.join("scripts/a/model.rhai"), "MODEL").unwrap();
        assert_eq!(store.checkout(&files).unwrap().1, ["scripts/a/model.rhai"]);
        assert_eq!(fs::read_to_string(checkout.join("scripts/a/model.rhai")).unwrap(), "model");
        fs::write(store.file(&files[0].sha256).unwrap(), "MODEL").unwrap();
        let (missing, changed) = store.missing(&files);
        assert_eq!((missing, changed), (vec![files[0].sha256.clone()], vec!["scripts/a/model.rhai".to_owned()]));
        let mut wrong = store.create(&hash_bytes(b"x")).unwrap();
        wrong.append(b"y").unwrap();
        assert!(wrong.finish().unwrap_err().to_string().starts_with("a received file has the hash "));
        assert!(store.checkout(&[file("../x", "model", false)]).is_err());
        assert!(store.session("../../etc").is_none());
    }
}
