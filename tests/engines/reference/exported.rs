//! The second way into dab_detr_r50: the graph that PyTorch's exporter writes of transformers' network at operator set 12.

use std::fs;

use flagperf_onnx::rewrite::Fusion;
use flagperf_onnx::{Graph, Model, Tensor, WeightSource, read_onnx};
use flagperf_onnx_exec::{FOLDED_BYTES_MAX, ProofLimits, compare, fold_constants};
use flagperf_script::ScriptChoice;
use indexmap::IndexMap;

use super::models::{assert_close, detection_settings, padded_images, reference, run};
use super::{folder, formula};
use crate::support::cases::case_model_in;

/// Layer normalizations of the tiny network: two in each of 2 layers of the encoder, three in each of 2 of the decoder, and one after each
/// of the latter.
const NORMALIZATIONS: usize = 2 * 2 + 2 * 3 + 2;

/// Returns the exported graph of the tiny network with the formula's weights, as the case reads it.
fn exported() -> Graph {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("exported.onnx");
    fs::copy(folder().join("models/dab_detr_r50.onnx"), &file).unwrap();
    // The values are left out of the file: it refers to weights.bin.
    let weights = data.path().join("weights.bin");
    let mut bytes = vec![0; 1 << 20];
    fs::write(&weights, &bytes).unwrap();
    for (name, weight) in &read_onnx(&file).unwrap().weights {
        let WeightSource::External { offset, .. } = weight.source else { continue };
        let shape = weight.spec.fixed_shape().unwrap();
        for (at, value) in formula::weight(name, &shape).into_iter().enumerate() {
            bytes[offset as usize + 4 * at..][..4].copy_from_slice(&value.to_le_bytes());
        }
    }
    fs::write(&weights, &bytes).unwrap();
    let mut settings = detection_settings("tiny", [96, 128]);
    settings["onnx"] = "exported.onnx".into();
    let mut model = case_model_in(data.path(), "dab_detr_r50", &settings, &ScriptChoice::default()).unwrap();
    let mut graph = model.graphs.swap_remove(Model::SINGLE).unwrap();
    for name in graph.weights.keys().cloned().collect::<Vec<_>>() {
        let tensor = graph.tensor(&name).unwrap();
        graph.weights[&name].source = WeightSource::Value(tensor);
    }
    graph
}

#[test]
fn the_graph_that_pytorch_exports_of_dab_detr_computes_the_same_before_and_after_its_normalizations_are_fused() {
    let graph = exported();
    let (folded, _) = fold_constants(&graph, FOLDED_BYTES_MAX).unwrap();
    let fused = Fusion::find("LayerNormalization").unwrap().apply(&folded).unwrap();
    assert_eq!(fused.replaced.len(), NORMALIZATIONS, "{:?}", fused.near_misses);
    assert!(fused.replaced.iter().all(|place| place.nodes == 9));
    let inputs: IndexMap<&str, Tensor> = padded_images();
    for graph in [&graph, &fused.graph] {
        let outputs = run(graph, &inputs);
        for name in ["logits", "pred_boxes"] {
            assert_close(&outputs[name], &reference("dab_detr_r50", name));
        }
    }
    let compared = compare(&graph, &fused.graph, 0, ProofLimits::default()).unwrap();
    assert!(compared.elements > 0 && compared.error < compared.limit, "{compared:?}");
}
