//! `flagperf run --operator` and `flagperf peak`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{self, program};

/// Runs a command and returns its exit code, its output and its messages.
fn run(checkout: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = program::flagperf(checkout, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ended"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn operators_are_measured_in_each_shape_and_printed_in_every_form() {
    let checkout = support::checkout();
    let operators = ["--operator", "mm:FP32", "--operator", "sigmoid:FP32", "--compiler", "rten", "--set", "threads=1"];
    let shapes = ["--shape", "M=16", "--shape", "M=24", "--shape", "N=32", "--shape", "K=8", "--shape", "Melements=1"];
    let measure = |more: &[&str]| run(checkout.path(), &[&["run"], &operators[..], &shapes, more].concat());
    let (code, text, messages) = measure(&["--html", "page.html"]);
    for row in ["mm:FP32 M=16 N=32 K=8", "mm:FP32 M=24 N=32 K=8", "sigmoid:FP32 Melements=1", "FLOP/s", "rten "] {
        assert!(text.contains(row), "{row}: {text}\n{messages}");
    }
    assert!(messages.contains("measuring mm:FP32 M=16 N=32 K=8 with rten\n"), "{messages}");
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains("sigmoid:FP32") && page.contains("class=\"bar\""), "{page}");
    assert!(page.contains("<title>mm: FLOP/s over M</title>") && page.matches("<circle").count() == 2, "{page}");
    // Noise of a busy machine may make a figure not count, and the exit code 1.
    assert!(code == 0 || text.contains("does not count"), "{code}: {text}");
    let (_, json, _) = measure(&["--json"]);
    let results: Value = serde_json::from_str(&json).expect("JSON");
    let results = results.as_array().expect("a list");
    assert_eq!(results.len(), 3);
    for result in results {
        let comparison = &result["times"]["comparison"];
        assert!(comparison["error"].as_f64() <= comparison["limit"].as_f64(), "{result}");
        assert!(result["figures"]["call_s"].as_f64() > Some(0.0) && result["failure"].is_null(), "{result}");
        assert!(result["times"]["threads"] == 1, "{result}");
    }
}

#[test]
fn an_engine_that_computes_nothing_does_not_count() {
    let checkout = support::checkout();
    let command = ["run", "--vendor", "mock", "--compiler", "mock", "--operator", "abs:FP32", "--shape", "Melements=1"];
    let (code, text, _) = run(checkout.path(), &command);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("does not count: abs:FP32 Melements=1: the outputs of a measured call differ"), "{text}");
}

#[test]
fn sizes_beyond_any_memory_are_refused() {
    let checkout = support::checkout();
    let sizes = ["--shape", "M=4294967296", "--shape", "N=4294967296", "--shape", "K=1"];
    let command = [&["run", "--compiler", "rten", "--operator", "mm:FP32"][..], &sizes].concat();
    let (code, text, _) = run(checkout.path(), &command);
    assert!(code == 1 && text.contains("GiB are supported"), "{code}: {text}");
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_runs() {
    let checkout = support::checkout();
    for (arguments, expected) in [
        (&["run", "--operator", "mn:FP32"][..], "--operator mn:FP32: unknown operator `mn` (known: abs, add, "),
        (&["run", "--operator", "mm:FP32", "--shape", "m=1"], "operator `mm` has no dimension `m` (known: M, N, K)"),
        (
            &["run", "--shape", "M=1"],
            "--shape sets a dimension of the model of --onnx, or of an operator of --operator",
        ),
        (
            &["run", "--operator", "mm:FP32", "--compiler", "rtenn"],
            "unknown compiler or framework `rtenn` (known in vendors/cpu/vendor.yaml: ",
        ),
        (&["run", "--operator", "mm:FP32", "--set", "threads"], "--set threads: not an option with its value"),
        (&["run", "--operator", "mm:FP32", "--compiler", "rten", "--set", "thread=1"], "`thread`"),
        (&["run", "--operator", "mm:FP32", "--vendor", "cpuu"], "unknown vendor `cpuu` (known: "),
        (&["run", "--html", "page.html"], "--html writes a page of operators"),
        (
            &["peak", "--only", "interconnect-MPI_interserver"],
            "limit `interconnect-MPI_interserver` is that of several hosts: `--hosts` measures it on those of host.yaml",
        ),
        (&["peak", "--only", "computation-FP31"], "unknown limit `computation-FP31` (known: "),
        (&["peak", "--html", "missing/page.html"], "missing"),
    ] {
        let (code, text, messages) = run(checkout.path(), arguments);
        assert_eq!((code, text.as_str()), (2, ""), "{arguments:?}: {messages}");
        assert!(messages.contains(expected), "{arguments:?}: {messages}");
    }
}

#[test]
fn the_limits_of_a_processor_are_measured_and_the_others_are_named() {
    let checkout = support::checkout();
    let limits = ["--only", "main_memory-bandwidth", "--only", "main_memory-capacity", "--compiler", "rten"];
    let (code, text, messages) = run(checkout.path(), &[&["peak"], &limits[..]].concat());
    assert!(code == 0 || text.contains("does not count"), "{code}: {text}{messages}");
    assert!(text.contains("main_memory-bandwidth") && text.contains("GB/s"), "{text}");
    let reason =
        "not measured: main_memory-capacity: `cpu` has no memory of its own: the engine computes in host memory";
    assert!(text.contains(reason), "{text}");
    if code == 0 {
        assert!(text.contains("[FlagPerf Result]Rank 0's main_memory-bindwidth="), "{text}");
    }
}

/// Whether rten's products of 8-bit integers are exact on this processor.
fn has_exact_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Measures a product of integers, and asserts that it is exact, or says that it is not where rten is known to be inexact.
fn assert_integer_product(checkout: &Path, engine: &str) {
    let shape = ["--shape", "M=32", "--shape", "N=40", "--shape", "K=24"];
    let command = [&["run", "--operator", "int_mm:INT8", "--json", "--compiler", engine][..], &shape].concat();
    let (_, json, messages) = run(checkout, &command);
    let results: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{engine}: {error}: {messages}"));
    if engine == "rten" && !has_exact_products() {
        let said = [&results[0]["figures"]["reasons"], &results[0]["times"]["warnings"]].map(Value::to_string);
        assert!(
            said[0].contains("differ from the reference") && said[1].contains("cut off at 16 bits"),
            "{}",
            results[0]
        );
        return;
    }
    for comparison in ["comparison", "comparison_of_new_inputs"].map(|name| &results[0]["times"][name]) {
        assert!(comparison["error"] == 0.0 && comparison["wrong"].is_null(), "{engine}: {}", results[0]);
    }
}

#[test]
fn products_of_integers_are_exact() {
    let checkout = support::checkout();
    ["rten", "interpreter"].iter().for_each(|engine| assert_integer_product(checkout.path(), engine));
}

#[test]
fn products_of_integers_by_libtorch_are_exact() {
    let Some(checkout) = support::checkout_with_libtorch() else { return };
    assert_integer_product(checkout.path(), "pytorch");
}

/// Measures a dropout, and asserts that its outputs are right, and that only an engine that differentiates computes its gradient.
fn assert_dropout(checkout: &Path, engine: &str, differentiates: bool) {
    let operators = ["--operator", "dropout:FP32", "--operator", "native_dropout:FP32"];
    let command = [&["run"], &operators[..], &["--shape", "Melements=1", "--json", "--compiler", engine]].concat();
    let (_, json, messages) = run(checkout, &command);
    let results: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{engine}: {error}: {messages}"));
    for (index, result) in results.as_array().expect("a list").iter().enumerate() {
        if index == 1 && !differentiates {
            assert!(result["failure"].to_string().contains("`training_mode` is an input"), "{result}");
            continue;
        }
        for comparison in ["comparison", "comparison_of_new_inputs"].map(|name| &result["times"][name]) {
            assert!(comparison["error"].as_f64() <= comparison["limit"].as_f64(), "{engine}: {result}");
            assert!(comparison["wrong"].is_null() && comparison["compared"].as_u64() > Some(0), "{engine}: {result}");
        }
    }
}

#[test]
fn dropout_by_onnxruntime_drops_at_random() {
    if support::has_engine("onnxruntime") {
        assert_dropout(support::checkout().path(), "onnxruntime", false);
    }
}

#[test]
fn dropout_and_its_gradient_by_libtorch_drop_at_random() {
    let Some(checkout) = support::checkout_with_libtorch() else { return };
    assert_dropout(checkout.path(), "pytorch", true);
}
