//! The messages of the sidecar protocol, one JSON object on each line. `runtime/sidecar/PROTOCOL.md` explains them; a
//! test replays its examples.
//!
//! Unknown fields of a reply are ignored, so that a sidecar may report more than this version understands.

use std::path::PathBuf;

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use flagperf_core::description::ConfigRead;
use flagperf_core::event::ThirdValue;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::{DType, TensorSpec};

/// The version of the protocol that this program supports.
pub(super) const PROTOCOL: u32 = 1;

/// The record's text for a version or a device that the sidecar does not report.
pub(super) const NOT_TOLD: &str = "not told";

/// A request of the host. The sidecar answers each one with a [`Reply`], in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// The first request: the sidecar identifies itself.
    Hello { protocol: u32, host: String },
    /// Load a model; a compiler also compiles it.
    Load(Box<LoadRequest>),
    /// Map this file; it is the buffer of this number from now on.
    Lend { buffer: u32, file: PathBuf, bytes: u64 },
    /// Forget these buffers; the host no longer reads them.
    TakeBack { buffers: Vec<u32> },
    /// Compute, and reply when the device has finished. The outputs of the runs in `forget` are no longer needed.
    Run { run: u64, inputs: Vec<RunInput>, forget: Vec<u64> },
    /// Copy an output of a run to a buffer.
    Fetch { run: u64, output: usize, buffer: u32 },
    /// Report how much memory is in use on the device.
    Memory,
    /// Answer a script's question about the loaded model.
    Question { question: String, argument: Json },
    /// Change a setting of the loaded model for later runs.
    Tune { setting: String, value: Json },
    /// End the process; there is no reply.
    Bye,
}

impl Request {
    /// Returns the name of the request in its message.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Hello { .. } => "hello",
            Request::Load(_) => "load",
            Request::Lend { .. } => "lend",
            Request::TakeBack { .. } => "take_back",
            Request::Run { .. } => "run",
            Request::Fetch { .. } => "fetch",
            Request::Memory => "memory",
            Request::Question { .. } => "question",
            Request::Tune { .. } => "tune",
            Request::Bye => "bye",
        }
    }
}

/// A model to load, and the settings for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadRequest {
    /// The side of the case for which the model is loaded.
    pub(super) role: EngineRole,
    pub(super) kind: FileKind,
    /// The file.
    pub(super) path: PathBuf,
    /// The inputs of the model, as far as the host knows them.
    pub(super) inputs: Vec<NamedSpec>,
    /// The outputs of the model, as far as the host knows them.
    pub(super) outputs: Vec<NamedSpec>,
    /// The floating-point type to compute in.
    pub(super) precision: DTypeName,
    /// Rows of a full batch.
    pub(super) batch_size: usize,
    /// Threads to compute with; 0 is the engine's default.
    pub(super) threads: usize,
    /// The options of the engine's entry in vendor.yaml, overridden by those of the case.
    pub(super) options: IndexMap<String, Json>,
    /// The merged configuration of the case.
    pub(super) config: IndexMap<String, Json>,
}

/// The kind of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileKind {
    Onnx,
    /// A file that the compiler wrote earlier (`exist_compiler_path`).
    Compiled,
}

/// The name and the spec of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamedSpec {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
}

impl From<&ValueInfo> for NamedSpec {
    fn from(info: &ValueInfo) -> Self {
        NamedSpec { name: info.name.clone(), spec: info.spec.clone() }
    }
}

/// The name of an element type: `f32`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct DTypeName(pub(super) String);

impl From<DType> for DTypeName {
    fn from(dtype: DType) -> Self {
        DTypeName(dtype.name().to_owned())
    }
}

/// An input of a run: a range of a buffer, or an output of an earlier run that the sidecar still keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum RunInput {
    Buffer {
        spec: TensorSpec,
        buffer: u32,
        offset: usize,
    },
    /// `spec` is the declared one; the sidecar may keep the output in another shape.
    Output {
        spec: TensorSpec,
        run: u64,
        output: usize,
    },
}

/// A reply of the sidecar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Reply {
    /// To `hello`.
    Hello(HelloReply),
    /// To `load`.
    Loaded(LoadReply),
    /// To `run`, before `ran`: tokens of an answer, from a sidecar that streams them.
    Tokens(TokensReply),
    /// To `run`: the outputs are computed.
    Ran(RunReply),
    /// To `memory`; null if the sidecar does not know it.
    Memory {
        bytes: Option<u64>,
        /// The files of the modules that were imported since the last such reply, if the adaptor sends it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        modules: Vec<PathBuf>,
    },
    /// To `question`.
    Answered { value: Json },
    /// To every other request.
    Done,
    /// To any request that failed.
    Error(ErrorReply),
}

/// The identity and the capabilities of a sidecar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HelloReply {
    pub(super) protocol: u32,
    pub(super) name: String,
    /// The version for the record; null or absent if the sidecar does not report it.
    #[serde(default)]
    pub(super) version: Option<String>,
    pub(super) roles: Vec<EngineRole>,
    /// The kinds of files that the sidecar loads.
    pub(super) kinds: Vec<FileKind>,
    pub(super) precisions: Vec<DTypeName>,
    /// The newest version of the standard operator set that the sidecar reads; 17 if it is absent. A model is passed
    /// without the composite operators of newer versions.
    #[serde(default)]
    pub(super) opset_max: Option<i64>,
    /// The list of options besides `threads`; null or absent if the sidecar checks them when it loads a model. It is
    /// parsed later, so that an error names the option.
    #[serde(default)]
    pub(super) options: Option<Json>,
    /// The keys of `config` that the class reads, if the adaptor sends the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) config_reads: Vec<ConfigRead>,
}

/// A loaded model. Inputs and outputs are left out if they are those of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoadReply {
    #[serde(default)]
    pub(super) inputs: Option<Vec<NamedSpec>>,
    #[serde(default)]
    pub(super) outputs: Option<Vec<NamedSpec>>,
    /// The device, as the record names it; null or absent if the sidecar does not report it.
    #[serde(default)]
    pub(super) device: Option<String>,
    /// The number of threads that actually compute; 0 or left out if the sidecar does not know it.
    #[serde(default)]
    pub(super) threads: usize,
    /// Whether the sidecar generates text and streams its tokens: it then has the inputs and outputs of such engines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) streams_tokens: bool,
}

/// Tokens of the answer to a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokensReply {
    /// The row of the prompt in the batch.
    pub(super) row: usize,
    pub(super) tokens: Vec<i64>,
}

/// The outputs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunReply {
    /// The number of the run; some sidecars leave it out.
    #[serde(default)]
    pub(super) run: Option<u64>,
    pub(super) outputs: Vec<TensorSpec>,
    /// Time that the vendor's code requests to subtract (`foo_time`).
    #[serde(default)]
    pub(super) seconds: Option<f64>,
    /// A value that the vendor's class returned after outputs and seconds; sent once.
    #[serde(default)]
    pub(super) third: Option<ThirdValue>,
}

/// A sidecar's error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ErrorReply {
    /// The reason of the failure, in one or more lines.
    pub(super) reason: String,
    /// The operator that the engine lacks, if that is the cause.
    #[serde(default)]
    pub(super) operator: Option<MissingOperator>,
}

/// An operator that an engine does not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MissingOperator {
    pub(super) op: String,
    pub(super) node: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples contain every kind of message, and each one survives parsing and serialisation unchanged.
    #[test]
    fn the_examples_of_the_document_are_valid_messages() {
        let text = include_str!("../../../sidecar/PROTOCOL.md");
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for line in text.split("```json\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()) {
            let json: Json = serde_json::from_str(line).unwrap();
            if json.get("ask").is_some() {
                let request: Request =
                    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(serde_json::to_value(&request).unwrap(), json);
                assert_eq!(json["ask"], request.name());
                requests.push(request.name());
            } else {
                let reply: Reply =
                    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut again = serde_json::to_value(&reply).unwrap();
                // Optional fields that the example leaves out are serialised as null.
                again.as_object_mut().unwrap().retain(|key, value| !value.is_null() || json.get(key).is_some());
                assert_eq!(again, json);
                replies.push(json["answer"].as_str().unwrap().to_owned());
            }
        }
        for kind in ["hello", "load", "lend", "take_back", "run", "fetch", "memory", "question", "tune", "bye"] {
            assert!(requests.contains(&kind), "{kind}");
        }
        for kind in ["hello", "loaded", "tokens", "ran", "memory", "answered", "done", "error"] {
            assert!(replies.iter().any(|reply| reply == kind), "{kind}");
        }
    }

    #[test]
    fn unknown_fields_of_a_reply_are_ignored() {
        let reply: Reply = serde_json::from_str(r#"{"answer": "memory", "bytes": 5, "bytes_max": 7}"#).unwrap();
        assert_eq!(reply, Reply::Memory { bytes: Some(5), modules: Vec::new() });
    }
}
