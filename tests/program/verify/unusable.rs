//! Results that are damaged, hostile, or of another version.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use flagperf_verify::{Standing, find_results};
use serde_json::json;

use super::{findings, runs, verified};
use crate::support::{program, results};

/// Verifies a copy of a result after a change.
fn after(change: impl FnOnce(&Path)) -> (Standing, String) {
    let copy = results::copy(&runs().first.0);
    change(copy.path());
    let report = verified(copy.path());
    let text = [findings(&report), report.unchecked].concat().join("\n");
    (report.standing, text.replace(&copy.path().display().to_string(), "[RESULT]"))
}

#[test]
fn links_and_special_files_are_refused() {
    let (standing, text) = after(|result| {
        fs::remove_file(result.join("samples.infer.csv")).unwrap();
        symlink("/etc/passwd", result.join("samples.infer.csv")).unwrap();
    });
    assert_eq!(standing, Standing::Wrong);
    assert!(text.contains("`[RESULT]/samples.infer.csv` is a link: a result contains only regular files"), "{text}");
    for name in ["record.json", "events.jsonl", "manifest.json", "container.out.log", "sources/x"] {
        let (standing, text) = after(|result| {
            let _ = fs::remove_file(result.join(name));
            nix_fifo(&result.join(name));
        });
        assert!(standing >= Standing::Wrong, "{name}: {text}");
    }
    let (standing, text) = after(|result| symlink("..", result.join("sources/up")).unwrap());
    assert!(standing == Standing::Wrong && text.contains("is a link"), "{text}");
}

fn nix_fifo(path: &Path) {
    let made = assert_cmd::Command::new("mkfifo").arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn damaged_and_hostile_files_are_named_and_never_read_without_a_limit() {
    let cases: [(&str, Vec<u8>); 7] = [
        ("record.json: it is not a record: EOF while parsing", b"{\"schema\": 7".to_vec()),
        ("record.json: it is not a record: recursion limit exceeded", deep_record()),
        ("record.json: it is not a record: ", b"[]".to_vec()),
        ("record.json: it is not a record: missing field `schema`", b"{}".to_vec()),
        ("schema 8 was written by a newer version of flagperf", b"{\"schema\": 8}".to_vec()),
        ("record.json: it is not a record: ", vec![0xff; 100]),
        ("record.json: it is not a record: missing field", b"{\"schema\": 7, \"run\": \"x\"}".to_vec()),
    ];
    for (expected, text) in cases {
        let (standing, found) = after(|result| fs::write(result.join("record.json"), text).unwrap());
        assert!(standing >= Standing::Wrong && found.contains(expected), "{expected}\n{found}");
    }
    let (standing, found) = after(|result| {
        fs::File::options().write(true).open(result.join("record.json")).unwrap().set_len(1 << 27).unwrap();
    });
    assert!(standing >= Standing::Wrong && found.contains("`record.json` cannot be read: "), "{found}");
    for (expected, change) in [
        (
            "events.jsonl: line 2 is not an event: it has no end or is too long",
            (|text| cut(&text, 2)) as fn(Vec<u8>) -> Vec<u8>,
        ),
        ("events.jsonl: line 1 is not an event: ", |_| b"\xff\xfe\n".to_vec()),
        ("events.jsonl: line 1 is not an event: it has no end or is too long", |_| vec![b'x'; 20 << 20]),
        ("events.jsonl: line 1 is not an event: ", |text| [b"[".repeat(1 << 16), b"\n".to_vec(), text].concat()),
    ] {
        let (standing, found) = after(|result| {
            let path = result.join("events.jsonl");
            let text = fs::read(&path).unwrap();
            fs::write(&path, change(text)).unwrap();
        });
        assert!(standing == Standing::Wrong && found.contains(expected), "{expected}\n{found}");
    }
}

/// Returns a record with a setting that is nested a hundred thousand levels deep.
fn deep_record() -> Vec<u8> {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    format!("{{\"schema\": 7, \"settings\": {{\"a\": {{\"value\": {open}{close}}}}}}}").into_bytes()
}

/// Returns the text up to the middle of a line.
fn cut(text: &[u8], line: usize) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let whole: usize = lines[..line - 1].iter().map(|line| line.len()).sum();
    text[..whole + lines[line - 1].len() / 2].to_vec()
}

#[test]
fn of_an_older_result_only_the_chain_is_checked() {
    let (standing, text) = after(|result| {
        results::change_record(result, |record| record["schema"] = json!(4));
    });
    assert_eq!(standing, Standing::NotVerifiable);
    assert!(text.contains("the hash chain of the events is intact; nothing else was checked"), "{text}");
    assert!(text.contains("schema 4 was written by an older version of flagperf"), "{text}");
    let (standing, _) = after(|result| {
        results::change_record(result, |record| {
            record["schema"] = json!(3);
            record["provenance"]["events_sha256"] = json!("ab");
        });
    });
    assert_eq!(standing, Standing::Wrong);
}

#[test]
fn without_a_manifest_or_events_a_result_is_not_verifiable() {
    let (standing, text) = after(|result| fs::remove_file(result.join("manifest.json")).unwrap());
    assert!(standing == Standing::NotVerifiable && text.starts_with("there is no `manifest.json`: "), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    fs::copy(runs().first.0.join("record.json"), &record).unwrap();
    fs::rename(&record, folder.path().join("other.json")).unwrap();
    let report = verified(&folder.path().join("other.json"));
    assert_eq!((report.standing, findings(&report)), (Standing::NotVerifiable, Vec::new()));
    assert!(report.unchecked[0].starts_with("this is only a record"), "{:?}", report.unchecked);
}

#[test]
fn a_path_without_a_result_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    assert!(find_results(folder.path()).unwrap_err().to_string().contains("it contains no result"));
    for path in ["/no/such/result", folder.path().to_str().unwrap(), "/dev/null"] {
        let output = program::flagperf(folder.path(), &["verify", path]);
        assert_eq!(output.status.code(), Some(2), "{path}: {output:?}");
    }
    let output = program::flagperf(folder.path(), &["verify", folder.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr).replace(&folder.path().display().to_string(), "[FOLDER]");
    insta::assert_snapshot!(text, @"error: cannot verify `[FOLDER]`: it contains no result: neither a `record.json` nor folders CASE/HOST that contain one");
}
