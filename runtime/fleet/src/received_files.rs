//! Counts what the host of a session sends, so that neither resent bytes count as progress nor a host can fill the disk of
//! this machine.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::mirror::{FILES_MAX, list_files};
use super::store::free_bytes;

/// Largest size in bytes of a file of a result, and of the files of a result together.
const FILE_BYTES_MAX: u64 = 32 << 30;
const RESULT_BYTES_MAX: u64 = 128 << 30;
/// Number of bytes that stay free on the disk with the results.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// The largest sizes of the files of a session so far, by path.
#[derive(Debug, Default)]
pub(super) struct ReceivedFiles {
    sizes: BTreeMap<String, u64>,
    total: u64,
}

impl ReceivedFiles {
    /// Counts the files that have already arrived in a folder.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let sizes = list_files(folder)?;
        Ok(ReceivedFiles { total: sizes.values().sum(), sizes })
    }

    /// Counts a part of a file before it is written to `folder`. Returns by how many bytes the files grow beyond what had arrived.
    ///
    /// # Errors
    /// When the part exceeds a limit; with the file and the limit.
    pub(super) fn add(&mut self, folder: &Path, path: &str, offset: u64, bytes: usize) -> Result<u64, String> {
        let end = offset.saturating_add(bytes as u64);
        let known = self.sizes.get(path).copied();
        let growth = end.saturating_sub(known.unwrap_or(0));
        let exceeds = |what: &str, limit: u64| Err(format!("its {what} exceed the limit of {limit} with `{path}`"));
        if end > FILE_BYTES_MAX {
            return Err(format!("the file `{path}` is larger than {FILE_BYTES_MAX} bytes, the limit of a file"));
        }
        if self.total.saturating_add(growth) > RESULT_BYTES_MAX {
            return exceeds("bytes", RESULT_BYTES_MAX);
        }
        if known.is_none() && self.sizes.len() >= FILES_MAX {
            return exceeds("files", FILES_MAX as u64);
        }
        if growth > 0 && has_no_space(free_bytes(folder), growth) {
            return Err(format!(
                "`{path}` would leave less than {FREE_BYTES_MIN} bytes free on the disk of this machine with the results"
            ));
        }
        self.total += growth;
        self.sizes.insert(path.to_owned(), end.max(known.unwrap_or(0)));
        Ok(growth)
    }
}

/// Returns whether a disk with so many free bytes has no space for a part. 0 means that it is unknown.
fn has_no_space(free: u64, growth: u64) -> bool {
    free > 0 && free < FREE_BYTES_MIN.saturating_add(growth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_bytes_count_and_a_host_cannot_send_without_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("events.jsonl"), "12345").unwrap();
        let mut received = ReceivedFiles::of(folder.path()).unwrap();
        let mut add = |path: &str, offset: u64, bytes: usize| received.add(folder.path(), path, offset, bytes);
        assert_eq!(add("events.jsonl", 5, 3), Ok(3));
        // Sent again from the beginning, and one byte more.
        assert_eq!((add("events.jsonl", 0, 8), add("events.jsonl", 8, 1)), (Ok(0), Ok(1)));
        let large = add("model.onnx", FILE_BYTES_MAX, 1).unwrap_err();
        assert_eq!(large, "the file `model.onnx` is larger than 34359738368 bytes, the limit of a file");
        for number in 0..4 {
            received.total += FILE_BYTES_MAX;
            received.sizes.insert(number.to_string(), FILE_BYTES_MAX);
        }
        let much = received.add(folder.path(), "more", 0, 1).unwrap_err();
        assert_eq!(much, "its bytes exceed the limit of 137438953472 with `more`");
        received = ReceivedFiles::default();
        received.sizes.extend((0..FILES_MAX).map(|number| (number.to_string(), 0)));
        let many = received.add(folder.path(), "more", 0, 0).unwrap_err();
        assert_eq!(many, "its files exceed the limit of 100000 with `more`");
        assert!(has_no_space(FREE_BYTES_MIN, 1) && !has_no_space(FREE_BYTES_MIN + 1, 1) && !has_no_space(0, 1));
    }
}
