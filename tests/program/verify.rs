//! Changed and forged results, and what `verify` finds in them.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

mod fields;
mod forgeries;
mod signatures;
mod unusable;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flagperf_verify::{CaseReport, Standing, Trust, verify_result};

use crate::support::once::once_per_run;
use crate::support::{program, results};

/// A checkout with a run, and the results of two runs with their digests.
struct Runs {
    checkout: PathBuf,
    first: (PathBuf, String),
    second: (PathBuf, String),
}

/// Returns the runs that all tests share. No test changes them.
fn runs() -> &'static Runs {
    static RUNS: OnceLock<Runs> = OnceLock::new();
    RUNS.get_or_init(|| {
        let folder = once_per_run("verify", |folder| {
            results::fill_checkout(folder);
            let runs = [(); 2].map(|()| results::run(folder, &[]));
            fs::write(folder.join("runs.json"), serde_json::to_string(&runs).unwrap()).unwrap();
        });
        let runs = fs::read_to_string(folder.join("runs.json")).unwrap();
        let [first, second] = serde_json::from_str(&runs).unwrap();
        Runs { checkout: folder, first, second }
    })
}

/// Verifies a result without digest and keys.
fn verified(result: &Path) -> CaseReport {
    verify_result(result, &Trust::default())
}

/// Returns the findings as `file: what`.
fn findings(report: &CaseReport) -> Vec<String> {
    report.findings.iter().map(|finding| format!("{}: {}", finding.file, finding.what)).collect()
}

#[test]
fn an_unchanged_result_is_consistent_and_with_its_digest_authentic() {
    let (result, digest) = &runs().first;
    let report = verified(result);
    assert_eq!((report.standing, findings(&report)), (Standing::Consistent, Vec::new()));
    assert_eq!(report.unchecked, [""; 0]);
    let trust = Trust { digests: vec![digest.clone()], ..Trust::default() };
    let report = verify_result(result, &trust);
    assert_eq!(
        (report.standing, report.proof.as_deref()),
        (Standing::Authentic, Some("the digest given with --digest"))
    );
    let other = Trust { digests: vec![runs().second.1.clone()], ..Trust::default() };
    assert_eq!(verify_result(result, &other).standing, Standing::Wrong);
}

#[test]
fn a_result_contains_what_it_was_made_from() {
    let files = results::files(&runs().first.0);
    for path in [
        "container.out.log",
        "events.jsonl",
        "cpu_monitor.log",
        "manifest.json",
        "mem_monitor.log",
        "monitor.jsonl",
        "record.json",
        "samples.infer.csv",
        "samples.validate.csv",
        "sources/config.json",
        "sources/configs/host.yaml",
        "sources/configs/tiny/parameters.yaml",
        "sources/scripts/tiny/model.rhai",
        "sources/vendors/cpu/vendor.yaml",
    ] {
        assert!(files.iter().any(|file| file == path), "{path} is not in {files:?}");
    }
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(runs().first.0.join("record.json")).unwrap()).unwrap();
    for phase in record["phases"].as_array().unwrap() {
        let libraries = phase["libraries"].as_array().unwrap();
        assert!(libraries.iter().any(|library| library["sha256"].is_string()), "{libraries:?}");
    }
}

/// Returns a stream of seeded random numbers (splitmix64).
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

#[test]
fn every_changed_byte_of_a_result_is_found_without_a_digest() {
    const MUTATIONS: usize = 600;
    let copy = results::copy(&runs().first.0);
    let files = results::files(copy.path());
    let mut next = random(1);
    for number in 0..MUTATIONS {
        // Every file in turn, so that large files do not get all changes.
        let path = copy.path().join(&files[number % files.len()]);
        let original = fs::read(&path).unwrap();
        if original.is_empty() {
            continue;
        }
        let mut changed = original.clone();
        let at = usize::try_from(next(original.len() as u64)).unwrap();
        changed[at] ^= u8::try_from(next(255)).unwrap() + 1;
        fs::write(&path, &changed).unwrap();
        let standing = verified(copy.path()).standing;
        assert!(standing > Standing::Consistent, "byte {at} of {} was not found", path.display());
        fs::write(&path, &original).unwrap();
    }
    assert_eq!(verified(copy.path()).standing, Standing::Consistent, "every change was undone");
}

#[test]
fn missing_extra_and_swapped_files_are_found() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("samples.infer.csv: the file is missing", |result| fs::remove_file(result.join("samples.infer.csv")).unwrap()),
        ("notes.txt: the file is not in the manifest", |result| fs::write(result.join("notes.txt"), "x").unwrap()),
        ("container.out.log: size", |result| fs::write(result.join("container.out.log"), "x").unwrap()),
        // Two files of times may have the same size.
        ("samples.infer.csv: ", |result| {
            fs::copy(runs().second.0.join("samples.validate.csv"), result.join("samples.infer.csv")).unwrap();
        }),
    ];
    for (expected, change) in changes {
        let copy = results::copy(&runs().first.0);
        change(copy.path());
        let report = verified(copy.path());
        let found = findings(&report);
        assert!(found.iter().any(|finding| finding.starts_with(expected)), "{expected}: {found:?}");
        assert_eq!(report.standing, Standing::Wrong);
    }
}

#[test]
fn the_command_prints_the_standing_of_each_result_of_a_run() {
    let runs = runs();
    let run = runs.first.0.ancestors().nth(2).unwrap();
    let output = program::flagperf(&runs.checkout, &["verify", run.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("consistent  tiny:interpreter\n"), "{text}");
    assert!(text.contains(&format!("  digest    {}\n", runs.first.1)), "{text}");
    assert!(
        text.contains("  verdict   unofficial: measured for less than 1 s (official: at least 10 min); "),
        "{text}"
    );
    let arguments = ["verify", "--digest", &runs.first.1, run.to_str().unwrap()];
    let text = String::from_utf8_lossy(&program::flagperf(&runs.checkout, &arguments).stdout).into_owned();
    assert!(text.starts_with("authentic  tiny:interpreter\n"), "{text}");
    let output = program::flagperf(&runs.checkout, &["verify", "--json", runs.first.0.to_str().unwrap()]);
    let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&reports[0]["standing"], &reports[0]["findings"]), (&"consistent".into(), &serde_json::json!([])));
}

#[test]
fn the_digest_and_the_verdict_are_in_the_logs() {
    let (result, digest) = &runs().first;
    let host = fs::read_to_string(result.ancestors().nth(2).unwrap().join("host.out.log")).unwrap();
    assert!(host.contains(&format!("tiny:interpreter {digest}\n")), "{host}");
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(result.join("record.json")).unwrap()).unwrap();
    assert_eq!(record["validity"]["verdict"], "unofficial");
    let log = fs::read_to_string(result.join("container.out.log")).unwrap();
    let reasons: Vec<&str> =
        record["validity"]["reasons"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap()).collect();
    let line = format!("unofficial: {}", reasons.join("; "));
    for text in [&host, &log] {
        assert!(text.lines().any(|found| found.contains("Verdict") && found.ends_with(&line)), "{line}\n{text}");
    }
}

#[test]
fn an_official_run_refuses_changed_settings_and_requires_a_valid_result() {
    let checkout = results::checkout();
    let output = program::flagperf(checkout.path(), &["run", "--official", "--set", "batch_size=2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{output:?}");
    assert!(!checkout.path().join("result").exists());
    let output = program::flagperf(checkout.path(), &["run", "--official"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" verdict                  unofficial: measured for less than 1 s ("), "{text}");
    assert!(text.contains("\nunofficial  tiny:") && !text.contains("\nok  "), "{text}");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let sentence = "error: `--official` requires a valid result, but `tiny:";
    assert!(errors.contains(sentence) && errors.contains(" is unofficial: measured for less than 1 s"), "{errors}");
}
