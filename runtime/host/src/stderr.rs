//! Copies a child's standard error to a log, or to that of this process, and keeps its last lines. The memory used is
//! bounded, whatever the child writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::ProcessError;
use super::child::POLL_INTERVAL;
use flagperf_core::{file, text};

/// Number of last lines kept as the reason of a failure.
const LINES_KEPT: usize = 20;
/// Maximum number of bytes read at once.
const PIECE_BYTES: u64 = 64 << 10;
/// Number of polls in which the last lines may arrive after the process has ended: its descendants may hold the pipe
/// open.
const LAST_LINES_POLLS: u32 = 25;
/// Maximum size of the log of a child's output in bytes.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Where standard error is copied to.
#[derive(Debug)]
pub(super) enum Destination {
    /// A log, in which control characters are escaped.
    Log(CappedLog),
    /// The standard error of this process.
    OwnStderr,
}

impl Destination {
    /// Returns the log `path`, to which up to 64 MiB are appended.
    pub(super) fn log(path: &Path) -> Result<Self, ProcessError> {
        let log = CappedLog::open(path, LOG_BYTES_MAX);
        log.map(Destination::Log).map_err(|source| ProcessError::Stderr { path: path.to_owned(), source })
    }

    /// Returns the maximum number of bytes of each line kept.
    fn line_bytes_kept(&self) -> usize {
        match self {
            Destination::Log(_) => 4 << 10,
            Destination::OwnStderr => 1000,
        }
    }

    /// Reads the next piece: a line, or a part of one. Returns its number of bytes; 0 at the end.
    fn read_piece(&self, errors: &mut impl BufRead, piece: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            // Escaping needs whole characters.
            Destination::Log(_) => errors.take(PIECE_BYTES).read_until(b'\n', piece),
            // Passed on at once: this process may be killed before the line ends.
            Destination::OwnStderr => read_available(errors, piece),
        }
    }

    fn write(&mut self, piece: &[u8]) {
        match self {
            Destination::Log(log) => log.write(piece),
            // An error is ignored: nobody may be reading this process's standard error. The lines are kept anyway.
            Destination::OwnStderr => drop(io::stderr().write_all(piece)),
        }
    }

    fn finish(&mut self, last: &[String]) {
        if let Destination::Log(log) = self {
            log.finish(last);
        }
    }
}

/// Reads what has arrived, at most to the end of a line.
fn read_available(errors: &mut impl BufRead, piece: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let arrived = match errors.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            arrived => arrived?,
        };
        let taken = arrived.iter().position(|byte| *byte == b'\n').map_or(arrived.len(), |end| end + 1);
        piece.extend_from_slice(&arrived[..taken]);
        errors.consume(taken);
        return Ok(taken);
    }
}

/// Reads a child's standard error to its end, in a thread of its own.
#[derive(Debug)]
pub(super) struct StderrReader {
    kept: Arc<Mutex<LastLines>>,
    reader: JoinHandle<()>,
}

impl StderrReader {
    pub(super) fn start(errors: impl Read + Send + 'static, destination: Destination) -> Self {
        let kept = Arc::new(Mutex::new(LastLines::new(destination.line_bytes_kept())));
        let lines = Arc::clone(&kept);
        StderrReader { kept, reader: thread::spawn(move || copy(errors, destination, &lines)) }
    }

    /// Returns the last lines after the process has ended. Does not wait for other processes that hold the pipe open.
    pub(super) fn last_lines(&self) -> Vec<String> {
        for _ in 0..LAST_LINES_POLLS {
            if self.reader.is_finished() {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        lock(&self.kept).texts()
    }
}

fn copy(errors: impl Read, mut destination: Destination, kept: &Mutex<LastLines>) {
    let mut errors = BufReader::new(errors);
    let mut piece = Vec::new();
    while let Ok(1..) = destination.read_piece(&mut errors, &mut piece) {
        destination.write(&piece);
        lock(kept).push(&piece);
        piece.clear();
    }
    destination.finish(&lock(kept).texts());
}

fn lock(kept: &Mutex<LastLines>) -> std::sync::MutexGuard<'_, LastLines> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines of a stream that arrives in pieces.
#[derive(Debug)]
struct LastLines {
    lines: VecDeque<LineBeginning>,
    /// Maximum number of bytes kept of a line.
    line_bytes: usize,
    /// Whether the last line is unfinished.
    open: bool,
}

/// The beginning of a line, and the number of bytes that follow.
#[derive(Debug, Default)]
struct LineBeginning {
    begin: Vec<u8>,
    more: usize,
}

impl LastLines {
    fn new(line_bytes: usize) -> Self {
        LastLines { lines: VecDeque::new(), line_bytes, open: false }
    }

    /// Adds the next piece: a line, or a part of a line.
    fn push(&mut self, piece: &[u8]) {
        if !self.open {
            if self.lines.len() == LINES_KEPT {
                self.lines.pop_front();
            }
            self.lines.push_back(LineBeginning::default());
        }
        let ended = piece.ends_with(b"\n");
        self.open = !ended;
        let piece = if ended { piece.trim_ascii_end() } else { piece };
        if let Some(line) = self.lines.back_mut() {
            let room = self.line_bytes.saturating_sub(line.begin.len()).min(piece.len());
            line.begin.extend_from_slice(&piece[..room]);
            line.more += piece.len() - room;
        }
    }

    fn texts(&self) -> Vec<String> {
        let text = |line: &LineBeginning| match (String::from_utf8_lossy(&line.begin), line.more) {
            (begin, 0) => begin.into_owned(),
            (begin, more) => format!("{begin}... ({more} more bytes)"),
        };
        self.lines.iter().map(text).collect()
    }
}

/// A log with a maximum size. At the limit it notes that the rest is left out, and at its end how much is missing,
/// followed by the last lines.
///
/// An error of writing the log does not stop the process.
#[derive(Debug)]
pub(super) struct CappedLog {
    file: File,
    room: u64,
    left_out: u64,
}

impl CappedLog {
    /// Opens `path` for appending, up to `bytes_max` bytes in total.
    fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = file::append(path)?;
        let size = file.metadata()?.len();
        Ok(CappedLog { file, room: bytes_max.saturating_sub(size), left_out: 0 })
    }

    fn write(&mut self, piece: &[u8]) {
        let size = piece.len() as u64;
        if self.left_out == 0 && size <= self.room {
            self.room -= size;
            let _ = self.file.write_all(text::escape_log(piece).as_bytes());
            return;
        }
        if self.left_out == 0 {
            let _ = writeln!(self.file, "\n[flagperf] this log has reached its limit; what follows is left out");
        }
        self.left_out += size;
    }

    fn finish(&mut self, last: &[String]) {
        if self.left_out > 0 {
            let last: String = last.iter().map(|line| format!("{}\n", text::one_line(line))).collect();
            let _ = write!(self.file, "[flagperf] {} bytes are left out; the last lines:\n{last}", self.left_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_is_kept_as_its_beginning_and_its_length() {
        let mut last = LastLines::new(4 << 10);
        for _ in 0..1000 {
            last.push(&[b'x'; 1 << 16]);
        }
        last.push(b"y\n");
        last.push(b"end\n");
        let texts = last.texts();
        assert_eq!(texts[0], format!("{}... ({} more bytes)", "x".repeat(4 << 10), 1000 * (1 << 16) + 1 - (4 << 10)));
        assert_eq!(texts[1..], ["end"]);
        assert!(last.lines.iter().map(|line| line.begin.capacity()).sum::<usize>() < 1 << 20);
    }

    #[test]
    fn only_the_last_of_many_lines_are_kept() {
        let mut last = LastLines::new(4 << 10);
        for number in 0..100 {
            last.push(format!("{number}\n").as_bytes());
        }
        assert_eq!((last.texts().len(), last.texts()[0].as_str()), (LINES_KEPT, "80"));
    }

    #[test]
    fn a_log_ends_at_its_limit_and_states_how_much_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for _ in 0..2 {
            let mut text = b"0123456789\n".repeat(20);
            text.extend(b"\x1b[2Jlast");
            let log = Destination::Log(CappedLog::open(&path, 44).unwrap());
            copy(&text[..], log, &Mutex::new(LastLines::new(100)));
        }
        let log = std::fs::read_to_string(&path).unwrap();
        let note = "\n[flagperf] this log has reached its limit; what follows is left out\n[flagperf] ";
        assert!(log.starts_with(&format!("{}{note}184 bytes", "0123456789\n".repeat(4))), "{log}");
        assert!(log.ends_with("0123456789\n\\u{1b}[2Jlast\n") && log.contains("228 bytes are left out"), "{log}");
    }
}
