//! Exported files pass ONNX's checker, and ONNX Runtime computes the same outputs from them as flagperf's executor.

use std::path::Path;

use flagperf_onnx::{DType, Graph, WriteOptions, to_f16, write_onnx, write_onnx_with};

use super::networks::{case_with_weights, run};
use super::{formula, write_tensors};
use crate::support;

/// The largest allowed error in fp32, relative to the largest output: sums are added in another order.
const F32_TOLERANCE: &str = "1e-5";
/// The same in fp16, which keeps 11 bits (5e-4) and rounds again at each of the 50 to 60 layers.
const F16_TOLERANCE: &str = "5e-3";

/// Checks the file, and compares its outputs for two images with those of the interpreter for `graph` in fp32.
fn check_export(python: &Path, onnx: &Path, graph: &Graph, dtype: DType, tolerance: &str) {
    // Both sides receive the same rounded pixels.
    let input = formula::images(2).cast(dtype);
    let output = run(graph, &input.cast(DType::F32)).cast(dtype);
    let named =
        [(format!("input.{}", graph.inputs[0].name), input), (format!("output.{}", graph.outputs[0].name), output)];
    let values = onnx.with_extension("safetensors");
    write_tensors(&values, &named);
    support::run_script(python, "check_onnx.py", &[onnx.to_str().unwrap(), values.to_str().unwrap(), tolerance]);
}

/// Exports a case in fp32, fp32 with external weights, and fp16, and checks each file.
fn check_exports(case: &str) {
    let Some(python) = support::python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let graph = case_with_weights(case, &dir.path().join("weights.safetensors"));

    let onnx = dir.path().join("f32.onnx");
    assert_eq!(write_onnx(&graph, &onnx).unwrap().len(), 1);
    check_export(&python, &onnx, &graph, DType::F32, F32_TOLERANCE);

    let onnx = dir.path().join("external.onnx");
    let written = write_onnx_with(&graph, &onnx, WriteOptions { external_above: 0 }).unwrap();
    assert_eq!(written.len(), 2, "{written:?}");
    check_export(&python, &onnx, &graph, DType::F32, F32_TOLERANCE);

    let onnx = dir.path().join("f16.onnx");
    write_onnx(&to_f16(&graph, &[]).unwrap(), &onnx).unwrap();
    check_export(&python, &onnx, &graph, DType::F16, F16_TOLERANCE);
}

#[test]
fn onnx_runtime_computes_the_same_from_exports_of_resnet50() {
    check_exports("resnet50");
}

#[test]
fn onnx_runtime_computes_the_same_from_exports_of_efficientnet_lite0() {
    check_exports("efficientnet_lite0");
}
