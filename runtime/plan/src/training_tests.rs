//! Tests of planning a training: one job, and what is refused.

use indexmap::IndexMap;
use serde_json::json;

use super::tests::{errors, planned};
use super::{CaseSettings, Task, TrainingSettings};
use flagperf_config::Overrides;
use flagperf_config::fixture::{Checkout, case, set};
use flagperf_core::measure::TrainingLength;
use flagperf_core::precision::Precision;
use flagperf_core::step::{EngineRole, Phase};

const TRAINING: &str = "batch_size: 32\nlearning_rate: 0.1\nmax_epochs: 20\ntarget: {top1: 0.9}\n";

fn checkout() -> Checkout {
    let host = "VENDOR: chip\nCASES:\n    \"toy:frame:A100:1:1:2\": data\n";
    let checkout = Checkout::new().with("configs/host.yaml", host).with("configs/toy/training.yaml", TRAINING);
    checkout.with("scripts/toy/training.rhai", "")
}

#[test]
fn a_training_is_one_job_with_the_settings_of_training_yaml() {
    let plan = planned(&checkout(), &Overrides::default()).unwrap();
    let [toy] = plan.cases.as_slice() else { panic!("{:?}", plan.cases) };
    let [job] = toy.jobs.as_slice() else { panic!("{:?}", toy.jobs) };
    assert_eq!((job.phase(), job.engine.name.as_str(), job.precision()), (Phase::Train, "frame", Precision::Fp32));
    assert_eq!(toy.folder.to_str(), Some("toy_frame_A100_1x1/localhost_noderank0"));
    let training = TrainingSettings {
        eval_batch_size: 32,
        gradient_accumulation_steps: 1,
        learning_rate: 0.1,
        length: TrainingLength { max_epochs: 20, max_steps: None, eval_interval: 1, eval_steps: None },
        target: IndexMap::from([("top1".to_owned(), 0.9)]),
        hardware: "A100".to_owned(),
        processes: 1,
        sync_batch_norm: false,
        shard_optimizer: false,
        command: Vec::new(),
        command_folder: None,
        patterns: IndexMap::new(),
        devices_of_host: None,
    };
    assert_eq!(job.task, Task::Train { training: Box::new(training), role: EngineRole::Framework });
    let CaseSettings { batch_size, flops, flops_per_sample, compiler, repeat, no_validation, .. } = &job.settings;
    assert_eq!((*batch_size, flops.as_str(), *flops_per_sample, *repeat), (32, "", 0.0, 2));
    assert_eq!((compiler, *no_validation, &job.outputs), (&None, false, &None));
    assert_eq!(job.config["max_epochs"], json!(20));
    let line = serde_json::to_string(job).unwrap();
    assert_eq!(serde_json::from_str::<super::Job>(&line).unwrap(), *job, "it travels as JSON");
}

#[test]
fn what_a_training_cannot_do_yet_is_refused_where_it_is_asked_for() {
    let several = errors(&checkout(), &case("toy:frame:A100:2:3:1"));
    let expected = [
        "needs 2 hosts, but `HOSTS` lists 1",
        "needs 3 devices of each host, but no variable selects the device of a worker",
        "`batch_size` 32 cannot be divided among 6 devices",
    ];
    for expected in expected {
        assert!(several.iter().any(|error| error.contains(expected)), "{expected}: {several:?}");
    }
    let tf32 = errors(&checkout(), &set(&["precision=tf32"]));
    let message = "--set precision=tf32: `precision` is `tf32`; training in TF32 is not supported yet\n  hint: set \
                   `precision: fp32`, or `bf16` or `fp16` for mixed precision";
    assert_eq!(tf32, [message]);
}

#[test]
fn a_training_in_mixed_precision_keeps_its_values_in_fp32() {
    let half = checkout().with("configs/toy/training.yaml", &format!("{TRAINING}fp16: true\n"));
    let plan = planned(&half, &case("toy")).unwrap();
    let job = &plan.cases[0].jobs[0];
    assert_eq!((job.precision(), job.value_precision()), (Precision::Fp16, Precision::Fp32));
}

#[test]
fn hardware_that_is_no_device_of_the_vendor_is_a_warning() {
    let vendor = std::fs::read_to_string(checkout().path("vendors/chip/vendor.yaml")).unwrap();
    let checkout = checkout().with("vendors/chip/vendor.yaml", &vendor.replace("name: Chip 1,", "name: Chip A100,"));
    let warnings = |key: &str| {
        let plan = planned(&checkout, &case(key)).unwrap();
        let findings = plan.findings.iter().filter(|finding| finding.message.contains("hardware"));
        findings.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("toy:frame:A100:1:1:1"), [""; 0]);
    let expected = "--case toy:frame:H100:1:1:1: the hardware `H100` in the key is part of the name of no device of vendor `chip`\n  \
                    hint: known devices: Chip A100";
    assert_eq!(warnings("toy:frame:H100:1:1:1"), [expected]);
}

#[test]
fn a_training_needs_its_script_and_a_framework() {
    let without = errors(&checkout().without("scripts/toy/training.rhai"), &Overrides::default());
    assert_eq!(without, ["configs/toy/training.yaml: case `toy` has no scripts/toy/training.rhai"]);
    let vendor = std::fs::read_to_string(checkout().path("vendors/chip/vendor.yaml")).unwrap();
    let compiler = checkout().with("vendors/chip/vendor.yaml", &vendor.replace("engine: interpreter", "engine: rten"));
    assert_eq!(errors(&compiler, &Overrides::default()), ["configs/host.yaml:3: engine `rten` cannot be a framework"]);
}

#[test]
fn a_training_is_evaluated_with_the_forward_function_and_the_evaluator_of_the_case() {
    let without = errors(&checkout().without("scripts/toy/evaluator.rhai"), &Overrides::default());
    let message =
        "configs/toy/parameters.yaml: case `toy` has neither scripts/toy/evaluator.rhai nor `evaluator: lib/NAME`";
    assert!(without.len() == 1 && without[0].starts_with(message), "{without:?}");
    planned(&checkout().without("configs/toy/configurations.yaml"), &Overrides::default()).unwrap();
}
