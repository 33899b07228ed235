//! Tests of the precision: which engines accept it, and what it changes in the jobs.

use serde_json::json;

use super::tests::{catalogue, engines, errors, runnable};
use super::*;
use flagperf_config::Overrides;
use flagperf_config::fixture::{Checkout, messages_of, set};
use flagperf_core::description::{EngineOption, OptionKind, TF32_OPTION};
use flagperf_core::event::Level;
use flagperf_core::precision::Precision;

const OPTION: &[EngineOption] =
    &[EngineOption { name: TF32_OPTION, kind: OptionKind::Boolean, default: "false", about: "" }];

/// Returns a checkout whose compiler `fast` sets no option.
fn chip() -> Checkout {
    let vendor =
        "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers: {fast: {engine: rten}}\n";
    runnable().with("vendors/chip/vendor.yaml", vendor)
}

/// Plans with engines of which rten has these options.
fn planned_with(options: &'static [EngineOption], checkout: &Checkout, arguments: &[&str]) -> Result<Plan, PlanErrors> {
    let mut engines = engines();
    let rten = engines.iter_mut().find(|engine| engine.name == "rten").unwrap();
    rten.options = Some(options);
    plan(&checkout.load(&set(arguments))?, &Catalogue { engines, ..catalogue(checkout.root()) })
}

#[test]
fn tf32_is_an_option_of_the_compiler_and_validation_stays_in_fp32() {
    let plan = planned_with(OPTION, &chip(), &["precision=tf32"]).unwrap();
    let [validate, infer] = plan.cases[0].jobs.as_slice() else { panic!() };
    assert_eq!((validate.precision(), infer.precision()), (Precision::Fp32, Precision::Tf32));
    assert_eq!(validate.engine.options.get(TF32_OPTION), None);
    assert_eq!(infer.engine.options[TF32_OPTION], json!(true));
    let Task::Validate { export: Some(export) } = &validate.task else { panic!("{:?}", validate.task) };
    assert!(export.ends_with("toy_bs8_frame_fp16False.onnx"), "{export:?}");
    let plan = planned_with(OPTION, &chip(), &[]).unwrap();
    assert_eq!(plan.cases[0].jobs[1].engine.options.get(TF32_OPTION), None);
}

#[test]
fn a_precision_that_no_engine_of_the_case_has_is_refused() {
    let refused = |arguments: &[&str]| messages_of(Level::Error, &planned_with(&[], &chip(), arguments).unwrap_err().0);
    let chosen = |line: u32, file: &str| format!("; case `toy` names it in configs/{file}:{line}");
    let compiler = chosen(4, "toy/configurations.yaml");
    let hint = |word: &str| format!("\n  hint: delete `--set precision={word}`, or request a supported precision");
    assert_eq!(
        refused(&["precision=tf32"]),
        [format!(
            "--set precision=tf32: compiler `fast` does not compute in `tf32` (supported: fp32){compiler}{}",
            hint("tf32")
        )]
    );
    let (framework, hint) = (chosen(3, "host.yaml"), hint("bf16"));
    assert_eq!(
        refused(&["precision=bf16"]),
        [
            format!(
                "--set precision=bf16: framework `frame` does not compute in `bf16` (supported: fp32, fp16){framework}{hint}"
            ),
            format!(
                "--set precision=bf16: compiler `fast` does not compute in `bf16` (supported: fp32){compiler}{hint}"
            ),
        ]
    );
    assert_eq!(
        refused(&["precision=tf32", "compiler=null"]),
        ["--set precision=tf32: `precision: tf32` needs a compiler, but `compiler` is null; validation always \
          runs in fp32\n  hint: set `precision: fp32`, or name a compiler"]
    );
}

#[test]
fn the_option_tf32_cannot_be_set_directly() {
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers:\n    fast:\n        engine: \
                  rten\n        options: {tf32: true}\n";
    let checkout = runnable().with("vendors/chip/vendor.yaml", vendor);
    let error = planned_with(OPTION, &checkout, &[]).unwrap_err();
    assert_eq!(
        messages_of(Level::Error, &error.0),
        [
            "vendors/chip/vendor.yaml:7: `tf32` cannot be set directly; it follows `precision`\n  hint: delete the option, \
          and set `precision: tf32`"
        ]
    );
}

#[test]
fn a_precision_that_an_engine_does_not_support_is_an_error() {
    assert_eq!(
        errors(&Checkout::new(), &Overrides::default()),
        [
            "configs/toy/configurations.yaml:3: compiler `fast` does not compute in `fp16` (supported: fp32); case `toy` names it in configs/toy/configurations.yaml:4\n  hint: set `fp16: false` in the overlay of the vendor to compute in fp32"
        ]
    );
}
