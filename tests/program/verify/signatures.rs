//! Keys, signatures, and whose count.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::runs;
use crate::support::{program, results};

/// Runs a command in a folder and returns its exit code and both outputs.
fn flagperf(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = program::flagperf(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + text(&output.stderr).as_str())
}

/// Creates a key and returns its file and its public key.
fn new_key(folder: &Path, name: &str) -> (String, String) {
    let file = folder.join(name).display().to_string();
    let (code, text) = flagperf(folder, &["key", "new", &file, "--name", name]);
    assert_eq!(code, Some(0), "{text}");
    (file, text.lines().next().unwrap().to_owned() + "\n")
}

#[test]
fn a_signature_counts_if_its_key_is_that_of_the_vendor_of_a_maintainer_or_given() {
    let (keys, checkout) = (tempfile::tempdir().unwrap(), results::checkout());
    let copy = results::copy(&runs().first.0);
    let result = copy.path().to_str().unwrap();
    let (key, public) = new_key(keys.path(), "lab");
    let (code, text) = flagperf(checkout.path(), &["sign", result, "--key", &key]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&runs().first.1), "{text}");

    let verified = || flagperf(checkout.path(), &["verify", result]);
    let (code, text) = verified();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("consistent  ")
            && text.contains("the signature: its key is neither in the repository nor given with --key: "),
        "{text}"
    );
    for (folder, counts) in [("vendors/nvidia/keys", false), ("vendors/cpu/keys", true), ("configs/keys", true)] {
        let folder = checkout.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("lab.pub"), &public).unwrap();
        let (_, text) = verified();
        assert_eq!(text.starts_with("authentic  ") && text.contains("the key `lab`"), counts, "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
    let file = keys.path().join("lab.pub");
    fs::write(&file, &public).unwrap();
    let (_, text) = flagperf(checkout.path(), &["verify", result, "--key", file.to_str().unwrap()]);
    assert!(text.starts_with("authentic  "), "{text}");
    assert_eq!(flagperf(checkout.path(), &["key", "show", &key]), (Some(0), public));
}

#[test]
fn every_changed_byte_of_a_signature_is_found() {
    let (keys, copy) = (tempfile::tempdir().unwrap(), results::copy(&runs().first.0));
    let (key, _) = new_key(keys.path(), "lab");
    let result = copy.path().to_str().unwrap();
    assert_eq!(flagperf(keys.path(), &["sign", result, "--key", &key]).0, Some(0));
    let path = copy.path().join("manifest.sig");
    let original = fs::read(&path).unwrap();
    for at in 0..original.len() {
        let mut changed = original.clone();
        changed[at] ^= 1;
        fs::write(&path, changed).unwrap();
        assert_eq!(super::verified(copy.path()).standing, flagperf_verify::Standing::Wrong, "byte {at}");
    }
}

#[test]
fn a_wrong_result_is_not_signed_and_an_exposed_key_does_not_sign() {
    let (keys, copy) = (tempfile::tempdir().unwrap(), results::copy(&runs().first.0));
    let (key, _) = new_key(keys.path(), "lab");
    let result = copy.path().to_str().unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, text) = flagperf(keys.path(), &["sign", result, "--key", &key]);
    assert!(code == Some(2) && text.contains("others may read the private key"), "{text}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(copy.path().join("notes.txt"), "x").unwrap();
    let (code, text) = flagperf(keys.path(), &["sign", result, "--key", &key]);
    assert!(code == Some(2) && text.contains("it is WRONG; `flagperf verify` shows why"), "{text}");
}

#[test]
fn a_private_key_is_not_created_in_a_checkout_and_never_replaced() {
    let (keys, checkout) = (tempfile::tempdir().unwrap(), results::checkout());
    let (code, text) = flagperf(checkout.path(), &["key", "new", "configs/key", "--name", "lab"]);
    assert!(code == Some(2) && text.contains("where a private key does not belong"), "{text}");
    assert!(!checkout.path().join("configs/key").exists());
    let (key, _) = new_key(keys.path(), "lab");
    let before = fs::read(&key).unwrap();
    let (_, public) = flagperf(keys.path(), &["key", "show", &key]);
    assert_eq!(fs::read_to_string(format!("{key}.pub")).unwrap(), public);
    assert_eq!(flagperf(keys.path(), &["key", "new", &key, "--name", "lab"]).0, Some(2));
    assert_eq!(fs::read(&key).unwrap(), before);
}
