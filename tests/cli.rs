//! The program as a user meets it: command, exit code, standard output, standard error.

#[path = "support/program.rs"]
mod program;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use program::flagperf;
use tempfile::TempDir;

/// Settings of the small case of these tests: synthetic data, so nothing is read or drawn.
const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 2\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";
const HOST: &str = "VENDOR: mock\nCASES:\n    \"tiny:mock\": \"data\"\n";

/// A checkout with the case `tiny` on the vendor `mock`.
fn checkout() -> TempDir {
    let checkout = support::checkout();
    let at = |path: &str| checkout.path().join(path);
    for folder in ["configs/tiny/vendor_config", "scripts/tiny", "data"] {
        fs::create_dir_all(at(folder)).expect("a folder");
    }
    for script in fs::read_dir(support::root().join("tests/cases/tiny")).expect("the case").map(|e| e.expect("a file"))
    {
        fs::copy(script.path(), at("scripts/tiny").join(script.file_name())).expect("a file");
    }
    fs::write(at("configs/host.yaml"), HOST).expect("a file");
    fs::write(at("configs/tiny/configurations.yaml"), CONFIGURATIONS).expect("a file");
    fs::write(at("configs/tiny/parameters.yaml"), "samples: 10\nweights: null\nseed: 0\n").expect("a file");
    fs::write(at("configs/tiny/vendor_config/mock_configurations.yaml"), "compiler: mock\n").expect("a file");
    checkout
}

/// Command, exit code and both outputs, with the checkout's path redacted.
fn said(checkout: &Path, arguments: &[&str]) -> String {
    let output = flagperf(checkout, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*checkout.to_string_lossy(), "[CHECKOUT]");
    let code = output.status.code().map_or_else(|| "none".to_owned(), |code| code.to_string());
    let command = arguments.join(" ");
    format!(
        "$ flagperf {command}\nexit code {code}\n--- stdout\n{}--- stderr\n{}",
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// The one record of the checkout's one run.
fn record(checkout: &Path) -> (PathBuf, serde_json::Value) {
    let run = fs::read_dir(checkout.join("result")).expect("results").next().expect("a run").expect("a folder").path();
    let folder = run.join("tiny_mock/localhost_noderank0");
    let text = fs::read_to_string(folder.join("record.json")).expect("a record");
    (folder, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn help_has_the_table_of_exit_codes() {
    insta::assert_snapshot!(said(checkout().path(), &["--help"]));
}

#[test]
fn an_unknown_case_names_the_known_ones() {
    insta::assert_snapshot!(said(checkout().path(), &["run", "--case", "tyni"]));
}

#[test]
fn an_unknown_vendor_names_the_known_ones() {
    insta::assert_snapshot!(said(checkout().path(), &["run", "--vendor", "mok"]));
}

#[test]
fn an_unknown_setting_is_refused_before_anything_runs() {
    let checkout = checkout();
    insta::assert_snapshot!(said(checkout.path(), &["run", "--set", "bach_size=2"]));
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn malformed_yaml_is_shown_with_its_line() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), "VENDOR: mock\nCASES: {\n").expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
}

#[test]
fn a_missing_host_file_is_named() {
    let checkout = checkout();
    fs::remove_file(checkout.path().join("configs/host.yaml")).expect("it was there");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
}

#[test]
fn a_wrong_type_is_shown_with_its_line() {
    let checkout = checkout();
    let wrong = CONFIGURATIONS.replace("batch_size: 4", "batch_size: four");
    fs::write(checkout.path().join("configs/tiny/configurations.yaml"), wrong).expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["plan"]));
}

#[test]
fn a_missing_data_directory_is_named() {
    let checkout = checkout();
    insta::assert_snapshot!(said(checkout.path(), &["run", "--data", "/no/such/data"]));
}

#[test]
fn every_step_runs_and_the_record_is_complete() {
    let checkout = checkout();
    let (printed, code) = program::record(checkout.path(), &[]);
    assert_eq!(code, Some(0), "{}", printed["failures"]);
    let (folder, record) = record(checkout.path());
    assert_eq!(printed, record);
    assert_eq!(record["status"], "ok");
    assert_eq!(record["phases"].as_array().map(Vec::len), Some(2));
    assert!(record["finish_info"]["*p_inference_core(qps)"].as_f64().expect("a rate") > 0.0);
    for log in ["container.out.log", "stdout_err.out.log", "events.jsonl"] {
        assert!(folder.join(log).is_file(), "{log}");
    }
    let hash = record["provenance"]["events_sha256"].as_str().expect("a hash");
    flagperf::result::verify_chain(&folder.join("events.jsonl"), hash).expect("the chain holds");
}

#[test]
fn a_compiler_that_opens_no_file_runs_on_a_placeholder() {
    let checkout = checkout();
    let vendor = checkout.path().join("vendors/mock/vendor.yaml");
    let text = fs::read_to_string(&vendor).expect("a file");
    let own = "    own: {engine: \"null\", opens_onnx: false, options: {inputs: {images: \"N,3,8,8,f32\"}, outputs: {y: \"N,1000,f32\"}}}\n";
    fs::write(&vendor, text.replace("compilers:\n", &format!("compilers:\n{own}"))).expect("a file");
    let set = ["--set", "compiler=own", "--set", "no_validation=true", "--set", "exist_onnx_path=foo"];
    let (record, code) = program::record(checkout.path(), &set);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(record["phases"].as_array().map(Vec::len), Some(1));
    let weights = record["phases"][0]["model"]["weights"].as_str().expect("what is known");
    assert!(weights.starts_with("the compiler's own (`") && weights.ends_with("foo` is a placeholder)"), "{weights}");
}

#[test]
fn a_departure_from_the_standard_is_in_the_record() {
    let checkout = checkout();
    assert_eq!(flagperf(checkout.path(), &["run", "--set", "batch_size=2"]).status.code(), Some(0));
    assert_eq!(record(checkout.path()).1["departures"], serde_json::json!(["batch_size=2"]));
}

#[test]
fn results_that_cannot_be_written_are_refused_before_anything_runs() {
    let checkout = checkout();
    fs::write(checkout.path().join("taken"), "").expect("a file");
    fs::write(checkout.path().join("configs/host.yaml"), format!("FLAGPERF_LOG_PATH: taken\n{HOST}")).expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
}

/// Starts a run whose worker stays in its first step; then `$run` is the program and `$worker` its worker, which has
/// reported its start.
const BEGIN: &str = r#"
    "$0" run --set sleep_ms=600000 & run=$!
    until worker=$(cat result/*/*/*/events.jsonl 2>/dev/null | grep -om1 '"pid":[0-9]*[,}]'); do
        kill -0 $run || exit; sleep 0.1
    done
    worker=${worker//[!0-9]/}
"#;

/// Runs lines of bash in the checkout, where `$0` is the program; gives what they printed.
fn bash(checkout: &Path, script: &str) -> (String, String) {
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let mut command = Command::new("/bin/bash");
    command.args(["-c", script]).arg(program).current_dir(checkout).timeout(Duration::from_secs(580));
    let output = command.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Whether the worker that a run started is still there.
fn worker_is_there(folder: &Path) -> bool {
    let events = fs::read_to_string(folder.join("events.jsonl")).expect("events");
    let started: serde_json::Value = serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
    Path::new(&format!("/proc/{}", started["pid"])).exists()
}

#[test]
fn ctrl_c_leaves_a_record_and_no_process() {
    let checkout = checkout();
    let (out, err) = bash(checkout.path(), &format!("{BEGIN} kill -INT $run; wait $run; echo code $?"));
    assert!(out.contains("code 130"), "{out}\n{err}");
    let (folder, record) = record(checkout.path());
    assert_eq!(record["status"], "interrupted");
    assert!(!worker_is_there(&folder));
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_leaves_no_process() {
    let checkout = checkout();
    // The first one waits for a worker that takes no notice: it is stopped, so that SIGTERM (bit 14) stays pending.
    let script = "kill -STOP $worker; kill -INT $run
        until grep -q '^ShdPnd:.*[4-7c-f]...$' /proc/$worker/status; do sleep 0.1; done
        kill -INT $run; wait $run; echo code $?; kill -CONT $worker
        while grep '^State:' /proc/$worker/status | grep -qv zombie; do sleep 0.1; done; echo gone";
    let (out, err) = bash(checkout.path(), &format!("{BEGIN} {script}"));
    assert!(out.contains("code 130") && out.contains("gone"), "{out}\n{err}");
}

#[test]
fn a_phase_that_hangs_is_killed_at_its_limit_and_leaves_no_process() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), format!("PHASE_TIMEOUT: 10\n{HOST}")).expect("a file");
    let (record, code) = program::record(checkout.path(), &["--set", "sleep_ms=600000"]);
    assert_eq!(code, Some(1));
    assert_eq!(record["failures"][0]["reason"], "the phase took longer than 10 s and was killed");
    assert!(!worker_is_there(&self::record(checkout.path()).0));
}

#[test]
fn a_worker_that_is_killed_leaves_a_failed_record_with_the_signal() {
    let checkout = checkout();
    let (out, err) = bash(checkout.path(), &format!("{BEGIN} kill -9 $worker; wait $run; echo code $?"));
    assert!(out.contains("code 1\n"), "{out}\n{err}");
    let reason = record(checkout.path()).1["failures"][0]["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.ends_with("killed by signal 9 (SIGKILL): perhaps out of memory"), "{reason}");
}

#[test]
fn a_record_that_does_not_fit_on_the_disk_is_printed_instead() {
    let checkout = checkout();
    // Files of at most 4 KiB stand for a disk that is full: the record is larger.
    let (out, err) = bash(checkout.path(), "trap '' XFSZ; ulimit -f 4; \"$0\" run; echo code $?");
    assert!(out.contains("code 3\n"), "{out}\n{err}");
    assert!(err.contains("error: cannot write `") && err.contains("hint: free some space"), "{err}");
    assert!(err.contains("\"finish_info\": {"), "{err}");
}
