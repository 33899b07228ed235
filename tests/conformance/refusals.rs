//! Checks what an engine refuses, and that the error names the cause.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::tensor::DType;
use flagperf_engine::{Artifact, EngineError, LoadOptions};
use flagperf_onnx::{Graph, WriteOptions, layers, write_onnx, write_onnx_with};
use serde_json::json;

use crate::Check;
use crate::graphs::{binary, feed, numbers, unary};
use crate::harness::{Harness, ModelForm};
use crate::networks::residual;

pub const CHECKS: &[(&str, Check)] = &[
    ("wrong_count_of_inputs", wrong_count_of_inputs),
    ("wrong_shape", wrong_shape),
    ("wrong_type", wrong_type),
    ("two_sizes_of_one_dimension", two_sizes_of_one_dimension),
    ("unknown_option", unknown_option),
    ("unsupported_precision", unsupported_precision),
    ("model_in_another_precision", model_in_another_precision),
    ("unknown_operator", unknown_operator),
    ("other_kind_of_artifact", other_kind_of_artifact),
];

pub const FILE_CHECKS: &[(&str, Check)] = &[("broken_files", broken_files), ("incomplete_weights", incomplete_weights)];

fn sum() -> Graph {
    binary(["N,3,f32", "N,3,f32"], |g, a, b| layers::add(g, "sum", a, b))
}

fn wrong_count_of_inputs(harness: &Harness) {
    let graph = sum();
    let error = harness.load(&graph).refusal(&feed(&graph, 2)[..1]);
    assert_eq!(error, EngineError::InputCount { expected: 2, given: 1 });
}

fn wrong_shape(harness: &Harness) {
    let refused = |shape: &[usize]| {
        let graph = sum();
        let [a, b] = [numbers(&[2, 3], 1, 0.0, 1.0), numbers(shape, 2, 0.0, 1.0)];
        harness.load(&graph).refusal(&[a, b]).to_string()
    };
    assert_eq!(refused(&[2, 4]), "input `b` is `2,4,f32`, but the model expects `N,3,f32`");
    assert_eq!(refused(&[2, 3, 1]), "input `b` is `2,3,1,f32`, but the model expects `N,3,f32`");
}

fn wrong_type(harness: &Harness) {
    let graph = sum();
    let [a, b] = [numbers(&[2, 3], 1, 0.0, 1.0).cast(DType::I64), numbers(&[2, 3], 2, 0.0, 1.0)];
    let error = harness.load(&graph).refusal(&[a, b]).to_string();
    assert_eq!(error, "input `a` is `2,3,i64`, but the model expects `N,3,f32`");
}

fn two_sizes_of_one_dimension(harness: &Harness) {
    let graph = sum();
    let [a, b] = [numbers(&[2, 3], 1, 0.0, 1.0), numbers(&[4, 3], 2, 0.0, 1.0)];
    let error = harness.load(&graph).refusal(&[a, b]).to_string();
    assert_eq!(error, "input `b` is `4,3,f32`, but the model expects `N,3,f32`");
}

fn unknown_option(harness: &Harness) {
    let extra = [("no_such_option".to_owned(), json!(1))].into_iter().collect();
    let error = harness.try_load(&sum(), &LoadOptions { extra, ..harness.options(DType::F32) }).err().unwrap();
    assert!(matches!(&error, EngineError::Option { option, .. } if option == "no_such_option"), "{error}");
}

fn unsupported_precision(harness: &Harness) {
    let unsupported: Vec<DType> = DType::ALL
        .into_iter()
        .filter(|dtype| dtype.is_float() && !harness.subject.precisions.contains(dtype))
        .collect();
    assert!(!unsupported.is_empty());
    for precision in unsupported {
        let error = harness.try_load(&residual(precision), &harness.options(precision)).err().unwrap();
        assert!(matches!(&error, EngineError::Precision { requested, .. } if *requested == precision), "{error}");
    }
}

/// Silently converting a model would measure a precision other than the one in the record.
fn model_in_another_precision(harness: &Harness) {
    let error = harness.try_load(&residual(DType::F16), &harness.options(DType::F32)).err().unwrap().to_string();
    assert!(error.contains("`f16`"), "{error}");
}

fn unknown_operator(harness: &Harness) {
    let mut graph = unary("N,3,f32", |g, x| layers::relu(g, "layer4.strange", x));
    graph.nodes[0].op = "Wobble".to_owned();
    let error = harness.try_load(&graph, &harness.options(DType::F32)).err().unwrap();
    let named = matches!(&error, EngineError::Operator { op, node, .. } if op == "Wobble" && node == "layer4.strange");
    assert!(named, "{error}");
}

fn other_kind_of_artifact(harness: &Harness) {
    let graph = sum();
    let compiled = Artifact::Compiled(Path::new("model.bin"));
    let mut others = vec![compiled];
    let forms = ModelForm::of(harness.subject.roles);
    others.extend((!forms.contains(&ModelForm::File)).then_some(Artifact::Onnx(Path::new("model.onnx"))));
    others.extend((!forms.contains(&ModelForm::Graph)).then_some(Artifact::Graph(&graph)));
    for artifact in others {
        let error = harness.subject.engine.load(artifact, &harness.options(DType::F32)).err().unwrap();
        assert!(matches!(error, EngineError::Artifact { .. }), "{error}");
    }
}

/// Checks truncated files, a file of another format, an empty and a missing file: each error names the file.
fn broken_files(harness: &Harness) {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.onnx");
    write_onnx(&residual(DType::F32), &whole).unwrap();
    let bytes = fs::read(&whole).unwrap();
    assert!(harness.load_file(&whole).is_ok());
    let broken: [(&str, &[u8]); 4] = [
        ("cut_in_half.onnx", &bytes[..bytes.len() / 2]),
        ("cut_at_the_end.onnx", &bytes[..bytes.len() - 1]),
        ("picture.onnx", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("empty.onnx", b""),
    ];
    for (name, content) in broken {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = harness.load_file(&path).err().unwrap_or_else(|| panic!("{name} was loaded")).to_string();
        assert!(error.contains(name), "{error}");
    }
    let error = harness.load_file(&folder.path().join("missing.onnx")).err().unwrap().to_string();
    assert!(error.contains("missing.onnx"), "{error}");
}

/// Checks that missing or truncated external weights are an error that names the weights file.
fn incomplete_weights(harness: &Harness) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.onnx");
    write_onnx_with(&residual(DType::F32), &model, WriteOptions { external_above: 0 }).unwrap();
    let is_data = |path: &PathBuf| path != &model;
    let data = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).find(is_data).unwrap();
    assert!(harness.load_file(&model).is_ok());
    let file = data.file_name().unwrap().to_str().unwrap();
    fs::write(&data, b"too short").unwrap();
    let short = harness.load_file(&model).err().unwrap().to_string();
    fs::remove_file(&data).unwrap();
    let gone = harness.load_file(&model).err().unwrap().to_string();
    assert!(short.contains(file) && gone.contains(file), "{short}; {gone}");
}
