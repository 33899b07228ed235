//! Engines and models that cannot serve a case: `plan` refuses them before anything runs, and never waits for a FIFO.

use std::path::Path;

use flagperf_onnx::write_onnx;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{checkout, flagperf};
use crate::support::graphs;

/// Returns the errors of a command that must end with this code, and their hints.
fn errors(checkout: &Path, code: i32, arguments: &[&str]) -> String {
    let output = flagperf(checkout, arguments);
    let text = String::from_utf8_lossy(&output.stderr).replace(&*checkout.to_string_lossy(), "[CHECKOUT]");
    assert_eq!(output.status.code(), Some(code), "{text}");
    let is_error = |line: &&str| line.starts_with("error") || line.starts_with("  hint");
    text.lines().filter(is_error).collect::<Vec<_>>().join("\n")
}

/// Returns the error of `plan` without the hint.
fn refusal(checkout: &Path, arguments: &[&str]) -> String {
    let errors = errors(checkout, 2, &[&["plan"], arguments].concat());
    errors.lines().next().unwrap_or_default().to_owned()
}

/// Adds compilers to the vendor `mock`.
fn add_compilers(checkout: &Path, entries: &str) {
    let vendor = checkout.join("vendors/mock/vendor.yaml");
    let text = std::fs::read_to_string(&vendor).expect("a file");
    std::fs::write(vendor, text.replace("compilers:\n", &format!("compilers:\n{entries}"))).expect("a file");
}

#[test]
fn a_library_that_is_not_a_regular_file_is_refused_by_plan_and_doctor_at_once() {
    let checkout = checkout();
    mkfifo(&checkout.path().join("pipe"), Mode::S_IRWXU).expect("a FIFO");
    let entries = "    ort: {engine: onnxruntime}\n    vino: {engine: openvino}\n";
    add_compilers(checkout.path(), &format!("    chip: {{engine: plugin, library: ../../pipe}}\n{entries}"));
    let path = checkout.path().join("pipe").display().to_string();
    for (compiler, option) in
        [("ort", "ort.library_path"), ("ort", "ort.provider_library"), ("vino", "vino.library_path")]
    {
        let (compiler, value) = (format!("compiler={compiler}"), format!("{option}={path}"));
        let arguments = ["--set", &compiler, "--set", &value, "--set", "ort.provider=cpu"];
        let arguments = if option.starts_with("ort") { &arguments[..] } else { &arguments[..4] };
        let expected = "the library `[CHECKOUT]/pipe` is a FIFO, not a regular file";
        let error = refusal(checkout.path(), arguments);
        assert!(error.starts_with(&format!("error: --set {option}=")) && error.ends_with(expected), "{error}");
        let error = errors(checkout.path(), 2, &[&["doctor"], arguments].concat());
        assert!(error.contains(expected), "{error}");
    }
    let error = refusal(checkout.path(), &["--set", "compiler=chip"]);
    assert!(
        error.contains("vendors/mock/vendor.yaml:") && error.ends_with("pipe` is a FIFO, not a regular file"),
        "{error}"
    );
}

#[test]
fn a_library_that_the_system_finds_by_name_is_opened_by_plan() {
    let checkout = checkout();
    add_compilers(checkout.path(), "    ort: {engine: onnxruntime}\n");
    let arguments = ["plan", "--set", "compiler=ort", "--set", "ort.library_path=libc.so.6"];
    let errors = errors(checkout.path(), 2, &arguments);
    assert!(
        errors.contains("compiler `ort` cannot be used on this machine: `libc.so.6` is not ONNX Runtime")
            && errors.contains("hint: `library_path` must name ONNX Runtime's library; null is the installed one"),
        "{errors}"
    );
}

#[test]
fn a_version_that_an_engine_of_this_program_does_not_have_is_refused() {
    let checkout = checkout();
    let error = refusal(checkout.path(), &["--case", "tiny:mock_9.9", "--data", "data"]);
    assert!(error.contains("framework `mock_9.9` requires version `9.9` (found: `"), "{error}");
    let version = env!("CARGO_PKG_VERSION");
    let plan = flagperf(checkout.path(), &["plan", "--data", "data", "--case", &format!("tiny:mock_{version}")]);
    assert_eq!(plan.status.code(), Some(0), "{}", String::from_utf8_lossy(&plan.stderr));
}

#[test]
fn an_existing_model_with_other_inputs_than_the_case_is_refused() {
    let checkout = checkout();
    write_onnx(&graphs::linear(4), &checkout.path().join("other.onnx")).expect("a file");
    let error = refusal(checkout.path(), &["--set", "exist_onnx_path=other.onnx"]);
    let expected = "its input `x` is `N,3,f32`, but the input `images` of the case's model is `N,3,8,8,f32`";
    assert!(error.contains("`[CHECKOUT]/other.onnx`: ") && error.ends_with(expected), "{error}");
}

#[test]
fn an_operator_outside_the_standard_is_refused() {
    let checkout = checkout();
    let mut graph = graphs::linear(4);
    graph.nodes[0].op = "Wobble".to_owned();
    write_onnx(&graph, &checkout.path().join("wobble.onnx")).expect("a file");
    let arguments = ["--set", "no_validation=true", "--set", "exist_onnx_path=wobble.onnx"];
    let error = refusal(checkout.path(), &arguments);
    assert!(error.contains(": `[CHECKOUT]/wobble.onnx`: node `"), "{error}");
    assert!(error.ends_with("` has the operator `Wobble`, which is not one of ONNX"), "{error}");
}
