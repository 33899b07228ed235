//! A file whose records are read one by one: the positions of the records are in memory, their content is not.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Where a record is in the file.
pub struct RecordPosition {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// Number of its first line, from 1.
    pub line: u32,
}

/// An opened file with the positions of its records.
pub struct IndexedFile {
    file: File,
    /// Path as the pipeline has it.
    pub path: PathBuf,
    records: Vec<RecordPosition>,
}

impl IndexedFile {
    /// Creates the index of an opened file.
    pub fn new(file: File, path: PathBuf, records: Vec<RecordPosition>) -> Self {
        IndexedFile { file, path, records }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the place of a record: `file:line`.
    pub fn place(&self, index: usize) -> String {
        format!("{}:{}", self.path.display(), self.records[index].line)
    }

    /// Returns the position of a record.
    pub fn position(&self, index: usize) -> &RecordPosition {
        &self.records[index]
    }

    /// Reads the bytes of a record.
    ///
    /// # Errors
    /// When the file cannot be read or has become shorter.
    pub fn read(&self, index: usize) -> Result<Vec<u8>, String> {
        let position = &self.records[index];
        let mut bytes = vec![0; position.bytes as usize];
        self.file.read_exact_at(&mut bytes, position.offset).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    }
}
