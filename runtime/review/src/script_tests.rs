//! Tests of reviews of scripts: functions, calls, constants, the timed path, and what makes figures worthless.

use super::memory_tree::{MemoryTree, lines, reviewed};
use super::{FunctionChange, Review};

const FORWARD: &str = "fn model_forward(model, batch) {\n    step(model, batch)\n}\nfn step(model, batch) { model.run([batch.images])[0] }\n";
const EVALUATOR: &str = "fn evaluator(output, truth) { metric::top_k(output, truth.labels, [1, 5]) }\n";

fn base() -> MemoryTree {
    MemoryTree::new([
        ("scripts/tiny/forward.rhai", FORWARD),
        ("scripts/tiny/evaluator.rhai", EVALUATOR),
        ("scripts/tiny/model.rhai", "fn create_model(config) { nn::graph(\"tiny\") }\n"),
        ("scripts/lib/images.rhai", "fn scaled(images, by) { images * by }\nfn unused() { 1 }\n"),
        ("vendors/acme/vendor.yaml", "name: acme\n"),
    ])
}

fn review_of(path: &str, text: &str, role: &str) -> Review {
    reviewed(&base(), &base().with(path, text), Some(role))
}

/// Returns the findings about a new version of a file, without those about what a submission lacks.
fn found(path: &str, text: &str, role: &str) -> Vec<String> {
    let lines = lines(&review_of(path, text, role));
    lines.into_iter().filter(|line| !line.contains("| submission |")).collect()
}

fn described(change: &FunctionChange) -> String {
    let names = |calls: &[super::CalledFunction]| {
        calls.iter().map(|call| format!("{}({})", call.name, call.packages.join("+"))).collect::<Vec<_>>().join(" ")
    };
    let literal = |change: &super::LiteralChange| {
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        format!("{}>{}", or_none(&change.before), or_none(&change.after))
    };
    let literals: Vec<String> = change.literals.iter().map(literal).collect();
    let timed = if change.is_timed { " timed" } else { "" };
    let (added, removed) = (names(&change.calls_added), names(&change.calls_removed));
    format!("{:?} {}{timed} +[{added}] -[{removed}] {}", change.change, change.function, literals.join(" "))
}

#[test]
fn changed_functions_list_calls_packages_constants_and_the_timed_path() {
    let text = FORWARD.replace("model.run([batch.images])[0]", "timing::span(\"s\", || model.run([batch.images])[1])");
    let review = review_of("scripts/tiny/forward.rhai", &text, "case-author");
    let functions: Vec<String> = review.functions.iter().map(described).collect();
    assert_eq!(functions, ["Changed step timed +[timing::span(timing)] -[] ->\"s\" 0>1"]);
    let text = "fn evaluator(output, truth) { metric::top_k(output.softmax(), truth.labels, [1, 3]) }\n";
    let review = review_of("scripts/tiny/evaluator.rhai", text, "case-author");
    let functions: Vec<String> = review.functions.iter().map(described).collect();
    assert_eq!(functions.len(), 1);
    assert!(functions[0].starts_with("Changed evaluator +[softmax("), "{functions:?}");
    assert!(functions[0].ends_with("-[] 5>3"), "{functions:?}");
}

#[test]
fn the_timed_path_leads_through_shared_scripts() {
    let forward =
        "import \"lib/images\" as i;\nfn model_forward(model, batch) { model.run([i::scaled(batch.images, 2)])[0] }\n";
    let before = base().with("scripts/tiny/forward.rhai", forward);
    let after = before
        .clone()
        .with("scripts/lib/images.rhai", "fn scaled(images, by) { images * by * 2 }\nfn unused() { 2 }\n");
    let review = reviewed(&before, &after, Some("vendor:acme"));
    let timed: Vec<(&str, bool)> = review.functions.iter().map(|f| (f.function.as_str(), f.is_timed)).collect();
    assert_eq!(timed, [("scaled", true), ("unused", false)]);
    assert_eq!(
        lines(&review),
        [
            "needs case-author | case-scripts | scripts/lib/images.rhai:1 | `scaled` is changed (in the timed path)",
            "needs case-author | case-scripts | scripts/lib/images.rhai:2 | `unused` is changed",
        ]
    );
}

#[test]
fn rules_about_functions_decide_before_those_about_paths() {
    let text = format!(
        "{}fn engine_forward(engine, batch) {{ engine.run([batch.images])[0] }}\n",
        FORWARD.replace("step(model, batch)\n", "step(model, batch) + 0\n")
    );
    assert_eq!(
        found("scripts/tiny/forward.rhai", &text, "vendor:acme"),
        [
            "refused | standard-step | scripts/tiny/forward.rhai:1 | `model_forward` is changed (in the timed path)",
            "needs case-author | case-scripts | scripts/tiny/forward.rhai:5 | `engine_forward` is new (in the timed path)",
        ]
    );
    assert_eq!(found("scripts/tiny/forward.rhai", &text, "case-author"), [""; 0]);
}

#[test]
fn moved_and_renamed_functions_are_shown_as_such() {
    let after = base()
        .with("scripts/lib/images.rhai", "fn unused() { 1 }\n")
        .with("scripts/lib/scaling.rhai", "// Scales.\nfn scale(images, by) {\n    images * by\n}\n");
    let review = reviewed(&base(), &after, Some("vendor:acme"));
    assert_eq!(
        lines(&review),
        [
            "needs case-author | case-scripts | scripts/lib/scaling.rhai:2 | `scale` is moved, unchanged, from scripts/lib/images.rhai: scaled"
        ]
    );
}

#[test]
fn reformatted_scripts_are_shown_as_such() {
    let text = "// One step.\nfn step(model, batch) {\n    model.run([batch.images])[0]\n}\n\nfn model_forward(model, batch) { step(model, batch) }\n";
    assert_eq!(
        found("scripts/tiny/forward.rhai", text, "vendor:acme"),
        ["needs case-author | case-scripts | scripts/tiny/forward.rhai | only layout, comments or order changed"]
    );
}

#[test]
fn a_script_that_does_not_parse_has_its_line() {
    let lines =
        found("scripts/tiny/forward.rhai", "fn model_forward(model, batch) {\n    model.run(;\n}\n", "case-author");
    assert!(
        lines[0].starts_with("refused | script-syntax | scripts/tiny/forward.rhai:2 | the script cannot be parsed: "),
        "{lines:?}"
    );
}

/// Returns the names of the checks that find something in a new version of a file.
fn checks(path: &str, text: &str) -> Vec<String> {
    let review = review_of(path, text, "vendor:acme");
    let known = |rule: &String| super::CHECKS.contains(&rule.as_str());
    review.findings.into_iter().map(|finding| finding.rule).filter(known).collect()
}

#[test]
fn a_forward_function_that_does_not_run_its_engine_on_every_row_is_found() {
    let adapter = "scripts/tiny/acme/forward.rhai";
    let of = |body: &str| checks(adapter, &format!("fn engine_forward(engine, batch) {{ {body} }}\n"));
    for honest in [
        "engine.run([batch.images])[0]",
        "let x = batch.images.transpose([0, 2, 3, 1]); engine.run([x])[0]",
        "let rows = batch.images.shape[0]; timing::span(\"s\", rows, || engine.run([batch.images])[0])",
        "let output = engine.run([batch.images])[0]; output.slice(1, 0, 10)",
    ] {
        assert_eq!(of(honest), [""; 0], "{honest}");
    }
    for (cheat, check) in [
        ("tensor::zeros(\"4,10,f32\")", "engine-not-run"),
        (
            "if batch.images.sum().item() > 0 { engine.run([batch.images])[0] } else { tensor::zeros(\"4,10,f32\") }",
            "conditional-run",
        ),
        (
            "if batch.images.sum().item() > 0 { return tensor::zeros(\"4,10,f32\"); } engine.run([batch.images])[0]",
            "conditional-run",
        ),
        ("engine.run([batch.images[0..1]])[0].expand([4, 10])", "fewer-rows"),
        ("engine.run([batch.images.slice(0, 0, 1)])[0].expand([4, 10])", "fewer-rows"),
        ("engine.run([tensor::slice(batch.images, 0, 0, 1)])[0].expand([4, 10])", "fewer-rows"),
        ("let x = batch.images; let y = x.relu().rows(1); engine.run([y])[0].expand([4, 10])", "fewer-rows"),
        ("let x = batch.images; x = x.rows(1); engine.run([x])[0].expand([4, 10])", "fewer-rows"),
    ] {
        assert_eq!(of(cheat), [check], "{cheat}");
    }
}

#[test]
fn what_a_forward_function_did_before_is_not_found_again() {
    let adapter = "scripts/tiny/acme/forward.rhai";
    let text = "fn engine_forward(engine, batch) { engine.run([batch.images.slice(0, 0, 1)])[0] }\n";
    let before = base().with(adapter, text);
    let after = before.clone().with(adapter, &text.replace("[0] }", "[1] }"));
    let rules: Vec<String> =
        reviewed(&before, &after, Some("vendor:acme")).findings.into_iter().map(|f| f.rule).collect();
    assert_eq!(rules, ["submission"]);
}

#[test]
fn a_shared_function_that_no_longer_runs_the_model_is_found_in_the_forward_function() {
    let text = FORWARD.replace("model.run([batch.images])[0]", "batch.images");
    assert_eq!(checks("scripts/tiny/forward.rhai", &text), ["engine-not-run"]);
}

#[test]
fn an_import_that_leads_elsewhere_is_in_the_timed_path_and_checked() {
    let forward = "import \"lib/one\" as l;\nfn model_forward(model, batch) { l::step(model, batch) }\n";
    let before = base()
        .with("scripts/tiny/forward.rhai", forward)
        .with("scripts/lib/one.rhai", "fn step(model, batch) { model.run([batch.images])[0] }\n")
        .with("scripts/lib/two.rhai", "fn step(model, batch) { batch.images }\n");
    let after = before.clone().with("scripts/tiny/forward.rhai", &forward.replace("lib/one", "lib/two"));
    let review = reviewed(&before, &after, Some("case-author"));
    assert_eq!(
        lines(&review),
        [
            "needs maintainer | engine-not-run | scripts/tiny/forward.rhai:2 | `model_forward` does not call `run` of its model or engine"
        ]
    );
    assert_eq!((review.functions[0].function.as_str(), review.functions[0].is_timed), ("statements", true));
}

#[test]
fn an_evaluator_that_does_not_use_the_truth_is_found() {
    let of = |text: &str| checks("scripts/tiny/evaluator.rhai", text);
    assert_eq!(of("fn evaluator(output, truth) { metric::top_k(output, output.argmax(1), [1]) }\n"), ["unused-truth"]);
    let size =
        "fn evaluator(output, truth) { let n = truth.labels.shape[0]; metric::mean(\"top1\", n.to_float(), n) }\n";
    assert_eq!(of(size), ["unused-truth"]);
    assert_eq!(of("fn evaluator(output) { metric::top_k(output, output.argmax(1), [1]) }\n"), ["unused-truth"]);
    assert_eq!(
        of(
            "fn evaluator(output, truth) { truth.labels = output.argmax(1); metric::top_k(output, truth.labels, [1]) }\n"
        ),
        ["replaced-truth"]
    );
    assert_eq!(
        of(
            "fn evaluator(output, truth) { let truth = #{labels: output.argmax(1)}; metric::top_k(output, truth.labels, [1]) }\n"
        ),
        ["replaced-truth"]
    );
    assert_eq!(of("fn evaluator(output, truth) { metric::top_k(output, truth.labels, [1]) }\n"), [""; 0]);
}

#[test]
fn the_cost_of_an_adapter_counts_what_differs_from_the_standard_case() {
    let text = "// The same step.\nfn engine_forward(model, batch) {\n    step(model, batch)\n}\n\nfn step(model, batch) {\n    model.run([batch.images])[0]\n}\nfn other() { 1 }\n";
    let review = review_of("scripts/tiny/acme/forward.rhai", text, "vendor:acme");
    let cost = &review.costs[0];
    assert_eq!((cost.case.as_str(), cost.vendor.as_str(), cost.script_lines), ("tiny", "acme", 7));
    assert_eq!(cost.functions, ["forward.rhai: other"]);
}
