//! What `review` prints for a repository, and repositories and policies that it cannot use.

use std::fs;

use gix::objs::tree::EntryKind;
use serde_json::Value;

use super::flagperf;
use crate::support;
use crate::support::repository::{TestRepository, gone, text};

const POLICY: &str = "\
paths:
    everything-else: {match: ['**'], vendor: refused}
    own: {match: ['vendors/<vendor>/**', 'scripts/<case>/<vendor>/**'], vendor: allowed, other-vendor: refused, case-author: needs vendor}
    overlay: {match: ['configs/<case>/vendor_config/<vendor>_configurations.yaml'], vendor: allowed, other-vendor: refused}
    scripts: {match: ['scripts/<case>/*'], vendor: needs case-author, case-author: allowed}
";
const FORWARD: &str = "fn model_forward(model, batch) {\n    model.run([batch.images])[0]\n}\n";
const OVERLAY: &str = "configs/tiny/vendor_config/acme_configurations.yaml";

/// Creates a repository whose branch `main` has the policy and a case.
fn repository() -> (TestRepository, gix::ObjectId) {
    let repository = TestRepository::new();
    let files = [
        text("review.yaml", POLICY),
        text("configs/tiny/configurations.yaml", "batch_size: 4\n"),
        text(OVERLAY, "batch_size: 8\n"),
        text("scripts/tiny/forward.rhai", FORWARD),
        text("vendors/acme/vendor.yaml", "name: acme\n"),
        text("runtime/lib.rs", "//! The host.\n"),
    ];
    let main = repository.commit("main", &[], &files);
    (repository, main)
}

/// Runs `review` and returns what it printed, with the commits redacted, and the exit code.
fn review(repository: &TestRepository, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = flagperf(repository.path(), &[&["review"], arguments].concat());
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(&*repository.path().to_string_lossy(), "[REPOSITORY]");
        let is_commit = |word: &str| word.len() >= 12 && word.chars().all(|c| c.is_ascii_hexdigit());
        let parts = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
        let redact = |part: &str| {
            let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_commit(word) { part.replace(word, "[COMMIT]") } else { part.to_owned() }
        };
        parts.map(redact).collect::<String>()
    };
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Runs `review --json` and returns the review and the exit code.
fn review_json(repository: &TestRepository, arguments: &[&str]) -> (Value, Option<i32>) {
    let (text, errors, code) = review(repository, &[arguments, &["--json"]].concat());
    (serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}\n{errors}")), code)
}

/// Returns the findings of a review as lines.
fn findings(review: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let findings = review["findings"].as_array().expect("a list").iter();
    findings
        .map(|f| format!("{} {} {} {}", text(&f["outcome"]), text(&f["rule"]), text(&f["file"]), text(&f["message"])))
        .collect()
}

/// Commits to the branch `topic` a change with every kind of finding.
fn commit_many_findings(repository: &TestRepository, main: gix::ObjectId) {
    let forward = FORWARD.replace("batch.images", "batch.images.slice(0, 0, 1)");
    let entries = [
        text(OVERLAY, "batch_size: 16\nflops: 1e12\n"),
        text("scripts/tiny/forward.rhai", &forward),
        text("vendors/acme/engine.py", "x = 1\n"),
        gone("runtime/lib.rs"),
        text("runtime/main.rs", "fn main() {}\n"),
    ];
    repository.commit("topic", &[main], &entries);
}

#[test]
fn a_review_lists_findings_functions_keys_costs_and_the_verdict() {
    let (repository, main) = repository();
    commit_many_findings(&repository, main);
    let (text, errors, code) = review(&repository, &["main..topic", "--as", "vendor:acme"]);
    assert_eq!((errors.as_str(), code), ("", Some(1)), "{text}");
    insta::assert_snapshot!(text);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_review_as_markdown_keeps_what_the_repository_says_in_code_spans() {
    let (repository, main) = repository();
    let entries =
        [text(OVERLAY, "batch_size: \"`@owner` <b>|\"\n"), text("vendors/other/`@owner` <img src=x>|[a](b)", "x\n")];
    repository.commit("topic", &[main], &entries);
    let (text, errors, code) = review(&repository, &["main..topic", "--as", "vendor:acme", "--markdown"]);
    assert_eq!((errors.as_str(), code), ("", Some(1)), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_review_as_json_is_valid_by_its_schema() {
    let (repository, main) = repository();
    commit_many_findings(&repository, main);
    let (review, code) = review_json(&repository, &["main..topic"]);
    assert_eq!((review["verdict"].as_str(), code), (Some("refused"), Some(1)));
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    let file = support::root().join("docs/schemas/review.json");
    let index = compiler.compile(file.to_str().expect("a path"), &mut schemas).expect("a schema");
    assert_eq!(schemas.validate(&review, index).err().map(|error| format!("{error:#}")), None);
}

#[test]
fn the_policy_of_the_base_applies_and_not_that_of_the_change() {
    let (repository, main) = repository();
    let open = POLICY.replace("vendor: refused}", "vendor: allowed}");
    let entries = [text("review.yaml", &open), text("runtime/lib.rs", "//! Another host.\n")];
    repository.commit("topic", &[main], &entries);
    let (review, code) = review_json(&repository, &["main..topic", "--as", "vendor:acme"]);
    assert_eq!(code, Some(1));
    let expected =
        ["refused everything-else review.yaml", "refused everything-else runtime/lib.rs the file is modified"];
    let found = findings(&review);
    assert!(found[0].starts_with(expected[0]) && found.last().is_some_and(|last| last == expected[1]), "{found:?}");
}

#[test]
fn a_vendor_may_change_its_own_files_as_the_changed_files_suggest() {
    let (repository, main) = repository();
    repository.commit("topic", &[main], &[text("vendors/acme/engine.py", "x = 1\n")]);
    let (text, _, code) = review(&repository, &["main..topic"]);
    assert_eq!(
        (text.as_str(), code),
        (
            "allowed: 1 file changed ([COMMIT]..[COMMIT]), judged as vendor:acme: every changed file\n    \
             belongs to vendor `acme` or to a shared place\n",
            Some(0)
        )
    );
}

#[test]
fn only_what_the_head_adds_is_reviewed_also_after_merges() {
    let (repository, main) = repository();
    let topic = repository.commit("topic", &[main], &[text("vendors/acme/a", "1\n")]);
    let moved = repository.commit("main", &[main], &[text("runtime/lib.rs", "//! By others.\n")]);
    assert_eq!(review_json(&repository, &["main..topic"]).0["changed_files"], 1);
    // The merge of main into the topic adds nothing of main's to it.
    repository.commit(
        "topic",
        &[topic, moved],
        &[text("runtime/lib.rs", "//! By others.\n"), text("vendors/acme/b", "2\n")],
    );
    let (review, code) = review_json(&repository, &["main..topic"]);
    assert_eq!((review["changed_files"].as_u64(), code), (Some(2), Some(0)), "{review}");
}

#[test]
fn renames_binary_files_links_submodules_and_names_that_are_not_utf_8_are_judged() {
    let (repository, main) = repository();
    let entries = [
        gone("runtime/lib.rs"),
        text("vendors/acme/lib.rs", "//! The host.\n"),
        (b"vendors/acme/\xff\xfe", EntryKind::Blob, Some(b"x".as_slice())),
        (b"vendors/acme/weights.yaml", EntryKind::Blob, Some(b"\0\x01".as_slice())),
        (b"vendors/acme/link", EntryKind::Link, Some(b"../../runtime".as_slice())),
        (b"vendors/acme/module", EntryKind::Commit, Some(b"".as_slice())),
        (b"vendors/acme/tool", EntryKind::BlobExecutable, Some(b"x".as_slice())),
    ];
    repository.commit("topic", &[main], &entries);
    let (review, code) = review_json(&repository, &["main..topic", "--as", "vendor:acme"]);
    assert_eq!(code, Some(1));
    let found = findings(&review);
    for expected in [
        "refused everything-else vendors/acme/lib.rs the file is renamed from runtime/lib.rs",
        "refused file-names vendors/acme/\\xff\\xfe the name of the file is not UTF-8",
        "needs maintainer not-compared vendors/acme/weights.yaml the file is binary",
        "refused links vendors/acme/link the link leads out of `vendors/acme`",
        "refused submodules vendors/acme/module another repository is added or changed",
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {found:?}");
    }
    assert_eq!(review["changed_files"], 6);
}

#[test]
fn what_cannot_be_reviewed_is_an_error_with_a_hint() {
    let (repository, main) = repository();
    let topic = repository.commit("topic", &[main], &[text("vendors/acme/a", "1\n")]);
    let failure = |arguments: &[&str]| {
        let (text, errors, code) = review(&repository, arguments);
        assert_eq!((text.as_str(), code), ("", Some(2)), "{errors}");
        errors
    };
    assert_eq!(
        failure(&["missing..topic"]),
        "error: unknown revision `missing`\n  hint: give the range as BASE..HEAD, such as `origin/main..HEAD`, and fetch its commits\n"
    );
    repository.commit("alone", &[], &[text("review.yaml", "{}\n")]);
    assert_eq!(
        failure(&["alone..topic"]),
        "error: `alone` and `topic` have no common commit\n  hint: the change must begin at a commit of the branch that it is compared with\n"
    );
    repository.commit_cut("cut", topic);
    assert_eq!(
        failure(&["missing..topic"]),
        "error: unknown revision `missing`: this clone is shallow and lacks earlier commits\n  hint: fetch the whole history: `git fetch --unshallow`, or `fetch-depth: 0` of the CI's checkout step\n"
    );
    assert!(
        failure(&["main..cut"]).starts_with("error: `main` and `cut` have no common commit: this clone is shallow")
    );
    let folder = tempfile::tempdir().expect("a folder");
    let output = flagperf(folder.path(), &["review"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in no git repository that can be read"));
}

#[test]
fn a_policy_that_cannot_be_used_is_an_error_with_its_line() {
    for (policy, message) in [
        (
            None,
            "has no usable review.yaml: the file does not exist\n  hint: the policy of the base applies: a maintainer has to add it there first\n",
        ),
        (Some("paths: {a: {vendor: allowed}}\n"), "review.yaml:1: rule `a` lacks the key `match`"),
        (Some("paths: 1\n"), "review.yaml:1: expected a mapping of keys to values (in commit"),
    ] {
        let repository = TestRepository::new();
        let mut files = vec![text("a", "1\n")];
        files.extend(policy.map(|policy| text("review.yaml", policy)));
        let main = repository.commit("main", &[], &files);
        repository.commit("topic", &[main], &[text("a", "2\n")]);
        let (_, errors, code) = review(&repository, &["main..topic"]);
        assert!(code == Some(2) && errors.contains(message), "{errors}");
    }
}

#[test]
fn the_policy_of_the_repository_judges_its_own_files() {
    let policy = fs::read_to_string(support::root().join("review.yaml")).expect("the policy");
    let repository = TestRepository::new();
    let main = repository.commit("main", &[], &[text("review.yaml", &policy)]);
    let entries = [
        text("vendors/acme/engine.py", "x\n"),
        text("runtime/lib.rs", "x\n"),
        text("scripts/lib/classification.rhai", "fn f() { 1 }\n"),
    ];
    repository.commit("topic", &[main], &entries);
    let (review, code) = review_json(&repository, &["main..topic", "--as", "vendor:acme"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        findings(&review),
        [
            "refused everything-else runtime/lib.rs the file is added",
            "needs maintainer submission vendors/acme/engine.py what the vendor's engines run is changed without a new record",
            "needs case-author case-scripts scripts/lib/classification.rhai `f` is new",
        ]
    );
}
