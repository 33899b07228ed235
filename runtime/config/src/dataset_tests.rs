//! Tests of dataset.yaml: what is refused, and with which message.

use super::DatasetDescription;
use super::fixture::{Checkout, repository};

const HEAD: &str = "name: toys\nabout: a\nsource: s\nlicence: l\nlayout: {}\n";

/// Returns the message for a dataset.yaml with these lines after the required ones.
fn message(rest: &str) -> String {
    let checkout = Checkout::new().with("datasets/toys/dataset.yaml", &format!("{HEAD}{rest}"));
    let read = DatasetDescription::read_named(checkout.root(), "toys");
    read.map_or_else(
        |finding| finding.to_string(),
        |found| format!("{} files, {} folders", found.files.len(), found.folders.len()),
    )
}

#[test]
fn a_description_is_read_with_its_defaults() {
    let text = format!(
        "{HEAD}files:\n    - {{path: a/b.bin, bytes: 3}}\nfolders:\n    - {{glob: c/*.txt, count: 2, required: false}}\n"
    );
    let checkout = Checkout::new().with("datasets/toys/dataset.yaml", &text);
    let found = DatasetDescription::read_named(checkout.root(), "toys").unwrap();
    assert_eq!((found.files[0].bytes, found.files[0].required, &found.files[0].sha256), (Some(3), true, &None));
    assert_eq!((found.folders[0].count, found.folders[0].required), (2, false));
    assert_eq!(DatasetDescription::names(checkout.root()), ["toys"]);
}

#[test]
fn an_unknown_key_and_a_wrong_value_are_refused_with_the_line() {
    let at = "datasets/toys/dataset.yaml";
    let hash = "0".repeat(63);
    for (rest, expected) in [
        ("file: []\n", "6: unknown key `file` (nearest: `files`)".to_owned()),
        ("files:\n    - {path: a, sha265: b}\n", "7: unknown key `files[0].sha265` (nearest: `sha256`)".to_owned()),
        ("files:\n    - {bytes: 1}\n", "7: `files[0].path` is missing".to_owned()),
        (
            "files:\n    - {path: a, bytes: -1}\n",
            "7: `files[0].bytes` must be a whole number of bytes, or null, not `-1`".to_owned(),
        ),
        (
            "files:\n    - {path: ../a}\n",
            "7: `files[0].path` must be a path below the data directory, without `..`, not `../a`".to_owned(),
        ),
        (
            "files:\n    - {path: /a}\n",
            "7: `files[0].path` must be a path below the data directory, without `..`, not `/a`".to_owned(),
        ),
        (
            &format!("files:\n    - {{path: a, sha256: \"{hash}\"}}\n"),
            format!("7: `files[0].sha256` must be 64 lower-case hexadecimal digits, not the string `\"{hash}\"`"),
        ),
        ("folders:\n    - {glob: a}\n", "7: `folders[0].count` is missing".to_owned()),
        (
            "generator: draw\n",
            "6: `generator` must be `flagperf`, `flagperf_masks` or `flagperf_boxes`, not `draw`".to_owned(),
        ),
        ("samples: 2\n", "1: `files` or `folders` must list at least one item".to_owned()),
        ("files:\n    - {path: a}\n    - {path: a}\n", "8: `a` is listed twice".to_owned()),
    ] {
        let found = message(rest);
        let first = found.lines().next().unwrap();
        assert_eq!(first, format!("{at}:{expected}"), "{rest}");
    }
    assert_eq!(message("files: [{path: a}]\n"), "1 files, 0 folders");
    let checkout = Checkout::new().with("datasets/other/dataset.yaml", &format!("{HEAD}files: [{{path: a}}]\n"));
    let error = DatasetDescription::read_named(checkout.root(), "other").unwrap_err().to_string();
    assert_eq!(error, "datasets/other/dataset.yaml:1: `name` is `toys`, but the folder is `other`");
}

#[test]
fn every_dataset_of_the_repository_has_a_valid_description() {
    let root = &repository();
    let names = DatasetDescription::names(root);
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let found = DatasetDescription::read_named(root, &name).unwrap_or_else(|finding| panic!("{finding}"));
        assert!(!found.layout.is_empty(), "{name}");
    }
}
