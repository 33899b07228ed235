//! Questions and settings: from a script through the interface to a plug-in in C, and back.

use flagperf::engine::{EngineError, Session, Value};
use flagperf::tensor::Tensor;
use serde_json::{Value as Json, json};

use crate::example::site;
use crate::fixture::Site;
use crate::memory::Plugin;

/// Runs the example in C with this forward function.
fn run(site: &Site, engine_forward: &str) -> Json {
    let forward = "fn model_forward(model, batch) { model.run([batch.x])[0] }\n";
    site.write("scripts/affine/forward.rhai", &format!("{forward}{engine_forward}"));
    site.run().0.remove(0)
}

fn reason(record: &Json) -> &str {
    record["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("{record}"))
}

#[test]
fn a_script_asks_and_tunes_the_engine_that_it_drives() {
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
    // The shift is half more than candle's; rounding of a sum in f32 comes on top.
    let max_abs = record["phases"][1]["agreement"]["outputs"]["output"]["max_abs"].as_f64().unwrap();
    assert!((max_abs - 0.5).abs() < 1e-6, "{max_abs}");
}

#[test]
fn an_unknown_question_or_setting_names_the_engine_and_what_it_knows() {
    let Some(site) = site() else { return };
    let asked = |call: &str| {
        let record = run(&site, &format!("fn engine_forward(engine, batch) {{ engine.{call} }}"));
        reason(&record).to_owned()
    };
    let said = asked("ask(\"colour\")");
    assert!(said.contains("engine `affine`: question `colour`: unknown, known is `factors`"), "{said}");
    assert!(said.contains("scripts/affine/forward.rhai:2") || said.contains("forward.rhai"), "{said}");
    let said = asked("tune(\"colour\", 1)");
    assert!(said.contains("engine `affine`: setting `colour`: unknown, known is `shift`"), "{said}");
    let said = asked("tune(\"shift\", \"much\")");
    assert!(said.contains("engine `affine`: setting `shift`: not a number: `\"much\"`"), "{said}");
    let said = asked("tune(\"shift\", batch.x)");
    assert!(said.contains("the value holds more than numbers, text, arrays and maps"), "{said}");
}

fn load(mode: &str) -> Option<Box<dyn Session>> {
    Some(Plugin::new(mode)?.load())
}

#[test]
fn an_answer_that_is_none_or_no_json_is_the_plug_ins_fault() {
    let modes = [
        ("NO_ANSWER", "plug-in `bad` answered `layers` with no text"),
        ("NO_JSON", "plug-in `bad` answered `layers` with what is not JSON: EOF while parsing"),
        ("OTHER_QUESTION", "plug-in `bad`: it failed `on purpose`"),
        ("BEFORE_QUESTIONS", "engine `bad`: question `layers`: unknown (this engine answers none)"),
    ];
    for (mode, expected) in modes {
        let Some(mut session) = load(mode) else { return };
        let error = session.ask("layers", &Json::Null).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{mode}: {error}");
    }
    let error = load("GOOD").unwrap().ask("a\0b", &Json::Null).unwrap_err();
    assert_eq!(error.to_string(), "`\"a\\0b\"` is no name");
}

#[test]
fn arguments_reach_the_plug_in_and_answers_the_host() {
    let Some(mut session) = load("GOOD") else { return };
    for value in [Json::Null, json!([1, 2.5, "x \" y", {"deep": [true]}]), json!("\0")] {
        assert_eq!(session.ask("echo", &value).unwrap(), value);
    }
}

#[test]
fn inputs_and_outputs_are_asked_for_again_after_tuning() {
    let Some(mut session) = load("GOOD") else { return };
    let rows = |rows: usize| Value::Host(Tensor::from_vec([rows, 1000], vec![0.0f32; rows * 1000]).unwrap());
    session.submit(&[rows(3)]).unwrap();
    session.tune("rows", &json!(2)).unwrap();
    assert_eq!(session.inputs()[0].spec.to_string(), "2,1000,f32");
    assert!(matches!(session.submit(&[rows(3)]), Err(EngineError::Input { .. })));
    session.submit(&[rows(2)]).unwrap();
    let error = load("OTHER_INPUTS").unwrap().tune("rows", &json!(2)).unwrap_err().to_string();
    assert!(error.starts_with("plug-in `bad` declares `x`: "), "{error}");
}
