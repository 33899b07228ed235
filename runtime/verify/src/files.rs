//! Compares the files of a result with its manifest.

use std::collections::BTreeMap;
use std::path::Path;

use flagperf_core::regular_file::read_regular;

use super::CaseReport;
use flagperf_core::run_files::MANIFEST_FILE;
use flagperf_result::{FoundFile, MANIFEST_BYTES_MAX, ManifestFault, ResultManifest, digest, list_files};

/// The files of a result as they are, by path.
#[derive(Debug, Default)]
pub(super) struct FileHashes {
    /// Size in bytes and SHA-256.
    files: BTreeMap<String, (u64, String)>,
}

impl FileHashes {
    /// Returns the size of a file in bytes; `None` when the result does not contain it.
    pub(super) fn size(&self, path: &str) -> Option<u64> {
        self.files.get(path).map(|(size, _)| *size)
    }

    /// Returns the SHA-256 of a file; `None` when the result does not contain it.
    pub(super) fn sha256(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|(_, hash)| hash.as_str())
    }

    /// Returns the paths that begin with `prefix`, without it.
    pub(super) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().filter_map(move |path| path.strip_prefix(prefix))
    }
}

/// Bytes of a file above which it is hashed only if the manifest states its size.
const HASHED_BYTES_MAX: u64 = 1 << 30;

/// Hashes every file in the folder and compares the files with the manifest. Returns `None` when the files cannot be
/// listed, or one is far larger than the manifest says.
pub(super) fn check_files(folder: &Path, report: &mut CaseReport) -> Option<FileHashes> {
    let listed = list_files(folder).map_err(|fault| add_fault(folder, &fault, report)).ok()?;
    let manifest = read_manifest(folder, report)?;
    if has_grown_file(&manifest, &listed, report) {
        return None;
    }
    let found = ResultManifest::of_files(folder, listed).map_err(|fault| add_fault(folder, &fault, report)).ok()?;
    report.bytes = found.files.iter().map(|file| file.size_bytes.0).sum();
    compare_files(&manifest, &found, report);
    let files = found.files.into_iter().map(|file| (file.path, (file.size_bytes.0, file.sha256))).collect();
    Some(FileHashes { files })
}

/// Adds why the files could not be listed or hashed.
fn add_fault(folder: &Path, fault: &ManifestFault, report: &mut CaseReport) {
    if let ManifestFault::Read { .. } = fault {
        report.give_up(fault.to_string());
    } else {
        let (path, what) = describe(folder, fault);
        report.add(&path, what, None, None);
    }
}

/// Adds the files that are too large to be hashed and not as large as the manifest says. Returns whether there are any.
fn has_grown_file(manifest: &ResultManifest, listed: &[FoundFile], report: &mut CaseReport) -> bool {
    let mut has_grown = false;
    for file in listed.iter().filter(|file| file.size > HASHED_BYTES_MAX) {
        let expected = manifest.entry(&file.path).map_or(0, |entry| entry.size_bytes.0);
        if file.size != expected {
            add_size(&file.path, expected, file.size, report);
            has_grown = true;
        }
    }
    has_grown
}

fn add_size(path: &str, expected: u64, found: u64, report: &mut CaseReport) {
    let bytes = |size: u64| Some(format!("{size} bytes"));
    report.add(path, "size", bytes(expected), bytes(found));
}

fn read_manifest(folder: &Path, report: &mut CaseReport) -> Option<ResultManifest> {
    let path = folder.join(MANIFEST_FILE);
    if std::fs::symlink_metadata(&path).is_err() {
        report.give_up(format!(
            "there is no `{MANIFEST_FILE}`: the run was interrupted, the result was copied without it, or an \
             older version of flagperf wrote the result"
        ));
        return None;
    }
    let text = match read_regular(&path, MANIFEST_BYTES_MAX) {
        Ok(text) => text,
        Err(error) => {
            report.give_up(format!("`{MANIFEST_FILE}` cannot be read: {error}"));
            return None;
        }
    };
    report.digest = Some(digest(&text));
    match ResultManifest::parse(&text) {
        Ok(manifest) => Some(manifest),
        Err(fault) => {
            report.add(MANIFEST_FILE, fault.to_string(), None, None);
            None
        }
    }
}

fn compare_files(manifest: &ResultManifest, found: &ResultManifest, report: &mut CaseReport) {
    for expected in &manifest.files {
        match found.entry(&expected.path) {
            None => report.add(&expected.path, "the file is missing", Some(expected.sha256.clone()), None),
            Some(file) if file.size_bytes != expected.size_bytes => {
                add_size(&expected.path, expected.size_bytes.0, file.size_bytes.0, report);
            }
            Some(file) => report.compare(&expected.path, "SHA-256", &expected.sha256, &file.sha256),
        }
    }
    for file in found.files.iter().filter(|file| manifest.entry(&file.path).is_none()) {
        report.add(&file.path, "the file is not in the manifest", None, None);
    }
}

/// Returns the file that a fault concerns and the fault as a text.
fn describe(folder: &Path, fault: &ManifestFault) -> (String, String) {
    let path = match fault {
        ManifestFault::NotRegular { path, .. } | ManifestFault::Name { path } => {
            path.strip_prefix(folder).unwrap_or(path)
        }
        _ => Path::new(""),
    };
    (path.display().to_string(), fault.to_string())
}
