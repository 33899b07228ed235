//! The events of a case on disk, each line carrying the hash of the one before: a line changed, added or taken out
//! later breaks the chain, whose last hash is in the record.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::hash::hash_bytes;
use crate::step::Phase;
use crate::units::Seconds;

/// Largest file of events. Events beyond it are left out: a worker keeps far below, unless something is wrong with it.
const BYTES_MAX: u64 = 1 << 30;

/// One line of `events.jsonl`.
#[derive(Serialize, Deserialize)]
struct Line<E> {
    /// SHA-256 of the line before, without its end; empty in the first.
    previous: String,
    /// Arrival by the conductor's clock, since the case began.
    at_s: Seconds,
    /// The phase that said it.
    phase: Phase,
    /// The event as it came.
    #[serde(flatten)]
    event: E,
}

/// Writes events to a file as they arrive. Progress is left out: it says where a loop stands, not what came of it.
#[derive(Debug)]
pub struct EventChain {
    file: File,
    hash: String,
    room: u64,
}

impl EventChain {
    /// Begins a chain in a new file.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(EventChain { file: File::create_new(path)?, hash: String::new(), room: BYTES_MAX })
    }

    /// Adds an event that arrived `at_s` after the case began. One that cannot be written is no part of the chain.
    ///
    /// # Errors
    /// When it cannot be written, or the file has reached its largest size.
    pub fn push(&mut self, at_s: Seconds, phase: Phase, event: &Event) -> io::Result<()> {
        if matches!(event, Event::Progress { .. }) {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&Line { previous: self.hash.clone(), at_s, phase, event })?;
        let hash = hash_bytes(&text);
        text.push(b'\n');
        let Some(room) = self.room.checked_sub(text.len() as u64) else {
            return Err(io::Error::other(format!("`events.jsonl` has reached its limit of {BYTES_MAX} bytes")));
        };
        self.write(&text)?;
        (self.hash, self.room) = (hash, room);
        Ok(())
    }

    /// Writes a line whole or not at all: a part of a line would break the chain for the next.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let before = self.file.stream_position()?;
        self.file.write_all(line).inspect_err(|_| {
            // The first error says more than that the part cannot be taken back.
            let _ = self.file.set_len(before).and_then(|()| self.file.seek(SeekFrom::Start(before)));
        })
    }

    /// The last hash; empty without any event.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// A chain that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line does not follow the one before.
    #[error("line {line} does not follow the line before")]
    Broken {
        /// The line, from 1.
        line: usize,
    },
    /// The last hash is another one.
    #[error("the events end with hash `{found}`, the record says `{expected}`")]
    End {
        /// The hash of the last line.
        found: String,
        /// The hash in the record.
        expected: String,
    },
}

/// Checks that the lines of `path` follow each other and end with `expected`, the hash in the record.
///
/// # Errors
/// When they do not, or the file cannot be read.
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
    if hash == expected { Ok(()) } else { Err(ChainError::End { found: hash, expected: expected.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> (tempfile::TempDir, std::path::PathBuf, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut chain = EventChain::create(&path).unwrap();
        for pid in 1..4 {
            chain.push(Seconds(f64::from(pid)), Phase::Infer, &Event::Started { pid: pid as u32 }).unwrap();
        }
        let hash = chain.hash().to_owned();
        (folder, path, hash)
    }

    #[test]
    fn an_untouched_chain_holds() {
        let (_folder, path, hash) = chain();
        verify_chain(&path, &hash).unwrap();
    }

    #[test]
    fn an_event_that_cannot_be_written_is_no_part_of_the_chain() {
        let (_folder, path, hash) = chain();
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut full = EventChain { file, hash: hash.clone(), room: BYTES_MAX };
        full.push(Seconds(4.0), Phase::Infer, &Event::Started { pid: 4 }).unwrap_err();
        verify_chain(&path, full.hash()).unwrap();
        let mut large = EventChain { file: File::options().append(true).open(&path).unwrap(), hash, room: 10 };
        let error = large.push(Seconds(4.0), Phase::Infer, &Event::Started { pid: 4 }).unwrap_err();
        assert_eq!(error.to_string(), "`events.jsonl` has reached its limit of 1073741824 bytes");
        verify_chain(&path, large.hash()).unwrap();
    }

    #[test]
    fn a_changed_line_breaks_the_chain_at_the_next() {
        let (_folder, path, hash) = chain();
        let changed = std::fs::read_to_string(&path).unwrap().replace("\"pid\":2", "\"pid\":9");
        std::fs::write(&path, changed).unwrap();
        assert!(matches!(verify_chain(&path, &hash), Err(ChainError::Broken { line: 3 })));
    }

    #[test]
    fn a_chain_cut_short_ends_with_another_hash() {
        let (_folder, path, hash) = chain();
        let text = std::fs::read_to_string(&path).unwrap();
        let cut: Vec<&str> = text.lines().take(2).collect();
        std::fs::write(&path, cut.join("\n") + "\n").unwrap();
        assert!(matches!(verify_chain(&path, &hash), Err(ChainError::End { .. })));
    }
}
