//! The events of a case on disk, as a hash chain: each line contains the hash of the previous one, and the record
//! contains the last hash. Changing, adding or removing a line later breaks the chain.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flagperf_core::regular_file::open_regular;
use serde::{Deserialize, Serialize};

use flagperf_core::event::{Event, LINE_BYTES_MAX};
use flagperf_core::file;
use flagperf_core::hash::{WrittenHash, hash_bytes};
use flagperf_core::measure::Nanos;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_sampling::{PhaseWindows, WindowCollector};

/// Largest event file in bytes. Events beyond this limit are dropped; a correct worker stays far below it.
pub const EVENTS_BYTES_MAX: u64 = 1 << 30;
/// Longest line that is read: an event and what the chain adds to it.
const LINE_BYTES_READ: u64 = (LINE_BYTES_MAX + (64 << 10)) as u64;

/// One line of `events.jsonl`.
#[derive(Serialize, Deserialize)]
struct EventLine<E> {
    /// SHA-256 of the previous line without its line break; empty on the first line.
    previous: String,
    /// Arrival by the conductor's clock, since the case began.
    at_s: Seconds,
    /// The phase that emitted the event.
    phase: Phase,
    /// The event as received.
    #[serde(flatten)]
    event: E,
}

/// Writes events to a file as they arrive, except progress events, which contain no results.
#[derive(Debug)]
pub struct EventChain {
    file: File,
    hash: String,
    written: WrittenHash,
    bytes_left: u64,
}

impl EventChain {
    /// Starts a chain in a new file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(EventChain { file, hash: String::new(), written: WrittenHash::default(), bytes_left: EVENTS_BYTES_MAX })
    }

    /// Appends an event that arrived `at_s` after the start of the case. An event that cannot be written does not
    /// become part of the chain.
    ///
    /// # Errors
    /// When the event cannot be written, or the file would exceed its size limit.
    pub fn push(&mut self, at_s: Seconds, phase: Phase, event: &Event) -> io::Result<()> {
        if event.is_progress() {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&EventLine { previous: self.hash.clone(), at_s, phase, event })?;
        let hash = hash_bytes(&text);
        text.push(b'\n');
        let Some(bytes_left) = self.bytes_left.checked_sub(text.len() as u64) else {
            return Err(io::Error::other(format!(
                "`events.jsonl` has reached its size limit of {EVENTS_BYTES_MAX} bytes"
            )));
        };
        self.write_line(&text)?;
        self.written.add(&text);
        (self.hash, self.bytes_left) = (hash, bytes_left);
        Ok(())
    }

    /// Writes a complete line or nothing: a partial line would break the chain at the next one.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let before = self.file.stream_position()?;
        self.file.write_all(line).inspect_err(|_| {
            // An error in undoing the write is ignored: the caller receives the first one.
            let _ = self.file.set_len(before).and_then(|()| self.file.seek(SeekFrom::Start(before)));
        })
    }

    /// Checks that the path of the events still refers to this file, and that it contains what was written to it.
    ///
    /// # Errors
    /// When the file was removed, replaced or changed.
    pub fn check(&self, path: &Path) -> io::Result<()> {
        file::check_same(&self.file, path)?;
        self.written.check(path)
    }

    /// Returns the hash of the last line; empty when there are no events.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// An error in verifying a chain.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line does not contain the hash of the previous line.
    #[error("line {line} does not contain the hash of the previous line")]
    Broken {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A line cannot be read as an event.
    #[error("line {line} is not an event: {reason}")]
    Unreadable {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The last hash differs from the one in the record.
    #[error("the events end with hash `{found}`, but the record contains `{expected}`")]
    HashMismatch {
        /// The hash of the last line.
        found: String,
        /// The hash in the record.
        expected: String,
    },
}

/// An event of a chain.
#[derive(Debug)]
pub struct ChainedEvent {
    /// Arrival by the conductor's clock, since the case began.
    pub at: Nanos,
    /// The phase that emitted the event.
    pub phase: Phase,
    pub event: Event,
}

/// Reads the events of a chain one after the other, and checks that each contains the hash of the one before.
pub struct ChainReader<R> {
    lines: R,
    number: usize,
    hash: String,
    line: Vec<u8>,
}

impl<R: BufRead> ChainReader<R> {
    /// Creates a reader of the lines of `events.jsonl`.
    pub fn new(lines: R) -> Self {
        ChainReader { lines, number: 0, hash: String::new(), line: Vec::new() }
    }

    /// Returns the next event; `None` after the last one.
    ///
    /// # Errors
    /// When a line cannot be read, is too long, is no event, or does not contain the hash of the previous line.
    pub fn read(&mut self) -> Result<Option<ChainedEvent>, ChainError> {
        self.line.clear();
        self.number += 1;
        self.lines.by_ref().take(LINE_BYTES_READ).read_until(b'\n', &mut self.line)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        let unreadable = |reason: &str| ChainError::Unreadable { line: self.number, reason: reason.to_owned() };
        let text = self.line.strip_suffix(b"\n").ok_or_else(|| unreadable("it has no end or is too long"))?;
        let head: LineHead<'_> = serde_json::from_slice(text).map_err(|error| unreadable(&error.to_string()))?;
        if head.previous != self.hash {
            return Err(ChainError::Broken { line: self.number });
        }
        let event = parse_event(&head, text).map_err(|error| unreadable(&error.to_string()))?;
        let at = Nanos((head.at_s.0 * 1e9).round() as u64);
        let event = ChainedEvent { at, phase: head.phase, event };
        self.hash = hash_bytes(text);
        Ok(Some(event))
    }

    /// Returns the hash of the last line that was read; empty before the first.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The beginning of a line, which tells what the rest is.
#[derive(Deserialize)]
struct LineHead<'l> {
    previous: &'l str,
    at_s: Seconds,
    phase: Phase,
    event: &'l str,
}

/// Parses the event of a line. Times of steps are nearly all of a file, and are read without an intermediate form: this is
/// several times as fast as through the event that contains them, whose keys must all be known before their values are read.
fn parse_event(head: &LineHead<'_>, text: &[u8]) -> Result<Event, serde_json::Error> {
    #[derive(Deserialize)]
    struct OfStep {
        step: Step,
    }
    if head.event == "steps" {
        let OfStep { step } = serde_json::from_slice(text)?;
        return Ok(Event::Steps { step, times: serde_json::from_slice(text)? });
    }
    serde_json::from_slice(text)
}

/// Verifies the hash chain in the file `path`. `expected` is the last hash according to the record.
///
/// # Errors
/// When the chain is broken, the last hash differs, or the file cannot be read.
pub fn verify_chain(path: &Path, expected: &str) -> Result<(), ChainError> {
    #[derive(Deserialize)]
    struct Link {
        previous: String,
    }
    let mut hash = String::new();
    for (index, text) in BufReader::new(File::open(path)?).lines().enumerate() {
        let text = text?;
        match serde_json::from_str::<Link>(&text) {
            Ok(link) if link.previous == hash => hash = hash_bytes(text.as_bytes()),
            _ => return Err(ChainError::Broken { line: index + 1 }),
        }
    }
    if hash == expected { Ok(()) } else { Err(ChainError::HashMismatch { found: hash, expected: expected.to_owned() }) }
}

/// Returns when the phases of a case and their passes began and ended, from the file of its events; as much as can be read.
pub fn read_windows(events: &Path) -> Vec<PhaseWindows> {
    let mut windows = WindowCollector::default();
    if let Ok(file) = open_regular(events) {
        let mut reader = ChainReader::new(BufReader::new(file));
        while let Ok(Some(ChainedEvent { at, phase, event })) = reader.read() {
            windows.add(phase, at, &event);
        }
    }
    windows.phases().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> (tempfile::TempDir, std::path::PathBuf, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut chain = EventChain::create(&path).unwrap();
        for pid in 1..4 {
            chain
                .push(
                    Seconds(f64::from(pid)),
                    Phase::Infer,
                    &Event::Started { pid: pid as u32, run_seed_sha256: String::new() },
                )
                .unwrap();
        }
        let hash = chain.hash().to_owned();
        (folder, path, hash)
    }

    #[test]
    fn an_unchanged_chain_is_verified() {
        let (_folder, path, hash) = chain();
        verify_chain(&path, &hash).unwrap();
    }

    #[test]
    fn an_event_that_cannot_be_written_does_not_become_part_of_the_chain() {
        let (_folder, path, hash) = chain();
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut full =
            EventChain { file, hash: hash.clone(), written: WrittenHash::default(), bytes_left: EVENTS_BYTES_MAX };
        full.push(Seconds(4.0), Phase::Infer, &Event::Started { pid: 4, run_seed_sha256: String::new() }).unwrap_err();
        verify_chain(&path, full.hash()).unwrap();
        let mut large = EventChain {
            file: File::options().append(true).open(&path).unwrap(),
            hash,
            written: WrittenHash::default(),
            bytes_left: 10,
        };
        let error = large
            .push(Seconds(4.0), Phase::Infer, &Event::Started { pid: 4, run_seed_sha256: String::new() })
            .unwrap_err();
        assert_eq!(error.to_string(), "`events.jsonl` has reached its size limit of 1073741824 bytes");
        verify_chain(&path, large.hash()).unwrap();
    }

    #[test]
    fn a_changed_line_breaks_the_chain_at_the_next_line() {
        let (_folder, path, hash) = chain();
        let changed = std::fs::read_to_string(&path).unwrap().replace("\"pid\":2", "\"pid\":9");
        std::fs::write(&path, changed).unwrap();
        assert!(matches!(verify_chain(&path, &hash), Err(ChainError::Broken { line: 3 })));
    }

    #[test]
    fn a_truncated_chain_ends_with_the_wrong_hash() {
        let (_folder, path, hash) = chain();
        let text = std::fs::read_to_string(&path).unwrap();
        let cut: Vec<&str> = text.lines().take(2).collect();
        std::fs::write(&path, cut.join("\n") + "\n").unwrap();
        assert!(matches!(verify_chain(&path, &hash), Err(ChainError::HashMismatch { .. })));
    }
}
