//! The networks of the cases compute the outputs of the implementations that they follow.

use std::path::Path;

use flagperf_engine::{Artifact, LoadOptions, Value, open_plugin};
use flagperf_onnx::{DType, Graph, Tensor, WeightReader, count};
use flagperf_onnx_exec::{CpuOps, Executor};
use indexmap::IndexMap;

use super::{folder, formula, read_tensors, write_tensors};
use crate::support;
use crate::support::cases::case_graph;

/// Returns a case's graph with the formula's weights, written to `file` under their state_dict names and loaded
/// strictly.
pub fn case_with_weights(case: &str, file: &Path) -> Graph {
    let mut graph = case_graph(case);
    write_tensors(file, &formula::weights(&graph));
    graph.load_weights(file).unwrap();
    graph
}

/// Runs a graph on the interpreter and returns the first output.
pub fn run(graph: &Graph, input: &Tensor) -> Tensor {
    let executor = Executor::load(graph, CpuOps).unwrap();
    executor.run_host(std::slice::from_ref(input)).unwrap().remove(0)
}

/// Runs a graph on the libtorch plug-in and returns the first output.
fn run_on_libtorch(library: &Path, graph: &Graph, input: &Tensor) -> Tensor {
    let options = LoadOptions { threads: 2, batch_size: input.shape()[0], ..LoadOptions::default() };
    let mut session = open_plugin(library).unwrap().load(Artifact::Graph(graph), &options).unwrap();
    let outputs = session.submit(&[Value::Host(input.clone())]).unwrap();
    session.sync().unwrap();
    outputs[0].to_host().unwrap()
}

/// Returns the largest `error(actual, expected)` over all elements, or NaN if any error is NaN.
pub fn largest_error(actual: &Tensor, expected: &Tensor, error: impl Fn(f64, f64) -> f64) -> f64 {
    assert_eq!(actual.shape(), expected.shape());
    let errors = actual.to_f64().into_iter().zip(expected.to_f64()).map(|(a, b)| error(a, b));
    errors.fold(0.0, |most: f64, error| if error.is_nan() { error } else { most.max(error) })
}

#[test]
fn resnet50_has_the_logits_and_parameters_of_torchvision() {
    check_resnet50(run);
}

#[test]
fn resnet50_on_libtorch_has_the_logits_of_torchvision() {
    let Some(library) = support::libtorch() else { return };
    check_resnet50(|graph, input| run_on_libtorch(&library, graph, input));
}

fn check_resnet50(run: impl Fn(&Graph, &Tensor) -> Tensor) {
    let weights = tempfile::NamedTempFile::new().unwrap();
    let graph = case_with_weights("resnet50", weights.path());
    assert_eq!(count(&graph).parameters, 25_557_032);

    let expected = read_tensors(&folder().join("resnet50.safetensors")).remove(0).1;
    let error = largest_error(&run(&graph, &formula::images(2)), &expected, |a, b| (a - b).abs() / b.abs());
    println!("largest relative error {error:.2e}");
    assert!(error <= 1e-4, "largest relative error {error:.2e}");
}

#[test]
fn efficientnet_lite0_has_the_logits_of_pytorch_from_the_same_pixels() {
    check_efficientnet_lite0(run);
}

#[test]
fn efficientnet_lite0_on_libtorch_has_the_logits_of_pytorch_from_the_same_pixels() {
    let Some(library) = support::libtorch() else { return };
    check_efficientnet_lite0(|graph, input| run_on_libtorch(&library, graph, input));
}

fn check_efficientnet_lite0(run: impl Fn(&Graph, &Tensor) -> Tensor) {
    let Some(python) = support::python() else { return };
    let Some(shared) = support::shared_data() else { return };
    let mut graph = case_graph("efficientnet_lite0");
    graph.load_weights(&shared.join("efficientnet_lite0.safetensors")).unwrap();

    let logits = read_tensors(&shared.join("efficientnet_lite0_logits.safetensors"));
    let inputs = tempfile::NamedTempFile::new().unwrap();
    let images = shared.join("imagenet-samples");
    let arguments = [images.to_str().unwrap(), inputs.path().to_str().unwrap(), "0.498", "0.502"];
    support::run_script(&python, "inputs.py", &arguments);
    let inputs: IndexMap<String, Tensor> = read_tensors(inputs.path()).into_iter().collect();

    assert_eq!(logits.len(), 8);
    for (name, expected) in logits {
        let input = inputs[&name].reshape([1, 3, 224, 224]).unwrap();
        let actual = run(&graph, &input).reshape(expected.shape()).unwrap();
        let error = largest_error(&actual, &expected, |a, b| (a - b).abs());
        println!("{name}: largest absolute error {error:.2e}");
        assert!(error <= 1e-3, "{name}: largest absolute error {error:.2e}");
    }
}

#[test]
fn weights_saved_by_pytorch_equal_those_of_the_safetensors_file() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [plain, saved] = ["weights.safetensors", "weights.pth"].map(|name| folder.path().join(name));
    let from_plain = case_with_weights("efficientnet_lite0", &plain);
    support::run_script(&python, "save_pth.py", &[plain.to_str().unwrap(), saved.to_str().unwrap()]);
    let mut from_saved = case_graph("efficientnet_lite0");
    from_saved.load_weights(&saved).unwrap();
    assert!(!from_saved.weights_are_random());
    let (mut plain, mut saved) = (WeightReader::new(&from_plain), WeightReader::new(&from_saved));
    let (mut same, mut halved) = (0, 0);
    for name in from_plain.weights.keys() {
        let (actual, expected) = (saved.tensor(name).unwrap(), plain.tensor(name).unwrap());
        assert_eq!(actual.spec(), expected.spec(), "{name}");
        let as_saved = actual.bytes() == expected.bytes();
        assert!(as_saved || actual.bytes() == expected.cast(DType::F16).cast(DType::F32).bytes(), "{name}");
        *if as_saved { &mut same } else { &mut halved } += 1;
    }
    assert_eq!((halved, same), (1, from_plain.weights.len() - 1), "exactly one weight was saved in fp16");
}
