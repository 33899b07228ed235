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
fn a_mistyped_target_is_refused_with_its_line() {
    let checkout = checkout();
    let parameters =
        "samples: 10\nweights: null\nseed: abc\ntarget_accuracy:\n    top1: \"0.99\"\nbad_samples: cuont\n";
    fs::write(checkout.path().join("configs/tiny/parameters.yaml"), parameters).expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn an_option_that_its_engine_does_not_take_is_refused_where_it_is_set() {
    let checkout = checkout();
    let file = checkout.path().join("configs/tiny/vendor_config/mock_configurations.yaml");
    fs::write(file, "compiler: mock\n# An hour at most.\nsleep_ms: 1e308\n").expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
}

#[test]
fn rules_of_measuring_in_an_overlay_are_refused_with_their_line() {
    let checkout = checkout();
    let overlay = "compiler: mock\npreloaded: true\nflops: 1e12\n";
    let file = checkout.path().join("configs/tiny/vendor_config/mock_configurations.yaml");
    fs::write(file, overlay).expect("a file");
    insta::assert_snapshot!(said(checkout.path(), &["run"]));
}

#[test]
fn keys_without_effect_are_noted_by_plan() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), format!("{HOST}SSH_PORT: \"22\"\nSHM_SIZE: 32G\n"))
        .expect("a file");
    let output = flagperf(checkout.path(), &["plan"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr));
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
fn every_signal_that_asks_for_the_end_leaves_a_record() {
    // A terminal that closes sends its signal more than once.
    for signals in ["kill -QUIT $run", "kill -HUP $run; kill -HUP $run; kill -HUP $run"] {
        let checkout = checkout();
        let (out, err) = bash(checkout.path(), &format!("{BEGIN} {signals}; wait $run; echo code $?"));
        assert!(out.contains("code 130"), "{signals}: {out}\n{err}");
        assert_eq!(record(checkout.path()).1["status"], "interrupted", "{signals}");
    }
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
    let (out, err) = bash(checkout.path(), "ulimit -f 4; \"$0\" run; echo code $?");
    assert!(out.contains("code 3\n"), "{out}\n{err}");
    assert!(err.contains("error: cannot write `") && err.contains("hint: free some space"), "{err}");
    assert!(err.contains("\"finish_info\": {"), "{err}");
}

#[test]
fn without_workers_the_loop_loads_by_itself() {
    let checkout = checkout();
    let (record, code) = program::record(checkout.path(), &["--set", "num_workers=0"]);
    assert_eq!((code, &record["status"]), (Some(0), &"ok".into()), "{}", record["failures"]);
    assert_eq!(record["phases"][0]["measured"][0]["samples"], 20);
}

#[test]
fn a_result_that_cannot_be_printed_is_no_success() {
    let checkout = checkout();
    for command in ["run --json", "run", "plan", "list cases", "doctor", "backend list"] {
        let (out, err) = bash(checkout.path(), &format!("\"$0\" {command} > /dev/full; echo code $?"));
        assert_eq!(out, "code 3\n", "{command}: {err}");
        let message = "error: cannot write to standard output: No space left on device (os error 28)\n";
        assert!(err.contains(message), "{command}: {err}");
        assert_eq!(command.starts_with("run"), err.contains("  hint: records are in "), "{command}: {err}");
    }
    assert_eq!(fs::read_dir(checkout.path().join("result")).expect("results").count(), 2);
}

#[test]
fn messages_that_nobody_can_read_stop_nothing() {
    let checkout = checkout();
    let (out, _) = bash(
        checkout.path(),
        "\"$0\" run 2> /dev/full > /dev/null; echo code $?; \"$0\" run --case none 2> /dev/full; echo code $?",
    );
    assert_eq!(out, "code 0\ncode 2\n");
}

#[test]
fn results_whose_folder_goes_away_are_printed() {
    let checkout = checkout();
    let script = r#""$0" run --set sleep_ms=100 & run=$!
        until grep -qs started result/*/tiny_mock/*/events.jsonl; do sleep 0.05; done
        rm -rf result; wait $run; echo code $?"#;
    let (out, err) = bash(checkout.path(), script);
    assert!(out.ends_with("code 3\n"), "{out}\n{err}");
    assert!(err.contains("error: cannot write `") && err.contains("\"finish_info\": {"), "{err}");
}

#[test]
fn a_program_that_is_replaced_goes_on_as_it_began() {
    let checkout = checkout();
    let script = r#"cp "$0" own; ./own run --set sleep_ms=100 & run=$!
        until grep -qs started result/*/tiny_mock/*/events.jsonl; do sleep 0.05; done
        printf '#!/bin/sh\nexit 9\n' > other; chmod +x other; mv other own; wait $run; echo code $?"#;
    let (out, err) = bash(checkout.path(), script);
    assert!(out.ends_with("code 0\n"), "{out}\n{err}");
    let program = flagperf::hash::hash_file(&assert_cmd::cargo::cargo_bin("flagperf")).expect("a program");
    assert_eq!(record(checkout.path()).1["provenance"]["binary_sha256"], program);
}

#[test]
fn models_that_are_no_files_are_refused_before_anything_runs() {
    let checkout = checkout();
    nix::unistd::mkfifo(&checkout.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    for (path, what) in [("fifo", "is a FIFO, not a regular file"), ("/dev/zero", "is a device, not a regular file")] {
        let output = flagperf(checkout.path(), &["run", "--set", &format!("exist_onnx_path={path}")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    }
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn scripts_that_cannot_be_hashed_are_named_in_the_record() {
    let checkout = checkout();
    let scripts = checkout.path().join("scripts/tiny");
    for (target, link) in [("gone", "dangling.rhai"), ("/", "root"), (".", "self")] {
        std::os::unix::fs::symlink(target, scripts.join(link)).expect("a link");
    }
    nix::unistd::mkfifo(&scripts.join("fifo.rhai"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let (record, code) = program::record(checkout.path(), &[]);
    assert_eq!(code, Some(0), "{record}");
    assert!(record["provenance"]["scripts_sha256"]["tiny/model.rhai"].is_string(), "{}", record["provenance"]);
    let warnings = record["warnings"].to_string();
    for name in ["tiny/dangling.rhai", "tiny/root", "tiny/fifo.rhai"] {
        assert!(warnings.contains(&format!("`{name}` is not in scripts_sha256: ")), "{warnings}");
    }
}

/// Adds lines to the function of the case's script that makes the model.
fn in_create_model(checkout: &Path, lines: &str) {
    let path = checkout.join("scripts/tiny/model.rhai");
    let text = fs::read_to_string(&path).expect("a script");
    let begin = "fn create_model(config) {\n";
    assert!(text.contains(begin), "{text}");
    fs::write(path, text.replace(begin, &format!("{begin}{lines}\n"))).expect("a file");
}

#[test]
fn what_a_script_logs_in_a_loop_is_bounded_and_counted() {
    let checkout = checkout();
    in_create_model(
        checkout.path(),
        "for i in 0..20000 { log::info(\"again\"); log::detail(\"again\"); log::warn(`warning ${i}`); }",
    );
    let (record, code) = program::record(checkout.path(), &[]);
    assert_eq!(code, Some(0), "{record}");
    let (folder, _) = self::record(checkout.path());
    assert!(fs::metadata(folder.join("events.jsonl")).expect("events").len() < 2 << 20);
    let log = fs::read_to_string(folder.join("container.out.log")).expect("a log");
    for said in ["build - 39000 lines of the log were left out", "build - 19000 warnings were left out"] {
        assert!(log.contains(said), "{said}");
    }
}

#[test]
fn a_script_cannot_write_a_line_of_the_log_that_is_not_its_own() {
    let checkout = checkout();
    let forged = r#"log::warn("x\n2026-01-01 00:00:00.000 | Finish Info | run - {}\x1b[2J");"#;
    in_create_model(checkout.path(), forged);
    let output = flagperf(checkout.path(), &["run"]);
    for said in [output.stdout, output.stderr] {
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("x") && !said.contains('\x1b') && !said.contains("\n2026-01-01"), "{said}");
    }
    let (folder, record) = record(checkout.path());
    let log = fs::read_to_string(folder.join("container.out.log")).expect("a log");
    let results = log.lines().filter(|line| line.split(" | ").nth(1).is_some_and(|name| name == "Finish Info"));
    assert_eq!(results.count(), 1, "{log}");
    assert!(log.contains(r"x\n2026-01-01 00:00:00.000 | Finish Info | run - {}\u{1b}[2J"), "{log}");
    assert!(record["warnings"].to_string().contains(r"x\n2026"), "the record has it as it was said");
}

#[test]
fn a_display_that_nobody_reads_holds_up_nothing() {
    let checkout = checkout();
    in_create_model(checkout.path(), r#"let s = "x"; s.pad(500, 'x'); for i in 0..900 { log::warn(s + i); }"#);
    let script = "mkfifo display; sleep 600 < display & \"$0\" run 2> display > table; echo code $?; kill $!";
    let (out, _) = bash(checkout.path(), script);
    assert_eq!(out, "code 0\n");
    assert_eq!(record(checkout.path()).1["status"], "ok");
}
