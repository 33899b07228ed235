//! A record on disk: whole or not at all, and flushed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
/// When the disk is full or the folder cannot be written; then nothing is left behind and an older record stays.
pub fn write_record(record: &Record, path: &Path) -> Result<(), WriteError> {
    let temporary = path.with_extension("json.part");
    let written = write(record, &temporary, path);
    written.map_err(|source| {
        // What is half written is of no use; that it cannot be removed adds nothing to the first error.
        let _ = std::fs::remove_file(&temporary);
        WriteError { path: path.to_owned(), source }
    })
}

fn write(record: &Record, temporary: &Path, path: &Path) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    let mut file = File::create(temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
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
}
