//! Tests of the errors of scripts: comparisons without a meaning, wrong arguments, and limits.

use std::path::Path;

use indexmap::IndexMap;

use super::case_tests::{inputs, load, sessions};
use super::*;

/// Runs `body` as a forward function and returns its error.
fn forward_error(body: &str) -> ScriptError {
    let text = format!("fn model_forward(model, batch) {{\n{body}\n;model.run([batch.images])[0]\n}}");
    let (_dir, scripts) = load(&[("forward.rhai", &text)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["model"]));
    forward.call(&inputs()).err().unwrap()
}

fn load_reason(file: &str, text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    super::tests::case(dir.path(), &[(file, text)]);
    let services = super::tests::services().0;
    let loaded = CaseScripts::load(dir.path(), &ScriptChoice::default(), &super::tests::small_limits(), services);
    loaded.err().unwrap().reason
}

#[test]
fn a_comparison_without_a_meaning_is_an_error_at_its_line() {
    for (body, expected) in [
        ("if batch.images > \"x\" { }", "`>`: the other operand must be a tensor or a number, not `string`"),
        ("if model > 0 { }", "`>` has no meaning between `model` and `int`"),
        ("if model == 0 { }", "`==` has no meaning between `model` and `int`"),
        ("if \"x\" != model { }", "`!=` has no meaning between `string` and `model`"),
        ("if model < model { }", "`<` has no meaning between `model` and `model`"),
        (
            "if batch.images > 0.5 { }",
            "expected `bool`, not `tensor`: reduce a comparison of tensors with `.any()` or `.all()`",
        ),
    ] {
        let error = forward_error(body);
        assert_eq!((error.reason.as_str(), error.line), (expected, 2), "{body}");
    }
    assert_eq!(forward_error("if model == () || batch.images == () { } throw \"absent\"").reason, "absent");
    let model = "fn create_model(config) {\n let x = nn::graph(\"g\").input(\"x\", \"N,f32\");\n if x > 0 { x }\n}";
    let (_dir, scripts) = load(&[("model.rhai", model)]);
    let error = scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap_err();
    assert!(error.line == 3 && error.reason.starts_with("expected `bool`, not `node`"), "{error}");
    let model = "fn create_model(config) {\n let x = nn::graph(\"g\").input(\"x\", \"N,f32\");\n \
                 if x == () || !(x != ()) { throw \"equal\" }\n throw \"different\"\n}";
    let (_dir, scripts) = load(&[("model.rhai", model)]);
    assert_eq!(scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap_err().reason, "different");
    let model = "fn create_model(config) {\n let g = nn::graph(\"g\");\n if g == 0 { g }\n}";
    let (_dir, scripts) = load(&[("model.rhai", model)]);
    let error = scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap_err();
    assert_eq!((error.reason.as_str(), error.line), ("`==` has no meaning between `graph` and `int`", 3));
}

#[test]
fn an_index_of_a_value_of_the_graph_names_the_functions_that_select() {
    let model = "fn create_model(config) {\n let x = nn::graph(\"g\").input(\"x\", \"N,3,f32\");\n x[0]\n}";
    let (_dir, scripts) = load(&[("model.rhai", model)]);
    let error = scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap_err();
    let expected = "a value of the type `node` has no index of the type `int`: use `select(axis, index)` or \
                    `slice(axis, start, end)`";
    assert_eq!((error.reason.as_str(), error.line), (expected, 3));
}

#[test]
fn wrong_arguments_of_a_method_show_what_it_takes_in_the_words_of_scripts() {
    let error = forward_error("batch.images.slice(0, 1)");
    assert_eq!(
        (error.reason.as_str(), error.line),
        (
            "`slice` does not accept (tensor, int, int); expected `tensor::slice(tensor, axis: int, start: int, end: \
             int)` or `tensor::slice(tensor, axis: int, start: int, end: int, step: int)`",
            2
        )
    );
    let error = forward_error("batch.images + #{}");
    assert_eq!(error.reason, "`+`: the other operand must be a tensor or a number, not `map`");
}

#[test]
fn suggestions_come_from_the_granted_packages_and_not_from_the_language() {
    let forward = "fn model_forward(model, batch) { batch.images.slise(0, 1, 2) }";
    assert_eq!(load_reason("forward.rhai", forward), "unknown function `slise`; did you mean `slice`?");
    let dataloader = "fn build_dataloader(config) { config.x.slice(1, 2) }";
    assert!(!load_reason("dataloader.rhai", dataloader).contains("splice"));
}

#[test]
fn a_limit_that_stops_a_script_is_named_with_its_value_and_its_line() {
    for (body, expected, line) in [
        ("let a = [];\nloop {\n  a.push(tensor::zeros(\"1000000,f32\"));\n}", "(`script_memory_bytes`)", 4),
        // Rhai passes no position on; without a call of the host, the line is that of the function.
        ("loop { }", "the script ran more than 5000000 operations (`script_operations`)", 1),
        ("let n = 0.0;\nloop {\n  n += batch.images.sum().item();\n}", "(`script_operations`)", 4),
        ("let s = \"ab\";\nloop {\n  s += s;\n}", "a string is too large (at most 1048576 bytes are supported)", 1),
        (
            "\nlet x = batch.images.tile([1, 1000000000]);",
            "`tile` of `2,3,f32` and [1, 1000000000]: the script requested",
            3,
        ),
        ("\nlet x = batch.images.sum(7);", "`sum` of `2,3,f32` and [7]: axis 7 is out of range for rank 2", 3),
    ] {
        let error = forward_error(body);
        assert!(error.reason.contains(expected), "{body}: {error}");
        assert_eq!(error.line, line, "{body}: {error}");
    }
    let recursive = "fn f(n) { f(n + 1) }\nfn evaluator(output, truth) { f(0) }";
    let (_dir, scripts) = load(&[("evaluator.rhai", recursive)]);
    let error = scripts.evaluator().call(&StepOutput::Many(Vec::new()), &IndexMap::new()).unwrap_err();
    assert!(error.reason.contains("at most 32 levels are supported"), "{error}");
}
