//! Trainings that are cut off and resumed, and trainings on other engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::training::{KEY, drawn_digits};
use crate::support::{self, checkout_with_libtorch, has_engine, program};

const CASE: &str = "digits_interpreter_cpu_1x1/localhost_noderank0";
/// Too slow for the target, so that all epochs are trained.
const SLOW: [&str; 6] = ["--set", "max_epochs=30", "--set", "learning_rate=0.000001", "--set", "seed=5"];

/// The checkpoint after the third epoch of ten steps.
const THIRD_EPOCH: &str = "round000000_step000000000030";

/// Returns the folder of the only run of a checkout, once it exists.
fn run_folder(checkout: &Path) -> Option<PathBuf> {
    let runs = fs::read_dir(checkout.join("result")).ok()?.flatten();
    runs.map(|run| run.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run")))
}

fn read_record(run: &Path) -> serde_json::Value {
    let text = fs::read(run.join(CASE).join("record.json")).expect("a record");
    serde_json::from_slice(&text).expect("JSON")
}

/// Trains once to the end, and once with an interruption after this checkpoint; returns the records of both, which must have the
/// same parameters in the end.
fn train_whole_and_cut(settings: &[&str], checkpoint: &str) -> [serde_json::Value; 2] {
    let (whole, cut) = (drawn_digits(), drawn_digits());
    let settings = [&SLOW[..], settings].concat();
    let (expected, _) = program::record(whole.path(), &[&["--case", KEY][..], &settings].concat());
    let mut running = start_until_checkpoint(cut.path(), &settings, checkpoint);
    running.kill().expect("it runs");
    running.wait().expect("it ended");
    let run = run_folder(cut.path()).expect("a run");
    let resumed = program::flagperf(cut.path(), &["resume", run.to_str().expect("text")]);
    // It misses its target, as without the interruption.
    assert_eq!(resumed.status.code(), Some(1), "{}", String::from_utf8_lossy(&resumed.stderr));
    let record = read_record(&run);
    assert_eq!(record["accuracy"]["training"], expected["accuracy"]["training"]);
    let model = |run: &Path| fs::read(run.join(CASE).join("model.safetensors")).expect("a model");
    assert!(model(&run) == model(&run_folder(whole.path()).expect("a run")), "the parameters differ");
    assert!(!run.join(CASE).join("checkpoints").exists());
    let reasons = [&record["validity"]["reasons"], &record["failures"]].map(ToString::to_string).concat();
    assert!(reasons.contains("the target") || reasons.contains("top1"), "{reasons}");
    let verified = program::flagperf(cut.path(), &["verify", run.to_str().expect("text")]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(text.contains("consistent"), "{text}");
    [expected, record]
}

#[test]
fn a_training_that_was_killed_goes_on_from_its_checkpoint_bit_for_bit() {
    let [expected, record] = train_whole_and_cut(&[], THIRD_EPOCH);
    let training = &record["phases"][0]["training"];
    let before = training["resumed"]["epochs"].as_u64().expect("it was resumed") as usize;
    assert!((3..30).contains(&before), "{training}");
    let losses = |record: &serde_json::Value| {
        record["phases"][0]["training"]["rounds"][0]["epoch_losses"].as_array().cloned().expect("losses")
    };
    assert_eq!(losses(&record), losses(&expected)[before..]);
}

#[test]
fn a_training_that_was_killed_within_an_epoch_goes_on_bit_for_bit_with_half_an_update() {
    // An epoch has 20 steps of 16 samples, an update two steps, and every other evaluation lies between them.
    let settings = ["batch_size=16", "gradient_accumulation_steps=2", "eval_steps=7", "max_steps=257"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let [expected, record] = train_whole_and_cut(&settings, "round000000_step000000000035");
    let training = &record["phases"][0]["training"];
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let (epochs, steps) = (number(&training["resumed"]["epochs"]), number(&training["resumed"]["steps"]));
    assert!(steps >= 35 && steps % 7 == 0 && epochs == steps / 20, "{training}");
    let evaluations = |record: &serde_json::Value| -> Vec<(u64, u64, serde_json::Value)> {
        let found = record["phases"][0]["training"]["rounds"][0]["evaluations"].as_array().cloned().expect("a list");
        found
            .iter()
            .map(|found| (number(&found["steps"]), number(&found["epochs"]), found["metrics"].clone()))
            .collect()
    };
    let later: Vec<_> = evaluations(&expected).into_iter().filter(|(step, ..)| *step > steps).collect();
    assert_eq!(evaluations(&record), later);
    assert_eq!(later.last().map(|(step, epoch, _)| (*step, *epoch)), Some((257, 13)));
}

/// Starts a training and waits for a checkpoint.
fn start_until_checkpoint(checkout: &Path, settings: &[&str], checkpoint: &str) -> Child {
    let mut command = program::command(checkout, &[&["run", "--case", KEY][..], settings].concat());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let events = || fs::read_to_string(run_folder(checkout)?.join(CASE).join("events.jsonl")).ok();
    while !events().is_some_and(|events| events.contains(checkpoint)) {
        assert!(running.try_wait().expect("a process").is_none(), "it ended before the checkpoint {checkpoint}");
        std::thread::sleep(Duration::from_millis(5));
    }
    running
}

/// Returns the id of the worker that a run has started.
fn worker(run: &Path) -> i32 {
    let events = fs::read_to_string(run.join(CASE).join("events.jsonl")).expect("events");
    let started = events.lines().find_map(|line| line.split_once("\"pid\":")).expect("the worker started").1;
    started.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn a_training_whose_worker_was_killed_has_one_failure_and_can_be_resumed() {
    let checkout = drawn_digits();
    let mut running = start_until_checkpoint(checkout.path(), &SLOW, THIRD_EPOCH);
    let run = run_folder(checkout.path()).expect("a run");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker(&run)), nix::sys::signal::Signal::SIGKILL)
        .expect("it runs");
    assert_eq!(running.wait().expect("it ended").code(), Some(1));
    let killed = read_record(&run);
    assert_eq!(killed["failures"].as_array().map(Vec::len), Some(1), "{}", killed["failures"]);
    let resumed = program::flagperf(checkout.path(), &["resume", run.to_str().expect("text")]);
    let record = read_record(&run);
    let training = &record["phases"][0]["training"];
    let epochs = |value: &serde_json::Value| value["epochs"].as_u64().unwrap_or_default();
    assert_eq!(epochs(&training["resumed"]) + epochs(&training["rounds"][0]), 30, "{training}");
    let text = String::from_utf8_lossy(&resumed.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(" since it was resumed, and "), "{text}");
    let log = run.join(CASE).join("round1/localhost_noderank0");
    let log = |name: &str| fs::read_to_string(log.join(name)).expect("a log");
    let finished = log("rank0.out.log").lines().last().expect("a line").to_owned();
    assert!(finished.contains(r#""global_steps":300"#) && finished.contains("resumed_after_step"), "{finished}");
    assert!(log("rank0.mllog.log").contains("resumed_after_step"));
}

/// Trains on an engine until the target, and checks that another one computes the same steps.
fn train_on(checkout: &Path, engine: &str) {
    let (record, code) = program::record(checkout, &["--case", &format!("digits:{engine}:cpu:1:1:1")]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let replay = &record["phases"][0]["training"]["replay"];
    assert_eq!((&replay["engine"], &replay["not_computed"]), (&"interpreter".into(), &serde_json::json!([])));
    let steps = replay["steps"].as_array().expect("steps");
    assert!(steps.len() >= 5 && steps.iter().all(|step| step["imprecise"] == 0), "{replay}");
    assert_eq!(record["agreement"]["verdict"], "met");
}

#[test]
fn rten_trains_and_the_interpreter_computes_the_same_steps() {
    train_on(drawn_digits().path(), "rten");
}

#[test]
fn onnx_runtime_trains_and_the_interpreter_computes_the_same_steps() {
    if has_engine("onnxruntime") {
        train_on(drawn_digits().path(), "onnxruntime");
    }
}

#[test]
fn libtorch_trains_and_the_interpreter_computes_the_same_steps() {
    let Some(with_libtorch) = checkout_with_libtorch() else { return };
    let digits = drawn_digits();
    let vendor = "vendors/cpu/vendor.yaml";
    fs::copy(with_libtorch.path().join(vendor), digits.path().join(vendor)).expect("the vendor");
    train_on(digits.path(), "pytorch");
}

/// Returns a checkout whose vendor has a script for the training of `digits`.
fn with_adapter(script: &str) -> tempfile::TempDir {
    let checkout = drawn_digits();
    let folder = checkout.path().join("scripts/digits/cpu");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("training.rhai"), script).expect("a script");
    checkout
}

#[test]
fn a_vendors_adapter_may_convert_the_model_but_not_what_it_computes() {
    let train = |script: &str| program::record(with_adapter(script).path(), &["--case", KEY]).0;
    let record = train("fn convert_model(model, config) { model }");
    assert_eq!(record["status"], "ok", "{}", record["failures"]);
    let model = fs::read_to_string(support::root().join("scripts/digits/model.rhai")).expect("a script");
    let model = model.replace("create_model(config)", "convert_model(model, config)");
    let head = ".linear(\"fc\", config.classes)";
    let failures = train(&model.replace(head, &format!("{head} * 1.01")))["failures"].to_string();
    assert!(failures.contains("do not agree with the same steps computed by `rten`"), "{failures}");
    let renamed = with_adapter(&model.replace("\"fc\"", "\"other\""));
    let output = program::flagperf(renamed.path(), &["plan", "--case", KEY]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "the converted model has `other.weight` where the model of the case has `fc.weight` (10,512,f32)";
    assert!(errors.contains(expected) && errors.contains("scripts/digits/cpu/training.rhai"), "{errors}");
}

/// After the eighth step, an engine also trains on the evaluation data, which it finds by itself.
const PEEKS: &str = r#"
import numpy
from pathlib import Path

compute = InferModel.__call__

def with_evaluation_data(self, model_inputs):
    outputs, time = compute(self, model_inputs)
    self.steps = getattr(self, "steps", 0) + ("learning_rate" in self.names)
    if self.steps == 8:
        folder = Path(__file__).parents[3] / "datasets/digits/generated/val"
        states = len(outputs) - 2
        step = list(model_inputs)
        for name in ["images", "labels"]:
            index = self.names.index(name)
            step[index] = numpy.resize(numpy.load(folder / f"{name}.npy"), numpy.shape(model_inputs[index]))
        for _ in range(30):
            step[-states:] = outputs[2:]
            outputs = outputs[:2] + compute(self, step)[0][2:]
    return outputs, time

InferModel.__call__ = with_evaluation_data
"#;

#[test]
fn an_engine_that_trains_on_the_evaluation_data_is_found() {
    if support::or_leave_out(support::find_python()).is_none() {
        return;
    }
    let train = |cheat: &str| {
        let checkout = drawn_digits();
        let engine = checkout.path().join("vendors/cpu/engines/onnxruntime_py.py");
        let honest = fs::read_to_string(&engine).expect("an engine");
        fs::write(&engine, honest + cheat).expect("the temporary folder can be written");
        program::record(checkout.path(), &["--case", "digits:onnxruntime_py:cpu:1:1:1"]).0
    };
    let honest = train("");
    assert_eq!(honest["status"], "ok", "{}", honest["failures"]);
    let failures = train(PEEKS)["failures"].to_string();
    assert!(failures.contains("do not agree with the same steps computed by `interpreter`: in step"), "{failures}");
}
