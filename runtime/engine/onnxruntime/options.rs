//! The options of a session of ONNX Runtime, checked and typed.

use std::path::PathBuf;

use indexmap::IndexMap;
use ort::session::builder::GraphOptimizationLevel;
use serde_json::Value as Json;

use super::provider::{PROVIDERS, Provider};
use crate::engine::options::{Asked, nearest, threads};
use crate::engine::{Artifact, Engine, EngineError, Options};

/// The provider: `cpu` unless another is named.
const PROVIDER: &str = "provider";
/// The provider's own options: a map, by ONNX Runtime's names.
const PROVIDER_OPTIONS: &str = "provider_options";
/// Entries of the session's configuration: a map, by ONNX Runtime's names.
const SESSION_OPTIONS: &str = "session_options";
/// How far the graph is rewritten: `disabled`, `basic`, `extended`, `all` (unless another is named).
const OPTIMIZATION: &str = "graph_optimization";
/// A library of ONNX Runtime other than the installed one.
const LIBRARY: &str = "library_path";

/// What a session is asked for.
pub(super) struct Settings<'a> {
    asked: Asked<'a>,
    pub(super) provider: &'static Provider,
    pub(super) provider_options: IndexMap<String, String>,
    pub(super) session_options: IndexMap<String, String>,
    pub(super) optimization: GraphOptimizationLevel,
    pub(super) library: Option<PathBuf>,
    pub(super) threads: usize,
}

impl<'a> Settings<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// An unknown option, provider or level, or a value of another type; names it and what is known.
    pub(super) fn read(engine: &dyn Engine, options: &'a Options) -> Result<Self, EngineError> {
        let known = [PROVIDER, PROVIDER_OPTIONS, SESSION_OPTIONS, OPTIMIZATION, LIBRARY];
        let asked = Asked::check(engine, options, &known)?;
        let provider = asked.text(PROVIDER)?.unwrap_or("cpu");
        let provider = PROVIDERS.iter().find(|row| row.name == provider).ok_or_else(|| {
            let names: Vec<&'static str> = PROVIDERS.iter().map(|row| row.name).collect();
            let near = nearest(provider, &names).map(|near| format!("; nearest: {near}")).unwrap_or_default();
            asked.refuse(PROVIDER, format!("unknown provider `{provider}` (known: {}{near})", names.join(", ")))
        })?;
        let optimization = match asked.text(OPTIMIZATION)? {
            None | Some("all") => GraphOptimizationLevel::All,
            Some("disabled") => GraphOptimizationLevel::Disable,
            Some("basic") => GraphOptimizationLevel::Level1,
            Some("extended") => GraphOptimizationLevel::Level2,
            Some(other) => {
                let reason = format!("unknown level `{other}` (known: disabled, basic, extended, all)");
                return Err(asked.refuse(OPTIMIZATION, reason));
            }
        };
        let mut provider_options = provider.defaults(options.precision);
        provider_options.extend(texts(&asked, PROVIDER_OPTIONS)?);
        Ok(Settings {
            provider,
            provider_options,
            session_options: texts(&asked, SESSION_OPTIONS)?,
            optimization,
            library: asked.text(LIBRARY)?.map(PathBuf::from),
            threads: threads(options),
            asked,
        })
    }

    /// An error about the artifact.
    pub(super) fn refuse_artifact(&self, takes: &'static str, given: Artifact<'_>) -> EngineError {
        self.asked.refuse_artifact(takes, given)
    }
}

/// A map of settings as ONNX Runtime takes them: everything is text, and yes and no are 1 and 0.
fn texts(asked: &Asked<'_>, option: &str) -> Result<IndexMap<String, String>, EngineError> {
    let text = |(key, value): (String, Json)| match &value {
        Json::String(text) => Ok((key, text.clone())),
        Json::Number(number) => Ok((key, number.to_string())),
        Json::Bool(yes) => Ok((key, u8::from(*yes).to_string())),
        other => Err(asked.refuse(option, format!("`{key}`: `{other}` is not text, a number, true or false"))),
    };
    asked.map(option)?.into_iter().flatten().map(text).collect()
}
