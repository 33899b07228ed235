//! A real answer: EfficientNet-Lite0 with ImageNet weights on 100 photographs, through the whole program.

#[path = "support/program.rs"]
mod program;
mod support;

use tempfile::TempDir;

/// PyTorch gets 89 of the 100 images right, and 99 within its first five. Two of the 89 are won by less than 0.01 in a
/// logit: they are lost as soon as pixels differ from PIL's by a rounding.
fn reaches_what_pytorch_reaches(more: &[&str]) {
    reaches_it_in(&support::checkout(), &[&["--case", "efficientnet_lite0"], more].concat());
}

/// The same in a checkout of the test's own, where `more` names the case.
fn reaches_it_in(checkout: &TempDir, more: &[&str]) {
    let Some(data) = support::shared_data() else { return };
    let data = data.display().to_string();
    let arguments = [&["--data", &data], more].concat();
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
fn candle_and_rten_reach_what_pytorch_reaches() {
    reaches_what_pytorch_reaches(&[]);
}

#[test]
fn onnxruntime_reaches_what_pytorch_reaches() {
    if support::has_engine("onnxruntime") {
        reaches_what_pytorch_reaches(&["--set", "compiler=onnxruntime"]);
    }
}

#[test]
fn openvino_reaches_what_pytorch_reaches() {
    if support::has_engine("openvino") {
        reaches_what_pytorch_reaches(&["--vendor", "intel"]);
    }
}

#[test]
fn libtorch_and_rten_reach_what_pytorch_reaches() {
    if let Some(checkout) = support::checkout_with_libtorch() {
        reaches_it_in(&checkout, &["--case", "efficientnet_lite0:pytorch_2.11"]);
    }
}

#[test]
fn another_version_of_libtorch_than_the_one_asked_for_is_an_error() {
    let Some(checkout) = support::checkout_with_libtorch() else { return };
    let (record, code) = program::record(checkout.path(), &["--case", "resnet50:pytorch_1.13"]);
    assert_eq!((code, record["status"].as_str()), (Some(1), Some("failed")), "{record}");
    assert_eq!(
        record["failures"][0]["reason"],
        "framework `pytorch_1.13` asks for version `1.13`, the library found is `2.11.0`"
    );
}

#[cfg(feature = "tract")]
#[test]
fn tract_reaches_what_pytorch_reaches() {
    reaches_what_pytorch_reaches(&["--set", "compiler=tract"]);
}
