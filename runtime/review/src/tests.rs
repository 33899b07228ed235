//! Tests of reviews of paths, keys, rows and entries.

use super::memory_tree::{MemoryTree, lines, reviewed};
use super::{Comparison, EntryKind, Verdict};

const OVERLAY: &str = "configs/tiny/vendor_config/acme_configurations.yaml";
const README: &str =
    "# tiny\n\n## Results\n\n| vendor | compiler | record |\n|---|---|---|\n| other | o | [x](x.json) |\n";

fn base() -> MemoryTree {
    MemoryTree::new([
        ("configs/host.yaml", "VENDOR: acme\n"),
        ("configs/tiny/configurations.yaml", "batch_size: 4\nflops: 1e6\n"),
        ("configs/tiny/parameters.yaml", "samples: 10\nseed: 0\n"),
        ("configs/tiny/vendor_config/acme_configurations.yaml", "batch_size: 8\n"),
        ("scripts/tiny/README.md", README),
        ("vendors/acme/vendor.yaml", "name: acme\n"),
        ("vendors/other/vendor.yaml", "name: other\n"),
        ("runtime/lib.rs", "//! host\n"),
        ("review.yaml", "{}\n"),
    ])
}

/// Returns the findings of a change without those about what a submission lacks.
fn found(after: &MemoryTree, role: &str) -> Vec<String> {
    let lines = lines(&reviewed(&base(), after, Some(role)));
    lines.into_iter().filter(|line| !line.contains("| submission |")).collect()
}

#[test]
fn a_vendor_changes_its_own_files_and_no_others() {
    let own = base().with("vendors/acme/engine.py", "x").with("docker_images/acme/f/Dockerfile", "FROM x\n");
    assert_eq!(found(&own, "vendor:acme"), [""; 0]);
    for (path, finding) in [
        (
            "vendors/other/vendor.yaml",
            "refused | vendor-files | vendors/other/vendor.yaml:1 | `name` changes from `other` to `x`",
        ),
        ("runtime/lib.rs", "refused | everything-else | runtime/lib.rs | the file is modified"),
        ("configs/host.yaml", "refused | site | configs/host.yaml:1 | `name` is added with the value `x`"),
        ("review.yaml", "needs maintainer | policy | review.yaml:1 | `name` is added with the value `x`"),
        ("Vendors/acme/x", "refused | everything-else | Vendors/acme/x | the file is added"),
    ] {
        let lines = found(&base().with(path, "name: x\n"), "vendor:acme");
        assert!(lines.contains(&finding.to_owned()), "{path}: {lines:?}");
    }
    assert_eq!(
        found(&base().without("runtime/lib.rs"), "case-author"),
        ["needs maintainer | everything-else | runtime/lib.rs | the file is removed"]
    );
    assert_eq!(found(&base().with("runtime/lib.rs", "x"), "maintainer"), [""; 0]);
}

#[test]
fn an_overlay_never_sets_what_defines_the_measurement() {
    let text = "batch_size: 16\nflops: 1e12\nsamples: 5\nseed: 1\nSSH_PORT: 22\nown_key: [1, 2]\n# needs a reason\nno_validation: true\n";
    assert_eq!(
        found(&base().with(OVERLAY, text), "vendor:acme"),
        [
            format!("refused | key-owner | {OVERLAY}:2 | `flops` is added with the value `1e12`"),
            format!("refused | key-owner | {OVERLAY}:3 | `samples` is added with the value `5`"),
            format!("refused | key-owner | {OVERLAY}:4 | `seed` is added with the value `1`"),
            format!("refused | key-owner | {OVERLAY}:5 | `SSH_PORT` is added with the value `22`"),
            format!(
                "needs case-author | work-per-measurement | {OVERLAY}:8 | `no_validation` is added with the value `true`"
            ),
        ]
    );
    let review = reviewed(&base(), &base().with(OVERLAY, text), Some("vendor:acme"));
    assert_eq!(review.verdict, Verdict::Refused);
    assert_eq!(review.keys.len(), 7);
    assert_eq!((review.keys[0].before.as_deref(), review.keys[0].after.as_deref()), (Some("8"), Some("16")));
    assert_eq!(review.costs[0].keys.len(), 7);
}

#[test]
fn the_standard_case_belongs_to_its_author() {
    let after = base().with("configs/tiny/parameters.yaml", "samples: 10\nseed: 1\n");
    let finding = "refused | standard-case | configs/tiny/parameters.yaml:2 | `seed` changes from `0` to `1`";
    assert_eq!(found(&after, "vendor:acme"), [finding]);
    assert_eq!(found(&after, "case-author"), [""; 0]);
}

#[test]
fn the_author_of_a_case_moves_its_target_only_with_a_maintainer() {
    let with =
        |target: &str| base().with("configs/tiny/parameters.yaml", &format!("target_accuracy: {{top1: {target}}}\n"));
    let found = lines(&reviewed(&with("0.76"), &with("0.1"), Some("case-author")));
    let file = "configs/tiny/parameters.yaml:1";
    let expected =
        format!("needs maintainer | measured-goal | {file} | `target_accuracy.top1` changes from `0.76` to `0.1`");
    assert_eq!(found, [expected]);
}

#[test]
fn a_change_of_layout_is_shown_as_such() {
    let after = base().with("configs/tiny/parameters.yaml", "# note\nseed:   0\nsamples: 10\n");
    let review = reviewed(&base(), &after, Some("vendor:acme"));
    assert_eq!(review.files[0].compared, Comparison::LayoutOnly);
    assert_eq!(
        lines(&review),
        ["refused | standard-case | configs/tiny/parameters.yaml | only layout, comments or order changed"]
    );
}

#[test]
fn a_vendor_changes_its_own_rows_of_a_table() {
    let path = "scripts/tiny/README.md";
    let other = README.replace("| o |", "| p |");
    let refused = found(&base().with(path, &other), "vendor:acme");
    assert_eq!(refused[0], format!("refused | result-rows | {path}:7 | a row of `other` is changed"));
    let text = README.replace("# tiny", "# Tiny");
    assert_eq!(
        found(&base().with(path, &text), "vendor:acme"),
        [format!("needs case-author | result-rows | {path}:1 | text beside the vendor's own rows is changed")]
    );
    assert_eq!(found(&base().with(path, &text), "case-author"), [""; 0]);
}

#[test]
fn files_that_change_what_others_are_or_whom_readers_trust_need_a_maintainer() {
    for (path, rule) in [
        ("vendors/acme/.gitattributes", "git-files"),
        ("vendors/acme/engines/.gitignore", "git-files"),
        ("scripts/tiny/.gitattributes", "git-files"),
        ("configs/keys/acme.pub", "trust-keys"),
        ("vendors/acme/keys/lab.pub", "trust-keys"),
        ("vendors/acme/engines/lab.pub", "trust-keys"),
        ("vendors/acme/environment_variables.sh", "shell-files"),
        ("scripts/tiny/environment_variables.sh", "shell-files"),
        ("docker_images/acme/f/install.sh", "shell-files"),
    ] {
        let expected = format!("needs maintainer | {rule} | {path} | the file is added");
        for role in ["vendor:acme", "case-author"] {
            let found = found(&base().with(path, "x\n"), role);
            assert!(found.contains(&expected), "{role}: {found:?}");
        }
        assert_eq!(found(&base().with(path, "x\n"), "maintainer"), [""; 0]);
    }
}

#[test]
fn a_variable_that_loads_other_code_needs_a_maintainer_wherever_a_run_reads_it() {
    for (path, text, line) in [
        ("vendors/acme/environment_variables.sh", "export A=1\nexport LD_PRELOAD=./clock.so\n", 2),
        ("vendors/acme/run.py", "import os\nos.environ['PYTHONPATH'] = '.'\n", 2),
        ("docker_images/acme/f/Dockerfile", "FROM x\nENV LD_AUDIT=/a.so\n", 2),
        ("vendors/acme/sitecustomize.py", "import sitecustomize\n", 1),
        ("vendors/acme/vendor.yaml", "name: acme\ncommand: [env, LD_PRELOAD=a.so]\n", 2),
    ] {
        let found = found(&base().with(path, text), "vendor:acme");
        let begin = format!("needs maintainer | loader-variable | {path}:{line} | ");
        assert!(found.iter().any(|finding| finding.starts_with(&begin)), "{begin}{found:?}");
    }
    let before = base().with("vendors/acme/run.py", "PYTHONPATH\n");
    let after = before.clone().with("vendors/acme/run.py", "PYTHONPATH\nprint(1)\n");
    let known = lines(&reviewed(&before, &after, Some("vendor:acme")));
    assert!(!known.iter().any(|line| line.contains("loader-variable")), "{known:?}");
}

#[test]
fn the_role_follows_from_the_changed_files() {
    let judged = |after: &MemoryTree| {
        let judged = reviewed(&base(), after, None).judged_as;
        (judged.role.to_string(), judged.reason)
    };
    let own = base().with("vendors/acme/x", "x").with("scripts/tiny/README.md", "x");
    assert_eq!(
        judged(&own),
        ("vendor:acme".to_owned(), "every changed file belongs to vendor `acme` or to a shared place".to_owned())
    );
    assert_eq!(
        judged(&own.clone().with("vendors/other/x", "y")),
        ("case-author".to_owned(), "the changed files belong to several vendors: acme, other".to_owned())
    );
    let (role, reason) = judged(&own.with("runtime/lib.rs", "x"));
    assert_eq!(role, "case-author");
    assert!(reason.starts_with("`runtime/lib.rs` belongs neither to vendor `acme`"), "{reason}");
    assert_eq!(judged(&base().with("runtime/lib.rs", "x")).0, "case-author");
}

#[test]
fn files_of_a_vendor_and_of_the_standard_case_together_are_never_allowed_to_one_role() {
    let after = base().with(OVERLAY, "batch_size: 9\n").with("configs/tiny/parameters.yaml", "samples: 1\nseed: 0\n");
    let review = reviewed(&base(), &after, None);
    assert_eq!(review.judged_as.role.to_string(), "case-author");
    let lines = lines(&review);
    assert!(
        lines[0].starts_with("needs case-author | role | configs/tiny/parameters.yaml | nobody said whose"),
        "{lines:?}"
    );
    assert_eq!(
        lines[1..],
        [format!("needs vendor:acme | overlay | {OVERLAY}:1 | `batch_size` changes from `8` to `9`")]
    );
}

#[test]
fn a_renamed_file_is_judged_by_both_paths() {
    let after = base().without("runtime/lib.rs").with("vendors/acme/lib.rs", "//! host\n");
    assert_eq!(
        found(&after, "vendor:acme"),
        ["refused | everything-else | vendors/acme/lib.rs | the file is renamed from runtime/lib.rs"]
    );
}

#[test]
fn links_stay_in_their_folder() {
    let link = |target: &str| base().with_entry("vendors/acme/a/link", EntryKind::Link, target.as_bytes());
    for target in ["../b", "c", "./../a/../b"] {
        assert_eq!(found(&link(target), "vendor:acme"), [""; 0], "{target}");
    }
    for (target, reason) in [
        ("../../../runtime", "the link leads out of `vendors/acme`: `../../../runtime`"),
        ("../../other/x", "the link leads out of `vendors/acme`: `../../other/x`"),
        ("../../acme/../other", "the link leads out of `vendors/acme`: `../../acme/../other`"),
        ("/etc/passwd", "the link leads to the absolute path `/etc/passwd`"),
    ] {
        let expected = format!("refused | links | vendors/acme/a/link | {reason}");
        assert_eq!(found(&link(target), "vendor:acme"), [expected], "{target}");
    }
}

#[test]
fn what_cannot_be_compared_is_named() {
    let huge = "a: 1\n".repeat(1 << 20);
    let other = base()
        .with_entry("vendors/acme/binary.yaml", EntryKind::File, b"a\0b")
        .with("vendors/acme/broken.yaml", "a: [\n")
        .with("vendors/acme/huge.yaml", &huge)
        .with_entry("vendors/acme/module", EntryKind::Submodule, b"")
        .with_entry("vendors/acme/vendor.yaml", EntryKind::Executable, b"name: acme\n")
        .with_entry("vendors/acme/weights.bin", EntryKind::File, b"\0\xff");
    let size = huge.len();
    let lines = found(&other, "vendor:acme");
    assert_eq!(
        lines[0],
        "refused | submodules | vendors/acme/module | another repository is added or changed; its content was not compared"
    );
    assert_eq!(lines[1], "needs maintainer | not-compared | vendors/acme/binary.yaml | the file is binary");
    assert!(
        lines[2].starts_with("needs maintainer | not-compared | vendors/acme/broken.yaml:2 | the file is not YAML: "),
        "{lines:?}"
    );
    assert_eq!(
        lines[3],
        format!(
            "needs maintainer | not-compared | vendors/acme/huge.yaml | the file has {size} bytes (limit: 4194304)"
        )
    );
    assert_eq!(lines[4], "allowed | file-mode | vendors/acme/vendor.yaml | the file becomes executable");
}

#[test]
fn a_path_that_leads_out_of_its_folder_is_refused() {
    let after = base().with("vendors/acme/../../runtime/lib.rs", "x");
    let line = "refused | file-names | vendors/acme/../../runtime/lib.rs | the path has a name that no file may have";
    assert_eq!(found(&after, "vendor:acme"), [line]);
    assert_eq!(found(&after, "maintainer"), [line]);
}

#[test]
fn nothing_changed_is_allowed() {
    let review = reviewed(&base(), &base(), None);
    assert_eq!((review.verdict, review.notes), (Verdict::Allowed, vec!["nothing changed".to_owned()]));
}

#[test]
fn the_training_of_a_case_is_the_same_for_every_vendor() {
    let overlay = "configs/tiny/vendor_config/acme_training.yaml";
    let text = "learning_rate: 0.2\nmax_epochs: 1\nsamples: 5\ncompiler: x\nA100x1x8:\n    batch_size: 2\n    target: {top1: 0.1}\n";
    assert_eq!(
        found(&base().with(overlay, text), "vendor:acme"),
        [
            format!("refused | key-owner | {overlay}:2 | `max_epochs` is added with the value `1`"),
            format!("refused | key-owner | {overlay}:3 | `samples` is added with the value `5`"),
            format!("refused | key-owner | {overlay}:4 | `compiler` is added with the value `x`"),
            format!("refused | key-owner | {overlay}:7 | `A100x1x8.target.top1` is added with the value `0.1`"),
        ]
    );
    let training = "configs/tiny/training.yaml";
    let standard = base().with(training, "batch_size: 4\ntarget: {top1: 0.5}\n");
    let refused = |rule: &str, line: usize, change: &str| format!("{rule} | {training}:{line} | {change}");
    assert_eq!(
        found(&standard, "vendor:acme"),
        [
            refused("refused | standard-case", 1, "`batch_size` is added with the value `4`"),
            refused("refused | measured-goal", 2, "`target.top1` is added with the value `0.5`"),
        ]
    );
    assert_eq!(
        found(&standard, "case-author"),
        [refused("needs maintainer | measured-goal", 2, "`target.top1` is added with the value `0.5`")]
    );
    let script = base().with("scripts/tiny/training.rhai", "fn train(config) {}\n");
    let lines = found(&script, "vendor:acme");
    assert!(lines[0].starts_with("needs case-author | case-scripts | scripts/tiny/training.rhai"), "{lines:?}");
    assert_eq!(found(&script, "case-author"), [""; 0]);
}
