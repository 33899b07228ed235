//! The options of an OpenVINO session, checked and typed.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::Value as Json;

use crate::options::{EngineOptions, thread_count};
use crate::{Artifact, Engine, EngineError, LoadOptions};
use flagperf_core::description::{EngineOption, OptionKind};
use flagperf_core::tensor::DType;

const DEVICE: &str = "device";
const HINT: &str = "hint";
const STREAMS: &str = "num_streams";
const PROPERTIES: &str = "properties";
const EXPORT: &str = "export_folder";
const LIBRARY: &str = "library_path";

pub(super) const OPTIONS: &[EngineOption] = &[
    EngineOption { name: DEVICE, kind: OptionKind::Text, default: "CPU", about: "the device" },
    EngineOption {
        name: HINT,
        kind: OptionKind::Choice(&["latency", "throughput"]),
        default: "latency",
        about: "the goal of OpenVINO's own tuning",
    },
    EngineOption {
        name: STREAMS,
        kind: OptionKind::Integer { min: Some(1), max: None },
        default: "set by `hint`",
        about: "the number of batches computed concurrently",
    },
    EngineOption {
        name: PROPERTIES,
        kind: OptionKind::Map,
        default: "{}",
        about: "further properties, under OpenVINO's names",
    },
    EngineOption {
        name: EXPORT,
        kind: OptionKind::Text,
        default: "none",
        about: "the folder that the compiled model is written to, under the model's file name; relative paths are resolved \
                against FLAGPERF_PATH",
    },
    EngineOption {
        name: LIBRARY,
        kind: OptionKind::Text,
        default: "the installed one",
        about: "the path of an OpenVINO library",
    },
];

/// Properties that the user cannot set in `properties`, each with what sets it instead.
const RESERVED: [(&str, &str); 4] = [
    (PRECISION_PROPERTY, "the case's `fp16`"),
    ("PERFORMANCE_HINT", "the option `hint`"),
    ("NUM_STREAMS", "the option `num_streams`"),
    (THREADS, "the option `threads`"),
];

/// The property for the requested type; a compiled model reports the real type under the same name.
pub(super) const PRECISION_PROPERTY: &str = "INFERENCE_PRECISION_HINT";
/// The property for the requested number of CPU threads; a compiled model reports the real number under the same name.
pub(super) const THREADS: &str = "INFERENCE_NUM_THREADS";
/// The property that has requests keep the times of their nodes.
const PROFILE_PROPERTY: &str = "PERF_COUNT";
/// OpenVINO's name of the CPU.
const CPU: &str = "CPU";
/// Devices that distribute the work to other devices.
const VIRTUAL_DEVICES: [&str; 4] = ["AUTO", "BATCH", "HETERO", "MULTI"];

/// The options of an OpenVINO session.
pub(super) struct OpenVinoOptions<'a> {
    engine_options: EngineOptions<'a>,
    pub(super) device: &'a str,
    pub(super) precision: DType,
    pub(super) properties: IndexMap<String, String>,
    /// Whether a batch may start while another one is being computed.
    pub(super) concurrent_batches: bool,
    pub(super) export: Option<PathBuf>,
    /// Whether requests keep the times of their nodes; batches then run one at a time.
    pub(super) is_profiled: bool,
    pub(super) library: Option<PathBuf>,
}

impl<'a> OpenVinoOptions<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// For an unknown option or value, with the known ones, a property that the user cannot set, a value of the wrong type,
    /// and a file that is not a library or a folder.
    pub(super) fn read(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Self, EngineError> {
        let engine_options = EngineOptions::check(engine, options)?;
        let device = engine_options.text(DEVICE).unwrap_or(CPU);
        let hint = if engine_options.text(HINT) == Some("throughput") { "THROUGHPUT" } else { "LATENCY" };
        let mut properties = IndexMap::new();
        let mut set = |key: &str, value: String| _ = properties.insert(key.to_owned(), value);
        set(PRECISION_PROPERTY, options.precision.to_string());
        set("PERFORMANCE_HINT", hint.to_owned());
        let streams = engine_options.integer(STREAMS);
        if let Some(streams) = streams {
            set("NUM_STREAMS", streams.to_string());
        }
        if device == CPU || options.threads > 0 {
            set(THREADS, thread_count(options).to_string());
        }
        properties.extend(extra_properties(&engine_options)?);
        let is_profiled = options.profile.is_some();
        if is_profiled {
            properties.insert(PROFILE_PROPERTY.to_owned(), "YES".to_owned());
        }
        let root = options.config.get("perf_dir").and_then(Json::as_str).unwrap_or_default();
        Ok(OpenVinoOptions {
            device,
            precision: options.precision,
            properties,
            concurrent_batches: !is_profiled && streams.map_or(hint == "THROUGHPUT", |streams| streams > 1),
            // What a profiled session compiles is not what was measured.
            export: engine_options.folder(EXPORT, Path::new(root))?.filter(|_| !is_profiled),
            is_profiled,
            library: engine_options.library(LIBRARY)?,
            engine_options,
        })
    }

    /// Reads the option `library_path`.
    ///
    /// # Errors
    /// When the path is not a library for this machine.
    pub(super) fn read_library(engine: &dyn Engine, options: &'a LoadOptions) -> Result<Option<PathBuf>, EngineError> {
        EngineOptions::check(engine, options)?.library(LIBRARY)
    }

    /// Whether the device distributes the work to other devices.
    pub(super) fn is_virtual_device(&self) -> bool {
        VIRTUAL_DEVICES.contains(&self.device.split(':').next().unwrap_or_default())
    }

    /// Returns an error about the artifact.
    pub(super) fn artifact_error(&self, given: Artifact<'_>) -> EngineError {
        const ACCEPTS: &str = "an ONNX file, a model in its own format (.xml) or a model that it exported (.blob)";
        self.engine_options.artifact_error(ACCEPTS, given)
    }

    /// Returns an error about the device.
    pub(super) fn device_error(&self, reason: String) -> EngineError {
        self.engine_options.option_error(DEVICE, reason)
    }

    /// Returns an error about the user's property that OpenVINO's message contains; `None` when it contains none.
    pub(super) fn property_error(&self, message: &str) -> Option<EngineError> {
        let is_reserved = |key: &str| RESERVED.iter().any(|(reserved, _)| *reserved == key);
        let named = self.properties.keys().find(|key| !is_reserved(key) && message.contains(key.as_str()))?;
        let reason = format!("`{named}`: {}", super::strip_source_locations(message));
        Some(self.engine_options.option_error(PROPERTIES, reason))
    }
}

/// Reads the user's properties as the texts that OpenVINO expects; true and false become YES and NO.
fn extra_properties(engine_options: &EngineOptions<'_>) -> Result<IndexMap<String, String>, EngineError> {
    let properties = engine_options.map(PROPERTIES, |value| if value { "YES" } else { "NO" });
    match RESERVED.iter().find(|(reserved, _)| properties.contains_key(*reserved)) {
        Some((key, by)) => Err(engine_options.option_error(PROPERTIES, format!("`{key}` is set by {by}"))),
        None => Ok(properties),
    }
}
