//! Text of a sidecar's made fit for messages and records: no control characters, and an end.
//!
//! Knows no message.

use crate::text::{cut, lines, one_line};

/// `text` with its lines; about `limit` bytes of it.
pub(super) fn printable(text: &str, limit: usize) -> String {
    cut(&lines(text), limit).into_owned()
}

/// [`printable`] in one line.
pub(super) fn printable_line(text: &str, limit: usize) -> String {
    cut(&one_line(text), limit).into_owned()
}
