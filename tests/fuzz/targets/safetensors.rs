//! Weights in a safetensors file, or in several files that an index names.

#![no_main]

mod support;

use std::collections::HashMap;

use flagperf_onnx::{Graph, Init, TensorSpec, Weight, WeightReader, WeightRole, WeightSource};
use libfuzzer_sys::fuzz_target;
use safetensors::tensor::{Dtype, TensorView};

/// The kinds of input.
const FILE: usize = 0;
const INDEX: usize = 1;

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, bytes)) = support::split_kind(input, 2) else { return };
    let path = match kind {
        FILE => support::write("weights.safetensors", bytes),
        _ => {
            support::write("part.safetensors", file());
            support::write("weights.index.json", bytes)
        }
    };
    let mut graph = graph(if kind == FILE { bytes } else { &[] });
    if let Err(error) = graph.load_weights(&path) {
        assert!(!error.to_string().is_empty());
        return;
    }
    let mut reader = WeightReader::new(&graph);
    for (name, weight) in &graph.weights {
        let tensor = reader.tensor(name).expect("the file was checked");
        assert_eq!(tensor.spec(), weight.spec);
        assert_eq!(tensor.to_f64().len(), tensor.len());
    }
});

/// Returns a graph with the weights of the seeds, or with those that a file declares, as far as its header is readable.
fn graph(file: &[u8]) -> Graph {
    let header: Option<HashMap<String, serde_json::Value>> = (|| {
        let length = usize::try_from(u64::from_le_bytes(*file.first_chunk()?)).ok()?;
        serde_json::from_slice(file.get(8..length.checked_add(8)?)?).ok()
    })();
    let declared = header.unwrap_or_default().into_iter().filter_map(|(name, tensor)| {
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).ok()?;
        let dtype = tensor["dtype"].as_str()?.to_ascii_lowercase().parse().ok()?;
        Some((name, TensorSpec::new(shape, dtype)))
    });
    let mut specs: HashMap<String, TensorSpec> = declared.collect();
    if specs.is_empty() {
        specs = [("a", "2,3,f32"), ("b", "3,f32")]
            .map(|(name, spec)| (name.to_owned(), spec.parse().expect("a specification")))
            .into();
    }
    let weight = |spec| Weight {
        spec,
        role: WeightRole::Parameter,
        source: WeightSource::Seed { seed: 0, init: Init::Constant(0.0) },
    };
    Graph { weights: specs.into_iter().map(|(name, spec)| (name, weight(spec))).collect(), ..Graph::default() }
}

/// Returns a file of two tensors.
fn file() -> Vec<u8> {
    let tensor = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("a tensor");
    safetensors::serialize([("a", tensor(&[2, 3], &[1; 24])), ("b", tensor(&[3], &[2; 12]))], None).expect("a file")
}

fn seeds() -> Vec<Vec<u8>> {
    let half = TensorView::new(Dtype::F16, vec![2, 2], &[60; 8]).expect("a tensor");
    let flags = TensorView::new(Dtype::BOOL, vec![0, 3], &[]).expect("a tensor");
    let other =
        safetensors::serialize([("h", half), ("f", flags)], Some(HashMap::from([("k".to_owned(), "v".to_owned())])));
    let index = r#"{"metadata": {}, "weight_map": {"a": "part.safetensors", "b": "part.safetensors"}}"#;
    vec![
        support::seed_of_kind(FILE, file()),
        support::seed_of_kind(FILE, other.expect("a file")),
        support::seed_of_kind(INDEX, index),
    ]
}
