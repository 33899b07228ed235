//! Tests of planning: a configuration and a catalogue in, jobs or messages out.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::Overrides;
use crate::config::fixture::{Checkout, said};
use crate::event::Level;
use crate::step::Phase;
use crate::tensor::DType;

fn engines() -> Vec<KnownEngine> {
    let row = |name: &str, framework, compiler, precisions: &[DType]| KnownEngine {
        name: name.to_owned(),
        about: String::new(),
        framework,
        compiler,
        precisions: precisions.to_vec(),
    };
    vec![row("candle", true, false, &[DType::F32, DType::F16]), row("rten", false, true, &[DType::F32])]
}

fn catalogue(root: &Path) -> Catalogue {
    Catalogue::read(root, engines())
}

fn planned(checkout: &Checkout, overrides: &Overrides) -> Result<Plan, PlanErrors> {
    plan(&checkout.load(overrides)?, &catalogue(checkout.root()))
}

fn errors(checkout: &Checkout, overrides: &Overrides) -> Vec<String> {
    said(Level::Error, &planned(checkout, overrides).expect_err("something is wrong").0)
}

/// A checkout whose case runs on `chip`: rten has no f16.
fn runnable() -> Checkout {
    Checkout::new().overlay("fp16: false\nbatch_size: 8\n")
}

#[test]
fn a_case_becomes_a_validating_and_an_inferring_job() {
    let checkout = runnable();
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let [toy] = plan.cases.as_slice() else { panic!("{:?}", plan.cases) };
    let [validate, infer] = toy.jobs.as_slice() else { panic!("{:?}", toy.jobs) };
    let onnx = checkout.path("onnxs/toy_bs8_frame_fp16False.onnx");

    assert_eq!((validate.phase, infer.phase), (Phase::Validate, Phase::Infer));
    assert_eq!(validate.export, Some(onnx.clone()));
    assert_eq!(infer.model, Some(ModelInput::Onnx(onnx)));
    assert_eq!((validate.engine.name.as_str(), validate.engine.engine.as_str()), ("frame", "candle"));
    assert_eq!((infer.engine.name.as_str(), infer.engine.engine.as_str(), infer.engine.threads), ("fast", "rten", 2));
    assert!(infer.engine.options.is_empty(), "an option that is null is left to the engine");
    assert_eq!(validate.scripts, checkout.path("scripts/toy"));
    assert_eq!(validate.data_dir, checkout.path("data"));
    assert_eq!(validate.settings.flops_per_sample, 4.12e9);
    assert_eq!(validate.settings.log_freq, 30);
    assert_eq!(
        json!(validate.config),
        json!({"batch_size": 8, "flops": "4.12e9", "fp16": false, "compiler": "fast", "num_workers": 8,
               "log_freq": 30, "repeat": 5, "no_validation": false, "exist_onnx_path": null,
               "exist_compiler_path": null, "image_size": 224, "target": {"top1": 0.5},
               "vendor": "chip", "case": "toy", "framework": "frame"})
    );
    let [validate, infer] = &toy.jobs_in(Path::new("/run"))[..] else { panic!() };
    assert_eq!(validate.log_dir, Path::new("/run/toy_frame/localhost_noderank0"));
    assert_eq!(validate.outputs, Some("/run/toy_frame/localhost_noderank0/outputs.safetensors".into()));
    assert_eq!(validate.outputs, infer.outputs);
}
