//! Writes the record and other files of a result to disk atomically, and flushes them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Record;
use flagperf_core::file::stage;

/// An error in writing a record to its path.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`: {source}{}", kept_note(.kept))]
pub struct WriteError {
    /// Path of the record.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
    /// Where the record was written instead, when the path was occupied by another record.
    pub kept: Option<PathBuf>,
}

fn kept_note(kept: &Option<PathBuf>) -> String {
    kept.as_ref().map_or_else(String::new, |kept| format!("; the record is in `{}`", kept.display()))
}

/// Largest number of records in one folder.
const RECORDS_MAX: u32 = 100;

/// Writes a record to a temporary file beside `path`, flushes the file, renames it to `path`, and flushes the folder.
///
/// # Errors
/// When the disk is full or the folder is not writable; then no file is left behind. When there already is a record,
/// which is kept; the new one is then written beside it as `record-2.json`.
pub fn write_record(record: &Record, path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source, kept: None };
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput).map_err(|kind| failed(kind.into()))?;
    let text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
    let file = stage(&[&text[..], b"\n"].concat(), path, None).map_err(failed)?;
    let (source, kept) = match file.persist_noclobber(path) {
        Ok(_) => return sync_folder(folder).map_err(failed),
        Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => {
            (taken.error, persist_beside(taken.file, path))
        }
        Err(other) => return Err(failed(other.error)),
    };
    let kept = kept.and_then(|kept| sync_folder(folder).map(|()| kept)).map_err(failed)?;
    Err(WriteError { path: path.to_owned(), source, kept: Some(kept) })
}

/// Writes a file that does not exist yet and flushes it, like [`write_record`].
///
/// # Errors
/// When the disk is full or the folder is not writable, or there is such a file; then no file is left behind.
pub fn write_new(text: &[u8], path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    stage(text, path, None)?.persist_noclobber(path)?;
    sync_folder(folder)
}

/// Renames the file to the first free name beside `path`.
fn persist_beside(mut file: NamedTempFile, path: &Path) -> io::Result<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for number in 2..=RECORDS_MAX {
        let other = path.with_file_name(format!("{stem}-{number}.json"));
        match file.persist_noclobber(&other) {
            Ok(_) => return Ok(other),
            Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => file = taken.file,
            Err(other) => return Err(other.error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flagperf_core::run_files::RECORD_FILE;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RECORD_FILE);
        let record = testing::record();
        write_record(&record, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&record).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_no_partial_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_record(&testing::record(), &folder.path().join("none/record.json")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"), "{error}");
        assert!(error.kept.is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_record_never_overwrites_another_and_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RECORD_FILE);
        write_record(&testing::record(), &path).unwrap();
        let first = std::fs::read(&path).unwrap();
        for number in [2, 3] {
            let other = Record { case: format!("other{number}"), ..testing::record() };
            let error = write_record(&other, &path).unwrap_err();
            let kept = folder.path().join(format!("record-{number}.json"));
            assert_eq!(
                error.to_string(),
                format!(
                    "cannot write `{}`: File exists (os error 17); the record is in `{}`",
                    path.display(),
                    kept.display()
                )
            );
            assert!(std::fs::read_to_string(kept).unwrap().contains(&format!("\"other{number}\"")));
        }
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "no other file is left");
    }
}
