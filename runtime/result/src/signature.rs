//! Keys and signatures of results: Ed25519 over the digest of a manifest.
//!
//! A public key is a file of one line, `flagperf-public-key ed25519 HEX NAME`, to be committed to a repository. A
//! private key is a file of one line that only its owner may read.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use flagperf_core::regular_file::{open_regular, read_regular_text};

use flagperf_core::hash::{Seed, from_hexadecimal, hexadecimal};

/// Largest file of a key or a signature in bytes.
const BYTES_MAX: u64 = 4096;
/// What the signed text begins with, so that a signature never counts for another purpose.
const PURPOSE: &str = "flagperf result manifest, version 1";
const PUBLIC: &str = "flagperf-public-key";
const PRIVATE: &str = "flagperf-private-key";
const SIGNATURE: &str = "flagperf-signature";
const ALGORITHM: &str = "ed25519";
/// Longest name of a key in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Why a key or a signature cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The file cannot be read or written.
    #[error("`{path}`: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others may read the private key.
    #[error("others may read the private key `{path}` (mode {mode:o}); `chmod 600` makes it private")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not contain what is expected.
    #[error("`{path}` is not {expected}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// The name of a key is empty, too long or contains blanks.
    #[error(
        "`{name}` cannot be the name of a key: it needs 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_`, `.` or `@`"
    )]
    Name { name: String },
}

/// A public key with the name of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    /// Name of the owner, such as `lab@example.org`.
    pub name: String,
}

impl PublicKey {
    /// Reads a public key.
    ///
    /// # Errors
    /// When the file cannot be read or is not a public key.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let text = read_text(path)?;
        Self::parse(&text).ok_or(KeyFault::Format { path: path.to_owned(), expected: "a public key of flagperf" })
    }

    fn parse(text: &str) -> Option<Self> {
        let [_, bytes, name] = words(text, PUBLIC)?;
        Some(PublicKey { key: VerifyingKey::from_bytes(&from_hexadecimal(bytes)?).ok()?, name: check_name(name).ok()? })
    }

    /// Returns the line of the key's file.
    pub fn to_text(&self) -> String {
        format!("{PUBLIC} {ALGORITHM} {} {}\n", hexadecimal(self.key.as_bytes()), self.name)
    }

    /// Returns whether this key signed the digest.
    pub fn verifies(&self, digest: &str, signature: &ResultSignature) -> bool {
        // Strict: exactly one signature is valid for a message and a key, and keys of small order are refused.
        signature.key == hexadecimal(self.key.as_bytes())
            && self.key.verify_strict(message(digest).as_bytes(), &signature.signature).is_ok()
    }
}

/// A private key with the name of its owner.
pub struct PrivateKey {
    key: SigningKey,
    name: String,
}

impl PrivateKey {
    /// Creates a key from the system's random numbers.
    ///
    /// # Errors
    /// When the system gives no random numbers, or the name cannot be one.
    pub fn generate(name: &str) -> Result<Self, KeyFault> {
        let name = check_name(name)?;
        let failed = |source| KeyFault::File { path: "the system's random numbers".into(), source };
        let seed = Seed::draw().map_err(failed)?.bytes();
        Ok(PrivateKey { key: SigningKey::from_bytes(&seed), name })
    }

    /// Writes the key to a new file that only the user may read.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyFault> {
        let failed = |source| KeyFault::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let text = format!("{PRIVATE} {ALGORITHM} {} {}\n", hexadecimal(self.key.as_bytes()), self.name);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// When the file cannot be read, others may read it, or it is not a private key.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let failed = |source| KeyFault::File { path: path.to_owned(), source };
        let mut file = open_regular(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        let mut text = Vec::new();
        io::Read::by_ref(&mut file).take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let key = Self::parse(&String::from_utf8_lossy(&text));
        if key.is_some() && mode & 0o077 != 0 {
            return Err(KeyFault::Exposed { path: path.to_owned(), mode });
        }
        key.ok_or(KeyFault::Format { path: path.to_owned(), expected: "a private key of flagperf" })
    }

    fn parse(text: &str) -> Option<Self> {
        let [_, bytes, name] = words(text, PRIVATE)?;
        Some(PrivateKey { key: SigningKey::from_bytes(&from_hexadecimal(bytes)?), name: check_name(name).ok()? })
    }

    /// Returns the public key that belongs to this one.
    pub fn public(&self) -> PublicKey {
        PublicKey { key: self.key.verifying_key(), name: self.name.clone() }
    }

    /// Signs a digest.
    pub fn sign(&self, digest: &str) -> ResultSignature {
        let key = hexadecimal(self.key.verifying_key().as_bytes());
        ResultSignature { key, signature: self.key.sign(message(digest).as_bytes()) }
    }
}

/// A signature beside a manifest: one line, `flagperf-signature ed25519 KEY SIGNATURE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultSignature {
    /// The public key in hexadecimal.
    pub key: String,
    signature: Signature,
}

impl ResultSignature {
    /// Returns the line of the signature's file.
    pub fn to_text(&self) -> String {
        format!("{SIGNATURE} {ALGORITHM} {} {}\n", self.key, hexadecimal(&self.signature.to_bytes()))
    }

    /// Returns whether the key that the signature names signed the digest. This says nothing about whose key it is.
    pub fn is_valid(&self, digest: &str) -> bool {
        let key = from_hexadecimal(&self.key).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        key.is_some_and(|key| key.verify_strict(message(digest).as_bytes(), &self.signature).is_ok())
    }

    /// Reads a signature, which must be exactly as [`ResultSignature::to_text`] returns it.
    ///
    /// # Errors
    /// When the file cannot be read or is not a signature.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let text = read_text(path)?;
        let parsed = Self::parse(&text).filter(|signature| signature.to_text() == text);
        parsed.ok_or(KeyFault::Format { path: path.to_owned(), expected: "a signature of flagperf" })
    }

    fn parse(text: &str) -> Option<Self> {
        let [_, key, signature] = words(text, SIGNATURE)?;
        from_hexadecimal::<32>(key)?;
        Some(ResultSignature { key: key.to_owned(), signature: Signature::from_bytes(&from_hexadecimal(signature)?) })
    }
}

fn message(digest: &str) -> String {
    format!("{PURPOSE}\n{digest}\n")
}

fn read_text(path: &Path) -> Result<String, KeyFault> {
    read_regular_text(path, BYTES_MAX).map_err(|source| KeyFault::File { path: path.to_owned(), source })
}

/// Returns the words after the first, which must be `kind`; the second must be the algorithm.
fn words<'t>(text: &'t str, kind: &str) -> Option<[&'t str; 3]> {
    let mut words = text.split_whitespace();
    let is_kind = words.next() == Some(kind);
    let rest: [&str; 3] = words.collect::<Vec<_>>().try_into().ok()?;
    (is_kind && rest[0] == ALGORITHM).then_some(rest)
}

fn check_name(name: &str) -> Result<String, KeyFault> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_letter);
    if is_name { Ok(name.to_owned()) } else { Err(KeyFault::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DIGEST: &str = "sha256:ab";

    #[test]
    fn a_signature_counts_for_its_digest_and_its_key_only() {
        let (key, other) = (PrivateKey::generate("a").unwrap(), PrivateKey::generate("b").unwrap());
        let signature = key.sign(DIGEST);
        assert!(key.public().verifies(DIGEST, &signature));
        assert!(!key.public().verifies("sha256:ac", &signature));
        assert!(!other.public().verifies(DIGEST, &signature));
        let claimed = ResultSignature { key: hexadecimal(other.key.verifying_key().as_bytes()), ..signature };
        assert!(!other.public().verifies(DIGEST, &claimed), "the signature of one key with the name of another");
    }

    #[test]
    fn keys_and_signatures_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let [private, public, signature] = ["key", "key.pub", "sig"].map(|name| folder.path().join(name));
        let key = PrivateKey::generate("lab@example.org").unwrap();
        key.write_new(&private).unwrap();
        fs::write(&public, key.public().to_text()).unwrap();
        fs::write(&signature, key.sign(DIGEST).to_text()).unwrap();
        assert_eq!(PrivateKey::read(&private).unwrap().public(), key.public());
        assert_eq!(PublicKey::read(&public).unwrap(), key.public());
        assert_eq!(ResultSignature::read(&signature).unwrap(), key.sign(DIGEST));
        assert!(key.write_new(&private).is_err(), "a key is never overwritten");
    }

    #[test]
    fn a_private_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        PrivateKey::generate("a").unwrap().write_new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateKey::read(&path).err().unwrap().to_string();
            assert!(error.starts_with("others may read the private key `"), "{error}");
        }
        let other = folder.path().join("README.md");
        fs::write(&other, "# Keys\n").unwrap();
        let error = PrivateKey::read(&other).err().unwrap().to_string();
        assert!(error.ends_with("README.md` is not a private key of flagperf"), "{error}");
    }

    #[test]
    fn every_changed_byte_of_a_signature_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sig");
        let key = PrivateKey::generate("a").unwrap();
        let text = key.sign(DIGEST).to_text().into_bytes();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            let read = ResultSignature::read(&path);
            assert!(read.is_err() || !read.unwrap().is_valid(DIGEST), "byte {at}");
        }
    }

    #[test]
    fn a_file_that_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pub");
        let key = PrivateKey::generate("a").unwrap().public().to_text();
        for text in ["", "x", &key.replace("ed25519", "rsa"), &key.replace(" a\n", "\n"), &key[..60], &"x".repeat(5000)]
        {
            fs::write(&path, text).unwrap();
            assert!(PublicKey::read(&path).is_err(), "{text}");
        }
        assert!(PublicKey::read(Path::new("/dev/zero")).is_err());
        for name in ["", "a b", "a\x1b[2J", &"x".repeat(101)] {
            assert!(PrivateKey::generate(name).is_err(), "{name}");
        }
    }
}
