//! The options of a session of OpenVINO, checked and typed.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::Value as Json;

use crate::engine::options::{Asked, threads};
use crate::engine::{Artifact, Engine, EngineError, Options};
use crate::tensor::DType;

/// The device: `CPU` unless another is named.
const DEVICE: &str = "device";
/// What it is tuned for: `latency` (unless another is named) or `throughput`.
const HINT: &str = "hint";
/// Batches computed side by side; the hint says how many unless this does.
const STREAMS: &str = "num_streams";
/// Further properties: a map, by OpenVINO's names.
const PROPERTIES: &str = "properties";
/// The folder that the compiled model is written to, named like its file; a relative path counts from FLAGPERF_PATH.
const EXPORT: &str = "export_folder";
/// A library of OpenVINO other than the installed one.
const LIBRARY: &str = "library_path";

/// Properties that are not the user's to set, and what sets them.
const OWN: [(&str, &str); 4] = [
    (PRECISION, "`fp16` of the case"),
    ("PERFORMANCE_HINT", "the option `hint`"),
    ("NUM_STREAMS", "the option `num_streams`"),
    (THREADS, "the option `threads`"),
];

/// The type to compute in, and the one really computed in.
pub(super) const PRECISION: &str = "INFERENCE_PRECISION_HINT";
/// Threads of the processor, as asked and as really used.
pub(super) const THREADS: &str = "INFERENCE_NUM_THREADS";
/// The processor's name among devices.
const PROCESSOR: &str = "CPU";
/// Devices that hand the work on to others.
const OVER_OTHERS: [&str; 4] = ["AUTO", "BATCH", "HETERO", "MULTI"];

/// What a session is asked for.
pub(super) struct Settings<'a> {
    asked: Asked<'a>,
    pub(super) device: &'a str,
    pub(super) precision: DType,
    pub(super) properties: IndexMap<String, String>,
    /// Whether a batch may begin while another is computed.
    pub(super) side_by_side: bool,
    pub(super) export: Option<PathBuf>,
    pub(super) library: Option<PathBuf>,
}

impl<'a> Settings<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// An unknown option or hint, a property that is not the user's, or a value of another type; names it and what is
    /// known.
    pub(super) fn read(engine: &dyn Engine, options: &'a Options) -> Result<Self, EngineError> {
        let asked = Asked::check(engine, options, &[DEVICE, HINT, STREAMS, PROPERTIES, EXPORT, LIBRARY])?;
        let device = asked.text(DEVICE)?.unwrap_or(PROCESSOR);
        let hint = match asked.text(HINT)? {
            None | Some("latency") => "LATENCY",
            Some("throughput") => "THROUGHPUT",
            Some(other) => {
                return Err(asked.refuse(HINT, format!("unknown hint `{other}` (known: latency, throughput)")));
            }
        };
        let mut properties = IndexMap::new();
        let mut set = |key: &str, value: String| _ = properties.insert(key.to_owned(), value);
        set(PRECISION, options.precision.to_string());
        set("PERFORMANCE_HINT", hint.to_owned());
        let streams = streams(&asked, options)?;
        if let Some(streams) = streams {
            set("NUM_STREAMS", streams.to_string());
        }
        if device == PROCESSOR || options.threads > 0 {
            set(THREADS, threads(options).to_string());
        }
        properties.extend(further(&asked)?);
        let root = options.config.get("perf_dir").and_then(Json::as_str).unwrap_or_default();
        Ok(Settings {
            device,
            precision: options.precision,
            properties,
            side_by_side: streams.map_or(hint == "THROUGHPUT", |streams| streams > 1),
            export: asked.text(EXPORT)?.map(|folder| Path::new(root).join(folder)),
            library: asked.text(LIBRARY)?.map(PathBuf::from),
            asked,
        })
    }

    /// Whether the device hands the work on to others.
    pub(super) fn is_over_others(&self) -> bool {
        OVER_OTHERS.contains(&self.device.split(':').next().unwrap_or_default())
    }

    /// An error about the artifact.
    pub(super) fn refuse_artifact(&self, given: Artifact<'_>) -> EngineError {
        const TAKES: &str = "an ONNX file, a model in its own format (.xml) or one that it exported (.blob)";
        self.asked.refuse_artifact(TAKES, given)
    }

    /// An error about the device.
    pub(super) fn refuse_device(&self, reason: String) -> EngineError {
        self.asked.refuse(DEVICE, reason)
    }

    /// What OpenVINO said, as an error about a property of the user's when it names one.
    pub(super) fn refuse_property(&self, said: &str) -> Option<EngineError> {
        let own = |key: &str| OWN.iter().any(|(own, _)| *own == key);
        let named = self.properties.keys().find(|key| !own(key) && said.contains(key.as_str()))?;
        Some(self.asked.refuse(PROPERTIES, format!("`{named}`: {}", super::plain(said))))
    }
}

fn streams(asked: &Asked<'_>, options: &Options) -> Result<Option<u64>, EngineError> {
    let Some(json) = options.extra.get(STREAMS).filter(|json| !json.is_null()) else { return Ok(None) };
    let streams = json.as_u64().filter(|streams| *streams > 0);
    streams.map(Some).ok_or_else(|| asked.refuse(STREAMS, format!("`{json}` is not a whole number of at least 1")))
}

/// The user's properties as OpenVINO takes them: everything is text, and yes and no are those words.
fn further(asked: &Asked<'_>) -> Result<IndexMap<String, String>, EngineError> {
    let text = |(key, value): (String, Json)| {
        if let Some((_, by)) = OWN.iter().find(|(own, _)| *own == key) {
            return Err(asked.refuse(PROPERTIES, format!("`{key}` is set by {by}")));
        }
        match &value {
            Json::String(text) => Ok((key, text.clone())),
            Json::Number(number) => Ok((key, number.to_string())),
            Json::Bool(yes) => Ok((key, if *yes { "YES" } else { "NO" }.to_owned())),
            other => Err(asked.refuse(PROPERTIES, format!("`{key}`: `{other}` is not text, a number, true or false"))),
        }
    };
    asked.map(PROPERTIES)?.into_iter().flatten().map(text).collect()
}
