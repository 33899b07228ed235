//! The options of an ONNX Runtime session, checked and typed.

use std::path::PathBuf;

use indexmap::IndexMap;
use ort::session::builder::GraphOptimizationLevel;
use serde_json::Value as Json;

use super::provider::{PROVIDERS, Provider};
use crate::engine::options::{EngineOptions, nearest, thread_count};
use crate::engine::{Artifact, Engine, EngineError, LoadOptions};

/// The execution provider; `cpu` by default.
const PROVIDER: &str = "provider";
/// A map of the provider's own options, under ONNX Runtime's names.
const PROVIDER_OPTIONS: &str = "provider_options";
/// A map of session configuration entries, under ONNX Runtime's names.
const SESSION_OPTIONS: &str = "session_options";
/// The graph optimization level: `disabled`, `basic`, `extended` or `all` (the default).
const OPTIMIZATION: &str = "graph_optimization";
/// The path of an ONNX Runtime library other than the installed one.
const LIBRARY: &str = "library_path";

/// The options of an ONNX Runtime session.
pub(super) struct OrtOptions<'a> {
    engine_options: EngineOptions<'a>,
    pub(super) provider: &'static Provider,
    pub(super) provider_options: IndexMap<String, String>,
    pub(super) session_options: IndexMap<String, String>,
    pub(super) optimization: GraphOptimizationLevel,
    pub(super) library: Option<PathBuf>,
    pub(super) threads: usize,
}

impl<'a> OrtOptions<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// For an unknown option, provider or level, with the known ones, and for a value of the wrong type.
    pub(super) fn read(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        let known = [PROVIDER, PROVIDER_OPTIONS, SESSION_OPTIONS, OPTIMIZATION, LIBRARY];
        let engine_options = EngineOptions::with_known_keys(engine, options, &known)?;
        let provider = engine_options.string(PROVIDER)?.unwrap_or("cpu");
        let provider = PROVIDERS.iter().find(|row| row.name == provider).ok_or_else(|| {
            let names: Vec<&'static str> = PROVIDERS.iter().map(|row| row.name).collect();
            let near = nearest(provider, &names).map(|near| format!("; nearest: {near}")).unwrap_or_default();
            let reason = format!("unknown provider `{provider}` (known: {}{near})", names.join(", "));
            engine_options.option_error(PROVIDER, reason)
        })?;
        let optimization = match engine_options.string(OPTIMIZATION)? {
            None | Some("all") => GraphOptimizationLevel::All,
            Some("disabled") => GraphOptimizationLevel::Disable,
            Some("basic") => GraphOptimizationLevel::Level1,
            Some("extended") => GraphOptimizationLevel::Level2,
            Some(other) => {
                let reason = format!("unknown optimization level `{other}` (known: disabled, basic, extended, all)");
                return Err(engine_options.option_error(OPTIMIZATION, reason));
            }
        };
        let mut provider_options = provider.defaults(options.precision);
        provider_options.extend(string_values(&engine_options, PROVIDER_OPTIONS)?);
        Ok(OrtOptions {
            provider,
            provider_options,
            session_options: string_values(&engine_options, SESSION_OPTIONS)?,
            optimization,
            library: engine_options.string(LIBRARY)?.map(PathBuf::from),
            threads: thread_count(options),
            engine_options,
        })
    }

    /// Returns an error about the artifact.
    pub(super) fn artifact_error(&self, accepts: &'static str, given: Artifact<'_>) -> EngineError {
        self.engine_options.artifact_error(accepts, given)
    }
}

/// Reads a map and converts its values to the strings that ONNX Runtime expects; true and false become 1 and 0.
fn string_values(engine_options: &EngineOptions<'_>, option: &str) -> Result<IndexMap<String, String>, EngineError> {
    let text = |(key, value): (String, Json)| match &value {
        Json::String(text) => Ok((key, text.clone())),
        Json::Number(number) => Ok((key, number.to_string())),
        Json::Bool(yes) => Ok((key, u8::from(*yes).to_string())),
        other => {
            let reason = format!("`{key}`: `{other}` is not a string, a number, true or false");
            Err(engine_options.option_error(option, reason))
        }
    };
    engine_options.map(option)?.into_iter().flatten().map(text).collect()
}
