//! SHA-256 as hexadecimal text, the only form in which records contain hashes.
//!
//! Knows nothing about the hashed content.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

use flagperf_onnx::open_regular;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 of `bytes` in hexadecimal.
pub fn hash_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns the SHA-256 of a regular file's content in hexadecimal.
///
/// # Errors
/// Fails when the file is not a regular file or cannot be read.
pub fn hash_file(path: &Path) -> io::Result<String> {
    hash_reader(open_regular(path)?)
}

/// Returns the SHA-256 of the rest of `file` in hexadecimal, reading 1 MiB at a time.
///
/// # Errors
/// Fails when `file` cannot be read.
pub fn hash_reader(mut file: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// Returns a digest as hexadecimal text.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(2 * digest.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_the_same_hash() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rhai"), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash_bytes(b"abc"), known);
        assert_eq!(hash_file(&folder.path().join("a.rhai")).unwrap(), known);
    }
}
