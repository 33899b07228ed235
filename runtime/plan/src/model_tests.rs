//! Tests of model files: exports, existing files, manifests.

use std::path::Path;

use super::tests::{errors, planned, runnable};
use super::*;
use flagperf_config::Overrides;
use flagperf_config::fixture::{messages_of, set};
use flagperf_core::event::Level;

#[test]
fn two_runs_in_one_checkout_export_to_different_files() {
    let plan = planned(&runnable(), &Overrides::default()).unwrap();
    let exports = |run: &str| {
        let jobs = plan.cases[0].jobs_in(Path::new(run));
        [jobs[0].task.clone(), jobs[1].task.clone()]
    };
    let folder = Path::new("/result/run1/toy_frame/localhost_noderank0");
    let manifest = ModelInput::Exported(folder.join("toy_bs8_frame_fp16False.graphs.json"));
    let export = Some(folder.join("toy_bs8_frame_fp16False.onnx"));
    assert_eq!(exports("/result/run1"), [Task::Validate { export }, Task::Infer { model: manifest }]);
    assert_ne!(exports("/result/run1"), exports("/result/run2"));
}

#[test]
fn an_ignored_path_causes_a_warning() {
    let plan = planned(&runnable(), &set(&["compiler=null", "exist_onnx_path=x.onnx"])).unwrap();
    let warnings = messages_of(Level::Warning, &plan.findings);
    assert_eq!(warnings[2], "--set exist_onnx_path=x.onnx: `exist_onnx_path` is ignored: `compiler` is null");
    let [validate] = plan.cases[0].jobs.as_slice() else { panic!() };
    assert_eq!((&validate.task, &validate.outputs), (&Task::Validate { export: None }, &None));
}

#[test]
fn an_existing_model_must_exist_if_it_is_opened() {
    let checkout = runnable();
    let onnx = checkout.path("m.onnx");
    let missing = |arguments: &[&str]| errors(&checkout, &set(arguments));
    let manifest =
        "\n  hint: for a model of several graphs, name its manifest `<name>.graphs.json` (see configs/README.md)";
    assert_eq!(
        missing(&["no_validation=true", "exist_onnx_path=m.onnx"]),
        [format!("--set exist_onnx_path=m.onnx: ONNX file `{}` does not exist{manifest}", onnx.display())]
    );
    assert_eq!(
        missing(&["exist_compiler_path=m.plan"]),
        [format!(
            "--set exist_compiler_path=m.plan: compiled model `{}` does not exist{manifest}",
            checkout.path("m.plan").display()
        )]
    );
    let placeholder = set(&["no_validation=true", "exist_onnx_path=foo", "compiler=raw"]);
    let plan = planned(&checkout, &placeholder).expect("`raw` does not open the ONNX file");
    assert_eq!(plan.cases[0].jobs[0].task, Task::Infer { model: ModelInput::Placeholder(checkout.path("foo")) });
    let checkout = checkout.with("m_unet.onnx", "").with("m.plan", "");
    let arguments = ["no_validation=true", "exist_onnx_path=m.onnx"];
    assert_eq!(
        errors(&checkout, &set(&arguments)),
        [format!("--set exist_onnx_path=m.onnx: ONNX file `{}` does not exist{manifest}", onnx.display())],
        "another file is not used instead"
    );
    let graph = r#"{"graphs": [{"name": "unet", "files": [{"path": "m_unet.onnx", "size_bytes": 0, "sha256": ""}]}]}"#;
    let checkout = checkout.with("m.graphs.json", graph);
    let plan = planned(&checkout, &set(&arguments)).expect("the manifest lists the file");
    assert_eq!(plan.cases[0].jobs.len(), 1);
    assert_eq!(plan.cases[0].jobs[0].task, Task::Infer { model: ModelInput::Onnx(checkout.path("m.graphs.json")) });
    assert_eq!(
        errors(&checkout, &set(&["no_validation=true", "exist_onnx_path=/dev/zero"])),
        ["--set exist_onnx_path=/dev/zero: cannot open `/dev/zero`: is a device, not a regular file"]
    );
    let compiled =
        planned(&checkout, &set(&[arguments[0], "exist_onnx_path=foo", "exist_compiler_path=m.plan"])).unwrap();
    assert_eq!(compiled.cases[0].jobs[0].task, Task::Infer { model: ModelInput::Compiled(checkout.path("m.plan")) });
}
