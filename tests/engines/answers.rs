//! Real accuracy: EfficientNet-Lite0 with ImageNet weights on 100 photographs, through the whole program.

use tempfile::TempDir;

use crate::support::{self, program};

/// Checks that a run in a fresh checkout reaches PyTorch's accuracy.
///
/// PyTorch classifies 89 of the 100 images correctly, and 99 within its top five. Two of the 89 lead by less than 0.01
/// in a logit, so they are lost as soon as a pixel differs from PIL's by one rounding.
fn check_accuracy(more: &[&str]) {
    check_accuracy_in(&support::checkout(), &[&["--case", "efficientnet_lite0"], more].concat());
}

/// Checks the same in a given checkout; `more` names the case.
fn check_accuracy_in(checkout: &TempDir, more: &[&str]) {
    let Some(data) = support::shared_data() else { return };
    let data = data.display().to_string();
    // Every pass over the images has the same accuracy.
    let arguments = [&["--data", &data, "--set", "repeat=1"], more].concat();
    let (record, code) = program::record(checkout.path(), &arguments);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    for phase in record["phases"].as_array().expect("two phases") {
        let accuracy = &phase["measured"][0]["accuracy"];
        let top1 = accuracy["top1"].as_f64().expect("an accuracy");
        assert_eq!(top1, 0.89, "{}", phase["phase"]);
        assert_eq!(accuracy["top5"], 0.99, "{}", phase["phase"]);
        assert_eq!(phase["measured"][0]["samples"], 100);
    }
    assert_eq!(record["accuracy"]["verdict"], "met");
    assert_eq!(record["phases"][1]["agreement"]["outputs"]["output"]["top1_agreement"], 1.0);
}

#[test]
fn the_interpreter_and_rten_reach_pytorchs_accuracy() {
    check_accuracy(&[]);
}

#[test]
fn onnxruntime_reaches_pytorchs_accuracy() {
    if support::has_engine("onnxruntime") {
        check_accuracy(&["--set", "compiler=onnxruntime"]);
    }
}

#[test]
fn openvino_reaches_pytorchs_accuracy() {
    if support::has_engine("openvino") {
        check_accuracy(&["--vendor", "intel"]);
    }
}

#[test]
fn libtorch_and_rten_reach_pytorchs_accuracy() {
    if let Some(checkout) = support::checkout_with_libtorch() {
        check_accuracy_in(&checkout, &["--case", "efficientnet_lite0:pytorch_2.11"]);
    }
}

#[test]
fn a_version_of_libtorch_other_than_the_requested_one_is_an_error() {
    let Some(checkout) = support::checkout_with_libtorch() else { return };
    let output = program::flagperf(checkout.path(), &["plan", "--case", "resnet50:pytorch_1.13"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("framework `pytorch_1.13` requires version `1.13` (found: `2.11.0`)"), "{stderr}");
}

/// tract computes about one photograph a second in a build for tests, so that it gets a few.
#[cfg(feature = "tract")]
#[test]
fn tract_classifies_photographs_as_the_interpreter_does() {
    let Some(data) = support::shared_data() else { return };
    let checkout = support::checkout();
    let few = checkout.path().join("few");
    std::fs::create_dir_all(few.join("imagenet-samples")).expect("a folder");
    let copy = |name: &str| std::fs::copy(data.join(name), few.join(name)).expect("a copy");
    copy("imagenet-synsets.txt");
    copy("efficientnet_lite0.safetensors");
    let synsets = std::fs::read_to_string(data.join("imagenet-synsets.txt")).expect("a list");
    let folders = synsets.lines().map(|synset| format!("imagenet-samples/{synset}"));
    for folder in folders.filter(|folder| data.join(folder).is_dir()).take(12) {
        std::fs::create_dir(few.join(&folder)).expect("a folder");
        for photograph in data.join(&folder).read_dir().expect("photographs").flatten() {
            copy(&format!("{folder}/{}", photograph.file_name().display()));
        }
    }
    let few = few.display().to_string();
    let mut arguments = vec!["--case", "efficientnet_lite0", "--data", &few];
    for setting in ["compiler=tract", "repeat=1", "batch_size=4"] {
        arguments.extend(["--set", setting]);
    }
    let (record, code) = program::record(checkout.path(), &arguments);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let agreement = &record["phases"][1]["agreement"];
    assert_eq!((&agreement["samples"], &record["phases"][1]["measured"][0]["samples"]), (&12.into(), &12.into()));
    assert_eq!(agreement["outputs"]["output"]["top1_agreement"], 1.0);
}
