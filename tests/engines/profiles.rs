//! The times of operators that engines tell for a trace: each run has its operators, in order, within the run.

use std::path::Path;
use std::sync::Arc;

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
    for run in &runs {
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

#[test]
fn an_engine_that_tells_no_times_says_so() {
    assert_eq!(profile("rten", None, Some(Arc::new(MonotonicClock::start()))), None);
}
