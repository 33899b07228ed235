//! What `plan` and `run` refuse before anything runs: mistakes in scripts, and files that are missing or of another kind.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{bash, checkout, flagperf, insert_into_create_model, transcript};
use crate::support::{self, program};

/// Replaces a file of the checkout.
fn write(checkout: &Path, path: &str, text: &str) {
    let path = checkout.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

/// Returns the errors of `plan`, which must refuse; nothing may have run.
fn refusal(checkout: &Path, arguments: &[&str]) -> String {
    let output = flagperf(checkout, &[&["plan"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stderr).replace(&*checkout.to_string_lossy(), "[CHECKOUT]");
    assert_eq!(output.status.code(), Some(2), "{text}");
    let is_error = |line: &&str| line.starts_with("error") || line.starts_with("  hint");
    text.lines().filter(is_error).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_syntax_error_is_refused_by_the_plan_with_file_line_and_column() {
    let checkout = checkout();
    insert_into_create_model(checkout.path(), "let x = nn::graph(\"a\" 5);");
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @"error: scripts/tiny/model.rhai:2:23: expecting ',' to separate the arguments to function call 'graph'");
    let run = transcript(checkout.path(), &["run"]);
    assert!(run.contains("exit code 2\n") && run.contains("error: scripts/tiny/model.rhai:2:"), "{run}");
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn the_first_error_of_each_script_and_of_what_it_imports_is_reported_once() {
    let checkout = checkout();
    write(checkout.path(), "scripts/lib/shapes.rhai", "fn size() { 8 }\nfn broken( { 8 }\n");
    for script in ["dataloader.rhai", "forward.rhai"] {
        let path = checkout.path().join("scripts/tiny").join(script);
        let text = fs::read_to_string(&path).expect("a script");
        fs::write(path, format!("import \"lib/shapes\" as shapes;\n{text}")).expect("a script");
    }
    write(checkout.path(), "scripts/tiny/evaluator.rhai", "fn evaluator(output) { metric::mean(\"a\", 1.0, 1) }\n");
    write(checkout.path(), "scripts/tiny/model.rhai", "fn create_model(config) { nn::grph(\"a\") }\n");
    write(checkout.path(), "scripts/tiny/export.rhai", "fn export(model, config) { model }\n");
    write(checkout.path(), "scripts/tiny/mock/forward.rhai", "fn engine_forward(engine, batch) { engine.rnu() }\n");
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @r"
    error: scripts/lib/shapes.rhai:2:12: expecting ')' to close the parameters list of function 'broken'
    error: scripts/tiny/model.rhai:1:31: unknown function `nn::grph`; did you mean `nn::graph`?
    error: scripts/tiny/evaluator.rhai:1:1: `evaluator` has 1 parameter, expected `fn evaluator(output, truth[, config])`
    error: scripts/tiny/export.rhai:1:4: 'export' is a reserved keyword
    error: scripts/tiny/mock/forward.rhai:1:43: unknown function `rnu`; did you mean `run`?
    ");
}

#[test]
fn a_fault_of_the_dataset_is_placed_in_the_script_that_describes_it() {
    let checkout = checkout();
    let dataloader = |text: &str| write(checkout.path(), "scripts/tiny/dataloader.rhai", text);
    dataloader("fn build_dataloader(config) {\n    data::image_folder(\"gone\").resize(8).center_crop(8)\n}\n");
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @r"
    error: scripts/tiny/dataloader.rhai:2:11: dataset of case `tiny`: there is no `gone` in the data directory `[CHECKOUT]/data`
      hint: put the file there, or name another data directory with --data DIR
    ");
    fs::create_dir_all(checkout.path().join("data/gone")).expect("a folder");
    dataloader("fn build_dataloader(config) {\n    data::image_folder(\"gone\").scale(1.0)\n}\n");
    let refused = refusal(checkout.path(), &[]);
    assert!(refused.starts_with("error: scripts/tiny/dataloader.rhai:2:11: dataset of case `tiny`: "), "{refused}");
    // The data directory that nothing names is missed only by a case that reads a file.
    dataloader("fn build_dataloader(config) {\n    data::image_folder(\"gone\").resize(8).center_crop(8)\n}\n");
    write(checkout.path(), "configs/host.yaml", "VENDOR: mock\nCASES:\n    \"other:mock\": data\n");
    let refused = refusal(checkout.path(), &["--case", "tiny:mock"]);
    assert!(
        refused.contains("error: configs/host.yaml:2: there is no data directory `[CHECKOUT]/datasets/tiny`"),
        "{refused}"
    );
    fs::copy(
        support::root().join("tests/cases/tiny/dataloader.rhai"),
        checkout.path().join("scripts/tiny/dataloader.rhai"),
    )
    .expect("a script");
    let (record, code) = program::record(checkout.path(), &["--case", "tiny:mock"]);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{record}");
    let refused = refusal(checkout.path(), &["--case", "tiny:mock", "--data", "/dev/zero"]);
    assert!(refused.contains("error: --data: data directory `/dev/zero` is not a directory"), "{refused}");
}

#[test]
fn a_folder_or_a_fifo_in_place_of_a_script_is_refused_with_its_kind() {
    let checkout = checkout();
    bash(checkout.path(), "rm scripts/tiny/dataloader.rhai; mkdir scripts/tiny/dataloader.rhai");
    let refused = refusal(checkout.path(), &[]);
    assert!(
        refused.contains("scripts/tiny/dataloader.rhai: cannot be read: is a folder, not a regular file"),
        "{refused}"
    );
    bash(
        checkout.path(),
        "rm scripts/tiny/forward.rhai; mkfifo scripts/lib/own.rhai; echo 'forward: lib/own' >> configs/tiny/parameters.yaml",
    );
    let refused = refusal(checkout.path(), &[]);
    assert!(refused.contains("own.rhai: cannot be read: is a FIFO, not a regular file"), "{refused}");
}

#[test]
fn a_script_that_is_no_file_is_refused_once_with_its_kind() {
    let checkout = checkout();
    for script in ["model.rhai", "dataloader.rhai"] {
        let path = checkout.path().join("scripts/tiny").join(script);
        let text = fs::read_to_string(&path).expect("a script");
        fs::remove_file(&path).expect("a script");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let expected = format!("error: scripts/tiny/{script}: cannot be read: is a FIFO, not a regular file");
        assert_eq!(refusal(checkout.path(), &[]), expected);
        fs::remove_file(&path).expect("a pipe");
        fs::write(&path, text).expect("a script");
    }
}

#[test]
fn a_parameter_that_a_script_reads_and_that_is_not_set_is_refused() {
    let checkout = checkout();
    insert_into_create_model(checkout.path(), "let size = config.image_size;");
    write(checkout.path(), "configs/tiny/parameters.yaml", "sample: 10\nimage_sise: 8\n");
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @r"
    error: scripts/tiny/dataloader.rhai:3:25: unknown property `samples`; did you mean `sample`?
    error: scripts/tiny/model.rhai:2:19: unknown property `image_size`; did you mean `image_sise`?
    ");
}

#[test]
fn a_model_that_cannot_be_built_is_refused_with_the_line() {
    let checkout = checkout();
    insert_into_create_model(
        checkout.path(),
        "let g = nn::graph(\"g\"); g.input(\"x\", \"N,3,f32\").conv2d(\"c\", #{out: 4, kernel: 3});",
    );
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @"error: scripts/tiny/model.rhai:2:49: layer `c` (Conv of `N,3,f32`, `4,3,3,3,f32`, `4,f32`): an input has the wrong number of dimensions");
}

#[test]
fn a_weights_file_that_is_missing_or_not_a_file_or_outside_is_refused_with_its_line() {
    let checkout = checkout();
    fs::create_dir(checkout.path().join("data/folder")).expect("a folder");
    std::os::unix::fs::symlink("/etc/hostname", checkout.path().join("data/link")).expect("a link");
    let refusals = ["gone.safetensors", "folder", "../configs/host.yaml", "link"].map(|weights| {
        let parameters = format!("samples: 10\nseed: 0\nweights: {weights}\n");
        write(checkout.path(), "configs/tiny/parameters.yaml", &parameters);
        refusal(checkout.path(), &[])
    });
    insta::assert_snapshot!(refusals.join("\n"), @r"
    error: configs/tiny/parameters.yaml:3: weights file `gone.safetensors` does not exist in the data directory `[CHECKOUT]/data`
      hint: give the data directory that contains it with --data DIR; `weights: null` draws random weights
    error: configs/tiny/parameters.yaml:3: the folder `[CHECKOUT]/data/folder` has neither `model.safetensors` nor `model.safetensors.index.json`
      hint: `weights` must name a file, or a folder with safetensors, in the data directory; null draws random weights
    error: configs/tiny/parameters.yaml:3: weights file `../configs/host.yaml` is outside the data directory `[CHECKOUT]/data`: `..`
      hint: `weights` must name a file, or a folder with safetensors, in the data directory; null draws random weights
    error: configs/tiny/parameters.yaml:3: weights file `link` is outside the data directory `[CHECKOUT]/data`: a symbolic link
      hint: `weights` must name a file, or a folder with safetensors, in the data directory; null draws random weights
    ");
    for (file, content, kind) in [
        (
            "pointer.safetensors",
            "version https://git-lfs.github.com/spec/v1\n",
            "a pointer of git LFS, not the file itself: ",
        ),
        ("weights.h5", "<!DOCTYPE html>", "an HTML page, not the file itself: "),
    ] {
        write(checkout.path(), &format!("data/{file}"), content);
        write(checkout.path(), "configs/tiny/parameters.yaml", &format!("samples: 10\nseed: 0\nweights: {file}\n"));
        let refused = refusal(checkout.path(), &[]);
        assert!(
            refused.contains(&format!("`data/{file}` is not a complete safetensors file: it is {kind}")),
            "{refused}"
        );
    }
    write(checkout.path(), "data/model.gguf", "GGUF\u{3}\0\0\0");
    write(checkout.path(), "configs/tiny/parameters.yaml", "samples: 10\nseed: 0\nweights: model.gguf\n");
    let refused = refusal(checkout.path(), &[]);
    let expected =
        "`data/model.gguf` is not a complete GGUF file: its header needs 8 bytes at 8, beyond the end of the file at 8";
    assert!(refused.contains(expected), "{refused}");
    write(checkout.path(), "data/other.safetensors", "no weights");
    write(checkout.path(), "configs/tiny/parameters.yaml", "samples: 10\nseed: 0\nweights: other.safetensors\n");
    insta::assert_snapshot!(refusal(checkout.path(), &[]), @"error: scripts/tiny/model.rhai:7:11: `data/other.safetensors` is not a complete safetensors file: its header has a length of 7523097587056930670 bytes (at most 33554432)");
}

#[test]
fn a_file_that_is_no_onnx_file_is_refused_for_an_engine_that_opens_onnx_files() {
    let checkout = checkout();
    write(checkout.path(), "model.pt", "PK\u{3}\u{4} a file of PyTorch");
    for validation in ["no_validation=false", "no_validation=true"] {
        let arguments = ["--set", validation, "--set", "exist_onnx_path=model.pt"];
        insta::allow_duplicates! {
            insta::assert_snapshot!(refusal(checkout.path(), &arguments), @r"
            error: --set exist_onnx_path=model.pt: `[CHECKOUT]/model.pt` is not a complete ONNX model: it is a zip archive: one with a state_dict belongs to `weights` in parameters.yaml; unpack any other
              hint: it must be a complete ONNX file; `exist_onnx_path: null` exports a new one
            ");
        }
    }
    let placeholder = refusal(checkout.path(), &["--set", "no_validation=true", "--set", "exist_onnx_path=any text"]);
    insta::assert_snapshot!(placeholder, @r"
    error: --set exist_onnx_path=any text: ONNX file `[CHECKOUT]/any text` does not exist
      hint: for a model of several graphs, name its manifest `<name>.graphs.json` (see configs/README.md)
    ");
}

#[test]
fn a_compiled_file_of_another_kind_is_refused() {
    let checkout = checkout();
    write(checkout.path(), "model.pt", "PK\u{3}\u{4} a file of PyTorch");
    let arguments = ["--case", "resnet50", "--vendor", "cpu", "--set", "exist_compiler_path=model.pt"];
    let host =
        "VENDOR: mock\nCASES:\n    \"tiny:mock\": data\n    \"resnet50:interpreter\": datasets/drawn/generated\n";
    write(checkout.path(), "configs/host.yaml", host);
    let with = |compiler: &str| refusal(checkout.path(), &[&arguments[..], &["--set", compiler]].concat());
    insta::assert_snapshot!(with("compiler=onnxruntime"), @r"
    error: --set exist_compiler_path=model.pt: compiler `onnxruntime` cannot load `[CHECKOUT]/model.pt`: its compiled files are .onnx, .ort
      hint: an ONNX file is given with `exist_onnx_path`; null compiles it in every run
    ");
    insta::assert_snapshot!(with("compiler=rten"), @r"
    error: --set exist_compiler_path=model.pt: compiler `rten` cannot load a compiled file (engine `rten`)
      hint: it compiles in every run: set `exist_compiler_path: null`, or use an engine that loads this file
    ");
}

#[test]
fn an_option_value_that_an_engine_does_not_know_is_refused() {
    let checkout = checkout();
    let host = "VENDOR: cpu\nCASES:\n    \"resnet50:interpreter\": datasets/drawn/generated\n";
    write(checkout.path(), "configs/host.yaml", host);
    let arguments = ["--set", "compiler=onnxruntime", "--set", "graph_optimization=fastest"];
    insta::assert_snapshot!(refusal(checkout.path(), &arguments), @"error: --set graph_optimization=fastest: engine `onnxruntime`: option `graph_optimization`: unknown value `fastest` (known: disabled, basic, extended, all)");
}

#[test]
fn scripts_that_end_the_process_that_checks_them_are_reported() {
    let checkout = checkout();
    let host = "VENDOR: mock\nWORKER_MEMORY: 100K\nCASES:\n    \"tiny:mock\": data\n";
    write(checkout.path(), "configs/host.yaml", host);
    let errors = refusal(checkout.path(), &[]);
    let error =
        "error: configs/host.yaml:4: the check of case `tiny:mock` ended: exited with status 71: out of memory: ";
    assert!(errors.starts_with(error), "{errors}");
}

#[test]
fn the_data_is_not_drawn_by_a_plan_and_a_missing_folder_is_refused() {
    let checkout = checkout();
    let plan = |arguments: &[&str]| {
        flagperf(checkout.path(), &[&["plan", "--case", "resnet50", "--vendor", "mock"], arguments].concat())
    };
    let drawn = checkout.path().join("datasets/drawn/generated");
    let data = drawn.display().to_string();
    assert_eq!(plan(&["--data", &data]).status.code(), Some(0));
    assert!(!drawn.exists());
    let parameters = checkout.path().join("configs/resnet50/parameters.yaml");
    let text = fs::read_to_string(&parameters).expect("a file").replace("image_dir: \".\"", "image_dir: imgs");
    fs::write(parameters, text).expect("a file");
    let data = checkout.path().join("data").display().to_string();
    let errors = refusal(checkout.path(), &["--case", "resnet50", "--vendor", "mock", "--data", &data]);
    insta::assert_snapshot!(errors, @r"
    error: scripts/lib/classification.rhai:10:11: dataset of case `resnet50`: there is no `imgs` in the data directory `[CHECKOUT]/data`
      hint: put the file there, or name another data directory with --data DIR
    ");
}

#[test]
fn a_plan_with_mistakes_prints_them_as_json() {
    let checkout = checkout();
    insert_into_create_model(checkout.path(), "let x = nowhere;");
    let output = flagperf(checkout.path(), &["plan", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&plan["cases"], &plan["values"]), (&json!([]), &json!([])));
    let findings = plan["findings"].as_array().expect("findings");
    let error = findings.iter().find(|finding| finding["level"] == "error").expect("an error");
    let origin = error["origin"].as_str().expect("an origin");
    assert!(origin.starts_with("scripts/tiny/model.rhai:2:"), "{error}");
    assert!(error["message"].as_str().expect("text").contains("unknown variable `nowhere`"), "{error}");
}

#[test]
fn doctor_returns_the_code_of_plan_for_a_mistake_and_another_for_a_fault_of_the_machine() {
    let checkout = checkout();
    let code = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["doctor"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (mistake, errors) = code(&["--set", "sleep_ms=long"]);
    assert_eq!(mistake, Some(2), "{errors}");
    write(checkout.path(), "configs/tiny/parameters.yaml", "samples: 10\nseed: 0\nweights: gone\n");
    let (fault, errors) = code(&[]);
    assert_eq!(fault, Some(1), "{errors}");
    write(checkout.path(), "configs/tiny/parameters.yaml", "samples: 10\nseed: 0\n");
    insert_into_create_model(checkout.path(), "let x = nowhere;");
    let (mistake, errors) = code(&[]);
    assert_eq!(mistake, Some(2), "{errors}");
}

#[test]
fn a_report_for_a_standard_output_that_was_closed_is_not_a_success() {
    let checkout = checkout();
    for command in ["run", "run --json", "plan", "doctor", "list cases"] {
        let (_, errors) = bash(checkout.path(), &format!("\"$0\" {command} >&-; echo \"code $?\" >&2"));
        assert!(errors.ends_with("code 3\n"), "{command}: {errors}");
        let message = "error: cannot write to standard output: it was closed before the program started\n";
        assert!(errors.contains(message), "{command}: {errors}");
    }
    assert_eq!(fs::read_dir(checkout.path().join("result")).expect("results").count(), 2, "the records are on disk");
    let (_, errors) = bash(checkout.path(), "\"$0\" run 2>&1 > /dev/null >&2; echo \"code $?\" >&2");
    assert!(errors.ends_with("code 0\n"), "{errors}");
}

#[test]
fn a_run_of_several_cases_ends_with_a_line_for_each() {
    let checkout = checkout();
    bash(checkout.path(), "cp -r configs/tiny configs/again; cp -r scripts/tiny scripts/again");
    // The engine of the second case finds another number of outputs than its script.
    write(checkout.path(), "scripts/again/forward.rhai", "fn model_forward(model, batch) { throw \"no\" }\n");
    let run = |arguments: &[&str]| {
        let data = checkout.path().join("data").display().to_string();
        let both = ["run", "--data", &data, "--case", "tiny:mock", "--case", "again:mock"];
        let output = flagperf(checkout.path(), &[&both, arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = run(&[]);
    assert_eq!(code, Some(1), "{text}");
    // The path of a record has a line of its own where it does not fit beside the figure.
    let end = text.split("\nok  ").last().expect("the overview");
    assert!(text.matches("\nok  ").count() == 2 && end.contains(" samples/s core"), "{text}");
    for record in ["/tiny_mock/localhost_noderank0/record.json\n", "/again_mock/localhost_noderank0/record.json\n"] {
        assert!(end.contains(record), "{text}");
    }
    let failed = end.lines().find(|line| line.starts_with("FAILED  again:mock"));
    assert!(failed.is_some_and(|line| line.contains("no figure")), "{text}");
    let (_, json) = run(&["--json"]);
    assert_eq!(serde_json::Deserializer::from_str(&json).into_iter::<Value>().count(), 2, "{json}");
    let one = flagperf(checkout.path(), &["run"]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(text.trim_end().lines().last().expect("a line").starts_with(" record  "), "{text}");
}

/// Adds the engine `own` of the null engine to the vendor; its entry lists no options.
fn add_compiler_without_options(checkout: &TempDir) {
    let vendor = checkout.path().join("vendors/mock/vendor.yaml");
    let text = fs::read_to_string(&vendor).expect("a file");
    fs::write(vendor, text.replace("compilers:\n", "compilers:\n    own: {engine: \"null\"}\n")).expect("a file");
}

#[test]
fn every_option_that_an_engine_describes_can_be_set_after_the_name_of_the_engine() {
    let checkout = checkout();
    add_compiler_without_options(&checkout);
    let plan = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["plan", "--json"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), errors, output.status.code())
    };
    let (json, errors, code) = plan(&["--set", "compiler=own", "--set", "own.sleep_ms=5", "--set", "own.threads=2"]);
    assert_eq!(code, Some(0), "{errors}");
    let engine = &json["cases"][0]["jobs"][1]["engine"];
    assert_eq!((&engine["options"]["sleep_ms"], &engine["threads"]), (&json!(5), &json!(2)), "{engine}");
    assert_eq!(json["cases"][0]["departures"]["own.sleep_ms"], 5);
    let (_, errors, code) = plan(&["--set", "compiler=own", "--set", "own.slep_ms=5"]);
    assert_eq!(code, Some(2), "{errors}");
    let error = errors.lines().find(|line| line.starts_with("error")).expect("an error");
    insta::assert_snapshot!(error, @"error: --set own.slep_ms=5: engine `null`: option `slep_ms`: unknown (known: sleep_ms, inputs, outputs, threads; nearest: sleep_ms)");
    // Also when no case uses the engine.
    assert_eq!(plan(&["--set", "own.slep_ms=5"]).2, Some(2));
    write(
        checkout.path(),
        "configs/tiny/vendor_config/mock_configurations.yaml",
        "compiler: own\nown.sleep_ms: 7\nmock.sleep_ms: 3\n",
    );
    let (json, errors, code) = plan(&[]);
    assert!(code == Some(0) && !errors.contains("warning"), "a known option: {errors}");
    let jobs = &json["cases"][0]["jobs"];
    let slept = [0, 1].map(|job| jobs[job]["engine"]["options"]["sleep_ms"].clone());
    assert_eq!(slept, [json!(3), json!(7)], "{jobs}");
}
