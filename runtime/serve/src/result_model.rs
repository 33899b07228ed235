//! The model of a result, as it was measured: engine, options, precision and batch size are those of the record.

use std::path::{Path, PathBuf};

use flagperf_config::{ServedModel, ServedModelPlaces, Vendor};
use flagperf_core::event::{EngineFacts, FileFacts};
use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::{MANIFEST_FILE, RECORD_FILE};
use flagperf_core::step::Phase;
use flagperf_core::tensor::TensorSpec;
use flagperf_result::{MANIFEST_BYTES_MAX, PhaseRecord, RECORD_BYTES_MAX, Record, ResultManifest, digest};
use flagperf_verify::find_results;

use super::decoder::{ATTENTION_MASK, FIRST};
use super::generation::TextSource;
use super::model_source::{MeasuredRecord, ModelSource};
use flagperf_engine::EngineSource;

/// Why the model of a result cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {reason}", path.display())]
pub struct ResultModelError {
    path: PathBuf,
    reason: String,
}

/// The graph of a language model that returns scores; another one chooses the tokens.
const DECODER: &str = "decoder";
/// The setting of a case that generates text: the most tokens of a prompt that a run reads.
const PROMPT_LENGTH: &str = "prompt_length";

/// Reads the model that a result measured. `root` is the checkout, whose vendor brings plug-ins and sidecars. `tokenizer` is that
/// of a language model; without it, the one that the case has read.
///
/// # Errors
/// When there is not one result, it has no manifest, inference of one graph was not measured, or the ONNX file is not the one
/// that was measured.
pub fn read_result_model(
    result: &Path,
    root: Option<&Path>,
    tokenizer: Option<&Path>,
) -> Result<ModelSource, ResultModelError> {
    let failed = |path: &Path, reason: String| ResultModelError { path: path.to_owned(), reason };
    let found = find_results(result).map_err(|error| failed(result, error.to_string()))?;
    let [folder] = &found[..] else {
        let reason = format!("it has {} results: give the folder of one", found.len());
        return Err(failed(result, reason));
    };
    let read = |name: &str, bytes_max| {
        let path = folder.join(name);
        read_regular(&path, bytes_max).map_err(|error| failed(&path, error.to_string()))
    };
    let (manifest, record) = (read(MANIFEST_FILE, MANIFEST_BYTES_MAX)?, read(RECORD_FILE, RECORD_BYTES_MAX)?);
    check_record(&manifest, &record).map_err(|reason| failed(folder, reason))?;
    let record: Record = serde_json::from_slice(&record)
        .map_err(|error| failed(&folder.join(RECORD_FILE), format!("it is not a record of this version: {error}")))?;
    source_of(&record, folder, digest(&manifest), root, tokenizer).map_err(|reason| failed(folder, reason))
}

/// Checks that a record is the one that its manifest lists, so that the digest stands for it.
fn check_record(manifest: &[u8], record: &[u8]) -> Result<(), String> {
    let manifest = ResultManifest::parse(manifest).map_err(|fault| fault.to_string())?;
    match manifest.entry(RECORD_FILE) {
        Some(entry) if entry.sha256 == hash_bytes(record) => Ok(()),
        _ => Err(format!("`{RECORD_FILE}` is not the file that `{MANIFEST_FILE}` lists: see `flagperf verify`")),
    }
}

fn source_of(
    record: &Record,
    folder: &Path,
    digest: String,
    root: Option<&Path>,
    tokenizer: Option<&Path>,
) -> Result<ModelSource, String> {
    let phase = record.phases.iter().find(|phase| phase.phase == Phase::Infer);
    let phase = phase.ok_or("its record has no inference: `serve` runs the compiler that was measured")?;
    let engine = phase.engine.as_ref().ok_or("its record says that no compiler was loaded")?;
    let tokenizer = tokenizer.map(Path::to_owned).or_else(|| measured_tokenizer(phase));
    let files = measured_files(phase, tokenizer.is_some())?;
    let file = find_file(&files[0], record, folder);
    check_hashes(&file, files)?;
    let mut settings = settings_of(record, engine)?;
    if !has_open_batch(phase) {
        settings.max_batch_size = 0;
    }
    let text = tokenizer.map(|tokenizer| text_source(tokenizer, record, &mut settings));
    let source = engine_source(record, engine, root)?;
    let files_sha256 = files.iter().map(|facts| (file_name(&facts.path), facts.sha256.clone())).collect();
    Ok(ModelSource {
        name: record.case.clone(),
        version: 1,
        settings,
        engine: source,
        file,
        labels: Vec::new(),
        text,
        record: Some(MeasuredRecord { digest, files_sha256 }),
    })
}

/// Returns the files of the only graph of a phase, or of the decoder if it `generates` text: first the ONNX file.
fn measured_files(phase: &PhaseRecord, generates: bool) -> Result<&[FileFacts], String> {
    let graphs = phase.model.as_ref().map(|model| &model.files).filter(|files| !files.is_empty());
    let graphs = graphs.ok_or("its record names no ONNX file: the compiler had a model of its own")?;
    if let Some(files) = graphs.get(DECODER).filter(|files| generates && !files.is_empty()) {
        return Ok(files);
    }
    match (graphs.len(), graphs.first()) {
        (1, Some((_, files))) if !files.is_empty() => Ok(files),
        _ => Err(format!("its model has {} graphs, which the scripts of its case join", graphs.len())),
    }
}

/// Returns the tokenizer that a case with a decoder has read, if it is still there.
fn measured_tokenizer(phase: &PhaseRecord) -> Option<PathBuf> {
    let inputs = &phase.model.as_ref()?.inputs;
    let is_decoder = inputs.contains_key(FIRST) && inputs.contains_key(ATTENTION_MASK);
    let dataset = phase.dataset.as_ref().filter(|_| is_decoder)?;
    let name = dataset.pipeline.iter().find_map(|text| {
        let (_, rest) = text.split_once("tokenizer Json(\"")?;
        Some(rest.split_once("\")")?.0)
    })?;
    let tokenizer = Path::new(&dataset.location).parent()?.join(name);
    tokenizer.exists().then_some(tokenizer)
}

/// Returns the further files of a language model. A run reads no more tokens of a prompt than the engine was measured with.
fn text_source(tokenizer: PathBuf, record: &Record, settings: &mut ServedModel) -> TextSource {
    let length = record.settings.get(PROMPT_LENGTH).and_then(|setting| setting.value.as_u64());
    if let Some(length) = length.and_then(|length| u32::try_from(length).ok()) {
        settings.prompt_chunk = settings.prompt_chunk.min(length.max(1));
    }
    TextSource::of_tokenizer(tokenizer, settings)
}

/// Returns whether the first dimension of every input and output admits any number of rows.
fn has_open_batch(phase: &PhaseRecord) -> bool {
    let model = phase.model.as_ref();
    let mut specs = model.into_iter().flat_map(|model| model.inputs.values().chain(model.outputs.values()));
    specs.all(|spec| {
        let spec: Option<TensorSpec> = spec.parse().ok();
        spec.and_then(|spec| Some(spec.dims.first()?.fixed().is_none())).unwrap_or(false)
    })
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns where the ONNX file lies: at its path, or beside the record if the result was moved.
fn find_file(facts: &FileFacts, record: &Record, folder: &Path) -> PathBuf {
    let stated = PathBuf::from(&facts.path);
    if stated.exists() {
        return stated;
    }
    let below = facts.path.rsplit_once(&format!("/{}/", record.run)).map(|(_, below)| below);
    let moved = below.and_then(|below| Some(folder.join(below.splitn(3, '/').nth(2)?)));
    moved.filter(|moved| moved.exists()).unwrap_or(stated)
}

/// Checks that the files are those that were measured.
fn check_hashes(file: &Path, measured: &[FileFacts]) -> Result<(), String> {
    for facts in measured {
        let path = file.with_file_name(file_name(&facts.path));
        let hash = hash_file(&path).map_err(|error| {
            format!("`{}`, which the record names, cannot be read: {error}; a new run exports it again", path.display())
        })?;
        if hash != facts.sha256 {
            let (path, measured) = (path.display(), &facts.sha256);
            return Err(format!(
                "`{path}` is not the file that was measured: its SHA-256 is `{hash}` instead of `{measured}`; a new run \
                 exports and measures it again"
            ));
        }
    }
    Ok(())
}

/// Returns the settings of a model as it was measured.
fn settings_of(record: &Record, engine: &EngineFacts) -> Result<ServedModel, String> {
    let setting = |key: &str| record.settings.get(key).map(|setting| &setting.value);
    let batch_size = setting("batch_size").and_then(serde_json::Value::as_u64);
    let batch_size = batch_size.and_then(|size| u32::try_from(size).ok());
    let precision = setting("precision").cloned().map(serde_json::from_value).transpose();
    // A folder without model.yaml: every key has its default.
    let defaults = ServedModel::read(Path::new("/nonexistent"), Path::new("/")).map_err(|error| error.to_string())?;
    Ok(ServedModel {
        compiler: engine.name.clone(),
        threads: engine.threads,
        precision: precision.ok().flatten().ok_or("its record names no known `precision`")?,
        max_batch_size: batch_size.ok_or("its record names no `batch_size`")?,
        ..defaults
    })
}

/// Returns the engine that was measured. A plug-in or a sidecar is that of the vendor in the checkout.
fn engine_source(record: &Record, engine: &EngineFacts, root: Option<&Path>) -> Result<EngineSource, String> {
    if engine.server.is_some() {
        return Err(format!("engine `{}` is a server, which serves its model itself", engine.name));
    }
    let own = EngineSource {
        engine: engine.name.clone(),
        threads: engine.threads,
        options: engine.options.clone(),
        ..EngineSource::default()
    };
    if engine.plugin.is_none() && engine.sidecar.is_none() {
        return Ok(own);
    }
    let root = root.ok_or("its engine is that of a vendor: change to a checkout of flagperf")?;
    let vendor = Vendor::read(root, &record.vendor).map_err(|error| error.to_string())?;
    let name = record.settings.get("compiler").and_then(|setting| setting.value.as_str()).unwrap_or_default();
    let table = super::model_source::EngineTable::of_vendor(root, &vendor.name).map_err(|error| error.to_string())?;
    let settings =
        ServedModel { compiler: name.to_owned(), options: engine.options.clone(), ..settings_of(record, engine)? };
    table.resolve(&ServedModelPlaces::in_file(RECORD_FILE), &settings).map_err(|error| error.to_string())
}
