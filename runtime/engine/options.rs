//! Reading an engine's own options, with an error for each unknown key and each value of the wrong type.
//!
//! Knows nothing about particular engines.

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::{Artifact, Engine, EngineError, LoadOptions};
use crate::tensor::DType;

/// More threads than any machine has cores. A larger number is a typing error, and starting that many threads may take
/// the machine down.
const THREADS_MAX: usize = 4096;

/// Reads one engine's options and reports those that are unknown or ill-typed. The engine's default applies to an
/// option that is `null`.
pub(super) struct EngineOptions<'a> {
    engine: &'static str,
    extra: &'a IndexMap<String, Json>,
}

impl<'a> EngineOptions<'a> {
    /// Checks the precision and the number of threads, and rejects every option that is not in `known`.
    pub(super) fn with_known_keys(
        engine: &dyn Engine,
        options: &'a LoadOptions,
        known: &[&'static str],
    ) -> Result<Self, EngineError> {
        check_precision_and_threads(engine, options)?;
        let engine_options = EngineOptions { engine: engine.name(), extra: &options.extra };
        match options.extra.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(engine_options.option_error(key, unknown_option_reason(key, known))),
            None => Ok(engine_options),
        }
    }

    /// Checks the precision and the number of threads, and accepts every option: the code behind the engine checks
    /// them.
    pub(super) fn with_any_keys(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        check_precision_and_threads(engine, options)?;
        Ok(EngineOptions { engine: engine.name(), extra: &options.extra })
    }

    /// Reads a finite, non-negative number.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, EngineError> {
        self.read(name, "a non-negative number", |json| json.as_f64().filter(|x| *x >= 0.0 && x.is_finite()))
    }

    /// Reads a boolean.
    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, EngineError> {
        self.read(name, "true or false", Json::as_bool)
    }

    /// Reads a string.
    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>, EngineError> {
        let Some(json) = self.extra.get(name).filter(|json| !json.is_null()) else { return Ok(None) };
        json.as_str().map(Some).ok_or_else(|| self.option_error(name, format!("`{json}` is not a string")))
    }

    /// Reads a map with values of any type, in order.
    pub(super) fn map(&self, name: &str) -> Result<Option<IndexMap<String, Json>>, EngineError> {
        self.read(name, "a map", |json| serde_json::from_value(json.clone()).ok())
    }

    /// Reads a map of strings, in order.
    pub(super) fn string_map(&self, name: &str) -> Result<Option<IndexMap<String, String>>, EngineError> {
        self.read(name, "a map of strings", |json| serde_json::from_value(json.clone()).ok())
    }

    /// Reads inputs or outputs from a map of names to tensor specifications.
    pub(super) fn value_infos(&self, name: &str) -> Result<Option<Vec<ValueInfo>>, EngineError> {
        let Some(specs) = self.string_map(name)? else { return Ok(None) };
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

    fn read<T>(
        &self,
        name: &str,
        expected: &str,
        as_type: impl Fn(&Json) -> Option<T>,
    ) -> Result<Option<T>, EngineError> {
        let Some(json) = self.extra.get(name).filter(|json| !json.is_null()) else { return Ok(None) };
        as_type(json).map(Some).ok_or_else(|| self.option_error(name, format!("`{json}` is not {expected}")))
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
    EngineError::Precision { engine: engine.name(), requested, supported }
}

fn unknown_option_reason(key: &str, known: &[&'static str]) -> String {
    match (nearest(key, known), known.is_empty()) {
        (_, true) => "unknown (this engine has no options)".to_owned(),
        (Some(near), _) => format!("unknown (known: {}; nearest: {near})", known.join(", ")),
        (None, _) => format!("unknown (known: {})", known.join(", ")),
    }
}

/// Returns the known name most similar to `name`, if it is similar enough to be what the user meant.
pub(super) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    /// The Jaro-Winkler similarity from which a name counts as a misspelling of another.
    const NEAR: f64 = 0.75;
    let (similarity, near) =
        known.iter().map(|known| (strsim::jaro_winkler(name, known), *known)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (similarity >= NEAR).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_rejects_too_many_threads() {
        for engine in crate::engine::TABLE {
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
