//! Reads files with tokens, keys and certificates.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flagperf_core::regular_file::open_regular;

/// The most bytes of a file of tokens, a key or a certificate.
const BYTES_MAX: u64 = 1 << 20;

/// A file of secrets that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{path}`: {reason}")]
pub struct SecretError {
    path: String,
    reason: String,
}

impl SecretError {
    /// Creates an error about a file.
    pub fn new(path: &Path, reason: impl Into<String>) -> Self {
        SecretError { path: path.display().to_string(), reason: reason.into() }
    }
}

/// Reads a file; `is_secret` says that others must not be able to.
///
/// # Errors
/// When it cannot be read, is too large, or others can read it although it is secret.
pub fn read_secret(path: &Path, is_secret: bool) -> Result<Vec<u8>, SecretError> {
    let failed = |error: io::Error| SecretError::new(path, error.to_string());
    let mut file = open_regular(path).map_err(failed)?;
    let mode =
        file.metadata().as_ref().map(Metadata::mode).map_err(|error| SecretError::new(path, error.to_string()))?;
    if is_secret && mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(SecretError::new(path, format!("others may read it (mode {mode:03o}): `chmod 600` it")));
    }
    let mut bytes = Vec::new();
    io::Read::by_ref(&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(SecretError::new(path, format!("it is larger than {BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
