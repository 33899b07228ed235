//! Tests of states, settings and spans in functions of every step, with a model that the interpreter computes.

use std::path::Path;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use serde_json::json;

use super::case_tests::{inputs, load, sessions};
use super::*;
use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, Value, find};

/// Appends its input to everything that it has received before.
const MEMORY: &str = "fn create_model(config) {
    let graph = nn::graph(\"memory\");
    let x = graph.input(\"x\", \"N,1,f32\");
    let all = nn::concat([graph.input(\"past.all\", \"N,P,f32\"), x], 1);
    graph.output(\"twice\", x + x);
    graph.output(\"present.all\", all);
    graph.weights((), 0);
    graph
}";

/// Runs a step of `forward` with the model [`MEMORY`] on the inputs `x`: 1 and 2.
fn step(forward: &str) -> Result<StepOutput<Value>, ScriptError> {
    let text = format!("fn model_forward(model, batch) {{\n{forward}\n}}");
    let (_dir, scripts) = load(&[("model.rhai", MEMORY), ("forward.rhai", &text)]);
    let model = scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap();
    let options = LoadOptions { batch_size: 2, ..LoadOptions::default() };
    let session = find("interpreter").unwrap().load(Artifact::Graph(&model.graphs["model"]), &options).unwrap();
    let sessions = IndexMap::from([("model".to_owned(), Arc::new(Mutex::new(session)))]);
    let x = Tensor::from_vec([2, 1], vec![1.0f32, 2.0]).unwrap();
    scripts.forward(ForwardKind::Model, sessions).call(&IndexMap::from([("x".to_owned(), x)]))
}

fn one(output: StepOutput<Value>) -> Tensor {
    let StepOutput::One(value) = output else { panic!("one tensor") };
    value.to_host().unwrap()
}

#[test]
fn a_run_continues_with_the_states_of_the_run_before() {
    let all = one(step(
        "let states = session::states(\"present.\", \"past.\");
         let first = model.run(#{x: batch.x}, states);
         if first.keys() != [\"twice\"] || states.names != [\"all\"] || states.bytes != 8 { throw first.keys() }
         model.run(#{x: batch.x * 3.0}, states);
         if states.bytes != 16 { throw states.bytes }
         model.run(#{x: batch.x * 5.0}, states);
         states.get(\"all\")",
    )
    .unwrap());
    assert_eq!(all.as_slice::<f32>().unwrap(), [1.0, 3.0, 5.0, 2.0, 6.0, 10.0]);
}

#[test]
fn states_can_be_read_replaced_and_cleared() {
    let all = one(step(
        "let states = session::states(\"present.\", \"past.\");
         if states.get(\"all\") != () { throw \"a state before the first run\" }
         model.run(#{x: batch.x}, states);
         states.clear();
         model.run(#{x: batch.x}, states);
         states.set(\"all\", states.get(\"all\") * 10.0);
         model.run(#{x: batch.x}, states);
         states.get(\"all\")",
    )
    .unwrap());
    assert_eq!((all.shape(), all.as_slice::<f32>().unwrap()), (&[2, 2][..], &[10.0, 1.0, 20.0, 2.0][..]));
}

#[test]
fn an_input_that_is_no_state_must_be_given() {
    let error = step("model.run(#{}, session::states(\"present.\", \"past.\")).twice").unwrap_err();
    assert_eq!((error.line, error.reason.as_str()), (2, "the model's input `x` is missing"));
    let error = step("model.run(#{x: batch.x}).twice").unwrap_err();
    assert_eq!(error.reason, "the model's input `past.all` is missing");
    let error = step("model.run(#{y: batch.x}, session::states(\"present.\", \"past.\")).twice").unwrap_err();
    assert!(error.reason.starts_with("the model has no input `y`"), "{error}");
    let error = step("session::states(\"\", \"past.\").get(\"all\")").unwrap_err();
    assert_eq!(error.reason, "the prefixes of states must not be empty: every output would be a state");
}

#[test]
fn a_state_of_another_shape_is_refused_by_the_engine() {
    let error = step(
        "let states = session::states(\"present.\", \"past.\");
         states.set(\"all\", tensor::zeros(\"3,4,f32\"));
         model.run(#{x: batch.x}, states).twice",
    )
    .unwrap_err();
    assert!(error.line == 4 && error.reason.contains("past.all") && error.reason.contains("3,4,f32"), "{error}");
}

#[test]
fn a_function_of_every_step_may_take_the_settings() {
    let forward =
        "fn model_forward(model, batch, config) { if config.rows == 2 { batch.images * 1 } else { throw config } }";
    let evaluator = "fn evaluator(output, truth, config) { metric::mean(\"rows\", config.rows.to_float(), 1) }";
    let (_dir, scripts) = load(&[("forward.rhai", forward), ("evaluator.rhai", evaluator)]);
    let config = ScriptConfig::from([("rows".to_owned(), json!(2))]);
    let forward = scripts.forward(ForwardKind::Engine, sessions(&["model"]));
    let output = forward.with_config(&config).unwrap().call(&inputs()).unwrap();
    let output = output.try_map(|value| value.to_host()).unwrap();
    let metrics = scripts.evaluator().with_config(&config).unwrap().call(&output, &IndexMap::new()).unwrap();
    assert_eq!(metrics.finish()["rows"], 2.0);
}

#[test]
fn a_step_cannot_pass_anything_to_the_next_through_the_settings() {
    let text = "fn model_forward(model, batch, config) {
        if config.rows != 2 { throw config.rows }
        config.rows = 3;
        batch.images * 1
    }";
    let (_dir, scripts) = load(&[("forward.rhai", text)]);
    let config = ScriptConfig::from([("rows".to_owned(), json!(2))]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["model"])).with_config(&config).unwrap();
    for _ in 0..2 {
        forward.call(&inputs()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn spans_count_their_runs_and_items() {
    let text = "fn model_forward(model, batch) {
        for i in 0..3 { timing::span(\"decode\", 2, || model.run([batch.images])); }
        timing::span(\"rest\", || batch.images * 1)
    }";
    let (_dir, scripts) = load(&[("forward.rhai", text)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["model"]));
    forward.call(&inputs()).unwrap();
    let spans = forward.take_spans();
    let counts: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.runs, span.items)).collect();
    assert_eq!(counts, [("decode", 3, 6), ("rest", 1, 0)]);
    let sum = spans[0].times.iter().copied().sum::<flagperf_core::units::Seconds>();
    assert!(spans[0].times.len() == 3 && (sum.0 - spans[0].total.0).abs() < 1e-12);
    let (_dir, scripts) =
        load(&[("forward.rhai", "fn model_forward(model, batch) { timing::span(\"a\", -1, || batch.images) }")]);
    let error = scripts.forward(ForwardKind::Model, sessions(&["model"])).call(&inputs()).unwrap_err();
    assert_eq!(error.reason, "span `a`: the number of items must be from 0 to 4294967296, not -1");
}
