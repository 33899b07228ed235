//! A case that is trained, as `plan`, `list` and `lint` show it, and what they refuse.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{checkout, flagperf};

const KEY: &str = "tiny:mock:chip:1:1:1";
const TRAINING: &str = "batch_size: 8\nlearning_rate: 0.1\nmax_epochs: 3\ntarget: {top1: 0.9}\n";
const SCRIPT: &str = "fn build_dataloader(config) {
    data::synthetic(#{samples: config.samples, inputs: #{images: \"3,8,8,f32\"}, truth: #{labels: \"i64\"}})
}

fn compute_loss(model, config) {
    let labels = model.input(\"labels\", \"N,i64\");
    model.value(\"scores\").cross_entropy(labels)
}

fn create_optimizer(config) {
    optim::sgd(#{momentum: 0.9})
}

fn create_scheduler(config) {
    optim::cosine(#{length: config.max_epochs})
}
";
const OVERLAY: &str = "configs/tiny/vendor_config/mock_training.yaml";

/// Creates a checkout whose case `tiny` can be trained, too.
fn trained() -> TempDir {
    let checkout = checkout();
    write(checkout.path(), "configs/tiny/training.yaml", TRAINING);
    write(checkout.path(), OVERLAY, "batch_size: 4\nchipx1x1:\n    learning_rate: 0.5\n");
    write(checkout.path(), "scripts/tiny/training.rhai", SCRIPT);
    checkout
}

fn write(checkout: &Path, path: &str, text: &str) {
    fs::write(checkout.join(path), text).expect("a file");
}

/// Runs a command; returns its exit code and its standard output and standard error, one after the other.
fn run(checkout: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = flagperf(checkout, arguments);
    let text = [&output.stdout[..], &output.stderr[..]].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), text.concat())
}

#[test]
fn plan_shows_the_job_of_a_training_with_the_values_of_its_size() {
    let checkout = trained();
    let (code, text) = run(checkout.path(), &["plan", "--case", KEY]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("{KEY} runs train on localhost\n")), "{text}");
    let json = flagperf(checkout.path(), &["plan", "--case", KEY, "--json"]).stdout;
    let plan: Value = serde_json::from_slice(&json).expect("JSON");
    let job = &plan["cases"][0]["jobs"][0];
    assert_eq!((&job["phase"], &job["training"]["learning_rate"]), (&json!("train"), &json!(0.5)), "{job}");
    assert_eq!(job["log_dir"], "tiny_mock_chip_1x1/localhost_noderank0");
    let of = |key: &str| {
        let rows = plan["values"].as_array().expect("rows");
        rows.iter().find(|row| row["key"] == key && row["section"] == KEY).expect("a row")["origin"].clone()
    };
    assert_eq!(of("learning_rate"), format!("{OVERLAY}:3"));
    assert_eq!(of("batch_size"), format!("{OVERLAY}:1"));
    assert_eq!(of("max_epochs"), "configs/tiny/training.yaml:3");
}

#[test]
fn list_and_lint_know_the_training_of_a_case() {
    let checkout = trained();
    let (_, cases) = run(checkout.path(), &["list", "cases"]);
    assert!(cases.contains("overlays: mock; training overlays: mock\n"), "{cases}");
    let (code, text) = run(checkout.path(), &["lint", "tiny"]);
    assert_eq!(code, Some(0), "{text}");
    let rows = text.lines().filter(|line| line.contains("tiny (training)") && line.trim_end().ends_with("ok"));
    assert_eq!(rows.count(), 2, "without a vendor and with mock: {text}");
    write(checkout.path(), OVERLAY, "chipx2x8:\n    target: {top1: 0.1}\n");
    let (code, text) = run(checkout.path(), &["lint", "tiny"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(&format!("error: {OVERLAY}:2: `target` cannot be set by a vendor: ")), "{text}");
    assert!(text.contains("in: tiny:mock with mock (training)\n"), "{text}");
}

#[test]
fn what_cannot_be_trained_is_refused_by_plan() {
    let checkout = trained();
    let refused = |arguments: &[&str], message: &str| {
        let (code, text) = run(checkout.path(), &[&["plan"], arguments].concat());
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    };
    refused(&["--case", "tiny:mock:chip:1:8:1"], "framework `mock` cannot train on several devices, but case");
    refused(&["--case", KEY, "--set", "precision=tf32"], "training in TF32 is not supported yet");
    refused(&["--case", "tiny:mock:chip:1:x:1"], "`<nproc>` must be a whole number from 1 to 1024, not `x`");
    refused(&["--case", "tiny:moc:chip:1:1:1"], "vendor `mock` has no framework or compiler `moc` (known: mock)");
    fs::remove_file(checkout.path().join("scripts/tiny/training.rhai")).expect("it was there");
    refused(&["--case", KEY], "configs/tiny/training.yaml: case `tiny` has no scripts/tiny/training.rhai");
}

#[test]
fn a_training_without_its_images_is_refused_before_others_are_drawn() {
    let checkout = crate::support::checkout();
    let (code, text) = run(checkout.path(), &["plan", "--case", "resnet50:interpreter:cpu:1:1:1"]);
    let folder = checkout.path().join("datasets/drawn/generated");
    let missing = format!("there is no `train` in the data directory `{}`", folder.display());
    assert!(code == Some(2) && text.contains(&missing), "{text}");
    assert!(!folder.exists());
}

#[test]
fn a_function_that_a_vendor_cannot_replace_is_an_error_also_without_an_overlay() {
    let checkout = trained();
    fs::remove_file(checkout.path().join(OVERLAY)).expect("the overlay");
    fs::create_dir_all(checkout.path().join("scripts/tiny/mock")).expect("a folder");
    let expected = "scripts/tiny/mock/training.rhai:1:1: the host does not call `create_optimizer` of a vendor, only \
                    `fn convert_model(model, config)` and `fn create_grad_scaler(config)`";
    write(checkout.path(), "scripts/tiny/mock/training.rhai", "fn create_optimizer(config) { optim::sgd(#{}) }\n");
    for words in [&["plan", "--case", KEY][..], &["lint", "tiny"]] {
        let (code, text) = run(checkout.path(), words);
        assert!(code == Some(2) && text.contains(expected), "{words:?}: {text}");
    }
    write(
        checkout.path(),
        "scripts/tiny/mock/training.rhai",
        "fn convert_model(model, config) { same(model) }\nfn same(model) { model }\n",
    );
    let (code, text) = run(checkout.path(), &["plan", "--case", KEY]);
    assert_eq!(code, Some(0), "{text}");
}
