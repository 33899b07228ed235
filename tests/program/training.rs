//! The training of a case from its key to its verified record, with the case `digits` and images that the test draws.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::event::Event;
use flagperf_core::measure::{EpochLosses, Nanos};
use flagperf_result::{ChainReader, EventChain};
use flagperf_verify::{Standing, Trust, verify_result};
use tempfile::TempDir;

use crate::support::{self, checkout, program, results};

pub const KEY: &str = "digits:interpreter:cpu:1:1:1";
/// Side of an image.
const SIDE: usize = 8;

/// Returns a checkout with images in each of which one line is bright: that of the class, of the first eight rows and two
/// columns.
pub fn drawn_digits() -> TempDir {
    let checkout = checkout();
    for (part, samples) in [("train", 320), ("val", 40)] {
        let folder = checkout.path().join("datasets/digits/generated").join(part);
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let images = (0..samples).flat_map(|sample| (0..SIDE * SIDE).map(move |pixel| level(sample, pixel)));
        // One label of the evaluation is wrong, so that no model has all samples right.
        let labels = (0..samples).map(|sample| i64::from(part == "val" && sample == 0).max((sample % 10) as i64));
        let images: Vec<u8> = images.flat_map(f32::to_le_bytes).collect();
        write_npy(&folder.join("images.npy"), "<f4", &format!("({samples}, 1, 8, 8)"), &images);
        write_npy(
            &folder.join("labels.npy"),
            "<i8",
            &format!("({samples},)"),
            &labels.flat_map(i64::to_le_bytes).collect::<Vec<_>>(),
        );
    }
    checkout
}

fn level(sample: usize, pixel: usize) -> f32 {
    let (row, column, class) = (pixel / SIDE, pixel % SIDE, sample % 10);
    let is_bright = if class < SIDE { row == class } else { column == class - SIDE };
    f32::from(u8::from(is_bright)) + 0.3 * ((sample * 37 + pixel * 11) % 17) as f32 / 17.0
}

fn write_npy(path: &Path, dtype: &str, shape: &str, elements: &[u8]) {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    fs::write(path, [b"\x93NUMPY\x01\x00", &118u16.to_le_bytes()[..], header.as_bytes(), elements].concat())
        .expect("the temporary folder can be written");
}

fn run(checkout: &Path, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
    program::record(checkout, &[&["--case", KEY], arguments].concat())
}

#[test]
fn a_training_ends_at_its_target_and_its_record_can_be_verified() {
    let checkout = drawn_digits();
    let (record, code) = run(checkout.path(), &["--audit", "full"]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(record["accuracy"]["verdict"], "met");
    let round = &record["phases"][0]["training"]["rounds"][0];
    let number = |key: &str| round[key].as_f64().unwrap_or(f64::NAN);
    let epochs = number("epochs");
    assert!(epochs < 20.0, "{round}");
    assert_eq!((number("steps"), number("samples")), (10.0 * epochs, 320.0 * epochs));
    assert_eq!(round["evaluations"].as_array().unwrap().len(), epochs as usize);
    let rates = ["whole", "train", "core"].map(|part| number(&format!("throughput_{part}_samples_per_s")));
    assert!(rates[0] < rates[1] && rates[1] < rates[2], "{rates:?}");
    let losses: Vec<f64> =
        round["epoch_losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    // Chance has the loss ln 10.
    assert!(losses.len() as f64 == epochs && losses.iter().all(|loss| *loss < 2.3), "{losses:?}");
    let replay = &record["phases"][0]["training"]["replay"];
    assert_eq!((&replay["engine"], &replay["not_computed"]), (&"rten".into(), &serde_json::json!([])));
    assert!(
        replay["steps"].as_array().is_some_and(|steps| steps.iter().all(|step| step["imprecise"] == 0)),
        "{replay}"
    );
    // Those whose states the host drew, the first one, and the one whose states were evaluated.
    let steps: Vec<f64> =
        replay["steps"].as_array().unwrap().iter().map(|step| step["step"].as_f64().unwrap()).collect();
    assert!(steps.len() >= 10 && steps[0] == 1.0 && steps.last() == Some(&number("steps")), "{replay}");
    assert_eq!(replay["evaluation"]["samples"], 40);
    let reasons = record["validity"]["reasons"].to_string();
    assert!(!reasons.contains("again") && !reasons.contains("the seed"), "{reasons}");
    assert!(reasons.contains("trained on 320 samples, and the case has 1442"), "{reasons}");
    let run = format!("result/{}", record["run"].as_str().unwrap_or_default());
    let verified = program::flagperf(checkout.path(), &["verify", &run]);
    let text = [verified.stdout, verified.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(verified.status.code() == Some(0) && text.contains("consistent"), "{text}");
}

/// Returns the folder of the logs of a repetition.
fn log_folder(checkout: &Path, record: &serde_json::Value, round: u32) -> PathBuf {
    let run = record["run"].as_str().expect("the name of the run");
    let case = "digits_interpreter_cpu_1x1/localhost_noderank0";
    checkout.join(format!("result/{run}/{case}/round{round}/localhost_noderank0"))
}

/// Returns the events of FlagPerf's log of a repetition.
fn perf_log(checkout: &Path, record: &serde_json::Value, round: u32) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(log_folder(checkout, record, round).join("rank0.out.log")).expect("a log");
    let lines = text.lines().map(|line| line.strip_prefix("[PerfLog] ").expect("FlagPerf's prefix"));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_repetition_has_a_log_of_flagperf_with_the_figures_of_the_record() {
    let checkout = drawn_digits();
    let (record, code) = program::record(checkout.path(), &["--case", "digits:interpreter:cpu:1:1:2"]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    for round in [1, 2] {
        let lines = perf_log(checkout.path(), &record, round);
        assert_eq!(lines[0]["event"], "SUBMIT_INFO");
        assert_eq!(lines[0]["value"]["config"]["batch_size"], 32);
        let found = &record["phases"][0]["training"]["rounds"][round as usize - 1];
        let finished = &lines.last().expect("a line")["value"];
        for (name, key) in [("raw", "whole"), ("no_eval", "train"), ("pure_compute", "core")] {
            let expected = &found[format!("throughput_{key}_samples_per_s")];
            assert_eq!(&finished[format!("throughput(ips)_{name}")], expected, "{name}");
        }
        assert_eq!((&finished["converged"], &finished["global_steps"]), (&true.into(), &found["steps"]));
        assert!(finished["final_top1"].as_f64().unwrap_or(0.0) >= 0.975, "{finished}");
    }
    let info = &record["finish_info"];
    assert_eq!(info["final_metrics"], record["accuracy"]["training"]);
    assert_eq!((&info["converged"], &info["p_whole(qps)"].is_number()), (&true.into(), &true));
}

#[test]
fn a_log_that_was_changed_is_found_by_the_events() {
    let checkout = drawn_digits();
    let (record, _) = run(checkout.path(), &[]);
    let folder = log_folder(checkout.path(), &record, 1);
    let result = folder.ancestors().nth(2).expect("the result").to_owned();
    for name in ["rank0.out.log", "rank0.mllog.log"] {
        let copy = results::copy(&result);
        let path = format!("round1/localhost_noderank0/{name}");
        let text = fs::read_to_string(copy.path().join(&path)).expect("a log");
        fs::write(copy.path().join(&path), text.replace("epoch", "Epoch")).expect("a log");
        results::seal_again(copy.path());
        let report = verify_result(copy.path(), &Trust::default());
        let findings: Vec<&str> = report.findings.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!((report.standing, findings), (Standing::Wrong, vec![path.as_str()]));
    }
}

#[test]
fn the_compliance_checker_of_mlperf_accepts_the_log_but_for_the_name_of_the_benchmark() {
    let Some(python) = support::python() else { return };
    let checkout = drawn_digits();
    let (record, _) = run(checkout.path(), &[]);
    let log = log_folder(checkout.path(), &record, 1).join("rank0.mllog.log");
    let text = fs::read_to_string(&log).expect("a log");
    let check = |text: &str| {
        let path = checkout.path().join("result_0.txt");
        fs::write(&path, text).expect("a log");
        let mut command = assert_cmd::Command::new(&python);
        command.current_dir(checkout.path()).args(["-m", "mlperf_logging.compliance_checker", "--werror"]);
        command.args(["--usage", "training", "--ruleset", "4.0.0"]).arg(&path);
        let output = command.output().expect("FLAGPERF_PYTHON names a program");
        let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.success() && printed.contains("SUCCESS"), printed)
    };
    let (is_accepted, printed) = check(&text.replace(r#""value":"digits""#, r#""value":"resnet""#));
    assert!(is_accepted, "{printed}");
    // It looks for the rules of a benchmark by its name.
    let (is_accepted, printed) = check(&text);
    assert!(!is_accepted && printed.contains("open_digits.yaml"), "{printed}");
}

#[test]
fn two_trainings_with_the_same_seed_compute_the_same_losses() {
    let checkout = drawn_digits();
    let trained = |arguments: &[&str]| {
        let arguments = [&["--case", "digits:interpreter:cpu:1:1:2", "--set", "max_epochs=2"], arguments].concat();
        let record = program::record(checkout.path(), &arguments).0;
        let rounds = record["phases"][0]["training"]["rounds"].clone();
        let reasons = [&record["validity"]["reasons"], &record["failures"]].map(ToString::to_string).concat();
        ([0, 1].map(|round| rounds[round]["epoch_losses"].clone()), reasons)
    };
    let ([first, second], reasons) = trained(&["--set", "seed=3", "--set", "target={top1: 0.2}"]);
    assert!(first.is_array() && first == second, "{first} {second}");
    assert!(reasons.contains("the seed of the training is fixed (`seed: 3`"), "{reasons}");
    assert_eq!(trained(&["--set", "seed=3", "--set", "target={top1: 0.2}"]).0, [first.clone(), first]);
}

#[test]
fn without_a_seed_every_run_and_every_repetition_is_another_training() {
    let checkout = drawn_digits();
    let losses = || {
        let arguments = ["--case", "digits:interpreter:cpu:1:1:2", "--set", "max_epochs=2"];
        let record = program::record(checkout.path(), &arguments).0;
        let mllog = |round| {
            let text = fs::read_to_string(log_folder(checkout.path(), &record, round).join("rank0.mllog.log"));
            let text = text.expect("a log");
            text.lines().find(|line| line.contains(r#""key":"seed""#)).expect("a seed").to_owned()
        };
        assert_ne!(mllog(1).split_once("\"value\""), mllog(2).split_once("\"value\""));
        let rounds = &record["phases"][0]["training"]["rounds"];
        [0, 1].map(|round| rounds[round]["epoch_losses"].to_string())
    };
    let [first, second] = losses();
    assert!(first.starts_with('[') && first != second, "{first} {second}");
    assert!(losses().iter().all(|other| *other != first));
}

#[test]
fn a_training_with_accumulated_gradients_reaches_its_target() {
    let checkout = drawn_digits();
    let arguments = ["--set", "batch_size=16", "--set", "gradient_accumulation_steps=2"];
    let (record, code) = run(checkout.path(), &arguments);
    assert_eq!((record["accuracy"]["verdict"].as_str(), code), (Some("met"), Some(0)), "{}", record["failures"]);
}

#[test]
fn a_training_that_misses_its_target_or_diverges_fails() {
    let checkout = drawn_digits();
    let (record, code) = run(checkout.path(), &["--set", "max_epochs=1", "--set", "learning_rate=0.0000001"]);
    assert_eq!((record["accuracy"]["verdict"].as_str(), code), (Some("missed"), Some(1)), "{}", record["failures"]);
    let (record, code) = run(checkout.path(), &["--set", "learning_rate=1e30"]);
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(code, Some(1));
    assert!(reason.starts_with("step ") && reason.contains("the loss is"), "{reason}");
}

#[test]
fn a_metric_that_the_evaluator_does_not_return_is_found_before_the_first_step() {
    let checkout = drawn_digits();
    let (record, code) = run(checkout.path(), &["--set", "target={accuracy: 0.9}"]);
    assert_eq!(code, Some(1));
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
    assert_eq!(reason, "the evaluator returns no metric `accuracy`, which `target` names (known: top1, top5)");
    assert_eq!(record["phases"][0]["measured"], serde_json::json!([]), "{record}");
}

/// Returns what `verify` finds in a copy of a result that `change` has changed, with a new chain and manifest.
fn found_in_copy(result: &Path, mut change: impl FnMut(&mut Event)) -> Vec<String> {
    let copy = results::copy(result);
    let path = copy.path().join("events.jsonl");
    let events = fs::read(&path).expect("events");
    let mut reader = ChainReader::new(&events[..]);
    fs::remove_file(&path).expect("it was read");
    let mut chain = EventChain::create(&path).expect("a file");
    while let Some(mut read) = reader.read().expect("events") {
        change(&mut read.event);
        chain.push(read.at.since(Nanos(0)), read.phase, &read.event).expect("a file");
    }
    results::change_record(copy.path(), |record| record["provenance"]["events_sha256"] = chain.hash().into());
    let trust = Trust { digests: Vec::new(), keys: Vec::new() };
    verify_result(copy.path(), &trust).findings.iter().map(|finding| finding.what.clone()).collect()
}

#[test]
fn learning_rates_losses_and_evaluations_that_were_changed_are_found() {
    let checkout = drawn_digits();
    let (record, _) = run(checkout.path(), &["--set", "eval_interval=2"]);
    let run = format!("result/{}", record["run"].as_str().unwrap_or_default());
    let result = checkout.path().join(run).join("digits_interpreter_cpu_1x1/localhost_noderank0");
    assert_eq!(found_in_copy(&result, |_| {}), [""; 0]);
    let first = |change: fn(&mut EpochLosses)| {
        let mut is_first = true;
        found_in_copy(&result, |event| match event {
            Event::EpochLosses(losses) if std::mem::take(&mut is_first) => change(losses),
            _ => {}
        })
    };
    let rate = first(|losses| losses.learning_rate[3] *= 2.0);
    assert_eq!(rate, ["learning rate of step 4 of training 0"]);
    let loss = first(|losses| losses.loss[3] *= 2.0);
    // The log of the training states it, too.
    assert_eq!(loss, ["phases[0].training.rounds[0].epoch_losses[0]", "SHA-256 in the record"]);
    let step = first(|losses| losses.gradient_norm.truncate(1));
    assert!(step.contains(&"status".to_owned()), "{step:?}");
    let metric = found_in_copy(&result, |event| {
        if let Event::Evaluation(evaluation) = event {
            evaluation.metrics[0] = 0.5;
        }
    });
    assert!(metric.contains(&"metrics after step 20 of training 0".to_owned()), "{metric:?}");
    let verified = program::flagperf(checkout.path(), &["verify", result.to_str().expect("text")]);
    let text = [verified.stdout, verified.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(text.contains("the losses and the norms of the gradients of the training"), "{text}");
}

#[test]
fn a_training_ends_and_is_evaluated_after_numbers_of_steps() {
    let checkout = drawn_digits();
    let settings = ["max_steps=25", "eval_steps=7", "learning_rate=0.000001"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let (record, code) = run(checkout.path(), &settings);
    assert_eq!((record["accuracy"]["verdict"].as_str(), code), (Some("missed"), Some(1)), "{}", record["failures"]);
    let training = &record["phases"][0]["training"];
    let round = &training["rounds"][0];
    let numbers = |list: &serde_json::Value, key: &str| -> Vec<u64> {
        list.as_array().expect("a list").iter().map(|item| item[key].as_u64().expect("a number")).collect()
    };
    assert_eq!(numbers(&round["evaluations"], "steps"), [7, 14, 21, 25]);
    assert_eq!(numbers(&round["evaluations"], "epochs"), [1, 2, 3, 3]);
    assert_eq!((&round["epochs"], &round["samples"]), (&3.into(), &800.into()));
    assert_eq!(round["epoch_losses"].as_array().map(Vec::len), Some(3));
    let replayed = numbers(&training["replay"]["steps"], "step");
    assert!(replayed.first() == Some(&1) && replayed.last() == Some(&25), "{replayed:?}");
    let log = perf_log(checkout.path(), &record, 1);
    let of = |event: &str| log.iter().filter(|line| line["event"] == event).count();
    assert_eq!(["EPOCH_BEGIN", "EPOCH_END", "EVALUATE"].map(of), [3, 3, 4]);
    let result = log_folder(checkout.path(), &record, 1).ancestors().nth(2).expect("the result").to_owned();
    assert_eq!(found_in_copy(&result, |_| {}), [""; 0]);
    let moved = found_in_copy(&result, |event| {
        if let Event::Evaluation(evaluation) = event {
            evaluation.epochs = 3;
        }
    });
    assert!(!moved.is_empty());
    let joined = found_in_copy(&result, |event| match event {
        // The second epoch is passed off as a part of the first, and the third as the second.
        Event::EpochLosses(losses) => losses.epoch = losses.epoch.saturating_sub(1),
        Event::Evaluation(evaluation) => evaluation.epochs = evaluation.epochs.saturating_sub(1).max(1),
        _ => {}
    });
    assert!(joined.contains(&"steps and epochs before each evaluation of training 0".to_owned()), "{joined:?}");
}

#[test]
fn nan_in_the_data_of_an_evaluation_fails_the_case() {
    let checkout = drawn_digits();
    let images = checkout.path().join("datasets/digits/generated/val/images.npy");
    let mut bytes = fs::read(&images).expect("the images");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&images, bytes).expect("the images");
    let (record, code) = run(checkout.path(), &["--set", "max_epochs=1"]);
    assert_eq!(code, Some(1));
    let reasons = record["failures"].to_string();
    assert!(reasons.contains("training: 10 output elements are NaN or infinite"), "{reasons}");
}

#[test]
fn a_batch_larger_than_the_data_and_other_hardware_are_named() {
    let checkout = drawn_digits();
    for (setting, expected) in [
        ("batch_size=1000000", "the training data has 320 samples, fewer than a batch of 1000000"),
        ("gradient_accumulation_steps=201", "an update takes 201 steps, and the whole training has 200"),
    ] {
        let planned = program::flagperf(checkout.path(), &["plan", "--case", KEY, "--set", setting]);
        let text = [planned.stdout, planned.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(planned.status.code() == Some(2) && text.contains(expected), "{text}");
    }
    let arguments = ["--case", "digits:interpreter:A100:1:1:1", "--set", "max_epochs=1"];
    let (record, _) = program::record(checkout.path(), &arguments);
    let warning = "the key of the training names the hardware `A100`, and it ran on `cpu`";
    assert!(record["warnings"].as_array().is_some_and(|all| all.contains(&warning.into())), "{}", record["warnings"]);
}
