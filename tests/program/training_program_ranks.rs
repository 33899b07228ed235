//! A training program that is started once for each of several devices: a shell script, and one that joins a group with PyTorch.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::training_group::{command, json as json_of, run_folder};
use crate::support;

const KEY: &str = "fake:program:cpu:1:2:1";
const TRAINING: &str = r#"batch_size: 8
learning_rate: 0.1
log_freq: 1
max_epochs: 5
target: {acc1: 75.5}
command: ["{interpreter}", "{program}", "{mode}", "{batch_size}", "{batch_size_per_device}"]
"#;
const SHELL: &str = r#"
line() { echo "[PerfLog] {\"event\": \"$1\"${2:+, \"value\": {$2}}, \"metadata\": {\"rank\": 0}}" >&2; }
echo "rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on node $NODE_RANK at $MASTER_ADDR, devices $TEST_DEVICES, batches of $2 and $3"
line TRAIN_START
for step in 1 2 3; do sleep 0.02; line STEP_END "\"loss\": 1.5, \"global_steps\": $step, \"num_trained_samples\": $((8 * step))"; done
case $1$RANK in
good0) line EVALUATE '"global_steps": 3, "eval_acc1": 76.0'; line FINISHED '"final_acc1": 76.0' ;;
failing1) exit 3 ;;
failing*) sleep 600 & sleep 601 ;;
losing0) echo "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:3"; exit 1 ;;
losing1) sleep 2; exit 3 ;;
esac
"#;
const PYTORCH: &str = r#"
import json, os, sys
import torch
import torch.distributed as distributed

def line(event, **value):
    print("[PerfLog] " + json.dumps({"event": event, "value": value}), flush=True)

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(rank)
weight = torch.zeros(4)
line("TRAIN_START")
for step in range(1, 6):
    gradient = weight - torch.full((4,), float(rank))
    distributed.all_reduce(gradient)
    weight -= 0.5 * gradient / size
    if sys.argv[1] == "failing" and rank == 1 and step == 3:
        raise ValueError("a fault of this rank")
    line("STEP_END", loss=float(gradient.norm()) + 1e-9, global_steps=step, num_trained_samples=8 * step)
if rank == 0:
    line("EVALUATE", global_steps=5, eval_acc1=100 * float(weight.mean() / 0.5))
    line("FINISHED", final_acc1=100 * float(weight.mean() / 0.5))
distributed.barrier()
"#;

/// Creates a checkout with the case `fake`, whose program is this one.
fn fake(interpreter: &str, program: &str) -> TempDir {
    let checkout = support::checkout();
    let write = |path: &str, text: &str| {
        let path = checkout.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("configs/fake/training.yaml", TRAINING);
    write(
        "configs/fake/parameters.yaml",
        &format!("mode: good\ninterpreter: {interpreter}\nprogram: train\nunit: image\n"),
    );
    write("data/train", program);
    // Other tests train at the same time.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let site = "VENDOR: cpu\nACCE_VISIBLE_DEVICE_ENV_NAME: TEST_DEVICES\nCASES:\n";
    write("configs/host.yaml", &format!("{site}    \"{KEY}\": data\nMASTER_PORT: {free}\n"));
    checkout
}

/// Runs the program in a mode; returns what the command printed, and the folder of each rank.
fn run(checkout: &Path, mode: &str) -> (Output, [PathBuf; 2]) {
    let (mode, data) = (format!("mode={mode}"), checkout.join("data").display().to_string());
    let words = ["run", "--plain", "--case", KEY, "--set", &mode, "--data", &data];
    let output = command(checkout, &words).output().expect("the program starts");
    let run = run_folder(checkout).unwrap_or_else(|| panic!("no run: {}", String::from_utf8_lossy(&output.stderr)));
    (output, [0, 1].map(|rank| run.join(format!("fake_program_cpu_1x2/localhost_noderank0_device{rank}"))))
}

fn reason(rank: &Path) -> String {
    json_of(&rank.join("record.json"))["failures"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

fn round(rank: &Path) -> Value {
    json_of(&rank.join("record.json"))["phases"][0]["training"]["rounds"][0].clone()
}

#[test]
fn a_program_runs_once_for_each_device_with_the_variables_of_its_rank() {
    let checkout = fake("sh", SHELL);
    let (output, ranks) = run(checkout.path(), "good");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (rank, folder) in ranks.iter().enumerate() {
        let printed = fs::read_to_string(folder.join("stdout_err.out.log")).expect("the output of the program");
        let expected =
            format!("rank {rank} of 2, {rank} of 2 on node 0 at 127.0.0.1, devices 0,1, batches of 8 and 4\n");
        assert!(printed.starts_with(&expected), "{printed}");
        assert_eq!(round(folder)["samples"], 12, "half of the samples that the program states");
    }
    let summary = json_of(&ranks[0].with_file_name("summary.json"));
    assert_eq!((&summary["status"], &summary["validity"]), (&json!("ok"), &json!("unofficial")), "{summary}");
    assert!(summary["steps"][0]["throughput_core_samples_per_s"].as_f64().is_some(), "{summary}");
}

#[test]
fn the_first_program_that_fails_is_named_and_the_others_are_ended() {
    for (mode, own) in [("failing", "ended because rank 1"), ("losing", "ended because rank 1")] {
        let checkout = fake("sh", SHELL);
        let (output, [first, second]) = run(checkout.path(), mode);
        assert_eq!(output.status.code(), Some(1), "{mode}");
        let expected = "the program ended before the end of its training: exited with status 3";
        assert_eq!(reason(&second), expected, "{mode}");
        assert!(reason(&first).starts_with(own) && reason(&first).ends_with(expected), "{mode}: {}", reason(&first));
    }
}

#[test]
fn programs_that_join_a_group_with_pytorch_train_together() {
    let Some(_) = support::python() else { return };
    let checkout = fake("python3", PYTORCH);
    let (output, ranks) = run(checkout.path(), "good");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let metrics = &round(&ranks[0])["evaluations"][0]["metrics"];
    // The mean of the gradients of both ranks, whose optimum is 0.5, halves the distance in each of five steps.
    assert!((metrics["acc1"].as_f64().expect("a metric") - 100.0 * (1.0 - 0.5_f64.powi(5))).abs() < 1e-3, "{metrics}");
    let checkout = fake("python3", PYTORCH);
    let (_, [first, second]) = run(checkout.path(), "failing");
    assert_eq!(reason(&second), "the program ended before the end of its training: exited with status 1");
    assert!(reason(&first).contains("rank 1 (`localhost device 1`) failed"), "{}", reason(&first));
}
