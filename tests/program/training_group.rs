//! Trainings by several processes on this machine, which exchange their gradients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::training::drawn_digits;
use crate::support::{checkout_with_libtorch, give_devices, program};

const ONE: [&str; 2] = ["--case", "digits:pytorch:cpu:1:1:1"];
const TWO: [&str; 2] = ["--case", "digits:pytorch:cpu:1:2:1"];
const SETTINGS: [&str; 6] = ["--set", "max_epochs=3", "--set", "seed=5", "--set", "target={}"];
const GROUP: &str = "digits_pytorch_cpu_1x2";

/// Returns a checkout whose case two processes can train; `None` without libtorch. Without the statistics of all batches, only a network
/// that normalizes no batches trains as with one process.
pub fn digits(normalizes: bool) -> Option<TempDir> {
    let with_libtorch = checkout_with_libtorch()?;
    let digits = drawn_digits();
    let vendor = "vendors/cpu/vendor.yaml";
    fs::copy(with_libtorch.path().join(vendor), digits.path().join(vendor)).expect("the vendor");
    if !normalizes {
        let model = digits.path().join("scripts/digits/model.rhai");
        let text = fs::read_to_string(&model).expect("a script");
        let text = text.replace(".batch_norm(\"bn1\")", "").replace(".batch_norm(\"bn2\")", "");
        fs::write(&model, text).expect("the temporary folder can be written");
    }
    give_devices(digits.path());
    Some(digits)
}

/// Returns the checkout of [`digits`] with a network that normalizes and drops values, with another mask in each process.
fn digits_with_dropout() -> Option<TempDir> {
    let digits = digits(true)?;
    let model = digits.path().join("scripts/digits/model.rhai");
    let text = fs::read_to_string(&model).expect("a script");
    let layer = ".flatten().linear(";
    assert!(text.contains(layer), "{text}");
    fs::write(&model, text.replace(layer, ".flatten().dropout(0.1).linear(")).expect("the folder can be written");
    Some(digits)
}

/// Returns the folder of the data, which is drawn and therefore no part of the files that the processes get.
pub fn data(checkout: &Path) -> String {
    checkout.join("datasets/digits").display().to_string()
}

pub fn run_folder(checkout: &Path) -> Option<PathBuf> {
    let runs = fs::read_dir(checkout.join("result")).ok()?.flatten().map(|run| run.path());
    runs.into_iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run")))
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).expect("JSON")
}

fn record_of_rank(run: &Path, rank: u32) -> Value {
    json(&run.join(format!("{GROUP}/localhost_noderank0_device{rank}/record.json")))
}

pub fn losses(record: &Value) -> Vec<f64> {
    let losses = record["phases"][0]["training"]["rounds"][0]["epoch_losses"].as_array().expect("losses");
    losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

#[test]
fn two_processes_train_as_one() {
    assert_trained_as_one(false, &[]);
}

#[test]
fn two_processes_that_share_the_statistics_of_their_batches_train_as_one() {
    assert_trained_as_one(true, &[]);
}

#[test]
fn two_processes_that_divide_the_memory_of_the_optimizer_train_as_one() {
    assert_trained_as_one(false, &["shard_optimizer=true"]);
}

#[test]
fn two_processes_that_add_up_their_own_gradients_between_updates_train_as_one() {
    assert_trained_as_one(false, &["gradient_accumulation_steps=3"]);
}

#[test]
fn two_processes_that_add_up_gradients_and_divide_the_memory_of_the_optimizer_train_as_one() {
    assert_trained_as_one(false, &["gradient_accumulation_steps=3", "shard_optimizer=true"]);
}

/// Asserts that two processes have the losses of one, end with the same parameters, and can be checked.
fn assert_trained_as_one(normalizes: bool, settings: &[&str]) {
    let (Some(alone), Some(together)) = (digits(normalizes), digits(normalizes)) else { return };
    let more: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let (expected, code) = program::record(alone.path(), &[&ONE[..], &SETTINGS, &more].concat());
    assert_eq!(code, Some(0), "{}", expected["failures"]);
    let (data, sync) =
        (data(together.path()), ["--set", if normalizes { "sync_batch_norm=true" } else { "sync_batch_norm=false" }]);
    let settings = [&SETTINGS[..], &sync, &more, &["--data", &data]].concat();
    let output = program::flagperf(together.path(), &[&["run"], &TWO[..], &settings].concat());
    let text = [&output.stdout[..], &output.stderr].concat();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&text));
    let run = run_folder(together.path()).expect("a run");
    let records = [0, 1].map(|rank| record_of_rank(&run, rank));
    for record in &records {
        for (loss, expected) in losses(record).into_iter().zip(losses(&expected)) {
            assert!((loss - expected).abs() <= 1e-5 * expected, "{loss} {expected}");
        }
    }
    let model = |rank: u32| fs::read(run.join(format!("{GROUP}/localhost_noderank0_device{rank}/model.safetensors")));
    assert!(model(0).expect("a model") == model(1).expect("a model"), "the parameters differ");
    let replay = &records[0]["phases"][0]["training"]["replay"];
    let steps = replay["steps"].as_array().expect("steps");
    assert!(steps.len() >= 5 && steps.iter().all(|step| step["imprecise"] == 0), "{replay}");
    let run_of_all = run.to_str().expect("text");
    let verified = program::flagperf(together.path(), &["verify", run_of_all]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(text.contains("consistent") && !text.contains("WRONG"), "{text}");
    let run_alone = run_folder(alone.path()).expect("a run");
    let run_alone = run_alone.to_str().expect("text");
    let scaling = program::flagperf(alone.path(), &["scaling", run_alone, run_of_all, "--json"]);
    let json: Value = serde_json::from_slice(&scaling.stdout).expect("a table");
    let [one, two] = [0, 1].map(|row| json["rows"][row]["throughput_samples_per_s"].as_f64().expect("a number"));
    let efficiency = json["rows"][1]["efficiency"].as_f64().expect("a number");
    assert!((efficiency - two / one / 2.0).abs() < 1e-9 && json["rows"][0]["efficiency"] == 1.0, "{json}");
    let summary = self::json(&run.join(format!("{GROUP}/summary.json")));
    let step = &summary["steps"][0];
    let sum = step["throughput_core_samples_per_s"].as_f64().expect("a sum");
    assert!((two - sum).abs() < 1e-6 * sum, "{two} {sum}");
    assert_eq!(json["rows"][1]["communication"], step["communication"]);
    let of_ranks = |key: &str| {
        let own = records.iter().map(|record| &record["phases"][0]["training"]["communication"]);
        own.map(|own| own[key].as_f64().expect("a number")).collect::<Vec<_>>()
    };
    let [local, core, count] = ["local_core_s", "core_s", "local_steps"].map(of_ranks);
    let (local, core) = (local[0].min(local[1]), core[0].max(core[1]));
    let share = step["communication"]["exposed_share"].as_f64().expect("a share");
    assert!((share - (1.0 - local / core)).abs() < 1e-9 && local > 0.0, "{step}");
    // A slow machine times fewer.
    assert!(count.iter().all(|count| (3.0..=50.0).contains(count)), "{count:?}");
    assert!(json["rows"][1]["warnings"][0].as_str().is_some_and(|text| text.contains("the same device")), "{json}");
    let file = run.join(format!("{GROUP}/summary.json"));
    let text = fs::read_to_string(&file).expect("a summary");
    let forged = text.replace("\"slowest_rank\"", "\"slowest\"");
    for (content, reason) in [(Some(forged), "its summary.json is "), (None, "there is no summary.json")] {
        fs::remove_file(&file).expect("a summary");
        content.iter().for_each(|content| fs::write(&file, content).expect("the folder can be written"));
        let refused = program::flagperf(alone.path(), &["scaling", run_alone, run_of_all]);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && message.contains(reason), "{message}");
    }
    let rank = run.join(format!("{GROUP}/localhost_noderank0_device0"));
    let refused = program::flagperf(alone.path(), &["compare", run_alone, rank.to_str().expect("text")]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("the results of 1 of the 2 devices that trained together"), "{text}");
}

/// So many epochs that a training can be cut off within them.
pub const CUT: [&str; 8] =
    ["--set", "max_epochs=20", "--set", "seed=5", "--set", "target={}", "--set", "sync_batch_norm=true"];

/// Returns a command of the program whose agents store their files in a folder of the checkout.
pub fn command(checkout: &Path, arguments: &[&str]) -> Command {
    let mut command = program::command(checkout, arguments);
    command.env("XDG_CACHE_HOME", checkout.join("cache"));
    command
}

/// Returns the folder of a run of two processes that was cut off after its first checkpoint: by a signal to the worker of a rank, or by
/// one to the run itself.
fn cut_off(checkout: &Path, signal: Signal, rank: Option<u32>) -> PathBuf {
    cut_off_of(checkout, 2, signal, rank)
}

/// The same with this number of processes.
pub fn cut_off_of(checkout: &Path, ranks: u32, signal: Signal, rank: Option<u32>) -> PathBuf {
    let (data, key) = (data(checkout), format!("digits:pytorch:cpu:1:{ranks}:1"));
    let words = [&["run", "--case", &key], &CUT[..], &["--data", &data]].concat();
    cut(checkout, &words, ranks, signal, rank)
}

/// Cuts off a command that trains with so many processes.
pub fn cut(checkout: &Path, words: &[&str], ranks: u32, signal: Signal, rank: Option<u32>) -> PathBuf {
    let mut running =
        command(checkout, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let events =
        |rank: u32| fs::read_to_string(folder_of_rank(&run_folder(checkout)?, rank, ranks).join("events.jsonl")).ok();
    // A resumed training states the checkpoint from which it goes on before its first evaluation.
    let has_new = |events: &String| {
        let evaluated = events.find("\"evaluation\"");
        evaluated.is_some_and(|evaluated| events[evaluated..].contains("\"checkpoint\""))
    };
    while !events(0).as_ref().is_some_and(has_new) {
        assert!(running.try_wait().expect("a process").is_none(), "it ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rank.map_or(running.id() as i32, |rank| worker(&events(rank).expect("events")));
    kill(Pid::from_raw(pid), signal).expect("it runs");
    let code = running.wait().expect("it ended").code();
    assert_eq!(code, Some(if rank.is_some() { 1 } else { 130 }));
    run_folder(checkout).expect("a run")
}

/// Returns the folder of one of so many processes.
pub fn folder_of_rank(run: &Path, rank: u32, ranks: u32) -> PathBuf {
    let device = if ranks > 1 { format!("_device{rank}") } else { String::new() };
    run.join(format!("digits_pytorch_cpu_1x{ranks}/localhost_noderank0{device}"))
}

/// Returns the id of the worker that wrote these events.
fn worker(events: &str) -> i32 {
    let pid = events.split_once("\"pid\":").expect("the worker started").1;
    pid.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn processes_that_were_cut_off_go_on_from_a_common_checkpoint_bit_for_bit() {
    let Some(whole) = digits_with_dropout() else { return };
    let data_of_whole = data(whole.path());
    let settings = [&CUT[..], &["--data", &data_of_whole]].concat();
    let output = program::flagperf(whole.path(), &[&["run"], &TWO[..], &settings].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = run_folder(whole.path()).expect("a run");
    let model = |run: &Path, rank: u32| {
        fs::read(run.join(format!("{GROUP}/localhost_noderank0_device{rank}/model.safetensors"))).expect("a model")
    };
    for (signal, rank) in [(Signal::SIGINT, None), (Signal::SIGKILL, Some(1))] {
        let checkout = digits_with_dropout().expect("libtorch was found");
        let run = cut_off(checkout.path(), signal, rank);
        let resumed = command(checkout.path(), &["resume", run.to_str().expect("text")]).output().expect("it starts");
        assert_eq!(resumed.status.code(), Some(0), "{}", String::from_utf8_lossy(&resumed.stderr));
        for rank in [0, 1] {
            let record = record_of_rank(&run, rank);
            let training = &record["phases"][0]["training"];
            let before = training["resumed"]["epochs"].as_u64().expect("it was resumed") as usize;
            assert!((1..20).contains(&before), "{training}");
            assert_eq!(losses(&record), losses(&record_of_rank(&expected, rank))[before..]);
            assert!(model(&run, rank) == model(&expected, 0), "the parameters differ");
        }
        let kept = fs::read_dir(checkpoints(checkout.path())).into_iter().flatten();
        assert_eq!(kept.count(), 0, "the checkpoints of a complete training are removed");
        let record = record_of_rank(&run, 0);
        let steps = record["phases"][0]["training"]["replay"]["steps"].as_array().cloned().expect("steps");
        assert!(steps.len() >= 5 && steps.iter().all(|step| step["imprecise"] == 0), "{steps:?}");
        let verified = program::flagperf(checkout.path(), &["verify", run.to_str().expect("text")]);
        let text = String::from_utf8_lossy(&verified.stdout);
        assert!(text.contains("consistent") && !text.contains("WRONG"), "{text}");
    }
}

/// Returns the folder of the checkpoints that the processes of this host share.
fn checkpoints(checkout: &Path) -> PathBuf {
    checkout.join("cache/flagperf/checkpoints")
}

#[test]
fn a_process_without_the_checkpoint_of_the_others_ends_them_with_the_reason() {
    let Some(checkout) = digits(true) else { return };
    let run = cut_off(checkout.path(), Signal::SIGINT, None);
    fs::remove_dir_all(checkpoints(checkout.path())).expect("the checkpoints were kept");
    let resumed = command(checkout.path(), &["resume", run.to_str().expect("text")]).output().expect("it starts");
    assert_eq!(resumed.status.code(), Some(1), "{}", String::from_utf8_lossy(&resumed.stderr));
    let failures = record_of_rank(&run, 0)["failures"].to_string();
    assert!(failures.contains("rank 0 cannot go on with the others: the checkpoint `round"), "{failures}");
    assert!(failures.contains("start a new run"), "{failures}");
}

/// Starts a long training of two processes, lets `fault` act on the worker of rank 1 once it trains, and returns the failures of both.
fn failures_after(fault: impl FnOnce(Pid)) -> Option<[String; 2]> {
    let checkout = digits(false)?;
    let settings = ["--set", "max_epochs=100000", "--set", "learning_rate=0.000001", "--set", "log_freq=10"];
    let data = data(checkout.path());
    let arguments = [&["run"], &TWO[..], &settings, &["--data", &data]].concat();
    let mut running = program::command(checkout.path(), &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let events = || {
        let run = run_folder(checkout.path())?;
        fs::read_to_string(run.join(format!("{GROUP}/localhost_noderank0_device1/events.jsonl"))).ok()
    };
    let events = loop {
        assert!(running.try_wait().expect("a process").is_none(), "it ended before it trained");
        match events().filter(|events| events.contains("\"evaluation\"")) {
            Some(events) => break events,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    fault(Pid::from_raw(worker(&events)));
    assert_eq!(running.wait().expect("it ended").code(), Some(1));
    let run = run_folder(checkout.path()).expect("a run");
    let verified = program::flagperf(checkout.path(), &["verify", run.to_str().expect("text")]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(text.contains("consistent") && !text.contains("WRONG"), "{text}");
    Some([0, 1].map(|rank| record_of_rank(&run, rank)["failures"].to_string()))
}

#[test]
fn a_process_that_is_killed_ends_the_others_which_name_it() {
    let Some([first, second]) = failures_after(|worker| kill(worker, Signal::SIGKILL).expect("it runs")) else {
        return;
    };
    assert!(second.contains("the worker ended before it had finished: killed by signal 9"), "{second}");
    assert!(first.contains("ended because rank 1 (`localhost device 1`) failed: the worker ended before"), "{first}");
}

#[test]
fn a_process_that_is_stopped_ends_the_others_which_name_it() {
    let Some([first, second]) = failures_after(|worker| kill(worker, Signal::SIGSTOP).expect("it runs")) else {
        return;
    };
    assert!(second.contains("a signal (SIGSTOP) stopped the worker"), "{second}");
    assert!(first.contains("ended because rank 1 (`localhost device 1`) failed: a signal (SIGSTOP)"), "{first}");
}
