//! `tests/run` counts the tests that a machine leaves out.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use assert_cmd::Command;

use crate::support::{self, Missing, program};

/// Runs `tests/run ARGUMENT..` with a fake `cargo` that runs only the ignored tests of this program.
fn run(arguments: &[&str], ci: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let (cargo, this) = (folder.path().join("cargo"), std::env::current_exe().expect("this program has a path"));
    let script = format!("#!/bin/sh\n[ \"$1\" = test ] || exit 101\nshift 3\nexec '{}' --ignored $*\n", this.display());
    fs::write(&cargo, script).expect("a file");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("a file of this test");
    let path = program::path();
    let path = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new(support::root().join("tests/run"));
    command.args(arguments).env("PATH", std::env::join_paths(path).expect("folders")).env("CI", ci);
    let output = command.output().expect("bash");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_test_that_is_left_out_is_listed_and_not_counted_as_passed_and_fails_the_run_on_ci() {
    let skipped = |arguments: &[&str]| {
        let (status, output) = run(arguments, "");
        assert_eq!(status, Some(101));
        let begin = output.find("2 skipped on this machine").unwrap_or_else(|| panic!("{output}"));
        output[begin..].to_owned()
    };
    insta::assert_snapshot!(skipped(&["runner::"]), @r"
    2 skipped on this machine (`tests/run --details` names each):
         2  the moon: it is not there; to enable: wait until night
    1 passed, 1 failed, 2 skipped
    ");
    insta::assert_snapshot!(skipped(&["--details", "runner::"]), @r"
    2 skipped on this machine:
         2  the moon: it is not there; to enable: wait until night
            program runner::another_that_is_left_out
            program runner::one_that_is_left_out
    1 passed, 1 failed, 2 skipped
    ");
    assert_eq!(run(&["runner::one_that_passes"], "true").0, Some(0));
    assert_eq!(run(&["runner::another_that_is_left_out"], "").0, Some(0));
    assert_eq!(run(&["runner::another_that_is_left_out"], "true").0, Some(1));
}

/// Both tests below call this function, and still count as two.
fn needs_the_moon() {
    support::leave_out(&Missing::new("the moon: it is not there", "wait until night"));
}

#[test]
#[ignore = "left out: run by the test above"]
fn one_that_is_left_out() {
    needs_the_moon();
}

#[test]
#[ignore = "left out: run by the test above"]
fn another_that_is_left_out() {
    needs_the_moon();
}

#[test]
#[ignore = "passes: run by the test above"]
fn one_that_passes() {}

#[test]
#[ignore = "fails: run by the test above"]
fn one_that_is_left_out_and_fails() {
    needs_the_moon();
    panic!("it fails after it was left out");
}
