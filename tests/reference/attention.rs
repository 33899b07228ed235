//! Attentions that PyTorch exported give PyTorch's own outputs, on candle and on libtorch.

use std::path::Path;

use flagperf::engine::{Artifact, Options, Value, open_plugin};
use flagperf_onnx::exec::{CandleOps, Executor};
use flagperf_onnx::{Graph, Tensor, read_onnx};

use crate::{check_with, read_tensors, support};

/// Sums are taken in another order.
const TOLERANCE: f64 = 1e-5;

fn on_candle(graph: &Graph, inputs: &[Tensor]) -> Tensor {
    Executor::load(graph, CandleOps).unwrap().run_host(inputs).unwrap().remove(0)
}

fn on_libtorch(library: &Path, graph: &Graph, inputs: &[Tensor]) -> Tensor {
    let options = Options { threads: 2, batch_size: inputs[0].shape()[0], ..Options::default() };
    let mut session = open_plugin(library).unwrap().load(Artifact::Graph(graph), &options).unwrap();
    let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
    let outputs = session.submit(&inputs).unwrap();
    session.sync().unwrap();
    outputs[0].to_host().unwrap()
}

#[test]
fn exported_attentions_give_what_pytorch_gives() {
    let Some(python) = support::python() else { return };
    let dir = tempfile::tempdir().unwrap();
    check_with(&python, "export_attention.py", &[dir.path().to_str().unwrap()]);
    let library = support::libtorch();
    for name in ["operator", "written_out", "module", "module_weights"] {
        let graph = read_onnx(&dir.path().join(name).with_extension("onnx")).unwrap();
        let tensors = read_tensors(&dir.path().join(name).with_extension("safetensors"));
        let named = |wanted: &str| tensors.iter().find(|(name, _)| name == wanted).unwrap().1.clone();
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|input| named(&input.name)).collect();
        let theirs = named("y");
        let mut outputs = vec![on_candle(&graph, &inputs)];
        outputs.extend(library.as_ref().map(|library| on_libtorch(library, &graph, &inputs)));
        for ours in outputs {
            assert_eq!(ours.shape(), theirs.shape(), "{name}");
            for (a, b) in ours.to_f64().into_iter().zip(theirs.to_f64()) {
                assert!((a - b).abs() <= TOLERANCE, "{name}: {a} instead of {b}");
            }
        }
    }
}
