//! What is known of a model: its size, its work, where its weights come from, and whether accuracy means anything.

use std::path::Path;

use flagperf_onnx::{Graph, Model};

use super::model_files::ModelFiles;
use super::phase::failure;
use crate::event::{DatasetFacts, Failure, ModelFacts};
use crate::hash::hash_file;

/// What a model is, and the weights file's hash when `weights` names one in `data_dir`.
///
/// # Errors
/// When the weights file cannot be read.
pub fn model_facts(model: &Model, weights: Option<&str>, data_dir: &Path) -> Result<ModelFacts, Failure> {
    let mut facts = graphs_facts(model.graphs.values());
    facts.weights_are_random = model.graphs.values().any(Graph::weights_are_random);
    facts.weights = match (facts.weights_are_random, weights) {
        (true, _) => "seeded random values".to_owned(),
        (false, Some(file)) => file.to_owned(),
        (false, None) => "set by the script".to_owned(),
    };
    if let (false, Some(file)) = (facts.weights_are_random, weights) {
        let path = data_dir.join(file);
        let hash = hash_file(&path).map_err(|e| failure(&format!("`{}`: {e}", path.display()), ""))?;
        facts.weights_sha256 = Some(hash);
    }
    Ok(facts)
}

/// What the model in ONNX files is; what validation knew of its weights carries over.
///
/// # Errors
/// When a file is no ONNX model.
pub fn onnx_facts(files: &ModelFiles, path: &Path, validated: Option<&ModelFacts>) -> Result<ModelFacts, Failure> {
    let mut graphs = Vec::new();
    for (_, file) in files.given() {
        let hint = "was the file cut short? `exist_onnx_path: null` exports a new one";
        graphs.push(flagperf_onnx::read_onnx(file).map_err(|e| failure(&e, hint))?);
    }
    let mut facts = ModelFacts { files: files.facts(), ..graphs_facts(graphs.iter()) };
    match validated {
        Some(known) => {
            facts.weights = known.weights.clone();
            facts.weights_are_random = known.weights_are_random;
            facts.weights_sha256 = known.weights_sha256.clone();
        }
        None => facts.weights = format!("{} (of unknown origin)", path.display()),
    }
    Ok(facts)
}

/// What is known of a model that only its compiler knows.
pub fn placeholder_facts(path: &Path) -> ModelFacts {
    ModelFacts { weights: format!("the compiler's own (`{}` is a placeholder)", path.display()), ..Default::default() }
}

fn graphs_facts<'g>(graphs: impl Iterator<Item = &'g Graph>) -> ModelFacts {
    let mut facts = ModelFacts { multiply_adds_per_sample: Some(0), ..ModelFacts::default() };
    for graph in graphs {
        let counts = flagperf_onnx::count(graph);
        facts.parameters += counts.parameters;
        let sum = facts.multiply_adds_per_sample.zip(counts.multiply_adds_per_sample).map(|(a, b)| a + b);
        facts.multiply_adds_per_sample = sum;
        facts.opset = facts.opset.max(graph.opset);
        facts.inputs.extend(graph.inputs.iter().map(|v| (v.name.clone(), v.spec.to_string())));
        facts.outputs.extend(graph.outputs.iter().map(|v| (v.name.clone(), v.spec.to_string())));
    }
    facts
}

/// Why accuracy means nothing with this model and data; `None` when it does.
pub fn accuracy_unknown(model: &ModelFacts, dataset: &DatasetFacts) -> Option<String> {
    match (model.weights_are_random, dataset.synthetic) {
        (true, _) => Some("the weights are random".to_owned()),
        (false, true) => Some("the dataset is synthetic".to_owned()),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_weights_and_synthetic_data_have_no_accuracy() {
        let random = ModelFacts { weights_are_random: true, ..ModelFacts::default() };
        let drawn = DatasetFacts { synthetic: true, ..DatasetFacts::default() };
        assert_eq!(accuracy_unknown(&random, &DatasetFacts::default()).unwrap(), "the weights are random");
        assert_eq!(accuracy_unknown(&ModelFacts::default(), &drawn).unwrap(), "the dataset is synthetic");
        assert_eq!(accuracy_unknown(&ModelFacts::default(), &DatasetFacts::default()), None);
    }
}
