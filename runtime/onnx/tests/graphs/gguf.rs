//! Weights from GGUF files: the numbers equal those of ggml's Python package, and tensors of `llama` have the names and
//! the order of transformers.

use std::path::{Path, PathBuf};

use flagperf_onnx::{DType, Graph, Init, TensorSpec, Weight, WeightOptions, WeightRole, WeightSource};
use safetensors::SafeTensors;

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/gguf").join(name)
}

fn graph(weights: &[(&str, &str)]) -> Graph {
    let weight = |spec: &str| Weight {
        spec: spec.parse().unwrap(),
        role: WeightRole::Parameter,
        source: WeightSource::Seed { seed: 0, init: Init::Constant(0.0) },
    };
    Graph {
        weights: weights.iter().map(|(name, spec)| ((*name).to_owned(), weight(spec))).collect(),
        ..Graph::default()
    }
}

#[test]
fn every_type_has_the_numbers_of_ggml_to_the_bit() {
    let names = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"];
    let mut graph = graph(&names.map(|name| (name, "2,256,f32")));
    graph.load_weights(&reference("blocks.gguf")).unwrap();
    let bytes = std::fs::read(reference("blocks.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    for name in names {
        assert_eq!(graph.tensor(name).unwrap().bytes(), expected.tensor(name).unwrap().data(), "{name}");
    }
}

#[test]
fn tensors_of_llama_have_the_names_and_the_order_of_transformers() {
    let weights = [
        ("model.embed_tokens.weight", "3,32,f32"),
        ("model.layers.0.self_attn.q_proj.weight", "16,32,f32"),
        ("model.layers.0.self_attn.q_proj.bias", "16,f32"),
        ("model.layers.0.self_attn.k_proj.weight", "8,32,f16"),
        ("model.layers.0.self_attn.v_proj.weight", "8,32,f32"),
        ("model.norm.weight", "32,f32"),
    ];
    let mut graph = graph(&weights);
    let options = WeightOptions { ignore: vec!["rope_freqs.weight".to_owned()], ..WeightOptions::default() };
    let read = graph.load_weights_with(&reference("llama.gguf"), &options).unwrap();
    assert_eq!(read, [reference("llama.gguf")]);
    for (name, spec) in weights {
        let tensor = graph.tensor(name).unwrap();
        assert_eq!(tensor.spec(), spec.parse::<TensorSpec>().unwrap());
        let counted_up: Vec<f64> = (0..tensor.len()).map(|number| number as f64).collect();
        assert_eq!(tensor.to_f64(), counted_up, "{name}");
    }
}

#[test]
fn a_tensor_of_an_unsupported_type_is_named_with_its_type_and_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut bytes = std::fs::read(reference("blocks.gguf")).unwrap();
    // The description of a tensor: its name, 2, its dimensions, its type.
    let at = bytes.windows(4).position(|bytes| bytes == b"Q6_K").unwrap() + 4 + 4 + 16;
    assert_eq!(bytes[at], 14);
    bytes[at] = 13;
    std::fs::write(&path, bytes).unwrap();
    let options = WeightOptions { ignore: vec!["*".to_owned()], ..WeightOptions::default() };
    let error = graph(&[("Q6_K", "2,256,f32")]).load_weights_with(&path, &options).unwrap_err().to_string();
    let expected = "of an unsupported type (1):\n    `Q6_K` has the type Q5_K (number 13) and the shape [2, 256]\n  hint: convert \
                    the file to one of the supported types: F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K";
    assert!(error.contains("model.gguf") && error.ends_with(expected), "{error}");
    graph(&[("Q4_0", "2,256,f32")]).load_weights_with(&path, &options).unwrap();
}

#[test]
fn a_truncated_file_is_refused_with_its_name_and_one_that_changed_later_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let whole = std::fs::read(reference("blocks.gguf")).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 200]).unwrap();
    let options = WeightOptions { ignore: vec!["*".to_owned()], ..WeightOptions::default() };
    let mut graph = graph(&[("Q4_K", "2,256,f32")]);
    let error = graph.load_weights_with(&path, &options).unwrap_err().to_string();
    assert!(
        error.contains("model.gguf` is not a complete GGUF file: tensor `Q6_K` ([2, 256] Q6_K): its bytes"),
        "{error}"
    );
    std::fs::write(&path, &whole).unwrap();
    graph.load_weights_with(&path, &options).unwrap();
    assert_eq!(graph.tensor("Q4_K").unwrap().dtype(), DType::F32);
    let other = folder.path().join("other");
    std::fs::copy(reference("llama.gguf"), &other).unwrap();
    std::fs::rename(other, &path).unwrap();
    let error = graph.tensor("Q4_K").unwrap_err().to_string();
    assert!(error.ends_with("tensor `Q4_K`: it is missing"), "{error}");
}

#[test]
fn metadata_of_another_model_is_refused_with_both_values() {
    let load = |key: &str, value: serde_json::Value| {
        let options = WeightOptions {
            ignore: vec!["*".to_owned()],
            configuration: vec![(key.to_owned(), value)],
            ..WeightOptions::default()
        };
        graph(&[("model.norm.weight", "32,f32")]).load_weights_with(&reference("llama.gguf"), &options)
    };
    load("num_attention_heads", 4.into()).unwrap();
    load("rope_theta", 1e4.into()).unwrap();
    let error = load("num_key_value_heads", 4.into()).unwrap_err().to_string();
    let expected = "llama.gguf` has the `llama.attention.head_count_kv` 2, but the model of this case has 4: choose the \
                    weights of this model, or correct `num_key_value_heads` in the script";
    assert!(error.ends_with(expected), "{error}");
}
