//! Makes the text of a sidecar or a server safe for messages and records: control characters are escaped and the length is limited.

use flagperf_core::text::{escape_lines, one_line, truncate};

/// Bytes that are kept of a name.
pub(crate) const NAME_BYTES_MAX: usize = 200;

/// Returns about the first `limit` bytes of `text`, with its line breaks.
pub(crate) fn printable(text: &str, limit: usize) -> String {
    truncate(&escape_lines(text), limit).into_owned()
}

/// Returns about the first `limit` bytes of `text`, in one line.
pub(crate) fn printable_line(text: &str, limit: usize) -> String {
    truncate(&one_line(text), limit).into_owned()
}
