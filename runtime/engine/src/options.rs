//! Checking and reading the options of a load, by the engine's description.
//!
//! Knows nothing about particular engines.

use std::path::{Path, PathBuf};

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::library_file::check_library_option;
use super::{Artifact, Engine, EngineError, LoadOptions};
use flagperf_core::tensor::DType;

/// More threads than any machine has cores. A larger number is a typing error, and starting that many threads may take
/// the machine down.
const THREADS_MAX: usize = 4096;

/// Checks the options of a load: the precision, the number of threads, and each option by the engine's description.
/// Needs neither a model nor a library.
///
/// # Errors
/// [`EngineError::Precision`], or [`EngineError::Option`] for an unknown option or an invalid value.
pub fn check_options(engine: &dyn Engine, options: &LoadOptions) -> Result<(), EngineError> {
    EngineOptions::check(engine, options)?;
    engine.check_option_combinations(options)
}

/// The options of one load, checked by the engine's description. The engine's default applies to an option that is
/// `null`.
pub(super) struct EngineOptions<'a> {
    engine: &'static str,
    extra: &'a IndexMap<String, Json>,
}

impl<'a> EngineOptions<'a> {
    /// Checks the precision, the number of threads, and each option by the engine's description.
    pub(super) fn check(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        check_precision_and_threads(engine, options)?;
        let engine_options = EngineOptions { engine: engine.name(), extra: &options.extra };
        let description = engine.description();
        for (name, value) in &options.extra {
            let checked = description.check_option(name, value);
            checked.map_err(|reason| engine_options.option_error(name, reason))?;
        }
        Ok(engine_options)
    }

    /// The value of an option of kind `Number`.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.as_f64()
    }

    /// The value of an option of kind `Integer` with a lower bound of at least 0.
    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        self.value(name)?.as_u64()
    }

    /// The value of an option of kind `Boolean`.
    pub(super) fn boolean(&self, name: &str) -> Option<bool> {
        self.value(name)?.as_bool()
    }

    /// The value of an option of kind `Text` or `Choice`.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str()
    }

    /// The entries of an option of kind `Map` as texts, in order; `boolean` writes the booleans.
    pub(super) fn map(&self, name: &str, boolean: fn(bool) -> &'static str) -> IndexMap<String, String> {
        let text = |value: &Json| match value {
            Json::String(text) => text.clone(),
            Json::Bool(value) => boolean(*value).to_owned(),
            other => other.to_string(),
        };
        let entries = self.value(name).and_then(Json::as_object).into_iter().flatten();
        entries.map(|(key, value)| (key.clone(), text(value))).collect()
    }

    /// The path of a shared library in an option of kind `Text`.
    ///
    /// # Errors
    /// When the path has a slash and is not a library for this machine.
    pub(super) fn library(&self, name: &str) -> Result<Option<PathBuf>, EngineError> {
        let Some(path) = self.text(name).map(PathBuf::from) else { return Ok(None) };
        check_library_option(&path).map_err(|fault| self.option_error(name, fault.reason))?;
        Ok(Some(path))
    }

    /// The path of a folder in an option of kind `Text`, relative to `root`. The folder need not exist.
    ///
    /// # Errors
    /// When the path, or the nearest part of it that exists, is something else than a folder.
    pub(super) fn folder(&self, name: &str, root: &Path) -> Result<Option<PathBuf>, EngineError> {
        let Some(folder) = self.text(name).map(|folder| root.join(folder)) else { return Ok(None) };
        match folder.ancestors().find(|part| part.exists()) {
            Some(part) if !part.is_dir() => {
                Err(self.option_error(name, format!("`{}` exists and is not a folder", part.display())))
            }
            _ => Ok(Some(folder)),
        }
    }

    /// The value of an option that is set.
    pub(super) fn value(&self, name: &str) -> Option<&'a Json> {
        self.extra.get(name).filter(|value| !value.is_null())
    }

    /// Reads inputs or outputs from a map of names to tensor specifications.
    pub(super) fn value_infos(&self, name: &str) -> Result<Option<Vec<ValueInfo>>, EngineError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let specs: IndexMap<String, String> = serde_json::from_value(value.clone())
            .map_err(|_| self.option_error(name, format!("`{value}` is not a map of strings")))?;
        let info = |(value, spec): (String, String)| match spec.parse() {
            Ok(spec) => Ok(ValueInfo { name: value, spec }),
            Err(error) => Err(self.option_error(name, format!("`{value}`: {error}"))),
        };
        specs.into_iter().map(info).collect::<Result<_, _>>().map(Some)
    }

    /// Returns an error about an option.
    pub(super) fn option_error(&self, name: &str, reason: String) -> EngineError {
        EngineError::Option { engine: self.engine, option: name.to_owned(), reason }
    }

    /// Returns an error about the artifact.
    pub(super) fn artifact_error(&self, accepts: &'static str, given: Artifact<'_>) -> EngineError {
        EngineError::Artifact { engine: self.engine, accepts, given: describe_artifact(given) }
    }
}

/// Describes an artifact for messages.
pub(super) fn describe_artifact(artifact: Artifact<'_>) -> String {
    match artifact {
        Artifact::Graph(graph) => format!("the graph `{}`", graph.name),
        Artifact::Onnx(path) => format!("the ONNX file `{}`", path.display()),
        Artifact::Compiled(path) => format!("the compiled file `{}`", path.display()),
    }
}

/// Returns the number of threads to compute with: the requested number, or one per core that the operating system
/// allows this process to use, container limits included.
pub(super) fn thread_count(options: &LoadOptions) -> usize {
    match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        requested => requested,
    }
}

/// Rejects a floating-point type that the engine does not compute in, and more threads than `THREADS_MAX`.
pub(super) fn check_precision_and_threads(engine: &dyn Engine, options: &LoadOptions) -> Result<(), EngineError> {
    if !engine.precisions().contains(&options.precision) {
        return Err(precision_error(engine, options.precision));
    }
    if options.threads > THREADS_MAX {
        let reason = format!("`{}` exceeds the maximum of {THREADS_MAX} (0: one thread per core)", options.threads);
        return Err(EngineError::Option { engine: engine.name(), option: "threads".to_owned(), reason });
    }
    Ok(())
}

/// Returns an error about threads that the operating system refused to start, for the reason `why`.
pub(super) fn thread_start_error(engine: &'static str, threads: usize, why: &dyn std::fmt::Display) -> EngineError {
    let reason = format!("cannot start `{threads}` threads: {why} (`ulimit -u` limits processes and threads)");
    EngineError::Option { engine, option: "threads".to_owned(), reason }
}

/// Returns an error about a floating-point type that the engine does not compute in.
pub(super) fn precision_error(engine: &dyn Engine, requested: DType) -> EngineError {
    let supported = engine.precisions().iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    EngineError::Precision { engine: engine.name(), requested, first_tensor: None, supported }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_rejects_too_many_threads() {
        for engine in crate::TABLE {
            let options = LoadOptions { threads: 5_000, ..LoadOptions::default() };
            let error = check_precision_and_threads(*engine, &options).unwrap_err();
            let expected = format!(
                "engine `{}`: option `threads`: `5000` exceeds the maximum of 4096 (0: one thread per core)",
                engine.name()
            );
            assert_eq!((error.to_string(), error.hint()), (expected, ""));
        }
    }

    #[test]
    fn threads_that_cannot_be_started_are_not_reported_as_out_of_memory() {
        let error =
            thread_start_error("interpreter", 300, &"Resource temporarily unavailable (os error 11)").to_string();
        let expected = "engine `interpreter`: option `threads`: cannot start `300` threads: Resource temporarily \
                        unavailable (os error 11) (`ulimit -u` limits processes and threads)";
        assert_eq!(error, expected);
    }
}
