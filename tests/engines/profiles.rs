//! The times of operators that engines tell for a trace: each run has its operators, in order, within the run.

use std::path::Path;
use std::sync::Arc;

use assert_cmd::Command;
use flagperf_core::measure::{Clock, MonotonicClock, Nanos};
use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, RunProfile, Value, find, open_plugin};
use flagperf_onnx::write_onnx;

use crate::support::{self, graphs};

const RUNS: usize = 3;

/// Loads a model of one linear layer into an engine with its profile on or off, and returns what the engine tells of some runs; `None`
/// if it tells nothing. `library` is that of a plug-in.
fn profile(engine: &str, library: Option<&Path>, profile: Option<Arc<dyn Clock>>) -> Option<Vec<RunProfile>> {
    let graph = graphs::linear(400);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    write_onnx(&graph, &path).expect("a file");
    let engine = match library {
        Some(library) => open_plugin(library).unwrap_or_else(|missing| panic!("{missing}")),
        None => find(engine).expect("a row of the table"),
    };
    let artifact = if engine.roles().compiler { Artifact::Onnx(&path) } else { Artifact::Graph(&graph) };
    let (library, scratch) = (library.map(Path::to_owned), folder.path().join("scratch"));
    let options = LoadOptions { threads: 1, library, profile, scratch, ..LoadOptions::default() };
    let mut session = engine.load(artifact, &options).unwrap_or_else(|error| panic!("{error}"));
    let x = Tensor::from_vec([3, 3], (0..9).map(|x| x as f32).collect()).expect("nine numbers");
    for _ in 0..RUNS {
        session.submit(&[Value::Host(x.clone())]).unwrap_or_else(|error| panic!("{error}"));
        session.sync().expect("it has computed");
    }
    session.operator_times().unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that an engine tells one operator after the other for each run, and nothing if it was not asked to.
fn check(engine: &str, library: Option<&Path>) {
    let clock = MonotonicClock::start();
    let runs = profile(engine, library, Some(Arc::new(clock))).expect("times");
    let until = clock.now().since(Nanos(0));
    assert_eq!(runs.len(), RUNS, "{engine}: {runs:?}");
    // OpenVINO tells the mean of all runs, once.
    for run in runs.iter().skip(if engine == "openvino" { RUNS - 1 } else { 0 }) {
        assert!(run.iter().any(|time| ["Gemm", "FullyConnected"].contains(&&*time.operator)), "{engine}: {run:?}");
        let mut end = 0.0;
        for time in run {
            // The times of an engine are rounded to microseconds.
            assert!(time.begin_s.0 >= end - 2e-6 && time.time_s.0 >= 0.0, "{engine}: {run:?}");
            end = time.begin_s.0 + time.time_s.0;
        }
        assert!(end <= until.0, "{engine}: {run:?} ended after {until:?}");
    }
    assert_eq!(profile(engine, library, None), None, "{engine}");
}

#[test]
fn the_interpreter_tells_the_times_of_its_operators() {
    check("interpreter", None);
}

#[test]
fn onnxruntime_tells_the_times_of_its_operators() {
    if support::has_engine("onnxruntime") {
        check("onnxruntime", None);
    }
}

#[test]
fn openvino_tells_the_times_of_its_operators() {
    if support::has_engine("openvino") {
        check("openvino", None);
    }
}

#[test]
fn libtorch_tells_the_times_of_its_operators() {
    if let Some(library) = support::libtorch() {
        check("libtorch", Some(&library));
    }
}

/// A library that receives ranges as a profiler does, and prints them.
const PROFILER: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef void (*Function)(void);
typedef struct { size_t size; int (*functions)(int module, Function ***table, unsigned *count); } Callbacks;
static int depth = 0;
static int push(const char *name) { fprintf(stderr, "range %d %s\n", depth, name); return depth++; }
static int pop(void) { return --depth; }
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    Function **table; unsigned count;
    const Callbacks *callbacks = export_table(1);
    if (!callbacks || !callbacks->functions(1, &table, &count) || count < 12) return 0;
    *table[9] = (Function)push;
    *table[11] = (Function)pop;
    return 1;
}
"#;

#[test]
fn libtorch_has_ranges_for_an_attached_profiler() {
    let Some(checkout) = support::checkout_with_libtorch() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (folder.path().join("profiler.c"), folder.path().join("profiler.so"));
    std::fs::write(&source, PROFILER).expect("a file");
    Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).assert().success();
    let model = folder.path().join("linear.onnx");
    write_onnx(&graphs::linear(400), &model).expect("a file");
    // A worker inherits no variable of a profiler.
    let variable = format!("NVTX_INJECTION64_PATH='{}'\n", library.display());
    std::fs::write(checkout.path().join("vendors/cpu/environment_variables.sh"), variable).expect("a file");
    let flagperf = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("flagperf"));
        command.current_dir(checkout.path()).args(arguments).assert().success();
    };
    flagperf(&["new", "case", "linear", "--from", model.to_str().expect("text")]);
    flagperf(&["run", "--case", "linear:pytorch_2.11", "--plain"]);
    let result = std::fs::read_dir(checkout.path().join("result")).expect("results").next().expect("a run");
    let log = "linear_pytorch_2.11/localhost_noderank0/stdout_err.out.log";
    let log = std::fs::read_to_string(result.expect("a run").path().join(log)).expect("a log");
    let ranges: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("range ")).collect();
    assert!(ranges.contains(&"0 run") && ranges.iter().any(|range| range.starts_with("1 Gemm ")), "{ranges:?}");
    assert!(ranges.iter().all(|range| range.starts_with("1 ") || *range == "0 run"), "{ranges:?}");
}

#[test]
fn an_engine_that_tells_no_times_says_so() {
    assert_eq!(profile("rten", None, Some(Arc::new(MonotonicClock::start()))), None);
}
