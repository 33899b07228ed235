//! A CSV file of questions: the positions of the records are in memory, their text is not.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder};

use crate::data_file::{open_bounded, open_file};
use crate::indexed_file::{IndexedFile, RecordPosition};
use crate::{DataError, DataRoot};
use flagperf_core::hash::hash_reader;

/// The names of the answers.
pub const CHOICES: [&str; 4] = ["A", "B", "C", "D"];
/// Number of columns: the question, four answers, and the letter of the right one.
const COLUMNS: usize = 6;
/// What some programs write at the beginning of a file of UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Largest size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A multiple-choice question.
#[derive(Debug)]
pub struct Question {
    text: String,
    choices: [String; 4],
    /// Index of the right answer.
    pub answer: usize,
}

impl Question {
    /// Returns the question as the original evaluation writes it, up to the answer.
    pub fn prompt(&self) -> String {
        let choices = CHOICES.iter().zip(&self.choices).map(|(name, text)| format!("\n{name}. {text}"));
        format!("{}{}\nAnswer:", self.text, choices.collect::<String>())
    }

    /// Returns the question with its answer.
    pub fn example(&self) -> String {
        format!("{} {}\n\n", self.prompt(), CHOICES[self.answer])
    }

    fn parse(record: &ByteRecord) -> Result<Self, String> {
        if record.len() != COLUMNS {
            return Err(format!("has {} columns, not the {COLUMNS} of question, A, B, C, D, answer", record.len()));
        }
        let text = |column: usize| {
            let error = |_| format!("column {} is not UTF-8 text", column + 1);
            std::str::from_utf8(&record[column]).map(str::to_owned).map_err(error)
        };
        let answer = text(COLUMNS - 1)?;
        let index = CHOICES.iter().position(|choice| *choice == answer);
        let index = index.ok_or_else(|| format!("the answer is `{}`, not A, B, C or D", answer.escape_debug()))?;
        Ok(Question { text: text(0)?, choices: [text(1)?, text(2)?, text(3)?, text(4)?], answer: index })
    }
}

/// An opened CSV file without a header, whose records are questions.
pub struct QuestionFile {
    records: IndexedFile,
    /// Hash of its content.
    pub sha256: String,
}

impl QuestionFile {
    /// Opens a file, finds its records and checks each.
    ///
    /// # Errors
    /// When the file cannot be read, has no records, or one is not a question; the error contains its line.
    pub fn open(root: &DataRoot, path: &Path) -> Result<Self, DataError> {
        let invalid = |reason: String| DataError::Invalid { path: path.to_owned(), reason };
        let file = open_bounded(root, path, FILE_BYTES_MAX)?;
        let records = find_records(&file).map_err(invalid)?;
        if records.is_empty() {
            return Err(invalid("has no questions".to_owned()));
        }
        let sha256 = hash_reader(open_file(root, path)?).map_err(|error| DataError::unreadable(path, &error))?;
        Ok(QuestionFile { records: IndexedFile::new(file, path.to_owned(), records), sha256 })
    }

    /// Returns the number of questions.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the place of a question: `file:line`.
    pub fn place(&self, index: usize) -> String {
        self.records.place(index)
    }

    /// Reads a question.
    ///
    /// # Errors
    /// When the file cannot be read or has changed.
    pub fn read(&self, index: usize) -> Result<Question, String> {
        let bytes = self.records.read(index)?;
        let mut record = ByteRecord::new();
        reader(&bytes[..]).read_byte_record(&mut record).map_err(|error| error.to_string())?;
        Question::parse(&record)
    }
}

fn reader<R: std::io::Read>(input: R) -> Reader<R> {
    ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input)
}

/// Checks the records of a file, and returns where they are.
fn find_records(file: &File) -> Result<Vec<RecordPosition>, String> {
    let mut reader = reader(BufReader::with_capacity(1 << 18, file));
    let (mut records, mut record) = (Vec::new(), ByteRecord::new());
    loop {
        let begin = reader.position().clone();
        if !reader.read_byte_record(&mut record).map_err(|error| error.to_string())? {
            return Ok(records);
        }
        let length = (reader.position().byte() - begin.byte()) as usize;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, begin.byte()).map_err(|error| error.to_string())?;
        // The record begins after empty lines and after the second byte of the end of the line before.
        let before = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        // A file of at most `FILE_BYTES_MAX` bytes has fewer lines than fit.
        let line_at =
            |at: usize| begin.line() as u32 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u32;
        let line = line_at(before);
        if let Some(quote) = find_open_quote(&bytes[before..]) {
            return Err(format!("line {}: a quote begins here and is not closed", line_at(before + quote)));
        }
        Question::parse(&record).map_err(|reason| {
            let last = line_at(bytes.trim_ascii_end().len());
            let lines =
                if last > line { format!(" (up to line {last}: a quote may lack its end)") } else { String::new() };
            format!("line {line}{lines}: {reason}")
        })?;
        let bytes = u32::try_from(length).map_err(|_| format!("line {line}: the question is too long"))?;
        records.push(RecordPosition { offset: begin.byte(), bytes, line });
    }
}

/// Returns where the quoted text begins that does not end in a record. Quotes count only at the beginning of a column;
/// two within a quoted text are one of its characters.
fn find_open_quote(record: &[u8]) -> Option<usize> {
    let (mut open, mut is_first, mut at) = (None, true, 0);
    if record.starts_with(BYTE_ORDER_MARK) {
        at = BYTE_ORDER_MARK.len();
    }
    while let Some(byte) = record.get(at) {
        match (open, byte) {
            (None, b'"') if is_first => open = Some(at),
            (Some(_), b'"') if record.get(at + 1) == Some(&b'"') => at += 1,
            (Some(_), b'"') => open = None,
            _ => {}
        }
        is_first = open.is_none() && *byte == b',';
        at += 1;
    }
    open
}
