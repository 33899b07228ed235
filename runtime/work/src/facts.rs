//! Properties of a model: its size, its operations, the origin of its weights, and whether its accuracy is meaningful.

use std::path::{Path, PathBuf};

use flagperf_onnx::{Graph, Model, WeightRole, WeightSource};
use indexmap::IndexMap;

use super::model_files::{HashedFile, ModelFiles};
use super::phase::failure;
use flagperf_core::event::{DatasetFacts, Failure, ModelFacts};
use flagperf_core::tensor::TensorSpec;

/// Returns the properties of a model in memory, and the hashed files from which its weights are read: those of the weights, and the
/// files `opened`: models, whose small weights are in memory, and indices of weights.
///
/// # Errors
/// When a weights file cannot be read.
pub fn model_facts(
    model: &Model,
    data_dir: &Path,
    opened: &[PathBuf],
) -> Result<(ModelFacts, Vec<HashedFile>), Failure> {
    let learned =
        || model.graphs.values().flat_map(|graph| graph.weights.values()).filter(|w| w.role != WeightRole::Constant);
    let mut paths: Vec<&Path> = opened.iter().map(PathBuf::as_path).collect();
    for path in learned().filter_map(|weight| weight.source.path()) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let files = paths.iter().map(|path| HashedFile::open(path)).collect::<Result<Vec<_>, _>>()?;
    let named = |path: &&Path| path.strip_prefix(data_dir).unwrap_or(path).display().to_string();
    let mut sources: Vec<String> = paths.iter().map(named).collect();
    let random = model.graphs.values().any(Graph::weights_are_random);
    sources.extend(random.then(|| "seeded random values".to_owned()));
    let values = learned().any(|weight| matches!(weight.source, WeightSource::Value(_)));
    sources.extend((values && opened.is_empty() || sources.is_empty()).then(|| "set by the script".to_owned()));
    let facts = ModelFacts {
        weights: sources.join(", "),
        weights_are_random: random,
        weights_files: files.iter().map(|file| file.facts().clone()).collect(),
        ..graphs_facts(model.graphs.values())
    };
    Ok((facts, files))
}

/// A model with what the host has read of it.
pub struct KnownModel {
    /// The properties for the record.
    pub facts: ModelFacts,
    /// The graphs by name; none when the host does not read the model.
    pub graphs: IndexMap<String, Graph>,
}

/// Returns the properties of a model in ONNX files, and its graphs. Its weights are random when the metadata of a file
/// says so; validation is not consulted, because its weights may differ.
///
/// # Errors
/// When a file is not an ONNX model.
pub fn onnx_facts(files: &ModelFiles, path: &Path) -> Result<KnownModel, Failure> {
    let mut graphs = IndexMap::new();
    for (name, file) in files.entry_files() {
        let hint = "was the file cut short? `exist_onnx_path: null` exports a new one";
        graphs.insert(name.to_owned(), flagperf_onnx::read_onnx(file).map_err(|e| failure(&e, hint))?);
    }
    let random = graphs.values().any(Graph::weights_are_random);
    let facts = ModelFacts {
        weights: format!("{}from {}", if random { "seeded random values " } else { "" }, path.display()),
        weights_are_random: random,
        files: files.facts(),
        ..graphs_facts(graphs.values())
    };
    Ok(KnownModel { facts, graphs })
}

/// Returns the properties of a model that only its compiler can read, none of which are known. If the model of
/// validation (`validated`) has random weights, this model is assumed to have them too.
pub fn opaque_facts(files: Option<&ModelFiles>, path: &Path, validated: Option<&ModelFacts>) -> ModelFacts {
    let random = validated.is_some_and(|known| known.weights_are_random);
    let assumed = if random { ", assumed random as in validation" } else { "" };
    let path = path.display();
    let weights = match files {
        Some(_) => format!("from {path}{assumed}"),
        None => format!("the compiler's own (`{path}` is a placeholder){assumed}"),
    };
    ModelFacts {
        weights,
        weights_are_random: random,
        files: files.map(ModelFiles::facts).unwrap_or_default(),
        ..ModelFacts::default()
    }
}

/// Returns a text that is the same for weights of one name in several graphs if they are one weight.
fn origin(source: &WeightSource) -> String {
    match source {
        WeightSource::File { path, key } => format!("{}: {key}", path.display()),
        WeightSource::Seed { seed, init } => format!("seed {seed}, {init:?}"),
        WeightSource::Value(tensor) => format!("{:p}", tensor.bytes()),
        WeightSource::External { path, offset, .. } => format!("{}: {offset}", path.display()),
        WeightSource::Int8 { of, part, .. } => format!("{part:?} of {}", origin(&of.source)),
    }
}

fn graphs_facts<'g>(graphs: impl Iterator<Item = &'g Graph>) -> ModelFacts {
    let mut facts = ModelFacts::default();
    let mut parameters = IndexMap::new();
    for graph in graphs {
        let learned = graph.weights.iter().filter(|(_, weight)| weight.role == WeightRole::Parameter);
        parameters.extend(learned.map(|(name, weight)| ((name, origin(&weight.source)), &weight.spec)));
        facts.opset = facts.opset.max(graph.opset);
        facts.inputs.extend(graph.inputs.iter().map(|v| (v.name.clone(), v.spec.to_string())));
        facts.outputs.extend(graph.outputs.iter().map(|v| (v.name.clone(), v.spec.to_string())));
    }
    let elements = |spec: &TensorSpec| spec.fixed_shape().map_or(0, |shape| shape.iter().product::<usize>() as u64);
    facts.parameters = Some(parameters.values().map(|spec| elements(spec)).sum());
    facts
}

/// Returns why accuracy is meaningless with this model and dataset; `None` when it is meaningful.
pub fn accuracy_unknown_reason(model: &ModelFacts, dataset: &DatasetFacts) -> Option<String> {
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
    fn random_weights_and_synthetic_data_make_accuracy_unknown() {
        let random = ModelFacts { weights_are_random: true, ..ModelFacts::default() };
        let synthetic = DatasetFacts { synthetic: true, ..DatasetFacts::default() };
        assert_eq!(accuracy_unknown_reason(&random, &DatasetFacts::default()).unwrap(), "the weights are random");
        assert_eq!(accuracy_unknown_reason(&ModelFacts::default(), &synthetic).unwrap(), "the dataset is synthetic");
        assert_eq!(accuracy_unknown_reason(&ModelFacts::default(), &DatasetFacts::default()), None);
    }

    /// A model of two graphs, one with weights from a file and one with random weights.
    fn mixed(file: &Path) -> Model {
        let graph = |name: &str, size: usize| {
            let mut b = flagperf_onnx::GraphBuilder::new(name);
            let x = b.input("x", format!("N,{size},f32").parse().unwrap()).unwrap();
            let linear = flagperf_onnx::layers::Linear::new(size, 2);
            let y = flagperf_onnx::layers::linear(&mut b, "fc", &x, linear).unwrap();
            b.output("y", &y).unwrap();
            b.finish().unwrap()
        };
        let mut first = graph("first", 3);
        for (name, weight) in &mut first.weights {
            weight.source = WeightSource::File { path: file.to_owned(), key: name.clone() };
        }
        Model { graphs: [("first".to_owned(), first), ("second".to_owned(), graph("second", 4))].into() }
    }

    #[test]
    fn a_weight_that_two_graphs_share_counts_once() {
        let mut model = mixed(Path::new("a.safetensors"));
        let parameters = |model: &Model| graphs_facts(model.graphs.values()).parameters;
        assert_eq!(parameters(&model), Some((3 * 2 + 2) + (4 * 2 + 2)));
        model.graphs.insert("third".to_owned(), model.graphs["first"].clone());
        assert_eq!(parameters(&model), Some((3 * 2 + 2) + (4 * 2 + 2)));
    }

    #[test]
    fn only_the_weights_files_that_the_graphs_read_are_listed() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("a.safetensors");
        std::fs::write(&file, "weights").unwrap();
        let mut model = mixed(&file);
        let (facts, files) = model_facts(&model, data.path(), &[]).unwrap();
        assert_eq!(facts.weights, "a.safetensors, seeded random values");
        assert!(facts.weights_are_random);
        assert_eq!((files.len(), facts.weights_files.len()), (1, 1));
        assert_eq!(facts.weights_files[0].sha256, flagperf_core::hash::hash_bytes(b"weights"));
        model.graphs.swap_remove("first");
        let (facts, files) = model_facts(&model, data.path(), &[]).unwrap();
        assert_eq!((facts.weights.as_str(), files.len()), ("seeded random values", 0));
    }

    #[test]
    fn an_exported_file_marks_random_weights_and_another_file_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let mut graph = mixed(&path).graphs.swap_remove("second").unwrap();
        let facts = |graph: &Graph| {
            flagperf_onnx::write_onnx(graph, &path).unwrap();
            onnx_facts(&ModelFiles::open_onnx(&path).unwrap(), &path).unwrap().facts
        };
        assert!(facts(&graph).weights_are_random);
        for weight in graph.weights.values_mut() {
            let shape = weight.spec.fixed_shape().unwrap();
            let values = vec![0.5f32; shape.iter().product()];
            weight.source = WeightSource::Value(flagperf_onnx::Tensor::from_vec(shape, values).unwrap());
        }
        let facts = facts(&graph);
        assert!(!facts.weights_are_random);
        assert_eq!(facts.weights, format!("from {}", path.display()));
    }

    #[test]
    fn a_file_that_only_its_compiler_reads_has_no_known_parameters() {
        let random = ModelFacts { weights_are_random: true, parameters: Some(5), ..ModelFacts::default() };
        let facts = opaque_facts(None, Path::new("foo"), Some(&random));
        assert_eq!(facts.parameters, None);
        assert!(facts.weights_are_random, "random weights in validation are assumed in inference");
        let real = ModelFacts { weights_are_random: false, ..random };
        assert!(!opaque_facts(None, Path::new("foo"), Some(&real)).weights_are_random);
    }
}
