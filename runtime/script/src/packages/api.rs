//! The documentation of the packages: generated from the rustdoc of their functions, and checked by two tests.

use std::path::Path;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use rhai::{Dynamic, Engine, Map, Scope};

use super::session::Model;
use super::table::{PACKAGES, register};
use super::tensor::Tensor;
use crate::sandbox;
use crate::stage::Stage;
use flagperf_config::find_root;
use flagperf_core::limits::Limits;
use flagperf_core::tensor::Tensor as HostTensor;
use flagperf_engine::{Artifact, LoadOptions, Value, find};

/// Generates the text of `scripts/api/<package>.d.rhai`.
fn definitions(package: &str) -> String {
    let mut engine = Engine::new_raw();
    register(&mut engine, package);
    let (_, text) = engine.definitions().include_standard_packages(false).modules().next().unwrap();
    let mut out =
        format!("// Generated from the host's package `{package}`; regenerate with `UPDATE_API=1 cargo test`.\n");
    out += &format!("module {package};\n\n");
    for line in text.lines() {
        // A function that can fail is documented with the type that it returns on success.
        let line = match line.split_once("Fallible<") {
            Some((before, rest)) => format!("{before}{}", rest.replacen(">;", ";", 1)),
            None => line.to_owned(),
        };
        out += &line.replace(" ;", ";").replace("-> Array;", "-> array;").replace("-> Map;", "-> map;");
        out.push('\n');
    }
    out
}

#[test]
fn api_files_are_current() {
    let folder = find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap().join("scripts/api");
    let update = std::env::vars().any(|(name, _)| name == "UPDATE_API");
    let mut stale = Vec::new();
    for package in PACKAGES {
        let (file, text) = (folder.join(format!("{}.d.rhai", package.name)), definitions(package.name));
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != text {
            stale.push(package.name);
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; run with UPDATE_API=1 to regenerate them");
}

#[test]
fn a_number_may_be_whole_in_every_function() {
    for package in PACKAGES {
        for line in definitions(package.name).lines().filter(|line| line.starts_with("fn ")) {
            let parameters = line.split(" -> ").next().unwrap();
            assert!(!parameters.contains(": float"), "{}: {line}: the type of a number is `Number`", package.name);
        }
    }
}

/// Extracts the examples from the documentation of a package.
fn examples(package: &str) -> Vec<String> {
    let text = definitions(package);
    let comments = text.lines().map(|line| line.trim().strip_prefix("///").map(|l| l.strip_prefix(' ').unwrap_or(l)));
    let (mut examples, mut current): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in comments {
        match (line, &mut current) {
            (Some("```rhai"), None) => current = Some(String::new()),
            (Some("```"), Some(_)) => examples.extend(current.take()),
            (Some(line), Some(example)) => {
                example.push_str(line);
                example.push('\n');
            }
            _ => {}
        }
    }
    examples
}

fn null_model() -> Dynamic {
    let extra = IndexMap::from([
        ("inputs".to_owned(), serde_json::json!({"input": "N,3,f32"})),
        ("outputs".to_owned(), serde_json::json!({"output": "N,10,f32"})),
    ]);
    let options = LoadOptions { batch_size: 2, extra, ..LoadOptions::default() };
    let session = find("null").unwrap().load(Artifact::Onnx(Path::new("foo")), &options).unwrap();
    Dynamic::from(Model::new(Arc::new(Mutex::new(session))))
}

#[test]
fn every_function_has_an_example_that_runs() {
    let batch = || {
        let images = HostTensor::from_vec([2, 3], vec![0.0f32; 6]).unwrap();
        Map::from([("images".into(), Dynamic::from(Tensor::uncounted(Value::Host(images))))])
    };
    for package in PACKAGES {
        let functions =
            definitions(package.name).lines().filter(|l| l.starts_with("fn ") || l.starts_with("op ")).count();
        let examples = examples(package.name);
        assert_eq!(examples.len(), functions, "{}: every function must have one example", package.name);
        let stages = Stage::ALL.into_iter().chain([Stage::Monitor]);
        let stage = stages.into_iter().find(|stage| stage.packages().contains(&package.name)).unwrap();
        let (engine, script) =
            sandbox::build_engine(stage.packages(), Limits::default(), crate::tests::services().0, "example".into());
        for example in examples {
            let ast = engine.compile(&example).unwrap_or_else(|error| panic!("{example}: {error}"));
            let memory_scope = script.budget.start();
            let mut scope = Scope::new();
            let result = if example.contains("fn model_forward") {
                engine.call_fn::<Dynamic>(&mut scope, &ast, "model_forward", (null_model(), batch()))
            } else {
                engine.eval_ast_with_scope::<Dynamic>(&mut scope, &ast)
            };
            drop(memory_scope);
            let _ = result.unwrap_or_else(|error| panic!("{}: {example}: {error}", package.name));
        }
    }
}
