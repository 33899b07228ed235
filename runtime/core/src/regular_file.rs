//! Opens files whose paths come from outside flagperf. A FIFO, a device or a folder is refused before anything is read
//! from it, and text is read only up to a limit, so a wrong path can neither block the process nor fill its memory.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The byte order mark that some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// `O_NONBLOCK` on Linux: opening a FIFO does not wait for its writer. It has no effect on a regular file.
const NONBLOCK: i32 = 0o4000;

/// A path that leads to something else than a regular file; the cause of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("is {0}, not a regular file")]
pub struct NotRegular(&'static str);

/// Opens a regular file for reading, following links.
///
/// # Errors
/// When the file cannot be opened or is not a regular file; the cause is then [`NotRegular`], whose message names its actual kind.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening a device can have effects, and again after, because the path may have
    // changed.
    check_regular(fs::metadata(path)?.file_type())?;
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    check_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open_regular`]; also when the file is larger: the message then contains the limit.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    let too_large = || io::Error::other(format!("is larger than {bytes_max} bytes"));
    if size > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // Files in /proc report no size, and a file may grow while it is read.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large()) } else { Ok(bytes) }
}

/// Reads UTF-8 text of at most `bytes_max` bytes, and removes a byte order mark at its start.
///
/// # Errors
/// As [`read_regular`]; also when the text is not UTF-8: the message then contains the line number.
pub fn read_regular_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = read_regular(path, bytes_max)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("is not UTF-8 text (line {line})"))
    })
}

fn check_regular(kind: FileType) -> io::Result<()> {
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "a special file",
    };
    Err(io::Error::other(NotRegular(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_socket_device_or_folder_is_named_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let message = |path: &Path| open_regular(path).unwrap_err().to_string();
        assert_eq!(message(&socket), "is a socket, not a regular file");
        assert_eq!(message(Path::new("/dev/zero")), "is a device, not a regular file");
        assert_eq!(message(folder.path()), "is a folder, not a regular file");
    }

    #[test]
    fn a_file_beyond_the_limit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_regular(&path, 1 << 20).unwrap_err().to_string(), "is larger than 1048576 bytes");
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_regular(&path, 4).unwrap(), b"1234");
        assert!(read_regular(&path, 3).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_removed_and_other_encodings_are_refused_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, b"\xef\xbb\xbfa: 1\n").unwrap();
        assert_eq!(read_regular_text(&path, 100).unwrap(), "a: 1\n");
        fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        assert_eq!(read_regular_text(&path, 100).unwrap_err().to_string(), "is not UTF-8 text (line 2)");
    }
}
