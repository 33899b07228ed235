//! Converts models to the precision of the case and loads them into the engine of the job.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use flagperf_onnx::Model;
use indexmap::IndexMap;

use super::model_files::ModelFiles;
use super::phase::failure;
use flagperf_core::description::Delivery;
use flagperf_core::event::Failure;
use flagperf_core::measure::Clock;
use flagperf_engine::{Artifact, EngineError, LoadOptions, loaded_version};
use flagperf_plan::{CaseSettings, DATA_KEYS, EngineChoice, Job, ModelInput, VERSION_HINT};
use flagperf_script::Sessions;

/// Converts the graphs to the precision of the case, for framework and compiler alike.
///
/// # Errors
/// When a graph cannot be converted.
pub fn convert_precision(model: Model, settings: &CaseSettings, keep_f32: &[String]) -> Result<Model, Failure> {
    let hint = "`keep_f32` in the case's parameters.yaml lists layers that stay in fp32";
    flagperf_onnx::to_precision(model, settings.precision, keep_f32).map_err(|e| failure(&e, hint))
}

/// Loads every graph of a model into the job's framework.
///
/// # Errors
/// When the engine cannot load a graph.
pub fn load_model(model: &Model, job: &Job) -> Result<Sessions, Failure> {
    load_profiled_model(model, job, None)
}

/// Loads every graph of a model into the job's framework, which keeps the times of operators if `profile` is its clock.
///
/// # Errors
/// As [`load_model`].
pub fn load_profiled_model(model: &Model, job: &Job, profile: Option<Arc<dyn Clock>>) -> Result<Sessions, Failure> {
    load_artifacts(job, profile, model.graphs.iter().map(|(name, graph)| (name.clone(), Artifact::Graph(graph))))
}

/// Loads what inference runs into the job's compiler: `files`, or the compiler's own model when the input is a
/// placeholder.
///
/// # Errors
/// When the compiler fails, or a file changed while it was read.
pub fn load_model_input(input: &ModelInput, files: Option<&ModelFiles>, job: &Job) -> Result<Sessions, Failure> {
    load_profiled_input(input, files, job, None)
}

/// Loads what inference runs, as [`load_model_input`] does, into a compiler that keeps the times of operators if `profile` is its
/// clock.
///
/// # Errors
/// As [`load_model_input`].
pub fn load_profiled_input(
    input: &ModelInput,
    files: Option<&ModelFiles>,
    job: &Job,
    profile: Option<Arc<dyn Clock>>,
) -> Result<Sessions, Failure> {
    let (ModelInput::Exported(path)
    | ModelInput::Onnx(path)
    | ModelInput::Placeholder(path)
    | ModelInput::Compiled(path)) = input;
    let Some(files) = files else {
        return load_artifacts(job, profile, [(Model::SINGLE.to_owned(), Artifact::Onnx(path))].into_iter());
    };
    let artifact = |file| match input {
        ModelInput::Compiled(_) => Artifact::Compiled(file),
        _ => Artifact::Onnx(file),
    };
    let artifacts = files.entry_files().map(|(name, file)| (name.to_owned(), artifact(file)));
    let sessions = load_artifacts(job, profile, artifacts)?;
    files.check_paths().map(|()| sessions)
}

/// Returns whether the engine of a job computes the gradients of a training step itself.
///
/// # Errors
/// When the engine is unknown, or its library cannot be opened.
pub fn differentiates(job: &Job) -> Result<bool, Failure> {
    let engine = flagperf_engine::find(&job.engine.engine).map_err(|e| failure(&e, ""))?;
    engine.differentiates(&load_options(job)).map_err(|error| failure(&error, error.hint()))
}

/// Returns whether the engine of a job describes an option of this name.
///
/// # Errors
/// As [`differentiates`].
pub fn has_option(job: &Job, name: &str) -> Result<bool, Failure> {
    let engine = flagperf_engine::find(&job.engine.engine).map_err(|e| failure(&e, ""))?;
    engine.has_option(name, &load_options(job)).map_err(|error| failure(&error, error.hint()))
}

/// Returns where the code of the engine of a job comes from; `None` for an engine that is not in the table.
pub fn delivery(job: &Job) -> Option<Delivery> {
    flagperf_engine::find(&job.engine.engine).ok().map(|engine| engine.description().delivery)
}

fn load_options(job: &Job) -> LoadOptions {
    LoadOptions {
        folder: job.engine.folder.clone(),
        library: job.engine.library.clone(),
        scratch: job.scratch(),
        command: job.engine.command.clone(),
        threads: threads(job),
        batch_size: job.settings.batch_size as usize,
        precision: job.value_precision().dtype(),
        extra: job.engine.options.clone(),
        config: vendor_config(job),
        profile: None,
    }
}

/// Returns the threads of an engine; 0 leaves their number to it. Processes that train together divide the processors of their host:
/// each would otherwise take all, and wait for the others most of the time.
fn threads(job: &Job) -> usize {
    let sharing = job.process_group.as_ref().map_or(1, |group| group.local_size as usize);
    match job.engine.threads as usize {
        0 if sharing > 1 => (thread::available_parallelism().map_or(1, usize::from) / sharing).max(1),
        threads => threads,
    }
}

fn load_artifacts<'m>(
    job: &Job,
    profile: Option<Arc<dyn Clock>>,
    artifacts: impl Iterator<Item = (String, Artifact<'m>)>,
) -> Result<Sessions, Failure> {
    let engine = flagperf_engine::find(&job.engine.engine).map_err(|e| failure(&e, ""))?;
    let options = LoadOptions { profile, ..load_options(job) };
    artifacts
        .map(|(name, artifact)| {
            let session = engine.load(artifact, &options).map_err(|error| match &error {
                EngineError::Unavailable(_) => failure(&format!("engine `{}`: {error}", engine.name()), error.hint()),
                _ => failure(&error.with_batch_size(options.batch_size), error.hint()),
            })?;
            check_version(&job.engine, &loaded_version(engine, &session.facts()))?;
            Ok((name, Arc::new(Mutex::new(session))))
        })
        .collect()
}

/// Returns the `config` that is passed to a vendor's code, under FlagPerf's keys: the scripts' `config` and the folders of
/// the checkout and of the logs. It contains no path of the data: the truth is in its folder.
fn vendor_config(job: &Job) -> IndexMap<String, serde_json::Value> {
    let root = job.scripts.ancestors().nth(2).unwrap_or(Path::new(""));
    let folders = [("perf_dir", root), ("log_dir", &job.log_dir)];
    let folders = folders.map(|(key, folder)| (key.to_owned(), folder.to_string_lossy().into()));
    let config = job.config.clone().into_iter().filter(|(key, _)| !DATA_KEYS.contains(&key.as_str()));
    config.chain(folders).collect()
}

/// Checks the found version against the version in a framework's name.
fn check_version(choice: &EngineChoice, found: &str) -> Result<(), Failure> {
    let Some(required) = choice.version_mismatch(found) else { return Ok(()) };
    let reason = format!("framework `{}` requires version `{required}` (found: `{found}`)", choice.name);
    Err(failure(&reason, VERSION_HINT))
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
