//! Tests of the JSON Schemas: they are current, every YAML file of the repository is valid by them, and they refuse what
//! reading the file refuses.

use std::fs;
use std::path::{Path, PathBuf};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use super::fixture::{Checkout, check_schema, repository};
use super::schema::schemas;
use super::{DatasetDescription, Overrides, PARAMETERS, SETTINGS, SITE, TRAINING_SETTINGS, Vendor, yaml};
use flagperf_core::event::Level;

/// A schema that is ready to validate.
struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn new(schema: &Value) -> Self {
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.add_resource("test.json", schema.clone()).unwrap();
        let index = compiler.compile("test.json", &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
        Validator(schemas, index)
    }

    /// Returns the errors; empty for a valid value.
    fn errors(&self, value: &Value) -> String {
        self.0.validate(value, self.1).map_or_else(|error| format!("{error:#}"), |()| String::new())
    }
}

fn schema(name: &str) -> Value {
    schemas().into_iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn the_schemas_are_current() {
    schemas().iter().for_each(|(name, schema)| check_schema(name, schema));
}

/// Returns the YAML files of the configuration, relative to the repository, each with the name of its schema.
fn yaml_files() -> Vec<(PathBuf, &'static str)> {
    let schema_of = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("host.yaml") => Some("host"),
        Some("configurations.yaml") => Some("configurations"),
        Some("training.yaml") => Some("training"),
        Some("parameters.yaml") => Some("parameters"),
        Some("vendor.yaml") => Some("vendor"),
        Some("dataset.yaml") => Some("dataset"),
        Some(name) if name.ends_with("_training.yaml") => Some("training_overlay"),
        Some(name) if name.ends_with("_configurations.yaml") || name == "overlay.yaml" => Some("overlay"),
        _ => None,
    };
    let mut folders: Vec<PathBuf> =
        ["configs", "datasets", "vendors", "runtime/scaffold/templates", "runtime/plugin/examples/affine"]
            .map(PathBuf::from)
            .into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).unwrap().flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if let Some(schema) = schema_of(&path) {
                found.push((path, schema));
            }
        }
    }
    found.sort();
    assert!(found.len() > 15, "{found:?}");
    found
}

#[test]
fn every_yaml_file_is_valid_by_its_schema() {
    for (path, name) in yaml_files() {
        let text = fs::read_to_string(repository().join(&path)).unwrap();
        let places = [
            ("@NAME@", "name"),
            ("@COMPILER@", "rten"),
            ("@FIXED@", ""),
            ("@BATCH@", "8"),
            ("@PRECISION@", "fp16: false"),
            ("@FLOPS@", "72"),
            ("@FILE_TEXT@", "model.onnx"),
            ("@SHA256@", ""),
            ("@FOLDER_TEXT@", "models"),
            ("@SAMPLES@", "8"),
            ("@DRAWN@", "    x: {spec: \"3,f32\"}"),
        ];
        let text = places.iter().fold(text, |text, (place, value)| text.replace(place, value));
        let errors = Validator::new(&schema(name)).errors(&yaml::parse(&text).unwrap().value());
        assert_eq!(errors, "", "{}", path.display());
    }
}

#[test]
fn the_first_line_of_every_yaml_file_names_its_schema() {
    for (path, name) in yaml_files() {
        // The path is that of the copy, whose place is as deep as the file's own in configs/ and vendors/.
        let ups = match name {
            "host" => 1,
            "overlay" | "training_overlay" => 3,
            _ => 2,
        };
        let line = format!("# yaml-language-server: $schema={}docs/schemas/{name}.json", "../".repeat(ups));
        let text = fs::read_to_string(repository().join(&path)).unwrap();
        assert_eq!(text.lines().next(), Some(&*line), "{}", path.display());
        if ["configs", "datasets", "vendors"].iter().any(|folder| path.starts_with(folder)) {
            let schema = repository().join(&path).parent().unwrap().join(line.split('=').nth(1).unwrap());
            assert!(schema.is_file(), "{}", path.display());
        }
    }
}

/// Values of every type, in the form in which a file has them. Whole numbers have no decimal point: to JSON Schema, `4.0`
/// is a whole number, too.
const PROBES: [&str; 47] = [
    "null",
    "true",
    "yes",
    "Off",
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "1025",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "9300000000000000000",
    "1e400x",
    "4.1e-3",
    "-0.5",
    "2*512*0.33e9",
    "2*x",
    ".5*3.",
    "\"\"",
    "text",
    "\"22\"",
    "\"65536\"",
    "lib/x",
    "lib/",
    "lib/x/y",
    "A_B",
    "A=B",
    "32G",
    "0G",
    "32X",
    "fail",
    "COUNT",
    "docker",
    "debug",
    "[]",
    "[a, b]",
    "[1]",
    "[2222, \"22\"]",
    "{}",
    "{a: b}",
    "{a: 1}",
    "{top1: 2}",
    "{top1: 0.5, own: 7}",
    "{fp16: {cosine: 0.5}}",
];

/// Values of `agreement` beyond those of [`PROBES`].
const LIMITS: [&str; 4] =
    ["{fp16: {cosine: 2}}", "{fp16: {cosin: 0.5}}", "{f16: {cosine: 0.5}}", "{fp32: {variation: -1}}"];

#[test]
fn the_schema_of_a_key_accepts_exactly_what_reading_it_accepts() {
    let tables =
        [("host", SITE), ("configurations", SETTINGS), ("training", TRAINING_SETTINGS), ("parameters", PARAMETERS)];
    let (mut accepted, mut refused) = (0, 0);
    for (name, keys) in tables {
        let schema = schema(name);
        for key in keys {
            let validator = Validator::new(&schema["properties"][key.name]);
            for probe in PROBES.iter().chain(&LIMITS) {
                let node = yaml::parse(probe).unwrap();
                let errors = validator.errors(&node.value());
                let read = key.read(&node);
                assert_eq!(errors.is_empty(), read.is_ok(), "{name}: `{}: {probe}`: {read:?}\n{errors}", key.name);
                *if read.is_ok() { &mut accepted } else { &mut refused } += 1;
            }
        }
    }
    assert!(accepted > 200 && refused > 1000, "{accepted} {refused}");
}

#[test]
fn unknown_and_missing_keys_and_keys_of_other_files_are_refused() {
    let refused = |name: &str, text: &str| {
        let errors = Validator::new(&schema(name)).errors(&yaml::parse(text).unwrap().value());
        assert_ne!(errors, "", "{name}: {text}");
    };
    let accepted = |name: &str, text: &str| {
        assert_eq!(Validator::new(&schema(name)).errors(&yaml::parse(text).unwrap().value()), "", "{name}: {text}");
    };
    refused("host", "VENDR: cpu");
    accepted("host", "");
    refused("configurations", "");
    refused("configurations", "batch_size: 1\nflops: 1e9\nfp16: true\ncompiler: null");
    refused("configurations", "batch_size: 1\nflops: 1e9\nfp16: true\ncompiler: null\nrepeat: 1\nsamples: 1");
    accepted("configurations", "batch_size: 1\nflops: 1e9\nfp16: true\ncompiler: null\nrepeat: 1");
    accepted("configurations", "batch_size: 1\nflops: 2*3e9 + 4\nfp16: true\ncompiler: null\nrepeat: 1");
    refused("configurations", "batch_size: 1\nflops: 2*3 +\nfp16: true\ncompiler: null\nrepeat: 1");
    accepted("parameters", "samples: 1\nmean: [0.5]");
    for key in ["repeat", "max_epochs", "vendor", "hosts", "Cases"] {
        let text = format!("{key}: x\n");
        let read =
            Checkout::new().with("configs/toy/parameters.yaml", &text).messages(Level::Error, &Overrides::default());
        assert!(read[0].starts_with(&format!("configs/toy/parameters.yaml:1: `{key}` ")), "{read:?}");
        refused("parameters", &text);
    }
    accepted("overlay", "compiler: rten\nsleep_ms: 1");
    for key in ["flops: 1e9", "seed: 1", "PHASE_TIMEOUT: 1", "phase_timeout: 1", "data_dir: x", "batch_size: 0"] {
        refused("overlay", key);
    }
    refused("overlay", "max_epochs: 1");
    accepted("training", "batch_size: 1\nlearning_rate: 1.0e-3\nmax_epochs: 2\ntarget: {top1: 0.9}");
    refused("training", "batch_size: 1\nlearning_rate: 1.0e-3\nmax_epochs: 2\ntarget: {top1: 0.9}\nrepeat: 1");
    accepted("training_overlay", "learning_rate: 0.1\nA100x1x8: {batch_size: 2, threads: 1}");
    for text in ["max_epochs: 1", "compiler: x", "seed: 1", "A100x1x8: {target: {top1: 0.1}}", "A100x1x8: 1"] {
        refused("training_overlay", text);
    }
}

#[test]
fn the_schema_of_vendor_yaml_refuses_what_reading_it_refuses() {
    let head = "name: chip\nabout: a\nframeworks: {}\n";
    let device = "name: a, matches: [x], source: s";
    let (mut accepted, mut refused) = (0, 0);
    for rest in [
        "compilers: {}",
        "compiler: {}",
        "compilers: {}\ndevice: []",
        "compilers: {a: {engine: rten, options: {threads: null, other: [1]}, opens_onnx: false}}",
        "compilers: {a: {engine: sidecar, command: [python3, -m, x]}}",
        "compilers: {a: {engine: sidecar, command: python3}}",
        "compilers: {a: {enigne: rten}}",
        "compilers: {a: {engine: [rten]}}",
        "compilers: {a: {}}",
        "compilers: {a: rten}",
        "compilers: {a: {engine: rten, opens_onnx: yes}}",
        "compilers: [rten]",
        "compilers: {}\nvisible_devices: A=B",
        "compilers: {}\nmonitor: 1",
        &format!("compilers: {{}}\ndevices: [{{{device}}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, peak_flops_per_s: {{f16: 1e12}}}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, peak_flops_per_s: {{fp16: 1e12}}}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, peak_flops_per_s: {{f16: 0}}}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, peak_flops_per_s: {{f16: null}}}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, bandwidth_bytes_per_s: -1}}]"),
        &format!("compilers: {{}}\ndevices: [{{{device}, memory_bytes: 1.5}}]"),
        "compilers: {}\ndevices: [{name: a, matches: [], source: s}]",
        "compilers: {}\nbackends: {a: {about: b, version: 1.0}}",
        "compilers: {}\nbackends: {a: {about: b, version: \"1.0\", package: {name: p, wheels: {x86_64: h}, library: l}}}",
        "compilers: {}\nbackends: {a: {about: b, version: \"1.0\", plugin: {folder: f, library: l, feature: [x]}}}",
    ] {
        let text = format!("{head}{rest}\n");
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &text);
        let read = Vendor::read(checkout.root(), "chip");
        let errors = Validator::new(&schema("vendor")).errors(&yaml::parse(&text).unwrap().value());
        assert_eq!(errors.is_empty(), read.is_ok(), "{rest}: {read:?}\n{errors}");
        *if read.is_ok() { &mut accepted } else { &mut refused } += 1;
    }
    assert_eq!((accepted, refused), (6, 19));
}

#[test]
fn the_schema_of_dataset_yaml_refuses_what_reading_it_refuses() {
    let head = "name: toys\nabout: a\nsource: s\nlicence: l\nlayout: {a: b}\n";
    let (mut accepted, mut refused) = (0, 0);
    let hash = "0123456789abcdef".repeat(4);
    let file = |item: &str| format!("files: [{{{item}}}]");
    let path = |path: &str| format!("files: [{{path: \"{path}\"}}]");
    for rest in [
        file("path: a, bytes: 0, sha256: null").as_str(),
        &file(&format!("path: a, bytes: null, sha256: {hash}, required: false")),
        &file(&format!("path: a, sha256: {}", &hash[1..])),
        &file(&format!("path: a, sha256: {}", hash.to_uppercase())),
        &file("path: a, bytes: 1.5"),
        &file("path: a, required: 1"),
        &file("path: a, size: 1"),
        &file("bytes: 1"),
        &path("a/b.c"),
        &path(".a/.b"),
        &path("a..b/c"),
        &path(""),
        &path("/a"),
        &path("a/"),
        &path("a//b"),
        &path("./a"),
        &path("a/../b"),
        &path(".."),
        &path("..a"),
        "folders: [{glob: '*/*.jpg', count: 2}]",
        "folders: [{glob: '*', count: 0}]",
        "folders: [{glob: '*'}]",
        "folders: {glob: '*', count: 1}",
        "samples: 3\nfolders: [{glob: '*', count: 1}]",
        "samples: 0\nfolders: [{glob: '*', count: 1}]",
        "generator: flagperf\nfolders: [{glob: '*', count: 1}]",
        "generator: other\nfolders: [{glob: '*', count: 1}]",
    ] {
        let text = format!("{head}{rest}\n");
        let checkout = Checkout::new().with("datasets/toys/dataset.yaml", &text);
        let read = DatasetDescription::read_named(checkout.root(), "toys");
        let errors = Validator::new(&schema("dataset")).errors(&yaml::parse(&text).unwrap().value());
        assert_eq!(errors.is_empty(), read.is_ok(), "{rest}: {read:?}\n{errors}");
        *if read.is_ok() { &mut accepted } else { &mut refused } += 1;
    }
    assert_eq!((accepted, refused), (7, 20));
}

#[test]
fn a_key_of_another_version_in_vendor_yaml_is_refused_with_its_line_and_the_nearest_key() {
    let message = |text: &str| {
        let text = format!("name: chip\nabout: a\nframeworks: {{}}\n{text}");
        Vendor::read(Checkout::new().with("vendors/chip/vendor.yaml", &text).root(), "chip").unwrap_err().to_string()
    };
    let known = "known keys: engine, library, command, options, opens_onnx; was the file written for another version of flagperf?";
    assert_eq!(
        message("compilers:\n    fast:\n        engine: rten\n        option: {}\n"),
        format!(
            "vendors/chip/vendor.yaml:7: unknown key `compilers.fast.option` (nearest: `options`)\n  hint: {known}"
        )
    );
    assert_eq!(
        message("compilers: {}\ndevices:\n    - name: a\n      source: s\n"),
        "vendors/chip/vendor.yaml:6: `devices[0].matches` is missing\n  hint: the full names that the driver reports, in any letter case"
    );
    assert_eq!(
        message("compilers:\n    fast: {engine: rten, options: [threads]}\n"),
        "vendors/chip/vendor.yaml:5: `compilers.fast.options` must be a mapping of options to their defaults, not a list"
    );
}
