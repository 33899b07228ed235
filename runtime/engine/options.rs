//! Reading an engine's own options: each key known, each value typed, each mistake named.
//!
//! Knows no engine.

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::{Artifact, Engine, EngineError, Options};
use crate::tensor::DType;

/// More threads than any machine has cores: so many are a slip of the keys, and starting them may take the machine down.
const THREADS_MAX: usize = 4096;

/// The options of one load, as the engine asks for them. An option that is `null` is left to the engine.
pub(super) struct Asked<'a> {
    engine: &'static str,
    extra: &'a IndexMap<String, Json>,
}

impl<'a> Asked<'a> {
    /// Refuses a precision, a number of threads or an option that the engine cannot have; `known` are the names that it takes in `extra`.
    pub(super) fn check(
        engine: &dyn Engine,
        options: &'a Options,
        known: &[&'static str],
    ) -> Result<Self, EngineError> {
        check_common(engine, options)?;
        let asked = Asked { engine: engine.name(), extra: &options.extra };
        match options.extra.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(asked.refuse(key, unknown(key, known))),
            None => Ok(asked),
        }
    }

    /// Refuses a precision or a number of threads that the engine cannot have; options are handed on to who knows them.
    pub(super) fn any(engine: &dyn Engine, options: &'a Options) -> Result<Self, EngineError> {
        check_common(engine, options)?;
        Ok(Asked { engine: engine.name(), extra: &options.extra })
    }

    /// A number that is at least zero.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, EngineError> {
        self.read(name, "a number that is not negative", |json| json.as_f64().filter(|x| *x >= 0.0 && x.is_finite()))
    }

    /// On or off.
    pub(super) fn switch(&self, name: &str) -> Result<Option<bool>, EngineError> {
        self.read(name, "true or false", Json::as_bool)
    }

    /// One text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, EngineError> {
        let Some(json) = self.extra.get(name).filter(|json| !json.is_null()) else { return Ok(None) };
        json.as_str().map(Some).ok_or_else(|| self.refuse(name, format!("`{json}` is not text")))
    }

    /// A map with values of any kind, in order.
    pub(super) fn map(&self, name: &str) -> Result<Option<IndexMap<String, Json>>, EngineError> {
        self.read(name, "a map", |json| serde_json::from_value(json.clone()).ok())
    }

    /// Text by text, in order.
    pub(super) fn texts(&self, name: &str) -> Result<Option<IndexMap<String, String>>, EngineError> {
        self.read(name, "a map of text", |json| serde_json::from_value(json.clone()).ok())
    }

    /// Inputs or outputs by name, from a map of specifications.
    pub(super) fn specs(&self, name: &str) -> Result<Option<Vec<ValueInfo>>, EngineError> {
        let Some(texts) = self.texts(name)? else { return Ok(None) };
        let info = |(value, text): (String, String)| match text.parse() {
            Ok(spec) => Ok(ValueInfo { name: value, spec }),
            Err(error) => Err(self.refuse(name, format!("`{value}`: {error}"))),
        };
        texts.into_iter().map(info).collect::<Result<_, _>>().map(Some)
    }

    /// An error about an option.
    pub(super) fn refuse(&self, name: &str, reason: String) -> EngineError {
        EngineError::Option { engine: self.engine, option: name.to_owned(), reason }
    }

    /// An error about the artifact.
    pub(super) fn refuse_artifact(&self, takes: &'static str, given: Artifact<'_>) -> EngineError {
        EngineError::Artifact { engine: self.engine, takes, given: in_words(given) }
    }

    fn read<T>(&self, name: &str, takes: &str, as_type: impl Fn(&Json) -> Option<T>) -> Result<Option<T>, EngineError> {
        let Some(json) = self.extra.get(name).filter(|json| !json.is_null()) else { return Ok(None) };
        as_type(json).map(Some).ok_or_else(|| self.refuse(name, format!("`{json}` is not {takes}")))
    }
}

/// An artifact, for messages.
pub(super) fn in_words(artifact: Artifact<'_>) -> String {
    match artifact {
        Artifact::Graph(graph) => format!("the graph `{}`", graph.name),
        Artifact::Onnx(path) => format!("the ONNX file `{}`", path.display()),
        Artifact::Compiled(path) => format!("the compiled file `{}`", path.display()),
    }
}

/// Threads to compute with: as asked, else one for each core that this process may use (as the operating system says,
/// limits of containers included).
pub(super) fn threads(options: &Options) -> usize {
    match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    }
}

/// Refuses a type that the engine does not compute in, and more threads than it can be given.
pub(super) fn check_common(engine: &dyn Engine, options: &Options) -> Result<(), EngineError> {
    if !engine.precisions().contains(&options.precision) {
        return Err(lacks_precision(engine, options.precision));
    }
    if options.threads > THREADS_MAX {
        let reason = format!("`{}` is more than {THREADS_MAX} (0: one for each core)", options.threads);
        return Err(EngineError::Option { engine: engine.name(), option: "threads".to_owned(), reason });
    }
    Ok(())
}

/// An error about threads that the system does not give; `why` is what it says.
pub(super) fn lacks_threads(engine: &'static str, threads: usize, why: &dyn std::fmt::Display) -> EngineError {
    let reason = format!("`{threads}` threads cannot be started: {why} (the limit of processes is `ulimit -u`)");
    EngineError::Option { engine, option: "threads".to_owned(), reason }
}

/// An error about a type that the engine does not compute in.
pub(super) fn lacks_precision(engine: &dyn Engine, asked: DType) -> EngineError {
    let has = engine.precisions().iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    EngineError::Precision { engine: engine.name(), asked, has }
}

fn unknown(key: &str, known: &[&'static str]) -> String {
    match (nearest(key, known), known.is_empty()) {
        (_, true) => "unknown (this engine takes none)".to_owned(),
        (Some(near), _) => format!("unknown (known: {}; nearest: {near})", known.join(", ")),
        (None, _) => format!("unknown (known: {})", known.join(", ")),
    }
}

/// The name that was probably meant, if one is near enough.
pub(super) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    /// Jaro-Winkler similarity from which a name is taken for a slip of the keys.
    const NEAR: f64 = 0.75;
    let (similarity, near) =
        known.iter().map(|known| (strsim::jaro_winkler(name, known), *known)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (similarity >= NEAR).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_threads_are_refused_by_their_number_on_every_engine() {
        for engine in crate::engine::TABLE {
            let options = Options { threads: 5_000, ..Options::default() };
            let error = check_common(*engine, &options).unwrap_err();
            let expected = format!(
                "engine `{}`: option `threads`: `5000` is more than 4096 (0: one for each core)",
                engine.name()
            );
            assert_eq!((error.to_string(), error.hint()), (expected, ""));
        }
    }

    #[test]
    fn threads_that_the_system_refuses_are_no_lack_of_memory() {
        let error = lacks_threads("candle", 300, &"Resource temporarily unavailable (os error 11)").to_string();
        let expected = "engine `candle`: option `threads`: `300` threads cannot be started: Resource temporarily \
                        unavailable (os error 11) (the limit of processes is `ulimit -u`)";
        assert_eq!(error, expected);
    }
}
