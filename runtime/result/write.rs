//! A record on disk: whole or not at all, and flushed.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::Builder;

use super::Record;

/// A record that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`: {source}")]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes a record: to a file beside `path`, flushed to disk, renamed to `path`, and the folder flushed.
///
/// # Errors
/// When the disk is full, the folder cannot be written, or there is a record already, which stays; then nothing else is
/// left behind.
pub fn write_record(record: &Record, path: &Path) -> Result<(), WriteError> {
    write(record, path).map_err(|source| WriteError { path: path.to_owned(), source })
}

fn write(record: &Record, path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    let readable = Permissions::from_mode(0o666);
    let mut file = Builder::new().prefix("record.json.").suffix(".part").permissions(readable).tempfile_in(folder)?;
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing;

    #[test]
    fn a_record_reads_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        let record = testing::record();
        write_record(&record, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&record).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_the_old_one_and_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        std::fs::create_dir(&path).unwrap();
        let error = write_record(&testing::record(), &path).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"), "{error}");
        assert!(path.is_dir() && std::fs::read_dir(folder.path()).unwrap().count() == 1);
    }

    #[test]
    fn a_record_never_takes_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        write_record(&testing::record(), &path).unwrap();
        let first = std::fs::read(&path).unwrap();
        let other = Record { case: "other".into(), ..testing::record() };
        let error = write_record(&other, &path).unwrap_err();
        assert!(error.to_string().contains("File exists"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
