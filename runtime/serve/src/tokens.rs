//! The tokens that clients must send.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::api_error::{ApiError, ErrorKind};
use super::secret_file::{SecretError, read_secret};

/// The fewest bytes of a token: shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// The tokens of a server: their hashes, which have equal lengths.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Vec<[u8; 32]>>);

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Tokens {
    /// Reads tokens, one a line.
    ///
    /// # Errors
    /// When others may read the file, it has no token, or one is short or has other characters than a header may have.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let bytes = read_secret(path, true)?;
        let text = str::from_utf8(&bytes).map_err(|_| SecretError::new(path, "it is not text"))?;
        let mut hashes = Vec::new();
        for (line, token) in (1..).zip(text.lines().map(str::trim)).filter(|(_, token)| !token.is_empty()) {
            if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let reason = format!(
                    "line {line}: a token has {TOKEN_BYTES_MIN} or more letters, digits and signs without spaces"
                );
                return Err(SecretError::new(path, reason));
            }
            hashes.push(hash(token.as_bytes()));
        }
        if hashes.is_empty() {
            return Err(SecretError::new(path, "it has no token: write one a line"));
        }
        Ok(Tokens(Arc::new(hashes)))
    }

    /// Checks that a request has a token of the server.
    ///
    /// # Errors
    /// When it has none, or another.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let failed = |message| Err(ApiError::new(ErrorKind::NoToken, message));
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            return failed("this server asks for a token: send the header `Authorization: Bearer TOKEN`");
        };
        let given = header.as_bytes();
        let token = match given.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
            _ => return failed("the header `authorization` is not of the form `Bearer TOKEN`"),
        };
        let given = hash(token.trim_ascii());
        // Every token is compared, so that the time does not tell which one is alike.
        let is_known = self.0.iter().fold(subtle::Choice::from(0), |found, known| found | known[..].ct_eq(&given[..]));
        if bool::from(is_known) { Ok(()) } else { failed("the token is unknown to this server") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn each_line_is_a_token_and_nothing_else_is() {
        let file = file("0123456789abcdef\n\n  fedcba9876543210  \n", 0o600);
        let tokens = Tokens::read(file.path()).unwrap();
        for value in ["Bearer 0123456789abcdef", "bearer fedcba9876543210"] {
            assert_eq!(tokens.check(&headers(value)), Ok(()));
        }
        for value in ["Bearer 0123456789abcde", "Basic 0123456789abcdef", "Bearer"] {
            assert_eq!(tokens.check(&headers(value)).unwrap_err().kind, ErrorKind::NoToken, "{value}");
        }
        assert_eq!(tokens.check(&HeaderMap::new()).unwrap_err().kind, ErrorKind::NoToken);
    }

    #[test]
    fn a_file_that_others_may_read_or_without_a_good_token_is_refused() {
        for (text, mode, expected) in [
            ("0123456789abcdef", 0o640, "others may read it (mode 640): `chmod 600` it"),
            ("\n\n", 0o600, "it has no token"),
            ("0123456789abcdef\nshort", 0o600, "line 2: a token has 16 or more"),
            ("0123456789 abcdef", 0o600, "line 1: a token has 16 or more"),
        ] {
            let file = file(text, mode);
            let error = Tokens::read(file.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
