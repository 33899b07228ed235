//! A case that a training program trains: a shell script that prints the lines of FlagPerf's programs, well and badly.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{checkout, program};

const KEY: &str = "fake:program:cpu:1:1:1";
const TRAINING: &str = r#"batch_size: 8
learning_rate: 0.1
log_freq: 1
max_epochs: 5
target: {acc1: 75.5}
command: [sh, train.sh, "{mode}", "{batch_size}"]
patterns: {loss: "lm loss: (\\S+)", step: "iteration (\\d+)/", acc1: "Acc@1 (\\S+)"}
"#;
/// The program of the case. `event NAME [JSON]` prints a line of FlagPerf.
const PROGRAM: &str = r#"
event() { echo "[PerfLog] {\"event\": \"$1\"${2:+, $2}, \"metadata\": {\"rank\": 0}}" >&2; }
value() { event "$1" "\"value\": {$2}"; }
epoch() {
    event EPOCH_BEGIN
    for step in $1; do
        event STEP_BEGIN "\"step\": $step"; sleep 0.02; value STEP_END "\"loss\": 1.5, \"global_steps\": $step"
    done
    event EPOCH_END
}
finish() { value FINISHED "\"e2e_time\": 9.5, \"converged\": true, \"final_acc1\": 76.0, \"throughput(ips)_raw\": 1e3"; }
echo "mode $1, batches of $2"
case $1 in
good)
    event INIT_START; event INIT_END '"other": "Finish initialization"'; event TRAIN_START
    epoch "1 2 3"; value EVALUATE '"global_steps": 3, "eval_acc1": 70.0, "time": 0.001'
    epoch "4 5 6"; value EVALUATE '"global_steps": 6, "eval_acc1": 76.0, "time": 0.001'
    event TRAIN_END; finish ;;
disorder)
    value EVALUATE '"eval_acc1": 80.0'; event EPOCH_END; event TRAIN_START
    value STEP_END '"loss": 1.0, "global_steps": 4'; value STEP_END '"loss": 9.0, "global_steps": 2'
    echo '[PerfLog] {"event": "STEP_END", "value": {"lo'; echo '[PerfLog] {"event"'
    value STEP_END '"loss": 0.5, "global_steps": 6'; event INIT_START; finish; value EVALUATE '"eval_acc1": 76.0' ;;
patterns)
    for step in 10 20 30; do echo "iteration $step/ 30 | lm loss: 1.0E+00 |"; sleep 0.02; done; echo " * Acc@1 76.5 Acc@5 90" ;;
nan) event TRAIN_START; value STEP_END '"loss": 2.0, "global_steps": 1'; value STEP_END '"loss": NaN, "global_steps": 2'; sleep 600 ;;
unfinished) event TRAIN_START; epoch "1 2 3"; value EVALUATE '"eval_acc1": 70.0' ;;
failing) event TRAIN_START; epoch "1 2 3"; exit 3 ;;
silent) : ;;
staying) event TRAIN_START; epoch "1 2 3"; finish; sleep 600 & sleep 601 ;;
endless) event TRAIN_START; epoch "1 2 3"; exec yes "$(printf %02000d 7)" ;;
esac
"#;

/// Creates a checkout with the case `fake`, which is nothing but configuration and a program in its data directory.
fn fake(phase_timeout: u32) -> TempDir {
    let checkout = checkout();
    let write = |path: &str, text: &str| {
        let path = checkout.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("configs/fake/training.yaml", TRAINING);
    write("configs/fake/parameters.yaml", "mode: good\nunit: image\n");
    write("data/train.sh", PROGRAM);
    write(
        "configs/host.yaml",
        &format!("VENDOR: cpu\nPHASE_TIMEOUT: {phase_timeout}\nCASES:\n    \"{KEY}\": \"data\"\n"),
    );
    checkout
}

/// Runs the program in a mode; returns the record and the exit code.
fn run(checkout: &Path, mode: &str) -> (Value, Option<i32>) {
    program::record(checkout, &["--set", &format!("mode={mode}")])
}

fn round(record: &Value) -> &Value {
    &record["phases"][0]["training"]["rounds"][0]
}

fn result(checkout: &Path, record: &Value) -> std::path::PathBuf {
    let run = record["run"].as_str().expect("the name of the run");
    checkout.join(format!("result/{run}/fake_program_cpu_1x1/localhost_noderank0"))
}

fn reason(record: &Value) -> &str {
    record["failures"][0]["reason"].as_str().unwrap_or_default()
}

#[test]
fn the_training_of_a_program_is_measured_recorded_and_unofficial() {
    let checkout = fake(300);
    let (record, code) = run(checkout.path(), "good");
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let round = round(&record);
    assert_eq!((&round["epochs"], &round["samples"]), (&json!(2), &json!(48)), "{round}");
    assert_eq!(round["evaluations"][1]["metrics"], json!({"acc1": 76.0}));
    assert_eq!(round["reported"]["throughput(ips)_raw"], 1e3);
    let rate = |part: &str| round[format!("throughput_{part}_samples_per_s")].as_f64().expect("a rate");
    assert!(rate("whole") < rate("train") && rate("whole") < 1e3, "{round}");
    assert_eq!((&record["accuracy"]["verdict"], &record["validity"]["verdict"]), (&json!("met"), &json!("unofficial")));
    assert!(!record["warnings"].to_string().contains("scripts_sha256"), "{}", record["warnings"]);
    let reasons = record["validity"]["reasons"].to_string();
    assert!(reasons.contains("reported by the program"), "{reasons}");
    let engine = &record["phases"][0]["engine"];
    assert_eq!(engine["sidecar"]["command"], json!(["sh", "train.sh", "good", "8"]));
    assert!(engine["sidecar"]["files_sha256"]["train.sh"].is_string(), "{engine}");
    let folder = result(checkout.path(), &record);
    let printed = fs::read_to_string(folder.join("stdout_err.out.log")).expect("the output of the program");
    assert!(printed.starts_with("mode good, batches of 8\n"), "{printed}");
    let log = fs::read_to_string(folder.join("round1/localhost_noderank0/rank0.out.log")).expect("a log");
    assert!(log.contains(r#""event":"STEP_END","value":{"loss":1.5,"epoch":2,"global_steps":6"#), "{log}");
    let host = fs::read_to_string(folder.ancestors().nth(2).expect("the folder of the run").join("host.out.log"));
    let host = host.expect("the log of the run");
    let parts = ["flagperf Training benchmarks: fake:", "=== Training Case Performance ===", "| run - p_whole(qps) "];
    assert!(parts.iter().all(|part| host.contains(part)) && !host.contains("p_validation"), "{host}");
    let verified = program::flagperf(checkout.path(), &["verify", &folder.to_string_lossy()]);
    let text = [verified.stdout, verified.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(verified.status.code() == Some(0) && text.contains("consistent"), "{text}");
}

#[test]
fn lines_out_of_order_or_cut_and_those_of_other_programs_are_read_as_far_as_possible() {
    let checkout = fake(300);
    let (record, code) = run(checkout.path(), "disorder");
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(round(&record)["samples"], 48);
    assert!(
        record["warnings"].to_string().contains("the program reported 16 samples after 32"),
        "{}",
        record["warnings"]
    );
    let (record, code) = run(checkout.path(), "patterns");
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!((&round(&record)["samples"], &record["accuracy"]["training"]), (&json!(240), &json!({"acc1": 76.5})));
}

#[test]
fn a_program_that_does_not_train_well_fails_with_the_reason() {
    let checkout = fake(300);
    for (mode, expected) in [
        ("nan", "step 2: the program reported the loss NaN"),
        ("unfinished", "accuracy check failed: training: `acc1` is 70.0000, but the target is 75.5"),
        ("failing", "the program ended before the end of its training: exited with status 3"),
        ("silent", "the program reported nothing"),
    ] {
        let (record, code) = run(checkout.path(), mode);
        assert_eq!((code, reason(&record)), (Some(1), expected), "{mode}");
    }
}

#[test]
fn a_program_that_stays_after_its_last_line_is_ended() {
    let checkout = fake(300);
    let (record, code) = run(checkout.path(), "staying");
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(record["finish_info"]["converged"], true);
}

#[test]
fn a_program_that_prints_without_end_is_ended_at_the_time_limit_and_its_output_is_limited() {
    let checkout = fake(6);
    let (record, code) = run(checkout.path(), "endless");
    assert_eq!((code, reason(&record)), (Some(1), "the phase took longer than 6 s and was killed"));
    let size = fs::metadata(result(checkout.path(), &record).join("stdout_err.out.log")).expect("a log").len();
    assert!(size < 65 << 20, "{size}");
}

#[test]
fn a_command_that_is_missing_or_unknown_and_a_bad_pattern_are_found_by_plan() {
    let checkout = fake(300);
    let refused = |from: &str, to: &str, message: &str| {
        let training = TRAINING.replace(from, to);
        assert_ne!(training, TRAINING);
        fs::write(checkout.path().join("configs/fake/training.yaml"), training).expect("a file");
        let output = program::flagperf(checkout.path(), &["plan"]);
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.code() == Some(2) && text.contains(message), "{text}");
    };
    let command = "command: [sh, train.sh, \"{mode}\", \"{batch_size}\"]\n";
    refused(command, "", "framework `program` starts a program, but the case has no `command`");
    refused("{mode}", "{mood}", "`{mood}` names no key of the case");
    refused("(\\\\S+)\", step", "\\\\S+\", step", "`patterns`: `loss` has no group in parentheses");
}

#[test]
fn lint_checks_a_case_with_a_training_program_that_no_vendor_names() {
    let checkout = fake(300);
    let file = |path: &str| checkout.path().join(path);
    fs::write(file("configs/host.yaml"), "VENDOR: cpu\nCASES: {}\n").expect("a file");
    fs::write(file("configs/fake/training.yaml"), TRAINING.replace("{batch_size}", "{size_of_batches}"))
        .expect("a file");
    let linted = program::flagperf(checkout.path(), &["lint", "fake"]);
    let text = [linted.stdout, linted.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(linted.status.code() == Some(2) && text.contains("`{size_of_batches}`"), "{text}");
}
