//! The programs and shared libraries from which a phase executed code.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use flagperf_core::hash::hash_file;
use flagperf_core::text::one_line;
use flagperf_core::units::Bytes;

/// Largest file that is hashed.
const BYTES_MAX: u64 = 2 << 30;
/// Largest number of files of a phase.
const FILES_MAX: usize = 2000;

/// A program or a shared library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct LibraryRecord {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: Bytes,
    /// SHA-256 of the content, hexadecimal; `None` when it was not computed.
    pub sha256: Option<String>,
    /// Why the hash is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the code itself is not known; `None` for a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownCode>,
}

/// Why the code that a process executed is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnknownCode {
    /// Its file no longer exists, or is only in memory (memfd).
    Removed,
    /// The mappings of the process, whose name is the path, cannot be read.
    Unreadable,
}

impl LibraryRecord {
    /// Returns the record of code that is not known, with the name of its file or of its process.
    pub fn unknown(name: String, reason: UnknownCode) -> Self {
        let path = one_line(&name).into_owned();
        LibraryRecord { path, size_bytes: Bytes(0), sha256: None, note: None, unknown: Some(reason) }
    }
}

/// A file as it was when it was hashed: device, inode, size, and time of the last change in seconds and nanoseconds.
type FileState = (u64, u64, u64, i64, i64);

/// Hashes files and remembers the hashes: both phases of a case and all cases of a run use mostly the same libraries.
#[derive(Debug, Default)]
pub struct LibraryHashes {
    known: BTreeMap<FileState, Result<String, String>>,
    /// Files by the id of their image and their path.
    in_images: BTreeMap<(String, PathBuf), LibraryRecord>,
}

impl LibraryHashes {
    /// Returns the files with their hashes.
    pub fn hash(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> Vec<LibraryRecord> {
        paths.into_iter().take(FILES_MAX).map(|path| self.hash_one(&path)).collect()
    }

    /// Returns files of an image with their hashes. `read` returns the size and the hash of one; it is called once for each
    /// file of an image, which cannot change.
    pub fn hash_in_image(
        &mut self,
        image: &str,
        paths: impl IntoIterator<Item = PathBuf>,
        read: impl Fn(&Path) -> io::Result<(u64, String)>,
    ) -> Vec<LibraryRecord> {
        let record = |path: PathBuf| {
            let found = self.in_images.entry((image.to_owned(), path));
            let read = |(_, path): &(String, PathBuf)| {
                let (size, hash) =
                    read(path).map_or_else(|error| (0, Err(not_hashed(&error))), |(size, hash)| (size, Ok(hash)));
                library_record(path, size, &hash)
            };
            found.or_insert_with_key(read).clone()
        };
        paths.into_iter().take(FILES_MAX).map(record).collect()
    }

    fn hash_one(&mut self, path: &Path) -> LibraryRecord {
        let (size, hash) = match fs::metadata(path) {
            Ok(file) => {
                let key = (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
                (file.len(), self.known.entry(key).or_insert_with(|| hash_bounded(path, file.len())).clone())
            }
            Err(error) => (0, Err(error.to_string())),
        };
        library_record(path, size, &hash)
    }
}

fn library_record(path: &Path, size: u64, hash: &Result<String, String>) -> LibraryRecord {
    let (sha256, note) = (hash.as_ref().ok().cloned(), hash.as_ref().err().cloned());
    LibraryRecord { path: path.display().to_string(), size_bytes: Bytes(size), sha256, note, unknown: None }
}

fn not_hashed(error: &io::Error) -> String {
    format!("not hashed: {error}")
}

fn hash_bounded(path: &Path, size: u64) -> Result<String, String> {
    if size > BYTES_MAX {
        return Err(format!("not hashed: larger than {BYTES_MAX} bytes"));
    }
    hash_file(path).map_err(|error| not_hashed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::hash::hash_bytes;

    #[test]
    fn a_file_that_cannot_be_hashed_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let [small, large, none] = ["small.so", "large.so", "none.so"].map(|name| folder.path().join(name));
        fs::write(&small, "code").unwrap();
        fs::File::create(&large).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let found = LibraryHashes::default().hash([small, large, none]);
        assert_eq!(found[0].sha256, Some(hash_bytes(b"code")));
        assert_eq!((found[0].size_bytes, &found[0].note), (Bytes(4), &None));
        assert_eq!(found[1].note.as_deref(), Some("not hashed: larger than 2147483648 bytes"));
        assert_eq!(found[2].note.as_deref(), Some("No such file or directory (os error 2)"));
    }

    #[test]
    fn a_file_of_an_image_is_read_once() {
        let (mut hashes, reads) = (LibraryHashes::default(), std::cell::Cell::new(0));
        let read = |path: &Path| {
            reads.set(reads.get() + 1);
            if path.ends_with("a") { Ok((4, "hash".to_owned())) } else { Err(io::Error::other("no file")) }
        };
        for image in ["one", "one", "two"] {
            let found = hashes.hash_in_image(image, ["/a", "/b"].map(PathBuf::from), read);
            assert_eq!((found[0].sha256.as_deref(), found[0].size_bytes), (Some("hash"), Bytes(4)));
            assert_eq!(found[1].note.as_deref(), Some("not hashed: no file"));
        }
        assert_eq!(reads.get(), 4);
    }

    #[test]
    fn a_changed_file_is_hashed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.so");
        let mut hashes = LibraryHashes::default();
        for content in ["one", "three"] {
            fs::write(&path, content).unwrap();
            assert_eq!(hashes.hash([path.clone()])[0].sha256, Some(hash_bytes(content.as_bytes())));
        }
    }
}
