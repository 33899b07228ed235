//! Measures functions of the package `tensor` as scripts call them, over tensors of 4 and of 1 million elements.
//!
//! Run with `cargo bench --bench tensor_functions`. If FLAGPERF_PYTHON names a Python with NumPy, each line also has the
//! time of the same function in NumPy and the ratio (above 1: the script is faster).

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use flagperf_core::limits::Limits;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, find};
use flagperf_script::{CaseScripts, ForwardKind, HostServices, ScriptChoice, Sessions};
use indexmap::IndexMap;

/// Expressions of `x`, an f32 tensor of rows of 100 elements (or of 4 in all): of a script, and of NumPy as `n`.
const EXPRESSIONS: [(&str, &str); 16] = [
    ("x + x", "x + x"),
    ("x * 2.0", "x * n.float32(2)"),
    ("x > 0.5", "x > n.float32(0.5)"),
    ("x.exp()", "n.exp(x)"),
    ("x.sqrt()", "n.sqrt(x)"),
    ("-x", "-x"),
    ("x.sum()", "x.sum()"),
    ("x.sum(1)", "x.sum(1)"),
    ("x.max(0)", "x.max(0)"),
    ("x.argmax()", "x.argmax(-1)"),
    ("x.softmax()", "(lambda e: e / e.sum(-1, keepdims=True))(n.exp(x - x.max(-1, keepdims=True)))"),
    ("x.transpose()", "n.ascontiguousarray(x.T)"),
    ("x.slice(1, 0, 2)", "x[:, 0:2].copy()"),
    ("tensor::where(x > 0, x, 0)", "n.where(x > 0, x, n.float32(0))"),
    ("tensor::concat([x, x], 0)", "n.concatenate([x, x], 0)"),
    ("x.sort()", "n.sort(x)"),
];

#[expect(clippy::disallowed_methods, reason = "a benchmark compares with another program")]
fn numpy_seconds(size: usize, calls: usize) -> Option<Vec<f64>> {
    let python = std::env::vars().find(|(name, _)| name == "FLAGPERF_PYTHON")?.1;
    let mut program = format!(
        "import numpy as n, time\nx = ((n.arange({size}) % 251) / 125).astype(n.float32).reshape(-1, min({size}, 100))\n"
    );
    for (_, expression) in EXPRESSIONS {
        program += &format!(
            "best = 1e9\nfor _ in range(5):\n  t = time.perf_counter()\n  for _ in range({calls}): y = {expression}\n  \
             best = min(best, (time.perf_counter() - t) / {calls})\nprint(best)\n"
        );
    }
    let output = Command::new(python).args(["-c", &program]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().map(|line| line.parse().ok()).collect()
}

/// Returns the seconds of one evaluation of an expression in a forward function.
fn script_seconds(expression: &str, size: usize, calls: usize) -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let forward = format!(
        "fn model_forward(model, batch) {{ let x = batch.x; let y = x; for i in 0..{calls} {{ y = {expression}; }} x + 0 }}"
    );
    for (file, text) in [
        ("dataloader.rhai", "fn build_dataloader(config) { data::image_folder(\"x\") }"),
        ("forward.rhai", &forward),
        ("evaluator.rhai", "fn evaluator(output, truth) { metric::mean(\"m\", 0.0, 1) }"),
    ] {
        std::fs::write(folder.path().join(file), text).expect("the folder is writable");
    }
    let clock = Arc::new(MonotonicClock::start());
    let host = HostServices { log: Arc::new(|_, _, _| {}), clock: clock.clone() };
    let choice = ScriptChoice { without_model: true, ..ScriptChoice::default() };
    let scripts = CaseScripts::load(folder.path(), &choice, &Limits::default(), host).expect("the scripts compile");
    let extra =
        [("inputs", "x"), ("outputs", "y")].map(|(key, name)| (key.to_owned(), serde_json::json!({ name: "N,f32" })));
    let options = LoadOptions { batch_size: 1, extra: IndexMap::from(extra), ..LoadOptions::default() };
    let session = find("null").expect("a row of the table").load(Artifact::Onnx(Path::new("x")), &options);
    let session = Arc::new(Mutex::new(session.expect("the null engine accepts any model")));
    let sessions = Sessions::from([("model".to_owned(), session)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions);
    let numbers = (0..size).map(|i| (i % 251) as f32 / 125.0).collect();
    let columns = size.min(100);
    let x = Tensor::from_vec([size / columns, columns], numbers).expect("the shape fits the elements");
    let inputs = IndexMap::from([("x".to_owned(), x)]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = clock.now();
        let _ = forward.call(&inputs).unwrap_or_else(|error| panic!("{error}"));
        best = best.min(clock.now().since(begin).0 / calls as f64);
    }
    best
}

fn main() {
    for (size, calls) in [(4, 2000), (1_000_000, 20)] {
        let numpy = numpy_seconds(size, calls).unwrap_or_default();
        for (i, (expression, _)) in EXPRESSIONS.iter().enumerate() {
            let seconds = script_seconds(expression, size, calls);
            let beside = numpy.get(i).map_or_else(String::new, |numpy| {
                format!(" (NumPy {:.2} us, ratio {:.2})", numpy * 1e6, numpy / seconds)
            });
            println!("{expression} of {size} elements: {:.2} us{beside}", seconds * 1e6);
        }
    }
}
