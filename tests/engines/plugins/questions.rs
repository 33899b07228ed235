//! Questions and settings, from a script through the interface to a plug-in in C and back.

use flagperf_core::tensor::Tensor;
use flagperf_engine::{EngineError, Session, Value};
use serde_json::{Value as Json, json};

use super::example::site;
use super::fixture::Site;
use super::memory::Plugin;

/// Runs the example in C with this forward function.
fn run(site: &Site, engine_forward: &str) -> Json {
    let forward = "fn model_forward(model, batch) { model.run([batch.x])[0] }\n";
    site.write("scripts/affine/forward.rhai", &format!("{forward}{engine_forward}"));
    site.run().0.remove(0)
}

fn failure_reason(record: &Json) -> &str {
    record["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("{record}"))
}

#[test]
fn a_script_can_ask_and_tune_its_engine() {
    let Some(site) = site() else { return };
    let forward = "fn engine_forward(engine, batch) {
        let inputs = engine.inputs().map(|input| `${input.name}: ${input.spec}`);
        if inputs != [\"x: N,1000,f32\"] { throw inputs }
        engine.tune(\"shift\", 1);
        if engine.ask(\"factors\") != #{scale: 2, shift: 1} { throw engine.ask(\"factors\") }
        engine.tune(\"shift\", 1.5);
        engine.run([batch.x])[0]
    }";
    let limits = "agreement: {fp32: {relative_l2: 1, worst_sample: 1, cosine: 0}}";
    site.write("configs/affine/parameters.yaml", &format!("samples: 10\n{limits}\n"));
    let record = run(&site, forward);
    assert_eq!(record["status"], "ok", "{}", record["failures"]);
    // The shift is 0.5 larger than the interpreter's, plus the rounding of a sum in f32.
    let max_abs = record["phases"][1]["agreement"]["outputs"]["output"]["max_abs"].as_f64().unwrap();
    assert!((max_abs - 0.5).abs() < 1e-6, "{max_abs}");
}

#[test]
fn an_unknown_question_or_setting_names_the_engine_and_the_known_ones() {
    let Some(site) = site() else { return };
    let failure = |call: &str| {
        let record = run(&site, &format!("fn engine_forward(engine, batch) {{ engine.{call} }}"));
        failure_reason(&record).to_owned()
    };
    let reason = failure("ask(\"colour\")");
    assert!(reason.contains("engine `affine`: question `colour`: unknown; known: `factors`"), "{reason}");
    assert!(reason.contains("scripts/affine/forward.rhai:2") || reason.contains("forward.rhai"), "{reason}");
    let reason = failure("tune(\"colour\", 1)");
    assert!(reason.contains("engine `affine`: setting `colour`: unknown; known: `shift`"), "{reason}");
    let reason = failure("tune(\"shift\", \"much\")");
    assert!(reason.contains("engine `affine`: setting `shift`: not a number: `\"much\"`"), "{reason}");
    let reason = failure("tune(\"shift\", batch.x)");
    assert!(reason.contains("the value may contain only numbers, text, arrays and maps"), "{reason}");
}

fn load(mode: &str) -> Option<Box<dyn Session>> {
    Some(Plugin::new(mode)?.load())
}

#[test]
fn an_answer_that_is_null_or_not_json_is_an_error_of_the_plug_in() {
    let modes = [
        ("NO_ANSWER", "plug-in `bad` returned no answer to `layers`"),
        ("NO_JSON", "plug-in `bad` returned an answer to `layers` that is not JSON: EOF while parsing"),
        ("OTHER_QUESTION", "plug-in `bad`: it failed `on purpose`"),
        ("BEFORE_QUESTIONS", "engine `bad`: question `layers`: unknown (this engine supports no questions)"),
    ];
    for (mode, expected) in modes {
        let Some(mut session) = load(mode) else { return };
        let error = session.ask("layers", &Json::Null).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{mode}: {error}");
    }
    let error = load("GOOD").unwrap().ask("a\0b", &Json::Null).unwrap_err();
    assert_eq!(error.to_string(), "`\"a\\0b\"` is not a valid name");
}

#[test]
fn arguments_reach_the_plug_in_and_answers_the_host() {
    let Some(mut session) = load("GOOD") else { return };
    for value in [Json::Null, json!([1, 2.5, "x \" y", {"deep": [true]}]), json!("\0")] {
        assert_eq!(session.ask("echo", &value).unwrap(), value);
    }
}

#[test]
fn inputs_and_outputs_are_read_again_after_tuning() {
    let Some(mut session) = load("GOOD") else { return };
    let rows = |rows: usize| Value::Host(Tensor::from_vec([rows, 1000], vec![0.0f32; rows * 1000]).unwrap());
    session.submit(&[rows(3)]).unwrap();
    session.tune("rows", &json!(2)).unwrap();
    assert_eq!(session.inputs()[0].spec.to_string(), "2,1000,f32");
    assert!(matches!(session.submit(&[rows(3)]), Err(EngineError::Input { .. })));
    session.submit(&[rows(2)]).unwrap();
    let error = load("OTHER_INPUTS").unwrap().tune("rows", &json!(2)).unwrap_err().to_string();
    assert!(error.starts_with("plug-in `bad` declares `x` with an invalid specification: "), "{error}");
}
