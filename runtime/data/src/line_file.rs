//! A text file that is read line by line: the positions of the lines are in memory, their text is not.

use std::io::{BufRead, BufReader};
use std::path::Path;

use super::data_file::open_file;
use super::indexed_file::{IndexedFile, RecordPosition};
use super::{DataError, DataRoot};

/// Largest number of lines; each needs 16 bytes of memory.
const LINES_MAX: usize = 1 << 26;
/// Largest length of a line in bytes.
const LINE_BYTES_MAX: u64 = 1 << 24;

/// An opened text file whose lines are samples.
pub struct LineFile {
    lines: IndexedFile,
    /// Size of the file in bytes.
    pub bytes: u64,
}

impl LineFile {
    /// Opens a file and finds its lines. Empty lines are left out.
    ///
    /// # Errors
    /// When the file cannot be read, has no lines or too many, or a line is too long.
    pub fn open(root: &DataRoot, path: &Path) -> Result<Self, DataError> {
        let unreadable = |error: std::io::Error| DataError::unreadable(path, &error);
        let invalid = |reason: String| DataError::Invalid { path: path.to_owned(), reason };
        let file = open_file(root, path)?;
        let mut reader = BufReader::with_capacity(1 << 20, file.try_clone().map_err(unreadable)?);
        let (mut lines, mut offset, mut number) = (Vec::new(), 0u64, 0u32);
        loop {
            let (bytes, ended) = next_line(&mut reader).map_err(unreadable)?;
            if bytes == 0 {
                break;
            }
            number += 1;
            if bytes > LINE_BYTES_MAX {
                return Err(invalid(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
            }
            if bytes > u64::from(ended) {
                lines.push(RecordPosition { offset, bytes: bytes as u32, line: number });
            }
            if lines.len() > LINES_MAX {
                return Err(invalid(format!("has more than {LINES_MAX} lines")));
            }
            offset += bytes;
        }
        if lines.is_empty() {
            return Err(invalid("has no lines".to_owned()));
        }
        Ok(LineFile { lines: IndexedFile::new(file, path.to_owned(), lines), bytes: offset })
    }

    /// Returns the path as the pipeline has it.
    pub fn path(&self) -> &Path {
        &self.lines.path
    }

    /// Returns the number of lines that are not empty.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the place of a line: `file:number`.
    pub fn place(&self, index: usize) -> String {
        self.lines.place(index)
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// When the file cannot be read or the line is not UTF-8.
    pub fn read(&self, index: usize) -> Result<String, String> {
        let text = String::from_utf8(self.lines.read(index)?)
            .map_err(|error| format!("is not UTF-8 text (byte {})", error.utf8_error().valid_up_to() + 1))?;
        let text = if self.lines.position(index).offset == 0 { text.trim_start_matches('\u{feff}') } else { &text };
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    }
}

/// Skips a line. Returns its length in bytes with its line break (0 at the end of the file), and whether it has a line
/// break.
fn next_line(reader: &mut impl BufRead) -> std::io::Result<(u64, bool)> {
    let mut bytes = 0;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok((bytes, false));
        }
        match available.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                reader.consume(end + 1);
                return Ok((bytes + end as u64 + 1, true));
            }
            None => {
                let length = available.len();
                reader.consume(length);
                bytes += length as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bytes: &[u8]) -> Result<LineFile, DataError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), bytes).unwrap();
        LineFile::open(&DataRoot::open(folder.path()).unwrap(), Path::new("a.txt"))
    }

    #[test]
    fn lines_are_read_by_position_and_keep_their_numbers() {
        let lines = open("\u{feff}first\r\n\nthird\nlast".as_bytes()).unwrap();
        let texts: Vec<_> = (0..lines.len()).map(|at| (lines.place(at), lines.read(at).unwrap())).collect();
        let expected = [("a.txt:1", "first"), ("a.txt:3", "third"), ("a.txt:4", "last")];
        assert_eq!(texts, expected.map(|(place, text)| (place.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_line_that_is_not_utf_8_and_a_file_without_lines_are_refused() {
        assert_eq!(open(b"good\nb\xffd\n").unwrap().read(1).unwrap_err(), "is not UTF-8 text (byte 2)");
        assert_eq!(open(b"\n\n").err().unwrap().to_string(), "`a.txt`: has no lines");
    }

    #[test]
    fn a_fifo_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&folder.path().join("a.txt"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = LineFile::open(&DataRoot::open(folder.path()).unwrap(), Path::new("a.txt")).err().unwrap();
        assert_eq!(error.to_string(), "cannot read `a.txt`: is a FIFO, not a regular file");
    }
}
