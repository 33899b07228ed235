//! Every training of the repository trains its small size, on the data that it reads when none are given.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::{self, program};

/// The settings by which images are quick to train with.
const IMAGES: [&str; 4] = ["image_size=32", "resize=32", "max_epochs=2", "eval_interval=2"];
/// Those of short sequences.
const TOKENS: [&str; 4] = ["seq_length=32", "max_epochs=2", "eval_interval=2", "target={}"];

/// Those of short questions.
const QUESTIONS: [&str; 4] = ["seq_length=16", "choices=4", "max_epochs=2", "eval_interval=2"];

/// The cases with their settings. `digits` has tests of its own.
const TRAININGS: [(&str, [&str; 4]); 8] = [
    ("resnet50", IMAGES),
    ("mobilenetv2", IMAGES),
    ("efficientnet", IMAGES),
    ("vit", IMAGES),
    ("bert", TOKENS),
    ("gpt2", TOKENS),
    ("smollm2_135m", TOKENS),
    ("glm", QUESTIONS),
];

/// Trains the small size of a case with more settings, and returns its record.
fn train(case: &str, settings: &[&str]) -> Value {
    let checkout = support::checkout();
    let key = format!("{case}:interpreter:cpu:1:1:1");
    let mut arguments = vec!["--case", key.as_str(), "--set", "size=tiny", "--set", "seed=7"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let (record, code) = program::record(checkout.path(), &arguments);
    assert_eq!((record["status"].as_str(), code), (Some("ok"), Some(0)), "{case}: {}", record["failures"]);
    record
}

/// Returns the mean loss of each epoch.
fn losses(record: &Value) -> Vec<f64> {
    let losses = record["phases"][0]["training"]["rounds"][0]["epoch_losses"].as_array().expect("losses");
    losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

#[test]
fn every_training_of_the_repository_is_in_the_table_and_has_overlays() {
    let entries = fs::read_dir(support::root().join("configs")).expect("configs").flatten();
    let folders = entries.filter(|entry| entry.path().join("training.yaml").is_file());
    let mut cases: BTreeSet<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(cases.remove("digits"));
    for (case, vendor) in cases.iter().flat_map(|case| [(case, "cpu"), (case, "nvidia")]) {
        let overlay = format!("configs/{case}/vendor_config/{vendor}_training.yaml");
        assert!(support::root().join(&overlay).is_file(), "{overlay}");
    }
    assert_eq!(cases, BTreeSet::from(TRAININGS.map(|(case, _)| case.to_owned())));
}

#[test]
fn every_training_computes_steps_that_another_engine_confirms() {
    for (case, settings) in TRAININGS {
        let record = train(case, &settings);
        // Chance among 1,024 tokens has a loss of 6.9.
        let losses = losses(&record);
        assert!(losses.len() == 2 && losses.iter().all(|loss| *loss < 8.0), "{case}: {losses:?}");
        let replay = &record["phases"][0]["training"]["replay"];
        assert_eq!((&replay["engine"], &replay["not_computed"]), (&"rten".into(), &serde_json::json!([])), "{case}");
        let steps = replay["steps"].as_array().expect("steps");
        // Where single pixels are normalized, an activation close to 0 has another sign on another engine: a few values are
        // imprecise. The run would have failed if most of them were.
        assert!(!steps.is_empty() && steps.iter().all(|step| step["wrong"] == 0), "{case}: {replay}");
        assert_eq!(record["agreement"]["verdict"], "met", "{case}");
    }
}

#[test]
fn gpt2_learns_the_text_of_the_project() {
    let settings = ["seq_length=32", "dropout=0.0", "learning_rate=0.01", "updates=780", "max_epochs=20"];
    let record = train("gpt2", &[&settings[..], &["target={token_accuracy: 0.5}"]].concat());
    let losses = losses(&record);
    // It reached its target before the last epoch.
    assert!(losses.len() < 20 && losses.last() < Some(&3.0), "{losses:?}");
    let evaluations = record["phases"][0]["training"]["rounds"][0]["evaluations"].as_array().expect("evaluations");
    let metrics = &evaluations.last().expect("an evaluation")["metrics"];
    assert!(metrics["token_accuracy"].as_f64() >= Some(0.5), "{metrics}");
}

#[test]
fn smollm2_learns_that_16_of_its_tokens_occur() {
    let settings = ["seq_length=32", "learning_rate=0.01", "max_epochs=6", "target={perplexity: 20}"];
    let losses = losses(&train("smollm2_135m", &settings));
    assert!(losses.len() < 6, "{losses:?}");
}
