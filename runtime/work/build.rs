//! Builds the sessions of a phase before it measures, and describes the engine that was loaded.

use std::path::Path;
use std::sync::{Arc, Mutex};

use flagperf_onnx::Model;
use indexmap::IndexMap;

use super::model_files::ModelFiles;
use super::phase::failure;
use crate::engine::{self, Artifact, Engine, EngineError, LentMemory, LoadOptions, Session};
use crate::event::{EngineFacts, Failure, SidecarFacts};
use crate::monitor::{self, DeviceFacts};
use crate::plan::{CaseSettings, EngineChoice, Job, ModelInput};
use crate::units::Seconds;

pub use crate::script::Sessions;

/// Converts the graphs to fp16 when the settings require it, for framework and compiler alike.
///
/// # Errors
/// When a graph cannot be converted.
pub fn convert_precision(model: Model, settings: &CaseSettings, keep_f32: &[String]) -> Result<Model, Failure> {
    if !settings.fp16 {
        return Ok(model);
    }
    let hint = "`keep_f32` in the case's parameters.yaml lists layers that stay in fp32";
    let convert = |graph| flagperf_onnx::to_f16(graph, keep_f32).map_err(|e| failure(&e, hint));
    let graphs = model.graphs.iter().map(|(name, graph)| Ok((name.clone(), convert(graph)?)));
    Ok(Model { graphs: graphs.collect::<Result<_, Failure>>()? })
}

/// Loads every graph of a model into the job's framework.
///
/// # Errors
/// When the engine cannot load a graph.
pub fn load_model(model: &Model, job: &Job) -> Result<Sessions, Failure> {
    load_artifacts(job, model.graphs.iter().map(|(name, graph)| (name.clone(), Artifact::Graph(graph))))
}

/// Loads what inference runs into the job's compiler: `files`, or the compiler's own model when the input is a
/// placeholder.
///
/// # Errors
/// When the compiler fails, or a file changed while it was read.
pub fn load_model_input(input: &ModelInput, files: Option<&ModelFiles>, job: &Job) -> Result<Sessions, Failure> {
    let (ModelInput::Exported(path)
    | ModelInput::Onnx(path)
    | ModelInput::Placeholder(path)
    | ModelInput::Compiled(path)) = input;
    let Some(files) = files else {
        return load_artifacts(job, [(Model::SINGLE.to_owned(), Artifact::Onnx(path))].into_iter());
    };
    let artifact = |file| match input {
        ModelInput::Compiled(_) => Artifact::Compiled(file),
        _ => Artifact::Onnx(file),
    };
    let sessions = load_artifacts(job, files.entry_files().map(|(name, file)| (name.to_owned(), artifact(file))))?;
    files.check_paths().map(|()| sessions)
}

fn load_artifacts<'m>(job: &Job, artifacts: impl Iterator<Item = (String, Artifact<'m>)>) -> Result<Sessions, Failure> {
    let engine = engine::find(&job.engine.engine).map_err(|e| failure(&e, ""))?;
    let options = LoadOptions {
        folder: job.engine.folder.clone(),
        library: job.engine.library.clone(),
        scratch: job.scratch(),
        command: job.engine.command.clone(),
        threads: job.engine.threads as usize,
        batch_size: job.settings.batch_size as usize,
        precision: job.settings.precision(),
        extra: job.engine.options.clone(),
        config: vendor_config(job),
    };
    artifacts
        .map(|(name, artifact)| {
            let session = engine.load(artifact, &options).map_err(|error| match &error {
                EngineError::Unavailable(_) => failure(&format!("engine `{}`: {error}", engine.name()), error.hint()),
                _ => failure(&error.with_batch_size(options.batch_size), error.hint()),
            })?;
            check_version(&job.engine, &loaded_version(engine, session.as_ref()))?;
            Ok((name, Arc::new(Mutex::new(session))))
        })
        .collect()
}

/// Returns the `config` that is passed to a vendor's code, under FlagPerf's keys: the scripts' `config` and the
/// folders.
fn vendor_config(job: &Job) -> IndexMap<String, serde_json::Value> {
    let root = job.scripts.ancestors().nth(2).unwrap_or(Path::new(""));
    let folders = [("perf_dir", root), ("data_dir", &job.data_dir), ("log_dir", &job.log_dir)];
    let folders = folders.map(|(key, folder)| (key.to_owned(), folder.to_string_lossy().into()));
    job.config.clone().into_iter().chain(folders).collect()
}

/// Returns the version of the loaded engine: that of the plug-in or the sidecar if there is one, otherwise that of the
/// engine's library.
fn loaded_version(engine: &dyn Engine, session: &dyn Session) -> String {
    let own = session.plugin().map(|plugin| plugin.version).or(session.sidecar().map(|sidecar| sidecar.version));
    own.unwrap_or_else(|| engine.check().unwrap_or_default())
}

/// Checks the found version against the version in a framework's name: `2.11` matches `2.11.0`.
fn check_version(choice: &EngineChoice, found: &str) -> Result<(), Failure> {
    let Some(required) = &choice.version else { return Ok(()) };
    let rest = found.strip_prefix(required.as_str());
    if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
        return Ok(());
    }
    let reason = format!("framework `{}` requires version `{required}` (found: `{found}`)", choice.name);
    Err(failure(&reason, "in `CASES`, name the found version or none, or install the required version"))
}

/// Returns what the vendor's monitor reports about a device.
fn monitored_device(job: &Job, device: &str) -> Option<DeviceFacts> {
    monitor::find(job.monitor.as_deref()?)?.device(device)
}

/// Returns the properties of the loaded engine.
pub fn engine_facts(job: &Job, sessions: &Sessions, load_s: Seconds) -> EngineFacts {
    let first = sessions.values().next().and_then(|s| s.lock().ok());
    let plugin = first.as_ref().and_then(|s| s.plugin());
    let sidecar = first.as_ref().and_then(|s| s.sidecar());
    let nodes_by_provider = first.as_ref().map(|s| s.nodes_by_provider()).unwrap_or_default();
    let engine = engine::find(&job.engine.engine).ok();
    let device = first.as_ref().map(|s| s.device()).unwrap_or_default();
    let known = monitored_device(job, &device);
    EngineFacts {
        name: job.engine.engine.clone(),
        version: engine.zip(first.as_ref()).map(|(engine, s)| loaded_version(engine, s.as_ref())).unwrap_or_default(),
        driver: first.as_ref().and_then(|s| s.driver()).or_else(|| known.as_ref()?.driver.clone()),
        device_id: known.and_then(|known| known.id),
        device,
        precision: job.settings.precision().to_string(),
        threads: first.map_or(0, |s| u32::try_from(s.threads()).unwrap_or(u32::MAX)),
        options: job.engine.options.clone(),
        load_s,
        nodes_by_provider,
        plugin,
        sidecar,
    }
}

/// Returns the properties of the sidecar. When several sidecars run one graph of the model each, returns those of the
/// first with the reshaped outputs of all, under `<graph>.<output>`.
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

/// Lends memory for an input field, from the session that has an input of the field's name, or from the only session by
/// position. Returns `None` when no session has such an input.
pub fn lend_input(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_version_than_the_framework_name_requires_is_an_error() {
        let choice = |required: &str| EngineChoice {
            name: format!("pytorch_{required}"),
            version: Some(required.to_owned()),
            ..EngineChoice::default()
        };
        for required in ["2", "2.11", "2.11.0"] {
            check_version(&choice(required), "2.11.0").unwrap();
        }
        check_version(&EngineChoice::default(), "2.11.0").unwrap();
        for required in ["2.1", "1.13", "2.11.0.1"] {
            let error = check_version(&choice(required), "2.11.0").unwrap_err().reason;
            let expected = format!("framework `pytorch_{required}` requires version `{required}` (found: `2.11.0`)");
            assert_eq!(error, expected);
        }
    }
}
