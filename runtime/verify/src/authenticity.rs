//! Who vouches for a result: a signature by a known key, or a digest that the reader has from elsewhere.
//!
//! Whoever can write the files of a result can halve every time, write the chain and the manifest again, and have this
//! program compute the figures. Such a result is only `consistent`. It is `authentic` if it matches the digest that the
//! run printed and that was kept elsewhere, or a signature over the digest. A signature binds the owner of a key to the
//! result; it does not prove that the machine was honest.

use std::path::Path;

use super::{CaseReport, Standing};
use flagperf_core::run_files::{MANIFEST_FILE, SIGNATURE_FILE};
use flagperf_result::{DIGEST_PREFIX, PublicKey, ResultSignature};

/// A public key that the reader trusts.
#[derive(Clone, Debug)]
pub struct KnownKey {
    pub key: PublicKey,
    /// The vendor for whose results the key counts; `None` for all results.
    pub vendor: Option<String>,
}

/// What a reader trusts.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Digests, each `sha256:` and hexadecimal digits. If there are any, a result must have one of them.
    pub digests: Vec<String>,
    /// Public keys.
    pub keys: Vec<KnownKey>,
}

/// Checks digest and signature of a result of `vendor`. A result that is otherwise consistent becomes authentic if a digest
/// or a known key vouches for it.
pub(super) fn check_authenticity(folder: &Path, vendor: Option<&str>, trust: &Trust, report: &mut CaseReport) {
    let Some(digest) = report.digest.clone() else { return };
    let mut proof = None;
    if trust.digests.iter().any(|known| normalised(known) == digest) {
        proof = Some("the digest given with --digest".to_owned());
    } else if !trust.digests.is_empty() {
        report.add(
            MANIFEST_FILE,
            "the digest differs from the one given with --digest",
            Some(trust.digests.join(" or ")),
            Some(digest.clone()),
        );
    }
    if let Some(name) = signer(folder, vendor, &digest, trust, report) {
        proof = Some(format!("the signature with the key `{name}`"));
    }
    if report.standing == Standing::Consistent && proof.is_some() {
        report.standing = Standing::Authentic;
    }
    report.proof = proof.filter(|_| report.standing == Standing::Authentic);
}

/// Returns the name of the known key that signed the digest. A signature that is not valid is a finding.
fn signer(folder: &Path, vendor: Option<&str>, digest: &str, trust: &Trust, report: &mut CaseReport) -> Option<String> {
    let path = folder.join(SIGNATURE_FILE);
    std::fs::symlink_metadata(&path).ok()?;
    let signature = match ResultSignature::read(&path) {
        Ok(signature) => signature,
        Err(error) => {
            report.add(SIGNATURE_FILE, error.to_string(), None, None);
            return None;
        }
    };
    if !signature.is_valid(digest) {
        report.add(SIGNATURE_FILE, "the signature does not match this manifest", None, None);
        return None;
    }
    let counts = |known: &&KnownKey| known.vendor.as_deref().is_none_or(|owner| Some(owner) == vendor);
    let known = trust.keys.iter().filter(counts).find(|known| known.key.verifies(digest, &signature));
    if known.is_none() {
        report.unchecked.push(format!(
            "the signature: its key is neither in the repository nor given with --key: {}",
            signature.key
        ));
    }
    known.map(|known| known.key.name.clone())
}

/// Returns whether a text is a digest: 64 hexadecimal digits, with or without `sha256:`.
pub fn is_digest(text: &str) -> bool {
    let text = normalised(text);
    let digits = text.strip_prefix(DIGEST_PREFIX).unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns a digest as this program writes it.
fn normalised(digest: &str) -> String {
    let digits = digest.trim().to_ascii_lowercase();
    format!("{DIGEST_PREFIX}{}", digits.strip_prefix(DIGEST_PREFIX).unwrap_or(&digits))
}
