//! The options of an ONNX Runtime session, checked and typed.

use std::path::PathBuf;

use indexmap::IndexMap;
use ort::session::builder::GraphOptimizationLevel;

use super::provider::{PROVIDERS, Provider};
use crate::description::{EngineOption, OptionKind};
use crate::engine::options::{EngineOptions, thread_count};
use crate::engine::{Artifact, Engine, EngineError, LoadOptions};
use crate::suggestion::nearest;

const PROVIDER: &str = "provider";
const PROVIDER_OPTIONS: &str = "provider_options";
const SESSION_OPTIONS: &str = "session_options";
const OPTIMIZATION: &str = "graph_optimization";
const LIBRARY: &str = "library_path";

pub(super) const OPTIONS: &[EngineOption] = &[
    EngineOption { name: PROVIDER, kind: OptionKind::Text, default: "cpu", about: "the execution provider" },
    EngineOption {
        name: PROVIDER_OPTIONS,
        kind: OptionKind::Map,
        default: "{}",
        about: "the provider's own options, under ONNX Runtime's names",
    },
    EngineOption {
        name: SESSION_OPTIONS,
        kind: OptionKind::Map,
        default: "{}",
        about: "session configuration entries, under ONNX Runtime's names",
    },
    EngineOption {
        name: OPTIMIZATION,
        kind: OptionKind::Choice(&["disabled", "basic", "extended", "all"]),
        default: "all",
        about: "the graph optimization level",
    },
    EngineOption {
        name: LIBRARY,
        kind: OptionKind::Text,
        default: "the installed one",
        about: "the path of an ONNX Runtime library",
    },
];

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
    /// For an unknown option, provider or value, with the known ones, and for a value of the wrong type.
    pub(super) fn read(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        let engine_options = EngineOptions::check(engine, options)?;
        let provider = engine_options.text(PROVIDER).unwrap_or("cpu");
        let provider = PROVIDERS.iter().find(|row| row.name == provider).ok_or_else(|| {
            let names: Vec<&'static str> = PROVIDERS.iter().map(|row| row.name).collect();
            let near =
                nearest(provider, names.iter().copied()).map(|near| format!("; nearest: {near}")).unwrap_or_default();
            let reason = format!("unknown provider `{provider}` (known: {}{near})", names.join(", "));
            engine_options.option_error(PROVIDER, reason)
        })?;
        let optimization = match engine_options.text(OPTIMIZATION) {
            Some("disabled") => GraphOptimizationLevel::Disable,
            Some("basic") => GraphOptimizationLevel::Level1,
            Some("extended") => GraphOptimizationLevel::Level2,
            _ => GraphOptimizationLevel::All,
        };
        let mut provider_options = provider.defaults(options.precision);
        provider_options.extend(engine_options.map(PROVIDER_OPTIONS, ort_boolean));
        Ok(OrtOptions {
            provider,
            provider_options,
            session_options: engine_options.map(SESSION_OPTIONS, ort_boolean),
            optimization,
            library: engine_options.text(LIBRARY).map(PathBuf::from),
            threads: thread_count(options),
            engine_options,
        })
    }

    /// Returns an error about the artifact.
    pub(super) fn artifact_error(&self, accepts: &'static str, given: Artifact<'_>) -> EngineError {
        self.engine_options.artifact_error(accepts, given)
    }
}

/// ONNX Runtime's texts for true and false.
fn ort_boolean(value: bool) -> &'static str {
    if value { "1" } else { "0" }
}
