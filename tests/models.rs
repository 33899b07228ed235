//! The files of a model between its phases and between runs: inference runs what is meant, or says why it cannot.

#[path = "support/program.rs"]
mod program;
#[path = "support/site.rs"]
mod site;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use site::Site;

const NO_VALIDATION: [&str; 4] = ["--set", "compiler=rten", "--set", "no_validation=true"];

/// Two graphs of the case `tiny`, and a forward function that needs both.
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
const BOTH: &str = r#"
fn model_forward(model, batch) {
    let ignored = model.first.run([batch.images]);
    model.second.run([batch.images])[0]
}
"#;

fn site() -> Site {
    Site::new("{engine: \"null\"}")
}

fn two_graphs(site: &Site) {
    site.write("scripts/tiny/model.rhai", TWO_GRAPHS);
    site.write("scripts/tiny/forward.rhai", BOTH);
}

fn runs_on_rten(site: &Site) -> Value {
    site.runs(&["--set", "compiler=rten"])
}

/// Fails unless inference of a run agrees with its validation.
fn assert_agrees(record: &Value) {
    assert_eq!(record["agreement"]["verdict"], "met", "{}", record["agreement"]);
}

/// The graphs that inference opened.
fn opened(record: &Value) -> Vec<&str> {
    let phases = record["phases"].as_array().expect("phases");
    let files = phases.last().expect("a phase")["model"]["files"].as_object().expect("files by graph");
    files.keys().map(String::as_str).collect()
}

/// The errors of `plan` with these settings.
fn refused(site: &Site, arguments: &[&str]) -> String {
    let output = program::flagperf(site.path(), &[&["plan"], arguments].concat());
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors = text.lines().filter(|line| line.starts_with("error") || line.starts_with(' '));
    errors.collect::<Vec<_>>().join("\n").replace(&site.path().display().to_string(), "[checkout]")
}

/// Why a run of one phase failed.
fn reason(site: &Site, arguments: &[&str]) -> String {
    let (record, code) = site.run(arguments);
    assert_eq!(code, Some(1), "{record}");
    let reason = record["failures"][0]["reason"].as_str().expect("a reason").to_owned();
    reason.replace(&site.path().display().to_string(), "[checkout]")
}

#[test]
fn a_run_exports_into_its_own_folder_and_records_what_inference_opened() {
    let site = site();
    let record = runs_on_rten(&site);
    let exported = Site::exported(&record);
    let run = site.path().join("result").join(record["run"].as_str().expect("a run"));
    assert!(exported.starts_with(&run), "{}", exported.display());
    assert_eq!(exported.file_name().expect("a name"), "tiny_bs4_candle_fp16False.onnx");
    assert!(!site.path().join("onnxs").exists());
    let written = &record["phases"][0]["files"].as_array().expect("files").iter().find(|file| file["what"] == "onnx");
    let opened = &record["phases"][1]["model"]["files"]["model"][0];
    assert_eq!(opened["sha256"], written.expect("an export")["sha256"]);
    assert_eq!(record["provenance"]["model_sha256"][exported.to_str().expect("text")], opened["sha256"]);
}

#[test]
fn runs_at_once_with_different_seeds_compare_their_own_models() {
    let site = site();
    let run = |seed: usize| {
        let seed = format!("seed={seed}");
        site.runs(&["--set", "compiler=rten", "--set", &seed])
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
        for record in runs {
            assert_agrees(&record.join().expect("a record"));
        }
    });
}

#[test]
fn graphs_that_were_exported_earlier_take_no_part_in_a_run() {
    let site = site();
    assert_eq!(opened(&runs_on_rten(&site)), ["model"]);
    let one = fs::read_to_string(site.path().join("scripts/tiny/model.rhai")).expect("a script");
    let forward = fs::read_to_string(site.path().join("scripts/tiny/forward.rhai")).expect("a script");
    two_graphs(&site);
    let record = runs_on_rten(&site);
    assert_eq!(opened(&record), ["first", "second"]);
    assert_agrees(&record);
    site.write("scripts/tiny/model.rhai", &one);
    site.write("scripts/tiny/forward.rhai", &forward);
    let record = runs_on_rten(&site);
    assert_eq!(opened(&record), ["model"]);
    assert_agrees(&record);
}

#[test]
fn several_graphs_are_named_by_their_manifest_or_by_what_they_were_exported_as() {
    let site = site();
    two_graphs(&site);
    let first = Site::exported(&runs_on_rten(&site));
    let folder = first.parent().expect("a folder");
    for name in ["tiny_bs4_candle_fp16False.graphs.json", "tiny_bs4_candle_fp16False.onnx"] {
        let path = format!("exist_onnx_path={}", folder.join(name).display());
        let record = site.runs(&[&NO_VALIDATION[..], &["--set", &path]].concat());
        assert_eq!(opened(&record), ["first", "second"]);
    }
}

#[test]
fn a_missing_model_is_refused_and_no_other_takes_its_place() {
    let site = site();
    site.write("foo_old.onnx", "an old model");
    let told = refused(&site, &[&NO_VALIDATION[..], &["--set", "exist_onnx_path=foo.onnx"]].concat());
    insta::assert_snapshot!(told, @r"
    error: --set exist_onnx_path=foo.onnx: ONNX file `[checkout]/foo.onnx` does not exist
      hint: several graphs are named by their manifest, `<name>.graphs.json` (configs/README.md)
    ");
}

/// A checkout that exported a model of two graphs, the manifest, and its text.
fn exported_twice() -> (Site, PathBuf, String) {
    let site = site();
    two_graphs(&site);
    let manifest = Site::exported(&runs_on_rten(&site)).with_file_name("tiny_bs4_candle_fp16False.graphs.json");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    (site, manifest, text)
}

#[test]
fn a_manifest_that_lies_is_refused_with_what_it_says_and_what_is_there() {
    let (site, manifest, text) = exported_twice();
    let below = manifest.strip_prefix(site.path()).expect("below the checkout");
    let path = format!("exist_onnx_path={}", below.display());
    let arguments = [&NO_VALIDATION[..], &["--set", &path]].concat();
    let lie = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(&manifest, text.replacen(from, to, 1)).expect("a file");
    };
    let folder = below.parent().expect("a folder").display().to_string();
    let told = |text: String| text.replace(&folder, "[run]");
    lie("_first.onnx", "_third.onnx");
    let missing = told(refused(&site, &arguments));
    lie("\"name\": \"second\"", "\"name\": \"first\"");
    let twice = told(refused(&site, &arguments));
    lie("\"size_bytes\": ", "\"size_bytes\": 9");
    let size = told(reason(&site, &arguments));
    let hash = serde_json::from_str::<Value>(&text).expect("a manifest")["graphs"][0]["files"][0]["sha256"].clone();
    lie(hash.as_str().expect("a hash"), &"0".repeat(64));
    let content = told(reason(&site, &arguments));
    assert!(
        content.contains(&format!("its SHA-256 is `{}` instead of `000", hash.as_str().expect("a hash"))),
        "{content}"
    );
    let content = content.replace(hash.as_str().expect("a hash"), "[hash]");
    let digits: String = size.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    insta::assert_snapshot!([missing, twice, digits, content].join("\n"), @r"
    error: --set exist_onnx_path=[run]/tiny_bs4_candle_fp16False.graphs.json: the manifest `[checkout]/[run]/tiny_bs4_candle_fp16False.graphs.json` names `tiny_bs4_candle_fp16False_third.onnx` of graph `first`: No such file or directory (os error 2)
    error: --set exist_onnx_path=[run]/tiny_bs4_candle_fp16False.graphs.json: the manifest `[checkout]/[run]/tiny_bs4_candle_fp16False.graphs.json` names graph `first` twice
    `[checkout]/[run]/tiny_bs#_candle_fp##False_first.onnx` is not the file that `[checkout]/[run]/tiny_bs#_candle_fp##False.graphs.json` names: it has ##### bytes instead of ######
    `[checkout]/[run]/tiny_bs4_candle_fp16False_first.onnx` is not the file that `[checkout]/[run]/tiny_bs4_candle_fp16False.graphs.json` names: its SHA-256 is `[hash]` instead of `0000000000000000000000000000000000000000000000000000000000000000`
    ");
}

/// A FIFO at `path`.
fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
}

#[test]
fn a_model_that_is_not_a_regular_file_is_refused_by_the_plan() {
    let site = site();
    fifo(&site.path().join("fifo.onnx"));
    let told = ["fifo.onnx", "/dev/zero", "data"].map(|path| {
        let setting = format!("exist_onnx_path={path}");
        refused(&site, &[&NO_VALIDATION[..], &["--set", &setting]].concat())
    });
    insta::assert_snapshot!(told.join("\n"), @r"
    error: --set exist_onnx_path=fifo.onnx: cannot open `[checkout]/fifo.onnx`: is a FIFO, not a regular file
    error: --set exist_onnx_path=/dev/zero: cannot open `/dev/zero`: is a device, not a regular file
    error: --set exist_onnx_path=data: cannot open `[checkout]/data`: is a folder, not a regular file
    ");
}
