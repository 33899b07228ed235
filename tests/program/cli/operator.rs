//! Operators that vendors bring: how they are built, tested and used by a case.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::flagperf;
use crate::support::{self, results};

const SOURCE: &str = "vendors/cpu/operators/sum/sum.cu";

/// Runs a command and returns its exit code and everything that it prints.
fn run(checkout: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = flagperf(checkout, arguments);
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), printed.concat())
}

/// Returns a checkout whose vendor `cpu` has the operator `sum` of the template, with `change` in its source.
fn with_operator(change: impl Fn(&str) -> String) -> tempfile::TempDir {
    let checkout = support::checkout();
    let (code, printed) = run(checkout.path(), &["new", "operator", "sum", "--vendor", "cpu"]);
    assert_eq!(code, Some(0), "{printed}");
    let source = checkout.path().join(SOURCE);
    let text = fs::read_to_string(&source).expect("the source");
    fs::write(source, change(&text)).expect("a file");
    checkout
}

#[track_caller]
fn build(checkout: &Path) {
    let (code, printed) = run(checkout, &["operator", "build", "cpu/sum", "--device", "cpu"]);
    assert_eq!(code, Some(0), "{printed}");
}

/// Tests the operator with libtorch; its plug-in is `library`.
fn test(checkout: &Path, library: &Path, limit: &str) -> (Option<i32>, String) {
    let library = library.to_str().expect("text");
    run(checkout, &["operator", "test", "sum", "--engine", library, "--time-limit", limit])
}

#[test]
fn a_new_operator_is_built_and_computes_what_it_means_in_both_engines() {
    if !support::has_compiler("c++") {
        return;
    }
    let checkout = with_operator(|text| format!("{text}// {}\n", std::process::id()));
    for (engine, expected) in [("rten", "engine `rten` runs no operators of vendors"), ("onnxruntime", "--device cpu")]
    {
        let (code, printed) = run(checkout.path(), &["operator", "test", "sum", "--engine", engine]);
        assert!(code == Some(2) && printed.contains(expected), "{printed}");
    }
    build(checkout.path());
    if let Some(library) = support::libtorch() {
        let (code, printed) = test(checkout.path(), &library, "60");
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("9 comparisons of 3 cases, all the same"), "{printed}");
    }
    if support::has_engine("onnxruntime") {
        let (code, printed) = run(checkout.path(), &["operator", "test", "sum", "--engine", "onnxruntime"]);
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("3 comparisons of 3 cases, all the same"), "{printed}");
    }
}

#[test]
fn what_is_wrong_with_an_operator_is_found() {
    let Some(library) = support::libtorch().filter(|_| support::has_compiler("c++")) else { return };
    let loop_head = "    for (int64_t i = 0; i < count; ++i)\n        y[i] = compute(a[i], b[i]);\n";
    let cases = [
        (
            loop_head,
            "    for (int64_t i = 0; i < count; ++i)\n        y[i] = compute(a[i], b[i]) * 1.001f;\n",
            "it differs by",
        ),
        (
            loop_head,
            "    for (int64_t i = 0; i <= count; ++i)\n        y[i] = compute(a[i], b[i]);\n",
            "outside of its outputs: behind the last element",
        ),
        (
            loop_head,
            "    for (int64_t i = -1; i < count; ++i)\n        y[i] = 0;\n",
            "outside of its outputs: before the first element",
        ),
        (
            loop_head,
            "    for (int64_t i = 0; i < count; ++i)\n        y[i] = compute(a[i], b[i + 1]);\n",
            "is NaN instead of",
        ),
        (loop_head, "    __builtin_trap();\n", "SIGILL"),
        (
            loop_head,
            "    static float first = a[0];\n    for (int64_t i = 0; i < count; ++i)\n        y[i] = compute(a[i], b[i]) + (a[0] != first);\n",
            "it differs by",
        ),
        (loop_head, "    __builtin_exit(0);\n", "its process ended with 0 instead of 3 results"),
        (loop_head, "    for (volatile int64_t i = 0; i >= 0;)\n        ;\n", "took longer than 5 s and was killed"),
        (loop_head, "    return \"it has a bad day\";\n", "it has a bad day"),
        (
            "output->shape[i] = inputs[0].shape[i];",
            "output->shape[i] = inputs[0].shape[i] + 1;",
            "as `5,257,f32`, but declares `4,256,f32`",
        ),
        ("output->rank = inputs[0].rank;", "output->rank = 99;", "99 dimensions"),
        ("output->element_type = FLAGPERF_FLOAT;", "output->element_type = 77;", "the type 77"),
    ];
    for (from, to, expected) in cases {
        let checkout = with_operator(|text| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        build(checkout.path());
        let (code, printed) = test(checkout.path(), &library, "5");
        assert_eq!(code, Some(1), "{to}: {printed}");
        assert!(printed.contains(expected), "{to}: {printed}");
    }
}

#[test]
fn an_operator_that_is_right_once_or_changes_its_inputs_is_found_in_onnx_runtime() {
    if !support::has_compiler("c++") || !support::has_engine("onnxruntime") {
        return;
    }
    let loop_head = "    for (int64_t i = 0; i < count; ++i)\n        y[i] = compute(a[i], b[i]);\n";
    let cases = [
        ("    static bool again = false;\n", "compute(a[i], b[i]) + again;\n    again = true", "it differs by"),
        ("", "compute(a[i], b[i]);\n    const_cast<float *>(a)[0] = 7", "it changes the input `a`"),
    ];
    for (before, computed, expected) in cases {
        let body = format!("{before}    for (int64_t i = 0; i < count; ++i)\n        y[i] = {computed};\n");
        let checkout = with_operator(|text| {
            assert!(text.contains(loop_head));
            text.replace(loop_head, &body)
        });
        build(checkout.path());
        let (code, printed) = run(checkout.path(), &["operator", "test", "sum", "--engine", "onnxruntime"]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_case_of_operator_yaml_that_is_not_possible_is_a_mistake_with_its_line() {
    if !support::has_compiler("c++") || !support::has_engine("onnxruntime") {
        return;
    }
    let checkout = with_operator(str::to_owned);
    let description = checkout.path().join("vendors/cpu/operators/sum/operator.yaml");
    let text = fs::read_to_string(&description).expect("a file");
    let first = text.lines().position(|line| line.trim() == "tests:").expect("the cases") + 1;
    for (wrong, expected) in [
        ("{inputs: {a: \"4,256\", c: \"4,256\"}}", "a case gives the inputs and attributes of a form"),
        ("{inputs: {a: \"4,N\", b: \"4,256\"}}", "`4,N` is not the shape of `a`"),
        ("{inputs: {a: \"4\", b: \"4\"}, values: large}", "`values`: `large` is unknown (known: normal, offset"),
    ] {
        let mut lines: Vec<&str> = text.lines().collect();
        let line = format!("{}- {wrong}", &lines[first][..lines[first].len() - lines[first].trim_start().len()]);
        lines.insert(first + 1, &line);
        fs::write(&description, lines.join("\n")).expect("a file");
        build(checkout.path());
        let (code, printed) = run(checkout.path(), &["operator", "test", "sum", "--engine", "onnxruntime"]);
        assert_eq!(code, Some(2), "{printed}");
        let place = format!("operators/sum/operator.yaml:{}", first + 2);
        assert!(printed.contains(&place) && printed.contains("case 2") && printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_compiler_that_does_not_end_is_killed_after_the_time_limit() {
    let checkout = with_operator(str::to_owned);
    let description = checkout.path().join("vendors/cpu/operators/sum/operator.yaml");
    let text = fs::read_to_string(&description).expect("a file");
    let command = text.lines().find(|line| line.trim_start().starts_with("cpu:")).expect("the command for `cpu`");
    let indent = &command[..command.len() - command.trim_start().len()];
    fs::write(
        &description,
        text.replace(command, &format!("{indent}cpu: {{command: [sh, -c, \"sleep 600\", \"{{output}}\"]}}")),
    )
    .expect("a file");
    let limited = ["operator", "build", "cpu/sum", "--device", "cpu", "--time-limit", "1"];
    let (code, printed) = run(checkout.path(), &limited);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("`sh` took longer than 1 s and was killed"), "{printed}");
    assert!(printed.contains("hint: `--time-limit SECONDS` allows more time"), "{printed}");
}

#[test]
fn a_mistake_in_an_operator_is_explained_where_it_is() {
    if !support::has_compiler("c++") {
        return;
    }
    let checkout = with_operator(|text| text.replace("float sum = a + b;", "float sum = a + c;"));
    let (code, printed) = run(checkout.path(), &["operator", "build", "sum", "--device", "cpu"]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("sum.cu:14:") && printed.contains("`c++` exited with status 1"), "{printed}");
    let description = checkout.path().join("vendors/cpu/operators/sum/operator.yaml");
    let original = fs::read_to_string(&description).expect("a file");
    for (from, to, expected) in [
        (
            "cpu.sum(a, b)",
            "cpu.other(a, b)",
            "operator.yaml:4: `forms`: a form must be one line with one node of the operator `cpu.sum`",
        ),
        ("Relu(Add(a, b))", "Relu(Add(a, b)", "`y = Relu(Add(a, b)`: "),
        ("types: [f32]", "types: [f33]", "operator.yaml:3: `types`: `f33` is not a type"),
        ("equal: [a, b]", "equal: [a, c]", "`equal` lists `c`, which is not a value of the standard operators"),
        ("equal:", "equals:", "operator.yaml:7: unknown key `forms[0].equals`"),
    ] {
        assert!(original.contains(from));
        fs::write(&description, original.replace(from, to)).expect("a file");
        let (code, printed) = run(checkout.path(), &["operator", "build", "sum", "--device", "cpu"]);
        assert!(code == Some(2) && printed.contains(expected), "{to}: {printed}");
    }
    let (code, printed) = run(checkout.path(), &["operator", "build", "sun"]);
    assert!(
        code == Some(2) && printed.contains("unknown operator `sun` (known: cpu/sum, nvidia/layer_norm"),
        "{printed}"
    );
}

#[test]
fn an_engine_whose_headers_are_missing_is_named_with_the_folders() {
    if !support::has_compiler("c++") {
        return;
    }
    let (checkout, empty) = (support::checkout(), tempfile::tempdir().expect("a folder"));
    let folder = empty.path().to_str().expect("text");
    let (code, printed) =
        run(checkout.path(), &["operator", "build", "layer_norm", "--device", "tensorrt", "--headers", folder]);
    let expected = format!("the library for `tensorrt`: there is no `NvInferRuntime.h` in `{folder}`");
    assert!(code == Some(2) && printed.contains(&expected) && printed.contains("--headers DIR"), "{printed}");
}

/// Returns a checkout of the case `tiny`, whose vendor `cpu` brings the layer normalization of another vendor and uses it, with a
/// compiler.
fn with_layer_norm(compiler: &str) -> tempfile::TempDir {
    let checkout = results::checkout();
    let at = |path: &str| checkout.path().join(path);
    let folder = "vendors/cpu/operators/layer_norm";
    fs::create_dir_all(at(folder)).expect("a folder");
    let original = support::root().join("vendors/nvidia/operators/layer_norm");
    for file in ["layer_norm.h", "layer_norm_cpu.cpp"] {
        fs::copy(original.join(file), at(folder).join(file)).expect("a file");
    }
    let text = fs::read_to_string(original.join("operator.yaml")).expect("a file");
    // No other run of this test has built the library of these files.
    let text = format!("{}# {}\n", text.replace("nvidia.", "cpu."), checkout.path().display());
    fs::write(at(folder).join("operator.yaml"), text).expect("a file");
    // One layer normalization is behind an addition, so that the operator has a further input there.
    let second = "    d = x + x.relu() - (x + x.relu()).mean([-1], true);\n    x = d / ((d * d).mean([-1], true) + 1e-3).sqrt();\n";
    let model = super::graph::MODEL.replace("    graph.output(", &format!("{second}    graph.output("));
    fs::write(at("scripts/tiny/model.rhai"), model).expect("a file");
    fs::create_dir(at("scripts/tiny/cpu")).expect("a folder");
    let script = "fn export_model(graph, config) {\n    graph.fuse(\"LayerNormalization\");\n    \
        graph.use_operator(\"layer_norm\");\n    graph\n}\n";
    fs::write(at("scripts/tiny/cpu/export.rhai"), script).expect("a file");
    if compiler != "rten" {
        let overlay = at("configs/tiny/vendor_config/cpu_configurations.yaml");
        fs::write(overlay, format!("compiler: {compiler}\n")).expect("a file");
    }
    checkout
}

#[test]
fn a_case_runs_with_the_operator_of_its_vendor_and_the_record_names_its_library() {
    if !support::has_engine("onnxruntime") || !support::has_compiler("c++") {
        return;
    }
    let checkout = with_layer_norm("onnxruntime");
    let failed = flagperf(checkout.path(), &["run", "--plain"]);
    let printed = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(printed.contains("flagperf operator build cpu/layer_norm"), "{printed}");
    fs::remove_dir_all(checkout.path().join("result")).expect("a folder");
    let (code, printed) = run(checkout.path(), &["operator", "build", "cpu/layer_norm", "--device", "cpu"]);
    assert_eq!(code, Some(0), "{printed}");
    let (folder, _): (PathBuf, _) = results::run(checkout.path(), &["--plain"]);
    let text = fs::read_to_string(folder.join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let phases = record["phases"].as_array().expect("phases");
    let rewrite = phases.iter().find_map(|phase| phase["rewrites"].get(0)).expect("a rewrite");
    assert_eq!(rewrite["operators"]["cpu.layer_norm"], serde_json::json!([0, 2]));
    let change = rewrite["changes"].as_array().expect("changes").last().expect("a change");
    assert!(change["what"].as_str().expect("text").starts_with("use operator cpu.layer_norm"), "{change}");
    assert_eq!((&change["places"], &rewrite["proof"]["unproved"]), (&Value::from(2), &Value::Null));
    let libraries = phases.iter().find_map(|phase| phase["engine"]["operators"].as_object()).expect("libraries");
    assert_eq!(libraries.keys().collect::<Vec<_>>(), ["cpu.layer_norm/cpu.so"]);
}

#[test]
fn an_engine_that_runs_no_operators_of_vendors_ends_the_case() {
    let checkout = with_layer_norm("rten");
    let failed = flagperf(checkout.path(), &["run", "--plain"]);
    let printed = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && printed.contains("does not support operator `cpu/layer_norm`"), "{printed}");
}

#[test]
fn the_script_of_a_case_has_no_operators_of_a_vendor() {
    let checkout = with_layer_norm("rten");
    let scripts = checkout.path().join("scripts/tiny");
    fs::rename(scripts.join("cpu/export.rhai"), scripts.join("export.rhai")).expect("a file");
    let (code, printed) = run(checkout.path(), &["plan"]);
    assert_ne!(code, Some(0), "{printed}");
    assert!(printed.contains("only the script of a vendor has operators: <vendor>/export.rhai"), "{printed}");
}
