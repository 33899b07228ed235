//! Frames of the protocol: a line of JSON, followed by the payload, whose length the line states.

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line of a frame in bytes. A list of the files of a checkout is the longest.
const LINE_BYTES_MAX: u64 = 32 << 20;
/// Largest payload of a frame in bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Head<M> {
    #[serde(default, skip_serializing_if = "is_zero")]
    payload: usize,
    message: M,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

/// Writes a frame and flushes it.
///
/// # Errors
/// When the output cannot be written.
pub(super) fn write_frame<M: Serialize>(output: &mut impl Write, message: &M, payload: &[u8]) -> io::Result<()> {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
    let mut line = serde_json::to_vec(&Head { message, payload: payload.len() })?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.write_all(payload)?;
    output.flush()
}

/// Reads a frame; `None` at the end of the input.
///
/// # Errors
/// When the input cannot be read, ends within a frame, or is not a frame.
pub(super) fn read_frame<M: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<(M, Vec<u8>)>> {
    let mut line = Vec::new();
    input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let head: Head<M> = serde_json::from_slice(&line).map_err(|error| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(200)]).trim_end().to_owned();
        // The position of a fault says nothing about text that is not JSON.
        let fault = if line.starts_with(b"{") { format!(": {error}") } else { String::new() };
        invalid(format!("`{shown}` is not a message of the agent protocol{fault}"))
    })?;
    if head.payload > PAYLOAD_BYTES_MAX {
        return Err(invalid(format!("a message has a payload of {} bytes (limit: {PAYLOAD_BYTES_MAX})", head.payload)));
    }
    let mut payload = vec![0; head.payload];
    input.read_exact(&mut payload)?;
    Ok(Some((head.message, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_and_others_are_refused() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &"one", b"two\nlines").unwrap();
        write_frame(&mut bytes, &"three", b"").unwrap();
        let mut input = &bytes[..];
        assert_eq!(read_frame::<String>(&mut input).unwrap(), Some(("one".to_owned(), b"two\nlines".to_vec())));
        assert_eq!(read_frame::<String>(&mut input).unwrap(), Some(("three".to_owned(), Vec::new())));
        assert_eq!(read_frame::<String>(&mut input).unwrap(), None);
        for (text, kind) in [
            ("hello\n", io::ErrorKind::InvalidData),
            ("{\"message\":\"a\",\"payload\":9999999}\n", io::ErrorKind::InvalidData),
            ("{\"message\":\"a\",\"payload\":3}\nab", io::ErrorKind::UnexpectedEof),
            ("{\"message\":\"a\"}", io::ErrorKind::UnexpectedEof),
        ] {
            assert_eq!(read_frame::<String>(&mut text.as_bytes()).unwrap_err().kind(), kind, "{text}");
        }
    }
}
