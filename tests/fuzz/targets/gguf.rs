//! Weights in a GGUF file.

#![no_main]

mod support;

use flagperf_onnx::{
    Graph, Init, TensorSpec, Weight, WeightError, WeightOptions, WeightReader, WeightRole, WeightSource,
};
use libfuzzer_sys::fuzz_target;

/// The names of the seeds' tensors.
const NAMES: [&str; 6] = ["F16", "Q4_1", "Q4_K", "Q6_K", "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"];

fuzz_target!(init: support::write_seeds(|| support::repository_files("tests/reference/gguf", ".gguf")), |file: &[u8]| {
    let path = support::write("weights.gguf", file);
    let options = WeightOptions { ignore: vec!["*".to_owned()], ..WeightOptions::default() };
    for name in NAMES {
        // The report about a shape that no tensor has states the actual one.
        let other = graph(name, "1,1,1,1,1,f32".parse().expect("a specification")).load_weights_with(&path, &options);
        let Err(WeightError::Mismatch { report, .. }) = other else { continue };
        let Some(spec) = report.mismatched.first().and_then(|(.., found)| found.parse::<TensorSpec>().ok()) else {
            continue;
        };
        let mut graph = graph(name, spec.clone());
        graph.load_weights_with(&path, &options).expect("the file has this tensor");
        let tensor = WeightReader::new(&graph).tensor(name).expect("the file was checked");
        assert_eq!(tensor.spec(), spec);
        assert_eq!(tensor.to_f64().len(), tensor.len());
    }
});

fn graph(name: &str, spec: TensorSpec) -> Graph {
    let source = WeightSource::Seed { seed: 0, init: Init::Constant(0.0) };
    let weight = Weight { spec, role: WeightRole::Parameter, source };
    Graph { weights: [(name.to_owned(), weight)].into(), ..Graph::default() }
}
