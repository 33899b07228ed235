//! The messages, as they stand on a line each. `runtime/sidecar/PROTOCOL.md` explains them; a test replays its examples.
//!
//! Fields that this version does not know are ignored in answers, so that a sidecar may say more than it is asked.

use std::path::PathBuf;

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::event::ThirdValue;
use crate::tensor::{DType, TensorSpec};

/// The version of the protocol that this program speaks.
pub(super) const PROTOCOL: u32 = 1;

/// What the host asks; each is answered by one [`Answer`], in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    /// First of all: who are you?
    Hello { protocol: u32, host: String },
    /// Load, and for a compiler compile, a model.
    Load(Box<Load>),
    /// Map this file: it is the buffer of this number from now on.
    Lend { buffer: u32, file: PathBuf, bytes: u64 },
    /// Forget these buffers; nothing reads them any more.
    TakeBack { buffers: Vec<u32> },
    /// Compute; answered when the device has finished. Outputs of the runs in `forget` are not wanted any more.
    Run { run: u64, inputs: Vec<Input>, forget: Vec<u64> },
    /// Copy an output of a run to a buffer.
    Fetch { run: u64, output: usize, buffer: u32 },
    /// How much memory is in use on the device?
    Memory,
    /// A script's question about the loaded model.
    Question { question: String, argument: Json },
    /// A setting of the loaded model, for what is run from now on.
    Tune { setting: String, value: Json },
    /// The end.
    Bye,
}

impl Ask {
    /// Its name, as it stands in the message.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Ask::Hello { .. } => "hello",
            Ask::Load(_) => "load",
            Ask::Lend { .. } => "lend",
            Ask::TakeBack { .. } => "take_back",
            Ask::Run { .. } => "run",
            Ask::Fetch { .. } => "fetch",
            Ask::Memory => "memory",
            Ask::Question { .. } => "question",
            Ask::Tune { .. } => "tune",
            Ask::Bye => "bye",
        }
    }
}

/// What to load, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    /// Which side of the case it takes.
    pub(super) role: Role,
    /// What the file is.
    pub(super) kind: Kind,
    /// The file.
    pub(super) path: PathBuf,
    /// What the model is fed, as far as the host knows.
    pub(super) inputs: Vec<Info>,
    /// What it gives.
    pub(super) outputs: Vec<Info>,
    /// The floating-point type to compute in.
    pub(super) precision: DTypeName,
    /// Rows of a full batch.
    pub(super) batch_size: usize,
    /// Threads to compute with; 0 is the engine's default.
    pub(super) threads: usize,
    /// The options of vendor.yaml under the case's own values.
    pub(super) options: IndexMap<String, Json>,
    /// The merged configuration of the case.
    pub(super) config: IndexMap<String, Json>,
}

/// A side of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// It validates.
    Framework,
    /// It infers.
    Compiler,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// An ONNX file.
    Onnx,
    /// What the compiler made earlier (`exist_compiler_path`).
    Compiled,
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
}

impl From<&ValueInfo> for Info {
    fn from(info: &ValueInfo) -> Self {
        Info { name: info.name.clone(), spec: info.spec.clone() }
    }
}

/// An element type by its name: `f32`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct DTypeName(pub(super) String);

impl From<DType> for DTypeName {
    fn from(dtype: DType) -> Self {
        DTypeName(dtype.name().to_owned())
    }
}

/// An input of a run: bytes of a buffer, or an output of an earlier run that is still kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Input {
    Buffer {
        spec: TensorSpec,
        buffer: u32,
        offset: usize,
    },
    /// `spec` is what the model declares; the sidecar may keep the output in another shape.
    Output {
        spec: TensorSpec,
        run: u64,
        output: usize,
    },
}

/// What the sidecar answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// To `hello`.
    Hello(Hello),
    /// To `load`.
    Loaded(Loaded),
    /// To `run`: the outputs are computed.
    Ran(Ran),
    /// To `memory`; null when it is not known.
    Memory { bytes: Option<u64> },
    /// To `question`.
    Answered { value: Json },
    /// To everything else.
    Done,
    /// To anything: it could not be done.
    Error(Told),
}

/// Who the sidecar is, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) roles: Vec<Role>,
    /// What files it loads.
    pub(super) kinds: Vec<Kind>,
    pub(super) precisions: Vec<DTypeName>,
}

/// What was loaded. Inputs and outputs are left out when they are those that the host said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    #[serde(default)]
    pub(super) inputs: Option<Vec<Info>>,
    #[serde(default)]
    pub(super) outputs: Option<Vec<Info>>,
    /// The device, as the record names it; `cpu` when it is left out.
    #[serde(default)]
    pub(super) device: Option<String>,
    /// Threads that it really computes with; 0 or left out when it does not know.
    #[serde(default)]
    pub(super) threads: usize,
}

/// What was computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ran {
    /// The run that is answered; left out by sidecars that do not say.
    #[serde(default)]
    pub(super) run: Option<u64>,
    pub(super) outputs: Vec<TensorSpec>,
    /// What the vendor's code wants taken off (`foo_time`).
    #[serde(default)]
    pub(super) seconds: Option<f64>,
    /// What it gave besides; said once.
    #[serde(default)]
    pub(super) third: Option<ThirdValue>,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// What went wrong, perhaps in several lines.
    pub(super) reason: String,
    /// The operator that the engine lacks, when that is it.
    #[serde(default)]
    pub(super) operator: Option<Lacking>,
}

/// An operator that an engine lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lacking {
    pub(super) op: String,
    pub(super) node: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in the document must be what is read and written here, every kind of it.
    #[test]
    fn the_examples_of_the_document_are_the_messages() {
        let text = include_str!("../../sidecar/PROTOCOL.md");
        let (mut asks, mut answers) = (Vec::new(), Vec::new());
        for line in text.split("```json\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()) {
            let json: Json = serde_json::from_str(line).unwrap();
            if json.get("ask").is_some() {
                let ask: Ask = serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(serde_json::to_value(&ask).unwrap(), json);
                assert_eq!(json["ask"], ask.name());
                asks.push(ask.name());
            } else {
                let answer: Answer =
                    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut again = serde_json::to_value(&answer).unwrap();
                // What may be left out is null when it is.
                again.as_object_mut().unwrap().retain(|key, value| !value.is_null() || json.get(key).is_some());
                assert_eq!(again, json);
                answers.push(json["answer"].as_str().unwrap().to_owned());
            }
        }
        for kind in ["hello", "load", "lend", "take_back", "run", "fetch", "memory", "question", "tune", "bye"] {
            assert!(asks.contains(&kind), "{kind}");
        }
        for kind in ["hello", "loaded", "ran", "memory", "answered", "done", "error"] {
            assert!(answers.iter().any(|answer| answer == kind), "{kind}");
        }
    }

    #[test]
    fn an_answer_may_say_more_than_this_version_knows() {
        let answer: Answer = serde_json::from_str(r#"{"answer": "memory", "bytes": 5, "bytes_max": 7}"#).unwrap();
        assert_eq!(answer, Answer::Memory { bytes: Some(5) });
    }
}
