//! The options of an ONNX Runtime session, checked and typed.

use std::path::PathBuf;

use indexmap::IndexMap;
use ort::session::builder::GraphOptimizationLevel;

use super::request::RequestedProvider;
use crate::options::{EngineOptions, thread_count};
use crate::{Artifact, Engine, EngineError, LoadOptions};
use flagperf_core::description::{EngineOption, OptionKind, TF32_OPTION};
use flagperf_core::tensor::DType;

const PROVIDER: &str = "provider";
const PROVIDER_OPTIONS: &str = "provider_options";
const PROVIDER_LIBRARY: &str = "provider_library";
const PROVIDER_DEVICE: &str = "provider_device";
const SESSION_OPTIONS: &str = "session_options";
const OPTIMIZATION: &str = "graph_optimization";
const LIBRARY: &str = "library_path";
/// The option of provider `cuda` that `precision` decides.
const USE_TF32: &str = "use_tf32";

pub(super) const OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: PROVIDER,
        kind: OptionKind::Text,
        default: "cpu",
        about: "the execution provider: a short name, or ONNX Runtime's full name for any other",
    },
    EngineOption {
        name: PROVIDER_OPTIONS,
        kind: OptionKind::Map,
        default: "{}",
        about: "the provider's own options, under ONNX Runtime's names",
    },
    EngineOption {
        name: PROVIDER_LIBRARY,
        kind: OptionKind::Text,
        default: "none: the provider is part of ONNX Runtime",
        about: "the path of a library that brings the provider, for ONNX Runtime to register",
    },
    EngineOption {
        name: PROVIDER_DEVICE,
        kind: OptionKind::Integer { min: Some(0), max: None },
        default: "0",
        about: "which of the devices that ONNX Runtime reports for the provider",
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
        name: TF32_OPTION,
        kind: OptionKind::Boolean,
        default: "false",
        about: "whether provider `cuda` computes products of fp32 in TF32; set by the case's `precision`",
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
    pub(super) provider: RequestedProvider<'a>,
    pub(super) provider_library: Option<PathBuf>,
    pub(super) provider_device: Option<usize>,
    pub(super) provider_options: IndexMap<String, String>,
    pub(super) session_options: IndexMap<String, String>,
    pub(super) optimization: GraphOptimizationLevel,
    pub(super) library: Option<PathBuf>,
    pub(super) threads: usize,
    /// Where ONNX Runtime writes its profile: the beginning of the path; `None` for a session without one.
    pub(super) profile: Option<PathBuf>,
}

impl<'a> OrtOptions<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// For an unknown option, provider or value, with the known ones, for a value of the wrong type, and for a file that
    /// is not a library.
    pub(super) fn read(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        let engine_options = EngineOptions::check(engine, options)?;
        let ProviderChoice { provider, provider_library, library } = ProviderChoice::of(&engine_options)?;
        if provider_library.is_some() && engine_options.text(PROVIDER).is_none() {
            let reason = format!("the option `{PROVIDER}` must name the provider that this library brings");
            return Err(engine_options.option_error(PROVIDER_LIBRARY, reason));
        }
        let optimization = match engine_options.text(OPTIMIZATION) {
            Some("disabled") => GraphOptimizationLevel::Disable,
            Some("basic") => GraphOptimizationLevel::Level1,
            Some("extended") => GraphOptimizationLevel::Level2,
            _ => GraphOptimizationLevel::All,
        };
        let provider_options = merge_provider_options(&engine_options, provider, options.precision)?;
        Ok(OrtOptions {
            provider,
            provider_library,
            provider_device: engine_options.integer(PROVIDER_DEVICE).and_then(|index| usize::try_from(index).ok()),
            provider_options,
            session_options: engine_options.map(SESSION_OPTIONS, ort_boolean),
            optimization,
            library,
            threads: thread_count(options),
            profile: options.profile.as_ref().map(|_| options.scratch.join("onnxruntime")),
            engine_options,
        })
    }

    /// Returns whether the options select the provider by one of its devices, as ONNX Runtime requires for a provider
    /// from a library of its own.
    pub(super) fn by_device(&self) -> bool {
        self.provider_library.is_some() || self.provider_device.is_some()
    }

    /// Returns an error about the artifact.
    pub(super) fn artifact_error(&self, accepts: &'static str, given: Artifact<'_>) -> EngineError {
        self.engine_options.artifact_error(accepts, given)
    }
}

/// The libraries and the provider that the options choose.
pub(super) struct ProviderChoice<'a> {
    pub(super) provider: RequestedProvider<'a>,
    pub(super) provider_library: Option<PathBuf>,
    pub(super) library: Option<PathBuf>,
}

impl<'a> ProviderChoice<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// For an unknown option or provider, and for a file that is not a library.
    pub(super) fn read(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        ProviderChoice::of(&EngineOptions::check(engine, options)?)
    }

    fn of(engine_options: &EngineOptions<'a>) -> Result<Self, EngineError> {
        let provider_library = engine_options.library(PROVIDER_LIBRARY)?;
        let name = engine_options.text(PROVIDER).unwrap_or("cpu");
        let provider = RequestedProvider::find(name, provider_library.is_some())
            .map_err(|reason| engine_options.option_error(PROVIDER, reason))?;
        Ok(ProviderChoice { provider, provider_library, library: engine_options.library(LIBRARY)? })
    }
}

/// Returns the options of the provider: the defaults for the precision, and the user's own.
///
/// # Errors
/// When the provider cannot compute in TF32 although the case asks for it, when an option contradicts the precision of
/// the case, and when the provider accepts no options.
fn merge_provider_options(
    engine_options: &EngineOptions<'_>,
    provider: RequestedProvider<'_>,
    precision: DType,
) -> Result<IndexMap<String, String>, EngineError> {
    let mut merged = provider.defaults(precision);
    let own = engine_options.map(PROVIDER_OPTIONS, ort_boolean);
    let name = provider.name();
    if let (false, Some(option)) = (provider.accepts_options(), own.keys().next()) {
        let reason = format!("provider `{name}` accepts no options, but `{option}` was given");
        return Err(engine_options.option_error(PROVIDER_OPTIONS, reason));
    }
    let tf32 = engine_options.boolean(TF32_OPTION).unwrap_or(false);
    match merged.get_mut(USE_TF32) {
        Some(value) => ort_boolean(tf32).clone_into(value),
        None if tf32 => {
            let reason = format!("provider `{name}` cannot be asked for TF32, which provider `cuda` can");
            return Err(engine_options.option_error(TF32_OPTION, reason));
        }
        None => {}
    }
    if let (Some(asked), Some(given)) = (merged.get(USE_TF32), own.get(USE_TF32))
        && asked != given
    {
        let reason = format!(
            "`{USE_TF32}: {given}` contradicts the case's `precision`, which requires `{USE_TF32}: {asked}`; delete it, and \
             set `precision: tf32` or `fp32`"
        );
        return Err(engine_options.option_error(PROVIDER_OPTIONS, reason));
    }
    merged.extend(own);
    Ok(merged)
}

/// ONNX Runtime's texts for true and false.
fn ort_boolean(value: bool) -> &'static str {
    if value { "1" } else { "0" }
}
