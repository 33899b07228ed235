//! Graphs that scripts change before the export, and the commands that show graphs.

use std::fs;
use std::path::Path;

use flagperf_onnx::{Tensor, Weight, read_onnx, write_onnx};
use serde_json::Value;

use super::{checkout, flagperf, transcript};
use crate::support::{self, results};

/// A layer normalization, written out.
pub(super) const MODEL: &str = r#"
fn create_model(config) {
    let graph = nn::graph("tiny");
    let x = graph.input("images", "N,3,8,8,f32").flatten();
    x = x.linear("hidden", 16);
    let d = x - x.mean([-1], true);
    x = d / ((d * d).mean([-1], true) + 1e-3).sqrt();
    graph.output("scores", x.linear("fc", 1000));
    graph.weights((), 1);
    graph
}
"#;

/// A checkout whose vendor `cpu` changes the graph of the case `tiny`.
fn with_export(body: &str) -> tempfile::TempDir {
    let checkout = results::checkout();
    let scripts = checkout.path().join("scripts/tiny");
    fs::write(scripts.join("model.rhai"), MODEL).expect("a file");
    fs::create_dir(scripts.join("cpu")).expect("a folder");
    let script = format!("fn export_model(graph, config) {{\n    {body}\n    graph\n}}\n");
    fs::write(scripts.join("cpu/export.rhai"), script).expect("a file");
    checkout
}

/// Returns the standard error of a run that fails.
#[track_caller]
fn failure(checkout: &Path) -> String {
    let output = flagperf(checkout, &["run", "--plain"]);
    assert_ne!(output.status.code(), Some(0));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn the_record_of_a_changed_graph_says_what_was_changed_and_compared() {
    let checkout = with_export("graph.fold_constants();\n    graph.fuse(\"LayerNormalization\");");
    let (folder, _) = results::run(checkout.path(), &["--plain"]);
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("record.json")).expect("a record")).expect("JSON");
    let phases = record["phases"].as_array().expect("phases");
    let rewrite = phases.iter().find_map(|phase| phase["rewrites"].get(0)).expect("a rewrite");
    assert_eq!(rewrite["script"], "cpu/export.rhai");
    assert_eq!(rewrite["operators"]["LayerNormalization"], serde_json::json!([0, 1]));
    let fused = &rewrite["changes"][1];
    assert_eq!((&fused["at"], &fused["places"]), (&Value::from("cpu/export.rhai:3"), &Value::from(1)));
    assert!(fused["what"].as_str().expect("text").starts_with("fuse LayerNormalization ("), "{fused}");
    assert_eq!(fused["distinct_places"], 1);
    assert!(rewrite["proof"]["elements"].as_u64().expect("a number") > 0, "{rewrite}");
    assert_eq!(rewrite["proof"]["unproved"], Value::Null);
}

#[test]
fn a_replacement_that_computes_something_else_is_an_error_at_its_line() {
    let wrong = r#"graph.replace("y = Add(variance, e)\ne: number", "y = Add(variance, 0.5)");"#;
    let error = failure(with_export(wrong).path());
    assert!(error.contains("scripts/tiny/cpu/export.rhai:2:"), "{error}");
    assert!(error.contains("computes something else: its output differs by"), "{error}");
}

#[test]
fn an_approximation_within_the_limit_that_the_case_sets_is_named_in_the_record() {
    let approximate = |epsilon: &str| {
        let body = format!(r#"graph.replace("y = Add(variance, e)\ne: number", "y = Add(variance, {epsilon})");"#);
        let checkout = with_export(&body);
        let parameters = checkout.path().join("configs/tiny/parameters.yaml");
        let text = fs::read_to_string(&parameters).expect("a file") + "agreement: {fp32: {relative_l2: 0.02}}\n";
        fs::write(parameters, text).expect("a file");
        checkout
    };
    let checkout = approximate("0.0011");
    let (folder, _) = results::run(checkout.path(), &["--plain"]);
    let text = fs::read_to_string(folder.join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let phases = record["phases"].as_array().expect("phases");
    let rewrite = phases.iter().find_map(|phase| phase["rewrites"].get(0)).expect("a rewrite");
    for error in [&rewrite["changes"][0]["approximation"], &rewrite["proof"]["approximation"]] {
        assert!(error.as_f64().is_some_and(|error| (1e-5..0.02).contains(&error)), "{rewrite}");
    }
    let error = failure(approximate("0.5").path());
    assert!(error.contains("is too coarse an approximation: its relative L2 error is"), "{error}");
    let overlay = checkout.path().join("configs/tiny/vendor_config/cpu_configurations.yaml");
    fs::write(overlay, "agreement: {fp32: {relative_l2: 0.9}}\n").expect("a file");
    let planned = transcript(checkout.path(), &["plan"]);
    assert!(planned.contains("agreement") && !planned.contains("exit code 0"), "a vendor sets no limit: {planned}");
}

#[test]
fn the_script_of_a_vendor_keeps_inputs_and_outputs_and_its_mistakes_are_found_by_plan() {
    let error = failure(with_export(r#"graph.rename("scores", "logits");"#).path());
    assert!(error.contains("graph `model` no longer has the output `scores` (N,1000,f32)"), "{error}");
    for (body, expected) in [
        (r#"graph.replace("y = Relu(x", "y = x");"#, "line 1 of the pattern: expected `)` after the inputs of `Relu`"),
        (r#"graph.fuse("LayerNorm");"#, "no operator `LayerNorm` is fused (known: "),
        (r#"graph.rename("score", "x");"#, "has no value `score`; did you mean `scores`?"),
        (r#"graph.extract(["hidden"], ["nowhere"]);"#, "has no value `nowhere`"),
    ] {
        let checkout = with_export(body);
        let text = transcript(checkout.path(), &["plan"]);
        assert!(text.contains(expected) && text.contains("export.rhai:2:"), "{text}");
    }
}

#[test]
fn graph_show_names_what_a_file_consists_of_and_why_a_near_miss_is_none() {
    let checkout = checkout();
    let file = support::root().join("tests/reference/spellings/torchscript-14/layernorm_affine.onnx");
    let shown = transcript(checkout.path(), &["graph", "show", &file.display().to_string()]);
    assert!(shown.contains("LayerNormalization: 1 (9 nodes)"), "{shown}");
    assert!(shown.contains("operator set 14"), "{shown}");
    let mut graph = read_onnx(&file).expect("a graph");
    graph.nodes[0].domain = "chip".to_owned();
    let unknown = checkout.path().join("unknown.onnx");
    write_onnx(&graph, &unknown).expect("a file");
    let shown = transcript(checkout.path(), &["graph", "show", "unknown.onnx"]);
    let expected = format!("not checked, because unknown: chip.{} 1", graph.nodes[0].op);
    assert!(shown.contains("exit code 0") && shown.contains(&expected), "{shown}");
    let missing = transcript(checkout.path(), &["graph", "show", "nowhere.onnx"]);
    assert!(missing.contains("exit code 2") && missing.contains("nowhere.onnx"), "{missing}");
}

#[test]
fn graph_diff_compares_nodes_and_what_both_graphs_compute() {
    let checkout = checkout();
    let file = |name: &str| {
        let name = format!("tests/reference/spellings/torchscript-{name}.onnx");
        support::root().join(name).display().to_string()
    };
    let (affine, page) = (file("14/layernorm_affine"), checkout.path().join("page.html"));
    let shown = transcript(checkout.path(), &["graph", "diff", &affine, &affine, "--compare"]);
    assert!(shown.contains("11 in both") && shown.contains("the same nodes compute all outputs (1)"), "{shown}");
    let mut graph = read_onnx(Path::new(&affine)).expect("a graph");
    let ones = Tensor::from_vec([8], vec![1f32; 8]).expect("eight elements");
    graph.weights.insert("bias".to_owned(), Weight::constant(ones));
    let changed = checkout.path().join("changed.onnx");
    write_onnx(&graph, &changed).expect("a file");
    let shown = transcript(checkout.path(), &["graph", "diff", &affine, &changed.display().to_string(), "--compare"]);
    assert!(shown.contains("weights of the same name with other elements: 1, the first is `bias`"), "{shown}");
    assert!(shown.contains("11 in both") && shown.contains("exit code 1"), "{shown}");
    graph.outputs.push(graph.outputs[0].clone());
    graph.outputs[1].name.clone_from(&graph.nodes[0].outputs[0]);
    graph.outputs.swap(0, 1);
    write_onnx(&graph, &changed).expect("a file");
    let same = changed.display().to_string();
    let shown = transcript(checkout.path(), &["graph", "diff", &affine, &same, "--compare"]);
    assert!(shown.contains("exit code 1") && shown.contains("the outputs are "), "{shown}");
    let shown = transcript(checkout.path(), &["graph", "diff", &affine, &affine, "--html", &same]);
    assert!(shown.contains("exit code 2") && shown.contains("exists and is not a page"), "{shown}");
    let [before, after] = [file("17/layernorm_hand_mul"), file("17/layernorm_hand_swapped")];
    let shown = transcript(checkout.path(), &["graph", "diff", &before, &after, "--html", &page.display().to_string()]);
    assert!(shown.contains("one region") && shown.contains("-  Mul") && shown.contains("+  Pow"), "{shown}");
    let html = fs::read_to_string(page).expect("a page");
    assert!(html.contains("<svg") && html.contains("class=\"removed\"") && !html.contains("http"), "{html}");
}
