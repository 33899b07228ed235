//! The files of a model between its phases and between runs: inference runs exactly the named files or reports why not.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::program;
use crate::support::site::Site;

const NO_VALIDATION: [&str; 4] = ["--set", "compiler=rten", "--set", "no_validation=true"];

/// A model script of the case `tiny` that creates two graphs.
const TWO_GRAPHS: &str = r#"
fn one(config, seed) {
    let graph = nn::graph("tiny");
    let x = graph.input("images", "N,3,8,8,f32");
    x = x.conv2d("conv", #{out: 4, kernel: 3, padding: 1}).relu();
    x = x.global_avg_pool().flatten().linear("fc", 1000);
    graph.output("scores", x);
    graph.weights(config.weights, seed);
    graph
}
fn create_model(config) { #{first: one(config, 1), second: one(config, 2)} }
"#;
/// A forward function that runs both graphs.
const FORWARD_OF_BOTH: &str = r#"
fn model_forward(model, batch) {
    let ignored = model.first.run([batch.images]);
    model.second.run([batch.images])[0]
}
"#;

fn site() -> Site {
    Site::new("{engine: \"null\"}")
}

fn write_two_graphs(site: &Site) {
    site.write("scripts/tiny/model.rhai", TWO_GRAPHS);
    site.write("scripts/tiny/forward.rhai", FORWARD_OF_BOTH);
}

fn run_on_rten(site: &Site) -> Value {
    site.run_successfully(&["--set", "compiler=rten"])
}

/// Fails unless inference of a run agrees with its validation.
fn assert_agrees(record: &Value) {
    assert_eq!(record["agreement"]["verdict"], "met", "{}", record["agreement"]);
}

/// Returns the names of the graphs that inference opened.
fn opened_graphs(record: &Value) -> Vec<&str> {
    let phases = record["phases"].as_array().expect("phases");
    let files = phases.last().expect("a phase")["model"]["files"].as_object().expect("files by graph");
    files.keys().map(String::as_str).collect()
}

/// Runs `plan`, which must fail, and returns its errors.
fn plan_errors(site: &Site, arguments: &[&str]) -> String {
    let output = program::flagperf(site.path(), &[&["plan"], arguments].concat());
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors = text.lines().filter(|line| line.starts_with("error") || line.starts_with(' '));
    errors.collect::<Vec<_>>().join("\n").replace(&site.path().display().to_string(), "[checkout]")
}

/// Runs the case, which must fail, and returns the reason of the first failure.
fn failure_reason(site: &Site, arguments: &[&str]) -> String {
    let (record, code) = site.run(arguments);
    assert_eq!(code, Some(1), "{record}");
    let reason = record["failures"][0]["reason"].as_str().expect("a reason").to_owned();
    reason.replace(&site.path().display().to_string(), "[checkout]")
}

#[test]
fn a_run_exports_into_its_own_folder_and_records_what_inference_opened() {
    let site = site();
    let record = run_on_rten(&site);
    let exported = Site::exported(&record);
    let run = site.path().join("result").join(record["run"].as_str().expect("a run"));
    assert!(exported.starts_with(&run), "{}", exported.display());
    assert_eq!(exported.file_name().expect("a name"), "tiny_bs4_interpreter_fp16False.onnx");
    assert!(!site.path().join("onnxs").exists());
    let written = &record["phases"][0]["files"].as_array().expect("files").iter().find(|file| file["what"] == "onnx");
    let opened = &record["phases"][1]["model"]["files"]["model"][0];
    assert_eq!(opened["sha256"], written.expect("an export")["sha256"]);
    assert_eq!(record["provenance"]["model_sha256"][exported.to_str().expect("text")], opened["sha256"]);
}

#[test]
fn concurrent_runs_with_different_seeds_compare_their_own_models() {
    let site = site();
    let run = |seed: usize| {
        let seed = format!("seed={seed}");
        site.run_successfully(&["--set", "compiler=rten", "--set", &seed])
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
        for record in runs {
            assert_agrees(&record.join().expect("a record"));
        }
    });
}

#[test]
fn a_run_ignores_graphs_that_were_exported_earlier() {
    let site = site();
    assert_eq!(opened_graphs(&run_on_rten(&site)), ["model"]);
    let one = fs::read_to_string(site.path().join("scripts/tiny/model.rhai")).expect("a script");
    let forward = fs::read_to_string(site.path().join("scripts/tiny/forward.rhai")).expect("a script");
    write_two_graphs(&site);
    let record = run_on_rten(&site);
    assert_eq!(opened_graphs(&record), ["first", "second"]);
    assert_agrees(&record);
    site.write("scripts/tiny/model.rhai", &one);
    site.write("scripts/tiny/forward.rhai", &forward);
    let record = run_on_rten(&site);
    assert_eq!(opened_graphs(&record), ["model"]);
    assert_agrees(&record);
}

#[test]
fn several_graphs_are_named_by_their_manifest_or_by_their_export_path() {
    let site = site();
    write_two_graphs(&site);
    let first = Site::exported(&run_on_rten(&site));
    let folder = first.parent().expect("a folder");
    for name in ["tiny_bs4_interpreter_fp16False.graphs.json", "tiny_bs4_interpreter_fp16False.onnx"] {
        let path = format!("exist_onnx_path={}", folder.join(name).display());
        let record = site.run_successfully(&[&NO_VALIDATION[..], &["--set", &path]].concat());
        assert_eq!(opened_graphs(&record), ["first", "second"]);
    }
}

#[test]
fn a_missing_model_is_refused_and_no_other_file_replaces_it() {
    let site = site();
    site.write("foo_old.onnx", "an old model");
    let errors = plan_errors(&site, &[&NO_VALIDATION[..], &["--set", "exist_onnx_path=foo.onnx"]].concat());
    insta::assert_snapshot!(errors, @r"
    error: --set exist_onnx_path=foo.onnx: ONNX file `[checkout]/foo.onnx` does not exist
      hint: for a model of several graphs, name its manifest `<name>.graphs.json` (see configs/README.md)
    ");
}

/// Exports a model of two graphs and returns the checkout, the manifest's path and the manifest's text.
fn export_two_graphs() -> (Site, PathBuf, String) {
    let site = site();
    write_two_graphs(&site);
    let manifest = Site::exported(&run_on_rten(&site)).with_file_name("tiny_bs4_interpreter_fp16False.graphs.json");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    (site, manifest, text)
}

#[test]
fn a_wrong_manifest_is_refused_with_the_expected_and_the_actual_value() {
    let (site, manifest, text) = export_two_graphs();
    let below = manifest.strip_prefix(site.path()).expect("below the checkout");
    let path = format!("exist_onnx_path={}", below.display());
    let arguments = [&NO_VALIDATION[..], &["--set", &path]].concat();
    let falsify = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(&manifest, text.replacen(from, to, 1)).expect("a file");
    };
    let folder = below.parent().expect("a folder").display().to_string();
    let redacted = |text: String| text.replace(&folder, "[run]");
    falsify("_first.onnx", "_third.onnx");
    let missing = redacted(plan_errors(&site, &arguments));
    falsify("\"name\": \"second\"", "\"name\": \"first\"");
    let twice = redacted(plan_errors(&site, &arguments));
    falsify("\"size_bytes\": ", "\"size_bytes\": 9");
    let size = redacted(failure_reason(&site, &arguments));
    let hash = serde_json::from_str::<Value>(&text).expect("a manifest")["graphs"][0]["files"][0]["sha256"].clone();
    falsify(hash.as_str().expect("a hash"), &"0".repeat(64));
    let content = redacted(failure_reason(&site, &arguments));
    assert!(
        content.contains(&format!("its SHA-256 is `{}` instead of `000", hash.as_str().expect("a hash"))),
        "{content}"
    );
    let content = content.replace(hash.as_str().expect("a hash"), "[hash]");
    let digits: String = size.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    insta::assert_snapshot!([missing, twice, digits, content].join("\n"), @r"
    error: --set exist_onnx_path=[run]/tiny_bs4_interpreter_fp16False.graphs.json: the manifest `[checkout]/[run]/tiny_bs4_interpreter_fp16False.graphs.json` lists `tiny_bs4_interpreter_fp16False_third.onnx` for graph `first`: No such file or directory (os error 2)
    error: --set exist_onnx_path=[run]/tiny_bs4_interpreter_fp16False.graphs.json: the manifest `[checkout]/[run]/tiny_bs4_interpreter_fp16False.graphs.json` lists graph `first` twice
    `[checkout]/[run]/tiny_bs#_interpreter_fp##False_first.onnx` is not the file that `[checkout]/[run]/tiny_bs#_interpreter_fp##False.graphs.json` lists: its size is ##### bytes instead of ######
    `[checkout]/[run]/tiny_bs4_interpreter_fp16False_first.onnx` is not the file that `[checkout]/[run]/tiny_bs4_interpreter_fp16False.graphs.json` lists: its SHA-256 is `[hash]` instead of `0000000000000000000000000000000000000000000000000000000000000000`
    ");
}

/// Creates a FIFO at `path`.
fn make_fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
}

#[test]
fn a_model_that_is_not_a_regular_file_is_refused_by_the_plan() {
    let site = site();
    make_fifo(&site.path().join("fifo.onnx"));
    let errors = ["fifo.onnx", "/dev/zero", "data"].map(|path| {
        let setting = format!("exist_onnx_path={path}");
        plan_errors(&site, &[&NO_VALIDATION[..], &["--set", &setting]].concat())
    });
    insta::assert_snapshot!(errors.join("\n"), @r"
    error: --set exist_onnx_path=fifo.onnx: cannot open `[checkout]/fifo.onnx`: is a FIFO, not a regular file
    error: --set exist_onnx_path=/dev/zero: cannot open `/dev/zero`: is a device, not a regular file
    error: --set exist_onnx_path=data: cannot open `[checkout]/data`: is a folder, not a regular file
    ");
}

#[test]
fn an_operator_that_an_engine_computes_in_another_way_is_a_warning_in_the_record() {
    let site = Site::new("{engine: rten}");
    let root = r#"
fn create_model(config) {
    let graph = nn::graph("tiny");
    let x = graph.input("images", "N,3,8,8,f32");
    x = graph.node("Sqrt", [x + 100.0], #{}).relu();
    x = graph.node("ReduceMax", [x], #{axes: [2, 3], keepdims: 0}).linear("fc", 1000);
    graph.output("scores", x);
    graph.weights(config.weights, config.seed);
    graph
}
"#;
    site.write("scripts/tiny/model.rhai", root);
    let warnings = site.run_successfully(&[])["warnings"].to_string();
    let expected = "engine `rten` deviates from ONNX in operator `Relu`";
    assert!(warnings.contains(expected) && !warnings.contains("engine `interpreter`"), "{warnings}");
}
