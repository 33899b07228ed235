//! Tests of the comparison of files with a description: every state of an item, and paths that lead elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{CheckedItem, check_items, matches_pattern};
use crate::DataRoot;
use flagperf_config::{DatasetDescription, DatasetFile, DatasetFolder};
use flagperf_core::hash::hash_bytes;

fn description(files: Vec<DatasetFile>, folders: Vec<DatasetFolder>) -> DatasetDescription {
    let text = || "text".to_owned();
    DatasetDescription {
        name: text(),
        about: text(),
        source: text(),
        licence: text(),
        generator: None,
        fetch: None,
        samples: None,
        layout: [].into(),
        files,
        folders,
    }
}

fn file(path: &str, bytes: Option<u64>, sha256: Option<String>) -> DatasetFile {
    DatasetFile { path: path.to_owned(), bytes, sha256, required: true }
}

fn folder(glob: &str, count: u64, index_sha256: Option<String>) -> DatasetFolder {
    DatasetFolder { glob: glob.to_owned(), count, index_sha256, required: true }
}

fn check(root: &Path, files: Vec<DatasetFile>, folders: Vec<DatasetFolder>) -> Vec<CheckedItem> {
    let root = DataRoot::open(root).unwrap();
    check_items(&root, &description(files, folders)).collect()
}

fn line(item: &CheckedItem) -> String {
    format!("{}: {}", item.label(), item.state)
}

#[test]
fn each_state_of_a_file_is_told_apart() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.bin"), "abc").unwrap();
    fs::create_dir(root.path().join("b")).unwrap();
    nix::unistd::mkfifo(&root.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/etc/hostname", root.path().join("out")).unwrap();
    symlink("a.bin", root.path().join("in")).unwrap();
    symlink("loop", root.path().join("loop")).unwrap();
    let hash = hash_bytes(b"abc");
    let states = check(
        root.path(),
        vec![
            file("a.bin", Some(3), Some(hash.clone())),
            file("in", None, Some(hash.clone())),
            file("a.bin", Some(4), None),
            file("a.bin", None, Some("0".repeat(64))),
            file("c.bin", None, None),
            file("a.bin/x", None, None),
            file("b", None, None),
            file("fifo", None, Some(hash.clone())),
            file("out", None, None),
            file("loop", None, None),
            DatasetFile { required: false, ..file("d.bin", None, None) },
        ],
        Vec::new(),
    );
    let lines: Vec<String> = states.iter().map(line).collect();
    let outside = format!(
        "unusable: `out` is outside the data directory `{}`: a symbolic link",
        root.path().canonicalize().unwrap().display()
    );
    assert_eq!(
        lines[..9],
        [
            "ok: 3 bytes",
            "ok: 3 bytes",
            "wrong size: 3 bytes, expected 4",
            &format!("wrong checksum: SHA-256 {hash}, expected {}", "0".repeat(64)),
            "missing: not found",
            "missing: not found",
            "unusable: is a folder, not a regular file",
            "unusable: is a FIFO, not a regular file",
            &outside,
        ]
    );
    assert!(lines[9].starts_with("unusable: cannot read `loop`: "), "{}", lines[9]);
    assert_eq!(lines[10], "optional: not found");
    let acceptable: Vec<bool> = states.iter().map(CheckedItem::is_acceptable).collect();
    assert_eq!(acceptable, [true, true, false, false, false, false, false, false, false, false, true]);
}

#[test]
fn a_group_of_files_is_recognised_by_its_number_and_its_index() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in
        [("x/b/1.jpg", "1"), ("x/a/2.jpg", "22"), ("x/a/.hidden.jpg", ""), ("x/a/note.txt", ""), ("x/3.jpg", "")]
    {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let index = hash_bytes(b"x/a/2.jpg\x002\nx/b/1.jpg\x001\n");
    let folders = vec![
        folder("x/*/*.jpg", 2, Some(index.clone())),
        folder("x/*/*.jpg", 3, None),
        folder("x/*/*.jpg", 2, Some("0".repeat(64))),
        folder("*.jpg", 2, None),
        folder("y/*.jpg", 2, None),
        folder("x/*", 3, None),
    ];
    let states = check(root.path(), Vec::new(), folders);
    let lines: Vec<String> = states.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "ok: 2 files, 3 bytes",
            "wrong number: 2 files, expected 3",
            &format!("wrong checksum: SHA-256 {index}, expected {}", "0".repeat(64)),
            "missing: not found",
            "missing: not found",
            "unusable: `x/a` is not a regular file",
        ]
        .map(|line| line.to_owned())
    );
}

#[test]
fn a_group_with_a_pipe_or_a_link_that_leads_outside_is_unusable() {
    let root = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&root.path().join("a.jpg"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let found = check(root.path(), Vec::new(), vec![folder("*.jpg", 1, None)]);
    assert_eq!(line(&found[0]), "unusable: `a.jpg` is not a regular file");
    fs::remove_file(root.path().join("a.jpg")).unwrap();
    symlink("/etc", root.path().join("b")).unwrap();
    let found = check(root.path(), Vec::new(), vec![folder("*/hostname", 1, None)]);
    assert!(line(&found[0]).contains("`b` is outside the data directory"), "{}", line(&found[0]));
}

#[test]
fn a_star_stands_for_any_text_except_a_leading_dot() {
    for (name, pattern, expected) in [
        ("a.jpg", "*.jpg", true),
        (".a.jpg", "*.jpg", false),
        (".a.jpg", ".*.jpg", true),
        ("a.jpeg", "*.jpg", false),
        ("n012_7.JPEG", "n*_*.JPEG", true),
        ("n012.JPEG", "n*_*.JPEG", false),
        ("aba", "a*a", true),
        ("a", "a*a", false),
        ("abc", "abc", true),
        ("abcd", "abc", false),
        ("", "*", true),
        ("é.txt", "*", true),
    ] {
        assert_eq!(matches_pattern(name, pattern), expected, "{name} {pattern}");
    }
}
