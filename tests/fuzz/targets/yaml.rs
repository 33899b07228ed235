//! The YAML files of a checkout, one of which the input replaces, and the policy of `review`.

#![no_main]

mod support;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use flagperf_config::{DatasetDescription, Overrides, load, load_without_vendor, parse_yaml};
use flagperf_engine::TABLE;
use flagperf_plan::{Catalogue, plan};
use flagperf_review::Policy;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The files of the checkout with their contents. The input replaces one of them.
const FILES: &[(&str, &str)] = &[
    ("configs/host.yaml", "VENDOR: fast\nCASES:\n    \"tiny:interpreter\": \"data\"\n"),
    (
        "configs/tiny/configurations.yaml",
        "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 3\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n",
    ),
    ("configs/tiny/parameters.yaml", "samples: 10\nweights: null\nseed: 0\ntarget_accuracy: {top1: 0.5}\n"),
    ("configs/tiny/vendor_config/fast_configurations.yaml", "batch_size: 8\nrten:\n    threads: 2\n"),
    (
        "vendors/fast/vendor.yaml",
        "name: fast\nabout: tried by tests\nframeworks:\n    interpreter: {engine: interpreter}\ncompilers:\n    rten: {engine: rten}\n    own: {engine: sidecar, command: [python3, own.py]}\n",
    ),
];
/// The further kinds of input: a description of a dataset, and a policy.
const DATASET: usize = FILES.len();
const POLICY: usize = FILES.len() + 1;

static CHECKOUT: LazyLock<&'static Path> = LazyLock::new(|| {
    for (path, text) in FILES {
        support::write(path, text);
    }
    for script in ["dataloader", "model", "forward", "evaluator"] {
        support::write(&format!("scripts/tiny/{script}.rhai"), "");
    }
    fs::create_dir_all(support::FOLDER.join("data")).expect("a folder");
    &support::FOLDER
});

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, text)) = support::split_kind(input, FILES.len() + 2) else { return };
    if let Ok(text) = std::str::from_utf8(text) {
        check_printed(text);
        if kind == POLICY {
            let _ = Policy::parse(text);
        }
    }
    if kind == DATASET {
        let path = support::write("datasets/own/dataset.yaml", text);
        let _ = DatasetDescription::read(&path, &support::FOLDER);
    } else if let Some((path, before)) = FILES.get(kind) {
        let root = *CHECKOUT;
        support::write(path, text);
        for config in [load(root, &Overrides::default()), load_without_vendor(root, &Overrides::default())] {
            match config {
                Ok(config) => {
                    let engines = TABLE.iter().map(|engine| engine.description()).collect();
                    match plan(&config, &Catalogue::read(root, engines)) {
                        Ok(_) => {}
                        Err(errors) => assert!(!errors.to_string().is_empty()),
                    }
                }
                Err(findings) => assert!(findings.has_errors()),
            }
        }
        support::write(path, before);
    }
});

/// Prints a parsed text as JSON, which is YAML, and parses it again: the values must be the same.
fn check_printed(text: &str) {
    let Ok(node) = parse_yaml(text) else { return };
    let value = node.value();
    if !is_printable(&value) {
        return;
    }
    let printed = serde_json::to_string(&value).expect("a value is plain data");
    match parse_yaml(&printed) {
        Ok(again) => assert_eq!(again.value(), value, "{printed}"),
        Err(error) => panic!("{error} in {printed}"),
    }
}

/// Returns whether YAML has all characters of the value, and can have its keys in a mapping in one line.
fn is_printable(value: &Value) -> bool {
    let is_text = |text: &str| text.chars().all(|c| matches!(c, '\n' | ' '..='~' | '\u{a1}'..='\u{d7ff}'));
    match value {
        Value::String(text) => is_text(text),
        Value::Array(items) => items.iter().all(is_printable),
        Value::Object(entries) => entries.iter().all(|(key, value)| is_text(key) && is_printable(value)),
        _ => true,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let own = FILES.iter().enumerate().map(|(kind, (_, text))| support::seed_of_kind(kind, text));
    let all = |kind: usize, folder: &str, end: &str| {
        support::repository_files(folder, end).into_iter().map(move |text| support::seed_of_kind(kind, text))
    };
    let policy = fs::read(support::root().join("review.yaml")).expect("the policy");
    own.chain(all(0, "configs", "host.yaml"))
        .chain(all(1, "configs", "/configurations.yaml"))
        .chain(all(2, "configs", "parameters.yaml"))
        .chain(all(3, "configs", "_configurations.yaml"))
        .chain(all(4, "vendors", "vendor.yaml"))
        .chain(all(DATASET, "datasets", "dataset.yaml"))
        .chain([support::seed_of_kind(POLICY, policy)])
        .collect()
}
