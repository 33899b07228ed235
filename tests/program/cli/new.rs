//! `flagperf new`: what it creates runs by the commands that it prints, and bad input creates nothing. `flagperf
//! completions`.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use flagperf_core::tensor::DType;
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{GraphBuilder, write_onnx};
use serde_json::Value;
use tempfile::TempDir;

use super::{bash, flagperf};
use crate::support::{self, program};

/// Creates something new and returns the commands that are printed.
fn create(checkout: &Path, arguments: &[&str]) -> Vec<String> {
    let output = flagperf(checkout, &[&["new"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (files, next) = text.split_once("next:\n").expect("the next commands");
    for line in files.lines() {
        let path = line.strip_prefix("created ").or_else(|| line.strip_prefix("changed ")).expect("a file");
        assert!(checkout.join(path).is_file(), "{path}");
    }
    next.lines().map(|line| line.strip_prefix("  ").expect("a command").to_owned()).collect()
}

/// Types commands in the checkout, each of which must succeed, and returns what they print.
fn type_commands(checkout: &Path, commands: &[String]) -> String {
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let path = program::path();
    let folders = std::iter::once(program.parent().expect("a folder").to_owned()).chain(std::env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell.current_dir(checkout).env("PATH", std::env::join_paths(folders).expect("folders"));
    let output =
        shell.env_remove("FLAGPERF_CONFIG").args(["-e", "-c", &commands.join("\n")]).output().expect("a shell");
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{commands:?}\n{printed}\n{errors}");
    printed.into_owned()
}

/// Returns every record of a checkout, oldest first.
fn records(checkout: &Path) -> Vec<Value> {
    let mut files = files(&checkout.join("result"));
    files.retain(|file| file.ends_with("record.json"));
    let read = |file: &PathBuf| fs::read_to_string(checkout.join("result").join(file)).expect("a record");
    files.iter().map(|file| serde_json::from_str(&read(file)).expect("JSON")).collect()
}

/// Returns every file below a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).expect("below").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Checks that a record succeeded in both phases, and returns its vendor and the engine of inference.
fn vendor_and_engine(record: &Value) -> (&str, &str) {
    assert_eq!(record["status"], "ok", "{}", record["failures"]);
    assert_eq!(record["phases"].as_array().map(Vec::len), Some(2));
    let engine = &record["phases"][1]["engine"]["name"];
    (record["vendor"].as_str().expect("a vendor"), engine.as_str().expect("an engine"))
}

/// Returns a checkout with the header of plug-ins and the adaptor of sidecars, whose host.yaml lists the new case `small`.
fn checkout_with_small_case() -> TempDir {
    let checkout = support::checkout();
    std::os::unix::fs::symlink(support::root().join("runtime"), checkout.path().join("runtime")).expect("a link");
    create(checkout.path(), &["case", "small"]);
    let host = "VENDOR: cpu\nCASES:\n    \"small:interpreter\": datasets/small\n";
    fs::write(checkout.path().join("configs/host.yaml"), host).expect("a file");
    checkout
}

#[test]
fn a_new_case_runs_by_the_commands_that_are_printed() {
    let checkout = support::checkout();
    let commands = create(checkout.path(), &["case", "mycase"]);
    assert_eq!(
        commands,
        ["flagperf plan --case mycase", "flagperf run --case mycase --vendor mock", "flagperf run --case mycase"]
    );
    type_commands(checkout.path(), &commands);
    let plan = flagperf(checkout.path(), &["plan", "--case", "mycase"]);
    let notes = String::from_utf8_lossy(&plan.stderr).into_owned();
    assert!(notes.lines().all(|line| line.starts_with("note: ")), "{notes}");
    let records = records(checkout.path());
    assert_eq!(records.iter().map(vendor_and_engine).collect::<Vec<_>>(), [("mock", "null"), ("cpu", "rten")]);
    // With two classes there is no top-5 accuracy.
    let two = ["run", "--json", "--case", "mycase", "--vendor", "mock", "--set", "classes=2"];
    let output = flagperf(checkout.path(), &two);
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    assert_eq!((output.status.code(), record["status"].as_str()), (Some(0), Some("ok")), "{record}");
    assert_eq!(records[1]["flops"]["counted_per_sample"], 2.0 * 458_368.0, "the declared operations are those counted");
}

#[test]
fn a_new_case_with_a_training_is_trained_by_the_last_command() {
    let checkout = support::checkout();
    let commands = create(checkout.path(), &["case", "mycase", "--training"]);
    let run = commands.last().expect("commands").clone();
    assert_eq!(run, "flagperf run --case mycase:interpreter:cpu:1:1:1");
    type_commands(checkout.path(), &["flagperf lint mycase".to_owned(), run]);
    let records = records(checkout.path());
    let round = &records[0]["phases"][0]["training"]["rounds"][0];
    assert_eq!((&round["epochs"], &round["steps"]), (&2.into(), &16.into()), "{round}");
}

/// Writes a model of tokens in batches: a table of 500 rows behind a conversion, a layer and a mask.
fn write_tokens(path: &Path, seed: u64) {
    let mut builder = GraphBuilder::new("tokens");
    let ids = builder.input("ids", "B,L,i32".parse().expect("a shape")).expect("an input");
    let mask = builder.input("mask.1", "B,?,1,f32".parse().expect("a shape")).expect("an input");
    let ids = layers::cast(&mut builder, "wide", &ids, DType::I64).expect("a layer");
    let x = layers::embedding(&mut builder, "table", &ids, [500, 4], DType::F32).expect("a layer");
    let x = layers::linear(&mut builder, "fc", &x, Linear::new(4, 3)).expect("a layer");
    let y = layers::mul(&mut builder, "masked", &x, &mask).expect("a layer");
    builder.output("y", &y).expect("an output");
    let mut graph = builder.finish().expect("a graph");
    graph.seed_weights(seed);
    write_onnx(&graph, path).expect("a file");
}

#[test]
fn an_onnx_file_runs_in_one_command_on_drawn_inputs() {
    let (checkout, folder) = (support::checkout(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("my tokens.onnx");
    write_tokens(&file, 7);
    let run = |shapes: &[&str], more: &[&str]| {
        let mut arguments = vec!["run", "--json", "--onnx", file.to_str().expect("text")];
        shapes.iter().for_each(|shape| arguments.extend(["--shape", shape]));
        arguments.extend(more);
        let output = flagperf(checkout.path(), &arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    let (code, error, _) = run(&[], &[]);
    assert!(error.ends_with("open dimensions need a size: --shape 'L=SIZE' --shape 'mask.1.1=SIZE'\n"), "{error}");
    assert_eq!((code, checkout.path().join("configs/my_tokens").exists()), (Some(2), false));
    let shapes = ["L=6", "mask.1.1=6", "B=5"];
    // The command can be repeated, and says nothing new.
    for is_new in [true, false] {
        let (code, error, record) = run(&shapes, &["--compiler", "rten"]);
        let record: Value = serde_json::from_slice(&record).unwrap_or_else(|_| panic!("{error}"));
        assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{error} {record}");
        assert_eq!(error.contains("note: created case `my_tokens`: configs/my_tokens, scripts/my_tokens\n"), is_new);
        assert_eq!(record["agreement"]["verdict"], "met");
        assert_eq!(record["settings"]["batch_size"]["value"], 5);
        assert_eq!(record["flops"]["counted_per_sample"], 2.0 * 6.0 * 4.0 * 3.0, "{}", record["flops"]);
        assert_eq!(record["settings"]["flops"]["value"], "72", "{}", record["settings"]["flops"]);
        let facts = &record["phases"][0]["dataset"]["pipeline"][0];
        assert!(facts.as_str().is_some_and(|text| text.contains("ids 6,i32 from 0 to 500")), "{facts}");
        let file = &record["phases"][0]["model"]["weights_files"][0]["path"];
        assert!(file.as_str().is_some_and(|path| path.ends_with("my tokens.onnx")), "{file}");
    }
    // Another vendor runs the case with a compiler of its own.
    let (_, error, record) = run(&[], &["--vendor", "mock"]);
    let record: Value = serde_json::from_slice(&record).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!(vendor_and_engine(&record), ("mock", "null"));
    let overlay = checkout.path().join("configs/my_tokens/vendor_config/cpu_configurations.yaml");
    let text = fs::read_to_string(&overlay).expect("an overlay");
    fs::remove_file(&overlay).expect("an overlay");
    assert_eq!((run(&[], &[]).0, fs::read_to_string(&overlay).expect("an overlay")), (Some(0), text));
    let lint = flagperf(checkout.path(), &["lint", "my_tokens"]);
    assert_eq!(lint.status.code(), Some(0), "{}", String::from_utf8_lossy(&lint.stdout));
    for (shapes, wanted) in [
        (
            &["L=7", "mask.1.1=6"][..],
            "case `my_tokens` exists already, and runs another model, another content of the file, or other shapes\n  hint: create",
        ),
        (&["L=6", "M=6"], "no dimension `M` is open (open: B, L, mask.1.1)"),
        (&["L=0"], "it must be a dimension and its size"),
    ] {
        let (code, error, _) = run(shapes, &[]);
        assert!(code == Some(2) && error.contains(wanted), "{error}");
    }
    // A file of the same name in another folder is not this one, and neither is this one with other weights.
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    write_tokens(&elsewhere.join("my tokens.onnx"), 8);
    let (code, error, _) = run(&[], &["--data", elsewhere.to_str().expect("text")]);
    assert!(code == Some(2) && error.contains("cannot be used with"), "{error}");
    fs::rename(elsewhere.join("my tokens.onnx"), &file).expect("a file");
    let (code, error, _) = run(&[], &[]);
    assert!(code == Some(2) && error.contains("another content of the file"), "{error}");
}

#[test]
fn a_file_that_no_case_can_run_is_refused_before_anything_is_created() {
    let (checkout, folder) = (support::checkout(), tempfile::tempdir().expect("a folder"));
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text.onnx"), "no model").expect("a file");
    let graph = |inputs: &[(&str, &str)]| {
        let mut builder = GraphBuilder::new("sum");
        let inputs = inputs.iter().map(|(name, spec)| builder.input(name, spec.parse().expect("a shape")));
        let inputs: Vec<_> = inputs.collect::<Result<_, _>>().expect("inputs");
        let sum = layers::add(&mut builder, "sum", &inputs[0], &inputs[1]).expect("a layer");
        builder.output("y", &sum).expect("an output");
        builder.finish().expect("a graph")
    };
    write_onnx(&graph(&[("a", "N,2,f32"), ("b", "f32")]), &at("scalar.onnx")).expect("a file");
    write_onnx(&graph(&[("a", "N,2,f64"), ("b", "N,2,f64")]), &at("wide.onnx")).expect("a file");
    write_onnx(&graph(&[("a", "N,0,f32"), ("b", "N,0,f32")]), &at("empty.onnx")).expect("a file");
    write_onnx(&graph(&[("a", "N,99999,9999,f32"), ("b", "N,99999,9999,f32")]), &at("large.onnx")).expect("a file");
    write_onnx(&graph(&[("a", "N,2,f32"), ("b", "2,f32")]), &at("other.onnx")).expect("a file");
    for (name, wanted) in [
        ("none.onnx", "No such file"),
        ("text.onnx", "is not a complete ONNX model"),
        ("scalar.onnx", "input `b` has no dimension for the batch"),
        ("other.onnx", "the first dimensions of the inputs `a` (N) and `b` (2) differ"),
        ("wide.onnx", "the model computes in `f64`, which no case does"),
        ("empty.onnx", "input `a` has no elements: `N,0,f32`"),
        ("large.onnx", "a sample of input `a` has 999890001 elements (at most 134217728)"),
        ("", "not a regular file"),
    ] {
        let output = flagperf(checkout.path(), &["new", "case", "other", "--from", at(name).to_str().expect("text")]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(wanted), "{name}: {error}");
        assert!(!checkout.path().join("configs/other").exists());
    }
}

#[test]
fn a_new_vendor_runs_every_case_before_and_after_it() {
    let checkout = checkout_with_small_case();
    let commands = create(checkout.path(), &["vendor", "mychip"]);
    assert_eq!(commands, ["plan", "run"].map(|command| format!("flagperf {command} --case small --vendor mychip")));
    type_commands(checkout.path(), &commands);
    let commands = create(checkout.path(), &["case", "after"]);
    let run = "flagperf run --case after --vendor mychip".to_owned();
    assert!(commands.contains(&run), "{commands:?}");
    type_commands(checkout.path(), &[run]);
    let plan = flagperf(checkout.path(), &["plan", "--case", "resnet50", "--vendor", "mychip", "--data", "datasets"]);
    assert_eq!(plan.status.code(), Some(0), "{}", String::from_utf8_lossy(&plan.stderr));
    let records = records(checkout.path());
    assert_eq!(records.iter().map(vendor_and_engine).collect::<Vec<_>>(), [("mychip", "null"); 2]);
}

#[test]
fn a_new_vendor_needs_no_case_to_be_named() {
    let checkout = support::checkout();
    create(checkout.path(), &["vendor", "mychip"]);
    let doctor = flagperf(checkout.path(), &["doctor", "--vendor", "mychip"]);
    let (table, errors) = (String::from_utf8_lossy(&doctor.stdout), String::from_utf8_lossy(&doctor.stderr));
    assert_eq!((doctor.status.code(), &*errors), (Some(0), ""), "{table}");
    assert!(table.contains("resnet50:mock"), "{table}");
    let plan = flagperf(checkout.path(), &["plan", "--vendor", "mychip"]);
    let notes = String::from_utf8_lossy(&plan.stderr).into_owned();
    assert!(notes.contains("case `resnet50` runs with `mock`, the only framework of vendor `mychip`"), "{notes}");
}

#[test]
fn a_new_plug_in_builds_and_runs_by_the_commands_that_are_printed() {
    if !support::has_compiler("cc") {
        return;
    }
    let checkout = checkout_with_small_case();
    let commands = create(checkout.path(), &["engine", "mychip", "--kind", "plugin"]);
    let readme = fs::read_to_string(checkout.path().join("vendors/mychip/README.md")).expect("a file");
    assert!(readme.contains(&format!("```sh\n{}\n```\n", commands[0])), "{readme}");
    let printed = type_commands(checkout.path(), &commands);
    assert!(printed.contains("works, mychip 0.1"), "{printed}");
    assert_eq!(records(checkout.path()).iter().map(vendor_and_engine).collect::<Vec<_>>(), [("mychip", "plugin")]);
}

#[test]
fn a_new_sidecar_runs_by_the_commands_that_are_printed() {
    if support::python().is_none() {
        return;
    }
    let checkout = checkout_with_small_case();
    let commands = create(checkout.path(), &["engine", "mychip", "--kind", "sidecar"]);
    type_commands(checkout.path(), &commands);
    assert_eq!(records(checkout.path()).iter().map(vendor_and_engine).collect::<Vec<_>>(), [("mychip", "sidecar")]);
}

#[test]
fn a_new_engine_of_a_vendor_adds_one_line_to_its_file() {
    if !support::has_compiler("cc") {
        return;
    }
    let checkout = checkout_with_small_case();
    create(checkout.path(), &["vendor", "chip"]);
    let file = checkout.path().join("vendors/chip/vendor.yaml");
    let before = fs::read_to_string(&file).expect("a file");
    let commands = create(checkout.path(), &["engine", "fast", "--kind", "plugin", "--vendor", "chip"]);
    let after = fs::read_to_string(&file).expect("a file");
    let entry = "    fast: {engine: plugin, library: engines/libfast.so, options: {threads: 0}}\n";
    assert_eq!(after.replace(entry, ""), before);
    assert_eq!(after.matches(entry).count(), 1);
    let run = "flagperf run --case small:mock --vendor chip --set compiler=fast";
    assert_eq!(commands.last().map(String::as_str), Some(run));
    type_commands(checkout.path(), &commands);
    assert_eq!(records(checkout.path()).iter().map(vendor_and_engine).collect::<Vec<_>>(), [("chip", "plugin")]);
    // Without a framework that computes nothing, zeros cannot agree with validation: nothing to run is printed.
    let commands = create(checkout.path(), &["engine", "fast", "--kind", "sidecar", "--vendor", "cpu"]);
    assert_eq!(commands, ["flagperf doctor --case small --vendor cpu --set compiler=fast"]);
}

#[test]
fn bad_input_of_new_is_refused_and_nothing_is_written() {
    let checkout = support::checkout();
    fs::create_dir_all(checkout.path().join("scripts/half")).expect("a folder");
    let braces = "name: braces\nabout: a\nframeworks: {}\ncompilers: {a: {engine: rten}}\n";
    fs::create_dir_all(checkout.path().join("vendors/braces")).expect("a folder");
    fs::write(checkout.path().join("vendors/braces/vendor.yaml"), braces).expect("a file");
    let before = files(checkout.path());
    for (arguments, message) in [
        ("case resnet50", "error: `configs/resnet50` exists already\n  hint: choose another name\n"),
        ("case half", "error: `scripts/half` exists already\n"),
        ("case lib", "error: `lib` cannot be the name of a case: scripts/lib contains the shared scripts\n"),
        (
            "case ../x",
            "error: `../x` cannot be the name of a case\n  hint: a name begins with a letter and has at most 64",
        ),
        ("case null", "error: `null` cannot be the name of a case: YAML reads it as another value than text\n"),
        ("vendor mock", "error: `vendors/mock` exists already\n"),
        ("vendor 2fast", "error: `2fast` cannot be the name of a vendor\n"),
        ("vendor", "required arguments were not provided"),
        ("engine a/b --kind plugin", "error: `a/b` cannot be the name of an engine\n"),
        ("engine fast --kind library", "invalid value 'library' for '--kind <KIND>'"),
        ("engine fast", "--kind <KIND>"),
        (
            "engine fast --kind plugin --vendor mok",
            "error: unknown vendor `mok` (known: ascend, braces, cambricon, cpu, hexaflake, iluvatar, intel, kunlunxin, metax, \
             mock, mthreads, nvidia, zixiao)\n  hint: did you mean `mock`?\n",
        ),
        ("engine fast --kind plugin --vendor zzzzzzz", "  hint: `flagperf new vendor zzzzzzz` creates it\n"),
        ("engine rten --kind sidecar --vendor cpu", "vendor `cpu` already has a compiler `rten`\n"),
        (
            "engine fast --kind plugin --vendor braces",
            "error: vendors/braces/vendor.yaml:4: cannot add a line to `compilers`",
        ),
    ] {
        let output = flagperf(checkout.path(), &[&["new"], &*arguments.split(' ').collect::<Vec<_>>()].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(errors.contains(message), "{arguments}: {errors}");
        assert_eq!(files(checkout.path()), before, "{arguments}");
    }
    assert_eq!(fs::read_to_string(checkout.path().join("vendors/braces/vendor.yaml")).expect("a file"), braces);
}

#[test]
fn outside_a_checkout_nothing_new_is_created() {
    let elsewhere = TempDir::new().expect("a folder");
    let output = flagperf(elsewhere.path(), &["new", "case", "mycase"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).replace(&*elsewhere.path().to_string_lossy(), "[ELSEWHERE]");
    insta::assert_snapshot!(errors, @r"
    error: `[ELSEWHERE]` is not in a checkout
      hint: change to a checkout of flagperf, in which the files are created
    ");
    assert_eq!(files(elsewhere.path()), Vec::<PathBuf>::new());
}

#[test]
fn in_a_folder_of_the_checkout_the_first_command_changes_to_the_checkout() {
    let checkout = support::checkout();
    let output = flagperf(&checkout.path().join("scripts"), &["new", "case", "mycase"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let change = format!("next:\n  cd '{}'\n  flagperf plan --case mycase\n", checkout.path().display());
    assert!(text.contains(&change), "{text}");
    assert!(checkout.path().join("scripts/mycase/model.rhai").is_file());
}

#[test]
fn completions_complete_commands_and_options() {
    let checkout = support::checkout();
    let script = r#"source <("$0" completions bash)
        complete_last() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flagperf flagperf "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}"; }
        complete_last flagperf ne; complete_last flagperf new en; complete_last flagperf run --ven
        complete_last flagperf run --vendor ""; complete_last flagperf run --set conf; complete_last flagperf prob"#;
    let (out, errors) = bash(checkout.path(), script);
    assert_eq!(out, "new\nengine\n--vendor\n\nconf\n\n", "no files for names, and no hidden command: {errors}");
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        let output = flagperf(checkout.path(), &["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("flagperf"), "{shell}");
    }
    let output = flagperf(checkout.path(), &["completions", "csh"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("invalid value 'csh'") && errors.contains("bash, elvish, fish, powershell, zsh"),
        "{errors}"
    );
}

#[test]
fn engines_that_are_created_at_once_all_have_an_entry() {
    let checkout = support::checkout();
    create(checkout.path(), &["vendor", "chip"]);
    let script = "for i in 1 2 3 4 5 6; do \"$0\" new engine own$i --kind sidecar --vendor chip & done; wait";
    let (out, err) = bash(checkout.path(), script);
    assert_eq!((out.matches("changed vendors/chip/vendor.yaml").count(), &*err), (6, ""), "{out}");
    let vendor = fs::read_to_string(checkout.path().join("vendors/chip/vendor.yaml")).expect("the vendor");
    for engine in 1..=6 {
        assert_eq!(vendor.matches(&format!("    own{engine}: {{engine: sidecar")).count(), 1, "{vendor}");
    }
}
