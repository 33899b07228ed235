//! Every training of the repository trains its small size until a target, on the data that it reads when none are given.

use std::collections::BTreeSet;
use std::fs;

use crate::support::{self, program};

/// A case, the settings with which its small size learns, which its README has, `max_epochs`, and its target, which is far from chance.
type Training = (&'static str, &'static str, u64, &'static str);

/// Every case with a training but `digits`, which has tests of its own.
const TRAININGS: [Training; 8] = [RESNET50, MOBILENETV2, EFFICIENTNET, VIT, BERT, GPT2, SMOLLM2, GLM];

/// Eight images of each of eight classes: chance is 0.125.
const RESNET50: Training = (
    "resnet50",
    "image_size=32 resize=32 classes=8 batch_size=8 learning_rate=0.003 eval_interval=4",
    40,
    "{top1: 0.8}",
);
const MOBILENETV2: Training = (
    "mobilenetv2",
    "image_size=32 resize=32 classes=8 batch_size=8 learning_rate=0.01 eval_interval=4",
    40,
    "{top1: 0.7}",
);
const EFFICIENTNET: Training = (
    "efficientnet",
    "image_size=32 resize=32 classes=8 batch_size=8 learning_rate=0.006 eval_interval=4",
    40,
    "{top1: 0.4}",
);
const VIT: Training =
    ("vit", "image_size=32 resize=32 classes=8 batch_size=8 learning_rate=0.001 eval_interval=12", 120, "{top1: 0.5}");
/// The text of the project.
const BERT: Training = (
    "bert",
    "seq_length=32 dropout=0.0 learning_rate=0.01 updates=1000 eval_interval=20",
    100,
    "{token_accuracy: 0.9}",
);
const GPT2: Training =
    ("gpt2", "seq_length=32 dropout=0.0 learning_rate=0.01 updates=780", 20, "{token_accuracy: 0.5}");
/// That 16 of its tokens occur.
const SMOLLM2: Training = ("smollm2_135m", "seq_length=32 learning_rate=0.01", 6, "{perplexity: 20}");
/// Questions of four choices.
const GLM: Training =
    ("glm", "seq_length=16 choices=4 dropout=0.0 learning_rate=0.01 updates=480", 20, "{accuracy: 0.9}");

/// Trains the small size of a case until its target; another engine must confirm its steps and its last evaluation.
fn learns((case, settings, max_epochs, target): Training) {
    let checkout = support::checkout();
    let key = format!("{case}:interpreter:cpu:1:1:1");
    let (target, length) = (format!("target={target}"), format!("max_epochs={max_epochs}"));
    let settings = settings.split(' ').chain(["size=tiny", "seed=7", &target, &length]);
    let arguments: Vec<&str> = ["--case", &key].into_iter().chain(settings.flat_map(|set| ["--set", set])).collect();
    let (record, code) = program::record(checkout.path(), &arguments);
    assert_eq!((record["status"].as_str(), code), (Some("ok"), Some(0)), "{case}: {}", record["failures"]);
    // Drawn data have no verdict on accuracy, but end the training at its target.
    let round = &record["phases"][0]["training"]["rounds"][0];
    assert!(round["epochs"].as_u64() < Some(max_epochs), "{round}");
    assert_eq!(record["agreement"]["verdict"], "met", "{case}");
    let replay = &record["phases"][0]["training"]["replay"];
    assert_eq!((&replay["engine"], &replay["not_computed"]), (&"rten".into(), &serde_json::json!([])), "{case}");
    let steps = replay["steps"].as_array().expect("steps");
    // Where single pixels are normalized, an activation close to 0 has another sign on another engine: a few values are
    // imprecise. The run would have failed if most of them were.
    assert!(!steps.is_empty() && steps.iter().all(|step| step["wrong"] == 0), "{case}: {replay}");
}

#[test]
fn resnet50_learns_the_drawn_images() {
    learns(RESNET50);
}

#[test]
fn mobilenetv2_learns_the_drawn_images() {
    learns(MOBILENETV2);
}

#[test]
fn efficientnet_learns_the_drawn_images() {
    learns(EFFICIENTNET);
}

#[test]
fn vit_learns_the_drawn_images() {
    learns(VIT);
}

#[test]
fn bert_learns_the_text_of_the_project() {
    learns(BERT);
}

#[test]
fn gpt2_learns_the_text_of_the_project() {
    learns(GPT2);
}

#[test]
fn smollm2_learns_that_16_of_its_tokens_occur() {
    learns(SMOLLM2);
}

#[test]
fn glm_learns_its_questions_by_heart() {
    learns(GLM);
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
    assert_eq!(cases, BTreeSet::from(TRAININGS.map(|(case, ..)| case.to_owned())));
}
