//! The files that an agent stores on its host: files named by the hashes of their content, checkouts made from them, and
//! sessions.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::tree::{TreeFile, tree_name};
use flagperf_config::cache_folder;
use flagperf_core::file::is_inside;
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

    /// Removes the sessions and checkouts that `is_old` accepts.
    pub(super) fn remove_old(&self, is_old: impl Fn(&Path) -> bool) {
        let folders = ["sessions", "trees", "ended", "reservations"].map(|name| fs::read_dir(self.root.join(name)));
        let entries = folders.into_iter().flatten().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| is_old(path)) {
            // This fails if another agent removes the same entry.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
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

    /// Returns the hashes of the files whose content is not stored.
    pub(super) fn missing(&self, files: &[TreeFile]) -> Vec<String> {
        let is_stored = |file: &TreeFile| {
            self.file(&file.sha256).is_some_and(|path| fs::metadata(path).is_ok_and(|found| found.len() == file.size))
        };
        let mut missing: Vec<String> =
            files.iter().filter(|file| !is_stored(file)).map(|file| file.sha256.clone()).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
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

    /// Returns the folder of a checkout with these files, and creates it if it does not exist.
    pub(super) fn checkout(&self, files: &[TreeFile]) -> io::Result<PathBuf> {
        let place = self.root.join("trees").join(tree_name(files));
        if place.is_dir() {
            // The time of the folder is set to now, so that a checkout in use is not removed as an old one.
            let _ = File::open(&place).and_then(|folder| folder.set_modified(jiff::Timestamp::now().into()));
            return Ok(place);
        }
        let folder = tempfile::Builder::new().prefix(".new").tempdir_in(self.root.join("trees"))?;
        for file in files {
            let refused = || io::Error::other(format!("`{}` is not a path within a checkout", file.path));
            let source = self.file(&file.sha256).filter(|_| is_inside(Path::new(&file.path))).ok_or_else(refused)?;
            let target = folder.path().join(&file.path);
            fs::create_dir_all(target.parent().unwrap_or(folder.path()))?;
            fs::copy(&source, &target)?;
            if hash_file(&target)? != file.sha256 {
                fs::remove_file(&source)?;
                return Err(io::Error::other(format!(
                    "the copy of `{}` that this host had stored was modified and is now deleted; the next run sends it again",
                    file.path
                )));
            }
            fs::set_permissions(&target, Permissions::from_mode(if file.executable { 0o755 } else { 0o644 }))?;
        }
        let folder = folder.keep();
        match fs::rename(&folder, &place) {
            // Another agent has created the same checkout in the meantime.
            Err(_) if place.is_dir() => fs::remove_dir_all(&folder)?,
            renamed => renamed?,
        }
        Ok(place)
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
        assert_eq!(store.missing(&files).len(), 2);
        for (file, text) in files.iter().zip(["model", "#!"]) {
            let mut incoming = store.create(&file.sha256).unwrap();
            incoming.append(text.as_bytes()).unwrap();
            incoming.finish().unwrap();
        }
        assert_eq!(store.missing(&files), [""; 0]);
        let checkout = store.checkout(&files).unwrap();
        assert_eq!(fs::read_to_string(checkout.join("scripts/a/model.rhai")).unwrap(), "model");
        assert_eq!(fs::metadata(checkout.join("vendors/v/run")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(store.checkout(&files).unwrap(), checkout);
        let mut wrong = store.create(&hash_bytes(b"x")).unwrap();
        wrong.append(b"y").unwrap();
        assert!(wrong.finish().unwrap_err().to_string().starts_with("a received file has the hash "));
        assert!(store.checkout(&[file("../x", "model", false)]).is_err());
        assert!(store.session("../../etc").is_none());
    }
}
