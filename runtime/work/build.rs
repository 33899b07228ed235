//! What a phase builds before it measures: models and sessions, and what is known of the engine.

use std::path::Path;
use std::sync::{Arc, Mutex};

use flagperf_onnx::Model;
use indexmap::IndexMap;

use super::model_files::ModelFiles;
use super::phase::failure;
use crate::engine::{self, Artifact, Engine, EngineError, LentMemory, Options, Session};
use crate::event::{EngineFacts, Failure, SidecarFacts};
use crate::monitor::{self, DeviceFacts};
use crate::plan::{EngineChoice, Job, ModelInput, Settings};
use crate::units::Seconds;

pub use crate::script::Sessions;

/// The graphs as both sides run them: in half precision when the settings say so.
///
/// # Errors
/// When a graph cannot be in half precision.
pub fn prepare(model: Model, settings: &Settings, keep_f32: &[String]) -> Result<Model, Failure> {
    if !settings.fp16 {
        return Ok(model);
    }
    let hint = "`keep_f32` in the case's parameters.yaml lists layers that stay in f32";
    let half = |graph| flagperf_onnx::to_f16(graph, keep_f32).map_err(|e| failure(&e, hint));
    let graphs = model.graphs.iter().map(|(name, graph)| Ok((name.clone(), half(graph)?)));
    Ok(Model { graphs: graphs.collect::<Result<_, Failure>>()? })
}

/// Loads every graph of a model into the job's framework.
///
/// # Errors
/// When the engine does.
pub fn load_model(model: &Model, job: &Job) -> Result<Sessions, Failure> {
    load_each(job, model.graphs.iter().map(|(name, graph)| (name.clone(), Artifact::Graph(graph))))
}

/// Has the job's compiler load what inference runs: `files`, or its own model where the input is a placeholder.
///
/// # Errors
/// When the compiler fails, or a file changed while it was read.
pub fn load_input(input: &ModelInput, files: Option<&ModelFiles>, job: &Job) -> Result<Sessions, Failure> {
    let (ModelInput::Exported(path)
    | ModelInput::Onnx(path)
    | ModelInput::Placeholder(path)
    | ModelInput::Compiled(path)) = input;
    let Some(files) = files else {
        return load_each(job, [(Model::SINGLE.to_owned(), Artifact::Onnx(path))].into_iter());
    };
    let artifact = |file| match input {
        ModelInput::Compiled(_) => Artifact::Compiled(file),
        _ => Artifact::Onnx(file),
    };
    let sessions = load_each(job, files.given().map(|(name, file)| (name.to_owned(), artifact(file))))?;
    files.check_paths().map(|()| sessions)
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
        precision: job.settings.precision(),
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
fn monitored(job: &Job, device: &str) -> Option<DeviceFacts> {
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
    let known = monitored(job, &device);
    EngineFacts {
        name: job.engine.engine.clone(),
        version: engine.zip(first.as_ref()).map(|(engine, s)| version(engine, s.as_ref())).unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use super::*;

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
