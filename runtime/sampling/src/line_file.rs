//! A file of lines that other processes may read while it grows: each line is written completely or not at all, and the size of
//! the file is limited.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use flagperf_core::file;
use flagperf_core::hash::{hash_file, hexadecimal};

/// A file of lines. A failed write returns no error to its caller: the first error is stored, and the lost lines are counted.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    /// The file; `None` before the first line, or when it cannot be created.
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
    hasher: Sha256,
    lost: u64,
    error: Option<io::Error>,
}

impl LineFile {
    /// Creates a file of at most `bytes_max` bytes, which exists from the first line on.
    pub(super) fn new(path: PathBuf, bytes_max: u64) -> Self {
        LineFile { path, file: None, bytes: 0, bytes_max, hasher: Sha256::new(), lost: 0, error: None }
    }

    /// Writes text that ends with a line break.
    pub(super) fn write(&mut self, text: &str) {
        if let Err(error) = self.try_write(text) {
            self.lost += 1;
            self.error.get_or_insert(error);
        }
    }

    fn try_write(&mut self, text: &str) -> io::Result<()> {
        let bytes = self.bytes + text.len() as u64;
        if bytes > self.bytes_max {
            return Err(io::Error::other(format!("the file has reached its limit of {} bytes", self.bytes_max)));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(file::create(&self.path)?),
        };
        let before = self.bytes;
        // An incomplete line is removed, so that the next line does not continue it.
        file.write_all(text.as_bytes()).inspect_err(|_| drop(cut(file, before)))?;
        self.bytes = bytes;
        self.hasher.update(text.as_bytes());
        Ok(())
    }

    /// Returns the share of the limit that is left, from 0 to 1.
    pub(super) fn share_left(&self) -> f64 {
        1.0 - self.bytes as f64 / self.bytes_max as f64
    }

    /// Returns the number of writes that failed.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns why lines were lost.
    pub(super) fn error(&self) -> Option<String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.error.as_ref().map(|error| format!("{} lines of `{name}` could not be written: {error}", self.lost))
    }

    /// Checks that the file contains what was written to it.
    ///
    /// # Errors
    /// When another program removed, replaced or changed it.
    pub(super) fn check(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file::check_same(file, &self.path)?;
        if hash_file(&self.path)? == hexadecimal(&self.hasher.clone().finalize()) {
            return Ok(());
        }
        Err(io::Error::other(format!("another program changed the file `{}`", self.path.display())))
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn cut(file: &mut File, length: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_a_full_disk_are_counted_and_the_rest_is_written_when_there_is_space_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut lines = LineFile::new(path.clone(), 100);
        lines.write("one\n");
        let good = lines.file.replace(File::options().write(true).open("/dev/full").unwrap());
        lines.write("two\n");
        lines.write("three\n");
        lines.file = good;
        lines.write("four\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\nfour\n");
        let expected = "2 lines of `log` could not be written: No space left on device (os error 28)";
        assert_eq!((lines.lost(), lines.error().unwrap().as_str()), (2, expected));
        lines.check().unwrap();
    }

    #[test]
    fn a_file_does_not_grow_beyond_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = LineFile::new(folder.path().join("log"), 10);
        assert_eq!(lines.share_left(), 1.0);
        ["12345\n", "12345\n", "123\n"].into_iter().for_each(|line| lines.write(line));
        assert_eq!(std::fs::read_to_string(lines.path()).unwrap(), "12345\n123\n");
        assert_eq!((lines.lost(), lines.share_left()), (1, 0.0));
        assert!(lines.error().unwrap().ends_with("the file has reached its limit of 10 bytes"));
    }

    #[test]
    fn a_file_that_another_program_changed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = LineFile::new(folder.path().join("log"), 100);
        lines.check().unwrap();
        lines.write("one\n");
        lines.check().unwrap();
        std::fs::write(lines.path(), "two\n").unwrap();
        assert!(lines.check().unwrap_err().to_string().starts_with("another program changed the file `"));
        std::fs::remove_file(lines.path()).unwrap();
        assert!(lines.check().unwrap_err().to_string().starts_with("another program removed the file `"));
    }
}
