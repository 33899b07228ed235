//! Attentions that PyTorch exported compute PyTorch's own outputs on the interpreter and on libtorch.

use std::path::Path;

use flagperf_engine::{Artifact, LoadOptions, Value, open_plugin};
use flagperf_onnx::{Graph, Tensor, read_onnx};
use flagperf_onnx_exec::{CpuOps, Executor};

use super::read_tensors;
use crate::support;

/// The largest allowed absolute error: sums are added in another order.
const TOLERANCE: f64 = 1e-5;

fn run_on_the_interpreter(graph: &Graph, inputs: &[Tensor]) -> Tensor {
    Executor::load(graph, CpuOps).unwrap().run_host(inputs).unwrap().remove(0)
}

fn run_on_libtorch(library: &Path, graph: &Graph, inputs: &[Tensor]) -> Tensor {
    let options = LoadOptions { threads: 2, batch_size: inputs[0].shape()[0], ..LoadOptions::default() };
    let mut session = open_plugin(library).unwrap().load(Artifact::Graph(graph), &options).unwrap();
    let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
    let outputs = session.submit(&inputs).unwrap();
    session.sync().unwrap();
    outputs[0].to_host().unwrap()
}

#[test]
fn exported_attentions_compute_pytorchs_outputs() {
    let Some(python) = support::python() else { return };
    let dir = tempfile::tempdir().unwrap();
    support::run_script(&python, "export_attention.py", &[dir.path().to_str().unwrap()]);
    let library = support::libtorch();
    for name in ["operator", "written_out", "module", "module_weights"] {
        let graph = read_onnx(&dir.path().join(name).with_extension("onnx")).unwrap();
        let tensors = read_tensors(&dir.path().join(name).with_extension("safetensors"));
        let named = |wanted: &str| tensors.iter().find(|(name, _)| name == wanted).unwrap().1.clone();
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|input| named(&input.name)).collect();
        let expected = named("y");
        let mut outputs = vec![run_on_the_interpreter(&graph, &inputs)];
        outputs.extend(library.as_ref().map(|library| run_on_libtorch(library, &graph, &inputs)));
        for actual in outputs {
            assert_eq!(actual.shape(), expected.shape(), "{name}");
            for (a, b) in actual.to_f64().into_iter().zip(expected.to_f64()) {
                assert!((a - b).abs() <= TOLERANCE, "{name}: {a} instead of {b}");
            }
        }
    }
}
