//! What a phase builds before it measures: models, sessions, and what is known of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf_onnx::{Graph, Model};
use indexmap::IndexMap;

use super::phase::failure;
use crate::engine::{self, Artifact, Engine, EngineError, LentMemory, Options, Session};
use crate::event::{DatasetFacts, EngineFacts, Event, Failure, ModelFacts, SidecarFacts};
use crate::hash::hash_file;
use crate::monitor::{self, DeviceFacts};
use crate::plan::{EngineChoice, Job, Settings};
use crate::tensor::DType;
use crate::units::{Bytes, Seconds};

pub use crate::script::Sessions;

/// The graphs as both sides run them: in half precision when the settings say so.
///
/// # Errors
/// When a graph cannot be in half precision.
pub fn prepare(
    model: Model,
    settings: &Settings,
    config: &IndexMap<String, serde_json::Value>,
) -> Result<Model, Failure> {
    if !settings.fp16 {
        return Ok(model);
    }
    let listed = config.get("keep_f32").and_then(|v| v.as_array());
    let keep: Vec<String> = listed.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    let hint = "`keep_f32` in the case's parameters.yaml lists layers that stay in f32";
    let half = |graph| flagperf_onnx::to_f16(graph, &keep).map_err(|e| failure(&e, hint));
    let graphs = model.graphs.iter().map(|(name, graph)| Ok((name.clone(), half(graph)?)));
    Ok(Model { graphs: graphs.collect::<Result<_, Failure>>()? })
}

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
        facts.weights_sha256 = Some(sha256(&data_dir.join(file))?);
    }
    Ok(facts)
}

/// What the model in an ONNX file is; what validation knew of its weights carries over.
///
/// # Errors
/// When the file cannot be read.
pub fn file_facts(path: &Path, validated: Option<&ModelFacts>) -> Result<ModelFacts, Failure> {
    let mut graphs = Vec::new();
    for (_, file) in graph_files(path)? {
        let hint = "was the file cut short? `exist_onnx_path: null` exports a new one";
        graphs.push(flagperf_onnx::read_onnx(&file).map_err(|e| failure(&e, hint))?);
    }
    let mut facts = graphs_facts(graphs.iter());
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

/// Loads every graph of a model into the job's framework.
///
/// # Errors
/// When the engine does.
pub fn load_model(model: &Model, job: &Job) -> Result<Sessions, Failure> {
    load_each(job, model.graphs.iter().map(|(name, graph)| (name.clone(), Artifact::Graph(graph))))
}

/// Compiles every ONNX file of a model with the job's compiler.
///
/// # Errors
/// When a file is missing or the compiler fails.
pub fn compile(path: &Path, job: &Job) -> Result<Sessions, Failure> {
    let files = graph_files(path)?;
    load_each(job, files.iter().map(|(name, file)| (name.clone(), Artifact::Onnx(file))))
}

/// Has the job's compiler make its own model: it opens no ONNX file.
///
/// # Errors
/// When the compiler fails.
pub fn compile_placeholder(path: &Path, job: &Job) -> Result<Sessions, Failure> {
    load_each(job, [(Model::SINGLE.to_owned(), Artifact::Onnx(path))].into_iter())
}

/// What is known of a model that only its compiler knows.
pub fn placeholder_facts(path: &Path) -> ModelFacts {
    ModelFacts { weights: format!("the compiler's own (`{}` is a placeholder)", path.display()), ..Default::default() }
}

/// Loads what the job's compiler made earlier.
///
/// # Errors
/// When a file is missing or the engine does not take it.
pub fn load_compiled(path: &Path, job: &Job) -> Result<Sessions, Failure> {
    let files = graph_files(path)?;
    load_each(job, files.iter().map(|(name, file)| (name.clone(), Artifact::Compiled(file))))
}

fn load_each<'m>(job: &Job, artifacts: impl Iterator<Item = (String, Artifact<'m>)>) -> Result<Sessions, Failure> {
    let engine = engine::find(&job.engine.engine).map_err(|e| failure(&e, ""))?;
    let options = Options {
        folder: job.engine.folder.clone(),
        library: job.engine.library.clone(),
        scratch: job.scratch(),
        command: job.engine.command.clone(),
        threads: job.engine.threads as usize,
        batch_size: job.settings.batch_size as usize,
        precision: precision(&job.settings),
        extra: job.engine.options.clone(),
        config: vendor_config(job),
    };
    artifacts
        .map(|(name, artifact)| {
            let session = engine.load(artifact, &options).map_err(|error| match &error {
                EngineError::Unavailable(_) => failure(&format!("engine `{}`: {error}", engine.name()), error.hint()),
                _ => failure(&error.at_batch(options.batch_size), error.hint()),
            })?;
            check_version(&job.engine, &version(engine, session.as_ref()))?;
            Ok((name, Arc::new(Mutex::new(session))))
        })
        .collect()
}

/// What a vendor's code sees as `config`, under FlagPerf's keys: what the scripts see, and the folders.
fn vendor_config(job: &Job) -> IndexMap<String, serde_json::Value> {
    let root = job.scripts.ancestors().nth(2).unwrap_or(Path::new(""));
    let folders = [("perf_dir", root), ("data_dir", &job.data_dir), ("log_dir", &job.log_dir)];
    let folders = folders.map(|(key, folder)| (key.to_owned(), folder.to_string_lossy().into()));
    job.config.clone().into_iter().chain(folders).collect()
}

/// The floating-point type that the settings ask for.
pub fn precision(settings: &Settings) -> DType {
    if settings.fp16 { DType::F16 } else { DType::F32 }
}

/// The files of a model by graph: `path` itself, or with several graphs `<stem>_<graph>.<extension>` beside it.
fn graph_files(path: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    if path.is_file() {
        return Ok(vec![(Model::SINGLE.to_owned(), path.to_owned())]);
    }
    let missing = || failure(&format!("no model file `{}`", path.display()), "relative paths count from FLAGPERF_PATH");
    let stem = path.file_stem().and_then(|s| s.to_str()).ok_or_else(missing)?;
    let folder = path.parent().ok_or_else(missing)?;
    let mut files: Vec<(String, PathBuf)> = std::fs::read_dir(folder)
        .map_err(|_| missing())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension() == path.extension())
        .filter_map(|file| Some((file.file_stem()?.to_str()?.strip_prefix(stem)?.strip_prefix('_')?.to_owned(), file)))
        .collect();
    files.sort();
    if files.is_empty() { Err(missing()) } else { Ok(files) }
}

/// The version of what was loaded: its own where the vendor brings it, else that of the engine's row.
fn version(engine: &dyn Engine, session: &dyn Session) -> String {
    let own = session.plugin().map(|plugin| plugin.version).or(session.sidecar().map(|sidecar| sidecar.version));
    own.unwrap_or_else(|| engine.check().unwrap_or_default())
}

/// Refuses what is not of the version that the name of a framework asks for: `2.11` is that of `2.11.0`.
fn check_version(choice: &EngineChoice, found: &str) -> Result<(), Failure> {
    let Some(asked) = &choice.version else { return Ok(()) };
    let rest = found.strip_prefix(asked.as_str());
    if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
        return Ok(());
    }
    let reason = format!("framework `{}` asks for version `{asked}`, the library found is `{found}`", choice.name);
    Err(failure(&reason, "name the version found in `CASES`, or none, or install the one asked for"))
}

/// What the vendor's monitor knows of a device.
pub fn monitored(job: &Job, device: &str) -> Option<DeviceFacts> {
    monitor::find(job.monitor.as_deref()?)?.device(device)
}

/// What was loaded.
pub fn engine_facts(job: &Job, sessions: &Sessions, load_s: Seconds) -> EngineFacts {
    let first = sessions.values().next().and_then(|s| s.lock().ok());
    let plugin = first.as_ref().and_then(|s| s.plugin());
    let sidecar = first.as_ref().and_then(|s| s.sidecar());
    let nodes_by_provider = first.as_ref().map(|s| s.nodes_by_provider()).unwrap_or_default();
    let engine = engine::find(&job.engine.engine).ok();
    let device = first.as_ref().map(|s| s.device()).unwrap_or_default();
    EngineFacts {
        name: job.engine.engine.clone(),
        version: engine.zip(first.as_ref()).map(|(engine, s)| version(engine, s.as_ref())).unwrap_or_default(),
        driver: first.as_ref().and_then(|s| s.driver()).or_else(|| monitored(job, &device)?.driver),
        device,
        precision: precision(&job.settings).to_string(),
        threads: first.map_or(0, |s| u32::try_from(s.threads()).unwrap_or(u32::MAX)),
        options: job.engine.options.clone(),
        load_s,
        nodes_by_provider,
        plugin,
        sidecar,
    }
}

/// What is known of the sidecar: of several, each with a graph of the model, the first with what all of them showed.
pub fn sidecar_facts(sessions: &Sessions) -> Option<SidecarFacts> {
    let several = sessions.len() > 1;
    let facts = sessions.iter().filter_map(|(graph, session)| Some((graph, session.lock().ok()?.sidecar()?)));
    let named = facts.map(|(graph, mut facts)| {
        if several {
            let outputs = std::mem::take(&mut facts.reshaped_outputs).into_iter();
            facts.reshaped_outputs = outputs.map(|(name, output)| (format!("{graph}.{name}"), output)).collect();
        }
        facts
    });
    named.reduce(|mut all, facts| {
        all.reshaped_outputs.extend(facts.reshaped_outputs);
        all.third_value = all.third_value.or(facts.third_value);
        all
    })
}

/// Memory for an input field, from the session that has an input of its name, or from the only session by position.
pub fn lend(
    sessions: &Sessions,
    field: &str,
    position: Option<usize>,
    bytes: usize,
) -> Option<Result<Box<dyn LentMemory>, EngineError>> {
    let position = position?;
    for session in sessions.values() {
        let mut session = session.lock().ok()?;
        if let Some(index) = session.inputs().iter().position(|input| input.name == field) {
            return Some(session.lend(index, bytes));
        }
    }
    let mut only = if sessions.len() == 1 { sessions.values().next()?.lock().ok()? } else { return None };
    (position < only.inputs().len()).then(|| only.lend(position, bytes))
}

/// Writes every graph of a model; `path` names the only one, or the stem of several.
///
/// # Errors
/// When a file cannot be written.
pub fn write(model: &Model, path: &Path) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    for (name, graph) in &model.graphs {
        let file = match model.graphs.len() {
            1 => path.to_owned(),
            _ => path.with_file_name(format!("{}_{name}.onnx", path.file_stem().unwrap_or_default().display())),
        };
        let hint = "is the disk full, or the folder not writable?";
        for written in flagperf_onnx::write_onnx(graph, &file).map_err(|e| failure(&e, hint))? {
            events.push(Event::Wrote {
                what: "onnx".to_owned(),
                size_bytes: Bytes(std::fs::metadata(&written).map_or(0, |m| m.len())),
                sha256: sha256(&written)?,
                path: written.display().to_string(),
            });
        }
    }
    Ok(events)
}

/// The SHA-256 of a file, hexadecimal.
fn sha256(path: &Path) -> Result<String, Failure> {
    hash_file(path).map_err(|e| failure(&format!("`{}`: {e}", path.display()), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_several_graphs_is_found_by_its_stem() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sd_unet.onnx", "sd_text.onnx", "other.onnx", "sd_unet.data"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let names: Vec<String> =
            graph_files(&folder.path().join("sd.onnx")).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["text", "unet"]);
        assert!(graph_files(&folder.path().join("none.onnx")).unwrap_err().reason.contains("none.onnx"));
    }

    #[test]
    fn random_weights_and_synthetic_data_have_no_accuracy() {
        let random = ModelFacts { weights_are_random: true, ..ModelFacts::default() };
        let drawn = DatasetFacts { synthetic: true, ..DatasetFacts::default() };
        assert_eq!(accuracy_unknown(&random, &DatasetFacts::default()).unwrap(), "the weights are random");
        assert_eq!(accuracy_unknown(&ModelFacts::default(), &drawn).unwrap(), "the dataset is synthetic");
        assert_eq!(accuracy_unknown(&ModelFacts::default(), &DatasetFacts::default()), None);
    }

    #[test]
    fn a_version_in_the_name_is_that_of_the_library_or_an_error() {
        let choice = |asked: &str| EngineChoice {
            name: format!("pytorch_{asked}"),
            version: Some(asked.to_owned()),
            ..EngineChoice::default()
        };
        for asked in ["2", "2.11", "2.11.0"] {
            check_version(&choice(asked), "2.11.0").unwrap();
        }
        check_version(&EngineChoice::default(), "2.11.0").unwrap();
        for asked in ["2.1", "1.13", "2.11.0.1"] {
            let error = check_version(&choice(asked), "2.11.0").unwrap_err().reason;
            let expected =
                format!("framework `pytorch_{asked}` asks for version `{asked}`, the library found is `2.11.0`");
            assert_eq!(error, expected);
        }
    }
}
