//! Hashes: SHA-256 as hexadecimal text, as records contain it, and the digest of a step's outputs; and seeds.
//!
//! Knows nothing about the hashed content.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::path::Path;

use crate::regular_file::open_regular;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Returns the SHA-256 of the rest of `file` in hexadecimal, reading 1 MiB at a time.
///
/// # Errors
/// Fails when `file` cannot be read.
pub fn hash_reader(mut file: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// The SHA-256 of what was written to a file so far, so that the file can be compared with it later.
#[derive(Clone, Debug, Default)]
pub struct WrittenHash(Sha256);

impl WrittenHash {
    /// Adds what is appended to the file.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash, hexadecimal.
    pub fn hexadecimal(&self) -> String {
        hexadecimal(&self.0.clone().finalize())
    }

    /// Checks that the file contains exactly what was written to it.
    ///
    /// # Errors
    /// When it contains something else, or cannot be read; the error names it.
    pub fn check(&self, path: &Path) -> io::Result<()> {
        if hash_file(path)? == self.hexadecimal() {
            return Ok(());
        }
        Err(changed_error(path))
    }
}

/// Returns the error for a file that another program changed.
pub fn changed_error(path: &Path) -> io::Error {
    io::Error::other(format!("another program changed the file `{}`", path.display()))
}

/// Returns a digest as hexadecimal text.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(2 * digest.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Number of bytes from which several threads hash faster than one.
const PARALLEL_BYTES_MIN: usize = 256 << 10;

/// The first 16 bytes of a BLAKE3 hash, which is several times as fast as SHA-256; 32 hexadecimal digits as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputDigest([u8; 16]);

impl OutputDigest {
    /// Returns the digest of `parts` one after the other, each preceded by its length.
    pub fn of<'p>(parts: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            match part.len() {
                ..PARALLEL_BYTES_MIN => hasher.update(part),
                _ => hasher.update_rayon(part),
            };
        }
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        OutputDigest(digest)
    }
}

/// The seed of random choices that nobody may know before a run. As text, 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Draws a seed from the operating system.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Seed(bytes))
    }

    /// Returns an independent seed for a purpose: the SHA-256 of this seed, the purpose and the number.
    #[must_use]
    pub fn derive(&self, purpose: &str, number: u64) -> Self {
        let hasher = Sha256::new().chain_update(self.0).chain_update(number.to_le_bytes()).chain_update(purpose);
        Seed(hasher.finalize().into())
    }

    /// Returns the seed of a repetition of a training, from 0, in a run with this seed: below 2^63, as a script needs it.
    pub fn of_training(&self, round: u32) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.derive("training", round.into()).0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 1
    }

    /// Combines the content of a file, in place, with bytes that follow from this seed, so that nobody can read it without the seed.
    /// A second time restores the content.
    ///
    /// # Errors
    /// When it is not a regular file, or cannot be read or written.
    pub fn mask_file(&self, path: &Path) -> io::Result<()> {
        let mut source = open_regular(path)?;
        let mut target = OpenOptions::new().write(true).open(path)?;
        let mut stream = blake3::Hasher::new_keyed(&self.derive("mask", 0).0).finalize_xof();
        let (mut piece, mut mask) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        loop {
            match source.read(&mut piece)? {
                0 => return target.sync_data(),
                count => {
                    stream.fill(&mut mask[..count]);
                    piece.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte ^= mask);
                    target.write_all(&piece[..count])?;
                }
            }
        }
    }

    /// Returns the SHA-256 of the seed in hexadecimal.
    pub fn sha256(&self) -> String {
        hash_bytes(&self.0)
    }

    /// Returns the 32 bytes of the seed.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for Seed {
    fn from(bytes: [u8; 32]) -> Self {
        Seed(bytes)
    }
}

impl Serialize for Seed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hexadecimal(&self.0))
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_hexadecimal(&text).map(Seed).ok_or_else(|| D::Error::custom("not 64 hexadecimal digits"))
    }
}

impl Serialize for OutputDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hexadecimal(&self.0))
    }
}

impl<'de> Deserialize<'de> for OutputDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = from_hexadecimal(&text).ok_or_else(|| D::Error::custom("not 32 hexadecimal digits"))?;
        Ok(OutputDigest(bytes))
    }
}

/// Returns the bytes of `2 * N` lower-case hexadecimal digits; `None` for any other text.
pub fn from_hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = 16 * value(pair[0])? + value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_file_is_as_large_and_is_restored_by_the_same_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let content = vec![7u8; PIECE_BYTES + 3];
        std::fs::write(&path, &content).unwrap();
        let seed = Seed::from([1; 32]);
        seed.mask_file(&path).unwrap();
        let masked = std::fs::read(&path).unwrap();
        assert!(
            masked.len() == content.len() && masked.iter().filter(|byte| **byte == 7).count() < content.len() / 100
        );
        seed.mask_file(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }

    #[test]
    fn a_file_and_its_bytes_have_the_same_hash() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rhai"), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash_bytes(b"abc"), known);
        assert_eq!(hash_file(&folder.path().join("a.rhai")).unwrap(), known);
    }

    #[test]
    fn the_digest_depends_on_every_byte_and_on_the_borders_between_parts() {
        let digest = |parts: &[&[u8]]| OutputDigest::of(parts.iter().copied());
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[&[0; 1000]]), digest(&[&[&[0; 999][..], &[1]].concat()]));
        let text = serde_json::to_string(&digest(&[b"abc"])).unwrap();
        assert_eq!(serde_json::from_str::<OutputDigest>(&text).unwrap(), digest(&[b"abc"]));
        for wrong in ["\"\"", "\"+1\"", "\"zz345678901234567890123456789012\""] {
            serde_json::from_str::<OutputDigest>(wrong).unwrap_err();
        }
    }
}
