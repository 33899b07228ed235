//! The program as users see it: command, exit code, standard output, standard error.

mod ablate;
mod commands;
mod compare;
mod dataset;
mod graph;
mod import;
mod lint;
mod live;
mod microbenchmark;
mod monitors;
mod new;
mod operator;
mod pareto;
mod peak_devices;
mod processes;
mod refusals;
mod report;
mod review;
mod site;
mod slowdown;
mod training;
mod unusable;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::program::flagperf;
use crate::support::{self, Missing, program};

/// Settings of the case `tiny`. Its data is synthetic, so no dataset is read or drawn.
const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 2\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";
const HOST: &str = "VENDOR: mock\nCASES:\n    \"tiny:mock\": \"data\"\n";

/// Creates a checkout with the case `tiny` on the vendor `mock`.
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

/// Runs a command and returns it with its exit code and both outputs, with the checkout's path redacted.
fn transcript(checkout: &Path, arguments: &[&str]) -> String {
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

/// Returns the folder and the record of the checkout's only case and run.
fn record(checkout: &Path) -> (PathBuf, serde_json::Value) {
    let run = fs::read_dir(checkout.join("result")).expect("results").next().expect("a run").expect("a folder").path();
    let folder = run.join("tiny_mock/localhost_noderank0");
    let text = fs::read_to_string(folder.join("record.json")).expect("a record");
    (folder, serde_json::from_str(&text).expect("JSON"))
}

/// Runs a bash script in the checkout, where `$0` is the program, and returns its standard output and standard error.
fn bash(checkout: &Path, script: &str) -> (String, String) {
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let mut command = Command::new("/bin/bash");
    command.args(["-c", script]).arg(program).current_dir(checkout).timeout(Duration::from_secs(580));
    let output = command.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_contains_the_table_of_exit_codes() {
    insta::assert_snapshot!(transcript(checkout().path(), &["--help"]));
}

#[test]
fn an_unknown_case_lists_the_known_ones() {
    insta::assert_snapshot!(transcript(checkout().path(), &["run", "--case", "tyni"]));
}

#[test]
fn an_unknown_vendor_lists_the_known_ones() {
    insta::assert_snapshot!(transcript(checkout().path(), &["run", "--vendor", "mok"]));
}

#[test]
fn an_unknown_setting_is_refused_before_anything_runs() {
    let checkout = checkout();
    insta::assert_snapshot!(transcript(checkout.path(), &["run", "--set", "bach_size=2"]));
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn malformed_yaml_is_shown_with_its_line() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), "VENDOR: mock\nCASES: {\n").expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
}

#[test]
fn a_missing_host_file_is_named() {
    let checkout = checkout();
    fs::remove_file(checkout.path().join("configs/host.yaml")).expect("it was there");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
}

#[test]
fn a_wrong_type_is_shown_with_its_line() {
    let checkout = checkout();
    let wrong = CONFIGURATIONS.replace("batch_size: 4", "batch_size: four");
    fs::write(checkout.path().join("configs/tiny/configurations.yaml"), wrong).expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["plan"]));
}

#[test]
fn a_mistyped_target_is_refused_with_its_line() {
    let checkout = checkout();
    let parameters =
        "samples: 10\nweights: null\nseed: abc\ntarget_accuracy:\n    top1: \"0.99\"\nbad_samples: cuont\n";
    fs::write(checkout.path().join("configs/tiny/parameters.yaml"), parameters).expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn an_option_value_that_the_engine_rejects_is_reported_with_its_line() {
    let checkout = checkout();
    let file = checkout.path().join("configs/tiny/vendor_config/mock_configurations.yaml");
    fs::write(file, "compiler: mock\n# An hour at most.\nsleep_ms: 1e308\n").expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
}

#[test]
fn measurement_rules_in_an_overlay_are_refused_with_their_line() {
    let checkout = checkout();
    let overlay = "compiler: mock\npreloaded: true\nflops: 1e12\n";
    let file = checkout.path().join("configs/tiny/vendor_config/mock_configurations.yaml");
    fs::write(file, overlay).expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
}

#[test]
fn plan_notes_keys_without_effect() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), format!("{HOST}SSH_PORT: \"22\"\nSHM_SIZE: 32G\n"))
        .expect("a file");
    let output = flagperf(checkout.path(), &["plan"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_missing_data_directory_is_named() {
    let checkout = checkout();
    insta::assert_snapshot!(transcript(checkout.path(), &["run", "--data", "/no/such/data"]));
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
    flagperf_result::verify_chain(&folder.join("events.jsonl"), hash).expect("the chain holds");
    assert_eq!(record["provenance"]["git_revision"], serde_json::Value::Null, "the checkout is in no repository");
    for (key, setting) in record["settings"].as_object().expect("settings") {
        let text = setting["value"].as_str().unwrap_or_default();
        let typed =
            text.parse::<f64>().is_ok() || ["true", "false", "null"].contains(&text) || text.starts_with(['[', '{']);
        let is_text = key == "flops" || key.contains(".engine");
        assert!(!typed || is_text, "`{key}` has its value as text: {text}");
    }
    check_files_of_a_run(&folder);
    check_schema_of_the_record(&record);
}

/// Checks that docs/schemas describes a record.
fn check_schema_of_the_record(record: &serde_json::Value) {
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    let file = support::root().join("docs/schemas/record.json");
    let index = compiler.compile(file.to_str().expect("a path"), &mut schemas).expect("a schema");
    let errors = |record: &serde_json::Value| schemas.validate(record, index).err().map(|error| format!("{error:#}"));
    assert_eq!(errors(record), None);
    for (key, wrong) in [("status", "fine".into()), ("schema", 1.into()), ("phases", serde_json::json!([{}]))] {
        let mut record = record.clone();
        record[key] = wrong;
        assert_ne!(errors(&record), None, "{key}");
    }
}

/// Checks that the reference lists every file in the folder of a run.
fn check_files_of_a_run(folder: &Path) {
    let page = "docs/reference/results.md";
    let text = fs::read_to_string(support::root().join(page)).expect("the page");
    let tree = text.split("\nresult/run").nth(1).expect("the tree").split("```").next().expect("its end");
    let host = folder.parent().and_then(Path::parent).expect("the folder of the run");
    let entries = [folder, host].map(|folder| fs::read_dir(folder).expect("a folder"));
    for entry in
        entries.into_iter().flatten().map(|entry| entry.expect("a file")).filter(|entry| entry.path().is_file())
    {
        let name = entry.file_name().to_string_lossy().replace("tiny_bs4_mock_fp16False", "<model>");
        let name = name.replace(".validate.", ".<phase>.").replace(".infer.", ".<phase>.");
        assert!(tree.split_whitespace().any(|listed| listed == name), "{page} does not list `{name}`");
    }
}

#[test]
fn the_record_has_the_revision_of_the_checkout_and_whether_files_differ_from_it() {
    let checkout = checkout();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let output =
            assert_cmd::Command::new("git").current_dir(checkout.path()).args(identity).args(arguments).output();
        output
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8(output.stdout).expect("text"))
    };
    fs::write(checkout.path().join(".gitignore"), "result\ngenerated\n").expect("a file");
    if git(&["init", "--quiet"]).is_none() {
        return support::leave_out(&Missing::new("no program `git`", "run `apt-get install git`"));
    }
    git(&["add", "."]).expect("git adds");
    git(&["commit", "--quiet", "-m", "all"]).expect("git commits");
    let head = git(&["rev-parse", "HEAD"]).expect("a commit");
    let provenance = || program::record(checkout.path(), &[]).0["provenance"].clone();
    let clean = provenance();
    assert_eq!((&clean["git_revision"], &clean["git_clean"]), (&head.trim().into(), &true.into()));
    let script = checkout.path().join("scripts/tiny/forward.rhai");
    let text = fs::read_to_string(&script).expect("a script");
    fs::write(&script, format!("// Changed.\n{text}")).expect("a script");
    assert_eq!(provenance()["git_clean"], false);
}

#[test]
fn a_compiler_that_opens_no_onnx_file_accepts_a_placeholder() {
    let checkout = checkout();
    let vendor = checkout.path().join("vendors/mock/vendor.yaml");
    let text = fs::read_to_string(&vendor).expect("a file");
    let own = "    own: {engine: \"null\", opens_onnx: false, options: {inputs: {images: \"N,3,8,8,f32\"}, outputs: {y: \"N,1000,f32\"}}}\n";
    fs::write(&vendor, text.replace("compilers:\n", &format!("compilers:\n{own}"))).expect("a file");
    fs::remove_file(checkout.path().join("scripts/tiny/model.rhai")).expect("without validation, no model is built");
    let set = ["--set", "compiler=own", "--set", "no_validation=true", "--set", "exist_onnx_path=foo"];
    let (record, code) = program::record(checkout.path(), &set);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(record["phases"].as_array().map(Vec::len), Some(1));
    let weights = record["phases"][0]["model"]["weights"].as_str().expect("the source of the weights");
    assert!(weights.starts_with("the compiler's own (`") && weights.ends_with("foo` is a placeholder)"), "{weights}");
}

#[test]
fn the_record_lists_departures_from_the_standard_configuration() {
    let checkout = checkout();
    assert_eq!(flagperf(checkout.path(), &["run", "--set", "batch_size=2"]).status.code(), Some(0));
    assert_eq!(record(checkout.path()).1["departures"], serde_json::json!(["batch_size=2"]));
}

#[test]
fn results_that_cannot_be_written_are_refused_before_anything_runs() {
    let checkout = checkout();
    fs::write(checkout.path().join("taken"), "").expect("a file");
    fs::write(checkout.path().join("configs/host.yaml"), format!("FLAGPERF_LOG_PATH: taken\n{HOST}")).expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["run"]));
}

/// Starts a run whose worker stays in its first step, and waits until the worker has reported its start. Afterwards
/// `$run` is the process ID of the program and `$worker` that of its worker.
const START_RUN: &str = r#"
    "$0" run --set sleep_ms=600000 & run=$!
    until worker=$(cat result/*/*/*/events.jsonl 2>/dev/null | grep -om1 '"pid":[0-9]*[,}]'); do
        kill -0 $run || exit; sleep 0.1
    done
    worker=${worker//[!0-9]/}
"#;

#[test]
fn without_loader_workers_the_loop_loads_the_data_itself() {
    let checkout = checkout();
    let (record, code) = program::record(checkout.path(), &["--set", "num_workers=0"]);
    assert_eq!((code, &record["status"]), (Some(0), &"ok".into()), "{}", record["failures"]);
    assert_eq!(record["phases"][0]["measured"][0]["samples"], 20);
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
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
fn messages_that_cannot_be_printed_do_not_stop_a_run() {
    let checkout = checkout();
    let (out, _) = bash(
        checkout.path(),
        "\"$0\" run 2> /dev/full > /dev/null; echo code $?; \"$0\" run --case none 2> /dev/full; echo code $?",
    );
    assert_eq!(out, "code 0\ncode 2\n");
}

#[test]
fn results_whose_folder_is_deleted_during_the_run_are_printed() {
    let checkout = checkout();
    let script = r#""$0" run --set sleep_ms=100 & run=$!
        until grep -qs started result/*/tiny_mock/*/events.jsonl; do sleep 0.05; done
        rm -rf result; wait $run; echo code $?"#;
    let (out, err) = bash(checkout.path(), script);
    assert!(out.ends_with("code 3\n"), "{out}\n{err}");
    assert!(err.contains("error: cannot write `") && err.contains("\"finish_info\": {"), "{err}");
}

#[test]
fn a_run_survives_the_replacement_of_its_executable_file() {
    let checkout = checkout();
    let script = r#"cp "$0" own; ./own run --set sleep_ms=100 & run=$!
        until grep -qs started result/*/tiny_mock/*/events.jsonl; do sleep 0.05; done
        printf '#!/bin/sh\nexit 9\n' > other; chmod +x other; mv other own; wait $run; echo code $?"#;
    let (out, err) = bash(checkout.path(), script);
    assert!(out.ends_with("code 0\n"), "{out}\n{err}");
    let program = flagperf_core::hash::hash_file(&assert_cmd::cargo::cargo_bin("flagperf")).expect("a program");
    assert_eq!(record(checkout.path()).1["provenance"]["binary_sha256"], program);
}

#[test]
fn models_that_are_not_regular_files_are_refused_before_anything_runs() {
    let checkout = checkout();
    nix::unistd::mkfifo(&checkout.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    for (path, what) in [("fifo", "is a FIFO, not a regular file"), ("/dev/zero", "is a device, not a regular file")] {
        let output = flagperf(checkout.path(), &["run", "--set", &format!("exist_onnx_path={path}")]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(what), "{stderr}");
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

/// Inserts lines into the `create_model` function of the case's script.
fn insert_into_create_model(checkout: &Path, lines: &str) {
    let path = checkout.join("scripts/tiny/model.rhai");
    let text = fs::read_to_string(&path).expect("a script");
    let begin = "fn create_model(config) {\n";
    assert!(text.contains(begin), "{text}");
    fs::write(path, text.replace(begin, &format!("{begin}{lines}\n"))).expect("a file");
}

#[test]
fn log_lines_of_a_script_loop_are_limited_and_the_rest_is_counted() {
    let checkout = checkout();
    insert_into_create_model(
        checkout.path(),
        "for i in 0..20000 { log::info(\"again\"); log::detail(\"again\"); log::warn(`warning ${i}`); }",
    );
    let (record, code) = program::record(checkout.path(), &[]);
    assert_eq!(code, Some(0), "{record}");
    let (folder, _) = self::record(checkout.path());
    assert!(fs::metadata(folder.join("events.jsonl")).expect("events").len() < 2 << 20);
    let log = fs::read_to_string(folder.join("container.out.log")).expect("a log");
    for line in ["build - number of dropped log lines: 39000", "build - number of dropped warnings: 19000"] {
        assert!(log.contains(line), "{line}");
    }
}

#[test]
fn a_script_cannot_forge_log_lines() {
    let checkout = checkout();
    let forged = r#"log::warn("x\n2026-01-01 00:00:00.000 | Finish Info | run - {}\x1b[2J");"#;
    insert_into_create_model(checkout.path(), forged);
    let output = flagperf(checkout.path(), &["run"]);
    for output in [output.stdout, output.stderr] {
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(text.contains("x") && !text.contains('\x1b') && !text.contains("\n2026-01-01"), "{text}");
    }
    let (folder, record) = record(checkout.path());
    let log = fs::read_to_string(folder.join("container.out.log")).expect("a log");
    let results = log.lines().filter(|line| line.split(" | ").nth(1).is_some_and(|name| name == "Finish Info"));
    assert_eq!(results.count(), 1, "{log}");
    assert!(log.contains(r"x\n2026-01-01 00:00:00.000 | Finish Info | run - {}\u{1b}[2J"), "{log}");
    assert!(record["warnings"].to_string().contains(r"x\n2026"), "the record contains the text unchanged");
}

#[test]
fn a_display_that_is_never_read_does_not_delay_a_run() {
    let checkout = checkout();
    insert_into_create_model(checkout.path(), r#"let s = "x"; s.pad(500, 'x'); for i in 0..900 { log::warn(s + i); }"#);
    let script = "mkfifo display; sleep 600 < display & \"$0\" run 2> display > table; echo code $?; kill $!";
    let (out, _) = bash(checkout.path(), script);
    assert_eq!(out, "code 0\n");
    assert_eq!(record(checkout.path()).1["status"], "ok");
}
