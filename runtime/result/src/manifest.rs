//! The manifest of a result: every file of a case's folder with its size and its hash. Its own hash, the digest, stands
//! for the whole result.
//!
//! There is one manifest per case rather than per run, because a site submits the folder of a case. host.out.log
//! belongs to the run and contains the digests, so it is not part of a result. A manifest has exactly one valid form,
//! byte for byte, so that none of its bytes can change unnoticed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::write::write_new;
use flagperf_core::file::STAGED_SUFFIX;
use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::run_files::{MANIFEST_FILE, RECORD_FILE, SIGNATURE_FILE};
use flagperf_core::units::Bytes;

/// What a digest begins with.
pub const DIGEST_PREFIX: &str = "sha256:";
/// Largest number of files and folders in the folder of a case.
const ENTRIES_MAX: usize = 100_000;
/// Deepest folder in the folder of a case.
const DEPTH_MAX: usize = 32;
/// Largest manifest in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// The largest record in bytes.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;

/// A file of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// Path relative to the folder of the case, with `/` between folders.
    pub path: String,
    /// Size of the file.
    pub size_bytes: Bytes,
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
}

/// The files of a result in the byte order of their paths, without the manifest and its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultManifest {
    /// Version of this format.
    pub manifest: u32,
    /// Every file.
    pub files: Vec<ManifestEntry>,
}

/// Why the files of a folder cannot be listed or a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFault {
    /// A file or folder cannot be read or written.
    #[error("`{path}`: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Neither a regular file nor a folder: a link, a FIFO, a socket or a device.
    #[error("`{path}` is {kind}: a result contains only regular files and folders")]
    NotRegular {
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The name of a file is not text, or contains control characters.
    #[error("`{path}` has a name that is not printable text")]
    Name { path: PathBuf },
    /// There are too many files, or folders are too deep.
    #[error("`{path}` has more than {ENTRIES_MAX} files and folders, or folders more than {DEPTH_MAX} levels deep")]
    TooMany {
        /// The folder of the case.
        path: PathBuf,
    },
    /// A file is not as it was written.
    #[error("`{path}` is not as flagperf wrote it: another program changed or removed it while the case ran")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The text is not a manifest as this program writes it.
    #[error("`{MANIFEST_FILE}` is not as flagperf writes it: {reason}")]
    Format {
        /// What differs.
        reason: String,
    },
}

impl ResultManifest {
    /// The version of the format that this program writes.
    pub const VERSION: u32 = 1;

    /// Lists and hashes every file in the folder of a case and below.
    ///
    /// # Errors
    /// When a file cannot be read, is not a regular file, or has a name that is not text.
    pub fn of_folder(folder: &Path) -> Result<Self, ManifestFault> {
        ResultManifest::of_files(folder, list_files(folder)?)
    }

    /// Returns the digest of a result; `None` when it has no manifest, or its files are not those of the manifest.
    pub fn digest_of_folder(folder: &Path) -> Option<String> {
        let stated =
            flagperf_core::regular_file::read_regular_text(&folder.join(MANIFEST_FILE), MANIFEST_BYTES_MAX).ok()?;
        let found = ResultManifest::of_folder(folder).ok()?.to_text();
        (stated == found).then(|| digest(found.as_bytes()))
    }

    /// Hashes the files that [`list_files`] found in the folder of a case.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn of_files(folder: &Path, files: Vec<FoundFile>) -> Result<Self, ManifestFault> {
        let hashed: Result<Vec<ManifestEntry>, ManifestFault> =
            files.into_par_iter().map(|file| file.hash(folder)).collect();
        Ok(ResultManifest { manifest: Self::VERSION, files: hashed? })
    }

    /// Returns the text of the manifest: one line for each file.
    pub fn to_text(&self) -> String {
        let entry = |file: &ManifestEntry| serde_json::to_string(file).expect("an entry is plain data");
        let lines: Vec<String> = self.files.iter().map(|file| format!("\n    {}", entry(file))).collect();
        format!("{{\n  \"manifest\": {},\n  \"files\": [{}\n  ]\n}}\n", self.manifest, lines.join(","))
    }

    /// Parses the text of a manifest, which must be exactly as [`ResultManifest::to_text`] returns it: then no byte of it
    /// can change unnoticed.
    ///
    /// # Errors
    /// When the text is not a manifest, or differs from it in a blank.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestFault> {
        let fault = |reason: String| ManifestFault::Format { reason };
        let manifest: ResultManifest = serde_json::from_slice(text).map_err(|error| fault(error.to_string()))?;
        if manifest.manifest != Self::VERSION {
            return Err(fault(format!("its version is {} (known: {})", manifest.manifest, Self::VERSION)));
        }
        if !manifest.files.is_sorted_by(|a, b| a.path < b.path) {
            return Err(fault("its files are not in the order of their paths".to_owned()));
        }
        if manifest.to_text().as_bytes() != text {
            return Err(fault("its layout differs".to_owned()));
        }
        Ok(manifest)
    }

    /// Returns the entry of a file.
    pub fn entry(&self, path: &str) -> Option<&ManifestEntry> {
        let index = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(index)
    }
}

/// Returns the digest of a manifest's text: `sha256:...`.
pub fn digest(text: &[u8]) -> String {
    format!("{DIGEST_PREFIX}{}", hash_bytes(text))
}

/// Writes the manifest of a case's folder, flushes it to disk, and returns its digest. Every other file must be complete.
///
/// # Errors
/// When a file cannot be read or the manifest cannot be written; when there is already a manifest.
pub fn write_manifest(folder: &Path) -> Result<String, ManifestFault> {
    write_checked_manifest(folder, &BTreeMap::new())
}

/// Writes the manifest like [`write_manifest`]. `written` has the SHA-256 of files as they were written, by path.
///
/// # Errors
/// Also when one of these files is missing or has another hash.
pub fn write_checked_manifest(folder: &Path, written: &BTreeMap<String, String>) -> Result<String, ManifestFault> {
    let path = folder.join(MANIFEST_FILE);
    let failed = |source| ManifestFault::Read { path: path.clone(), source };
    remove_staged(folder);
    let manifest = ResultManifest::of_folder(folder)?;
    let is_same = |(path, hash): &(&String, &String)| manifest.entry(path).is_some_and(|entry| entry.sha256 == **hash);
    if let Some((changed, _)) = written.iter().find(|file| !is_same(file)) {
        return Err(ManifestFault::Changed { path: folder.join(changed) });
    }
    let text = manifest.to_text();
    write_new(text.as_bytes(), &path).map_err(failed)?;
    Ok(digest(text.as_bytes()))
}

/// Removes the temporary files of a killed process that was about to write the record or the manifest.
fn remove_staged(folder: &Path) {
    let is_staged = |name: &str| {
        let of_file = |file: &str| name.strip_prefix(file).is_some_and(|rest| rest.starts_with('.'));
        name.ends_with(STAGED_SUFFIX) && [MANIFEST_FILE, RECORD_FILE].into_iter().any(of_file)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_staged)) {
        // The manifest lists a file that cannot be removed.
        let _ = fs::remove_file(entry.path());
    }
}

/// A file that was found in the folder of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Path relative to the folder, with `/` between folders.
    pub path: String,
    /// Size of the file in bytes.
    pub size: u64,
}

impl FoundFile {
    fn hash(self, folder: &Path) -> Result<ManifestEntry, ManifestFault> {
        let path = folder.join(&self.path);
        let sha256 = hash_file(&path).map_err(|source| ManifestFault::Read { path, source })?;
        Ok(ManifestEntry { path: self.path, size_bytes: Bytes(self.size), sha256 })
    }
}

/// Lists the files in the folder of a case and below, in the byte order of their paths, without the manifest and its
/// signature.
///
/// # Errors
/// When the folder contains a link or a special file, a name that is not text, or too many files.
pub fn list_files(folder: &Path) -> Result<Vec<FoundFile>, ManifestFault> {
    let mut files = Vec::new();
    let mut folders = vec![(String::new(), 0)];
    let mut entries = 0;
    while let Some((prefix, depth)) = folders.pop() {
        let path = folder.join(&prefix);
        let failed = |source| ManifestFault::Read { path: path.clone(), source };
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            entries += 1;
            if entries > ENTRIES_MAX || depth > DEPTH_MAX {
                return Err(ManifestFault::TooMany { path: folder.to_owned() });
            }
            let name = printable_name(&entry)?;
            let path = entry.path();
            let found =
                fs::symlink_metadata(&path).map_err(|source| ManifestFault::Read { path: path.clone(), source })?;
            match found.file_type() {
                kind if kind.is_dir() => folders.push((format!("{prefix}{name}/"), depth + 1)),
                kind if kind.is_file() => files.push(FoundFile { path: format!("{prefix}{name}"), size: found.size() }),
                kind => return Err(ManifestFault::NotRegular { path, kind: kind_name(kind) }),
            }
        }
    }
    files.retain(|file| file.path != MANIFEST_FILE && file.path != SIGNATURE_FILE);
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn printable_name(entry: &fs::DirEntry) -> Result<String, ManifestFault> {
    let name = entry.file_name().into_string().ok().filter(|name| !name.chars().any(char::is_control));
    name.ok_or_else(|| ManifestFault::Name { path: entry.path() })
}

fn kind_name(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_symlink() {
        "a link"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sources/scripts")).unwrap();
        for name in ["record.json", "events.jsonl", "sources/scripts/a.rhai", "sources/config.json"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        folder
    }

    #[test]
    fn a_file_that_is_not_as_it_was_written_prevents_the_manifest_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let written = |text: &str| BTreeMap::from([("a".to_owned(), hash_bytes(text.as_bytes()))]);
        let error = write_checked_manifest(folder.path(), &written("2")).unwrap_err().to_string();
        assert!(error.contains("/a` is not as flagperf wrote it: another program changed"), "{error}");
        assert!(!folder.path().join(MANIFEST_FILE).exists());
        let missing = BTreeMap::from([("b".to_owned(), String::new())]);
        assert!(write_checked_manifest(folder.path(), &missing).is_err());
        assert!(write_checked_manifest(folder.path(), &written("1")).is_ok());
    }

    #[test]
    fn a_manifest_lists_every_file_in_order_and_reads_back() {
        let folder = folder();
        let digest_written = write_manifest(folder.path()).unwrap();
        let text = fs::read(folder.path().join(MANIFEST_FILE)).unwrap();
        assert_eq!(digest_written, digest(&text));
        fs::write(folder.path().join(SIGNATURE_FILE), "signature").unwrap();
        let manifest = ResultManifest::parse(&text).unwrap();
        let paths: Vec<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["events.jsonl", "record.json", "sources/config.json", "sources/scripts/a.rhai"]);
        assert_eq!(manifest, ResultManifest::of_folder(folder.path()).unwrap());
        let entry = manifest.entry("record.json").unwrap();
        assert_eq!((entry.size_bytes, &entry.sha256), (Bytes(11), &hash_bytes(b"record.json")));
        assert_eq!(manifest.entry("record"), None);
    }

    #[test]
    fn a_manifest_never_replaces_another() {
        let folder = folder();
        write_manifest(folder.path()).unwrap();
        assert!(write_manifest(folder.path()).unwrap_err().to_string().ends_with("File exists (os error 17)"));
    }

    #[test]
    fn temporary_files_of_a_killed_process_are_no_part_of_a_result() {
        let folder = folder();
        for name in
            ["manifest.json.Ab12Cd.part", "record.json.Ab12Cd.part", "engine.part", "sources/record.json.x.part"]
        {
            fs::write(folder.path().join(name), name).unwrap();
        }
        write_manifest(folder.path()).unwrap();
        let manifest = ResultManifest::of_folder(folder.path()).unwrap();
        let parts: Vec<&str> =
            manifest.files.iter().map(|file| file.path.as_str()).filter(|path| path.ends_with(".part")).collect();
        assert_eq!(parts, ["engine.part", "sources/record.json.x.part"]);
    }

    #[test]
    fn every_change_of_a_byte_of_a_manifest_is_found() {
        let folder = folder();
        let text = ResultManifest::of_folder(folder.path()).unwrap().to_text().into_bytes();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            let found = ResultManifest::parse(&changed);
            assert!(found.is_err() || found.unwrap() != ResultManifest::parse(&text).unwrap(), "byte {at}");
        }
        assert!(ResultManifest::parse(&[&text[..], b" "].concat()).unwrap_err().to_string().contains("layout"));
        assert!(ResultManifest::parse(b"[1]").is_err());
        let deep = "[".repeat(100_000);
        assert!(ResultManifest::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn links_and_special_files_are_refused_and_named() {
        for (kind, create) in [
            ("a link", (|path: &Path| symlink("/etc/passwd", path).unwrap()) as fn(&Path)),
            ("a link", |path| symlink("nowhere", path).unwrap()),
            ("a FIFO", |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
            ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ] {
            let folder = folder();
            let path = folder.path().join("sources/x");
            create(&path);
            let message = ResultManifest::of_folder(folder.path()).unwrap_err().to_string();
            let expected = format!("`{}` is {kind}: a result contains only regular files and folders", path.display());
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn a_name_that_is_not_printable_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        for name in [&b"a\xff"[..], b"a\nb", b"a\x1b[2J"] {
            let folder = folder();
            fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
            assert!(matches!(list_files(folder.path()), Err(ManifestFault::Name { .. })), "{name:?}");
        }
    }
}
