//! What happens in a run, as values: workers emit events, the display, the logs and the record read them.
//!
//! One JSON line an event on a worker's standard output; JSON has no NaN and no infinity, which are null there and read
//! back as NaN. Knows no reader.

mod budget;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::measure::Measurement;
use crate::metric::Agreement;
use crate::units::{Bytes, Seconds};

pub use crate::step::{Phase, Step};
pub use budget::{EventBudget, LINE_BYTES_MAX, LINES_BYTES_MAX, LINES_MAX, TEXT_BYTES_MAX};

/// How serious a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Detail for developers.
    Debug,
    /// Normal course.
    Info,
    /// Something a reader of the result should know.
    Warning,
    /// Something failed.
    Error,
}

/// One thing that happened in a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The worker read its job; `pid` is its process.
    Started {
        /// Process id of the worker.
        pid: u32,
    },
    /// A step begins.
    StepBegin {
        /// The step.
        step: Step,
        /// What it does, for a person: `compiling with cpu.rten`.
        detail: String,
    },
    /// A step ended.
    StepEnd {
        /// The step.
        step: Step,
        /// Wall time by the worker's monotonic clock.
        time_s: Seconds,
    },
    /// Where a measured loop stands; every step while someone watches, else every `log_freq` steps.
    Progress {
        /// Validation or inference; warm-up reports as its own.
        step: Step,
        /// Whether this is warm-up, which counts for nothing.
        warmup: bool,
        /// Pass, from 0.
        pass: u32,
        /// Number of passes; 0 when unknown.
        passes: u32,
        /// Batches done in this pass.
        batch: u64,
        /// Batches of a pass; 0 when unknown.
        batches: u64,
        /// Samples done since the loop began.
        samples: u64,
        /// Time since the loop began.
        elapsed_s: Seconds,
    },
    /// What the model is: made in validate, or read from the file in infer.
    Model(ModelFacts),
    /// What the dataset is.
    Dataset(DatasetFacts),
    /// Which engine was loaded.
    Engine(Box<EngineFacts>),
    /// The sidecar of the engine, with what it showed when it ran.
    Sidecar(Box<SidecarFacts>),
    /// A sample that could not be read and is counted as failed.
    SampleFailed {
        /// The file or other name of the sample.
        sample: String,
        /// Why.
        reason: String,
    },
    /// Files written by the phase, by what they are (`onnx`, `samples`, `outputs`).
    Wrote {
        /// What the file is.
        what: String,
        /// Where it is.
        path: String,
        /// Its size.
        size_bytes: Bytes,
        /// SHA-256 of its content, hexadecimal; empty for what is rewritten as the run goes on.
        sha256: String,
    },
    /// The phase's figures so far, after every pass. Its `passes` holds only those that no earlier event had.
    Measured(Box<Measurement>),
    /// How the outputs of inference agree with those of validation.
    Agreement(Agreement),
    /// A line for the logs.
    Log {
        /// How serious.
        level: Level,
        /// Where it was said: `script resnet50/model.rhai:12`, `loader`.
        source: String,
        /// What was said.
        message: String,
    },
    /// The phase failed; nothing follows.
    Failed(Failure),
    /// The phase ended well; nothing follows.
    Finished {
        /// Peak resident memory of the worker.
        memory_bytes_max: Bytes,
    },
}

/// Why something failed: what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// The step in which it happened.
    pub step: Option<Step>,
    /// Lower-case fragment with the value in backticks; may have several lines (a script's source line).
    pub reason: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

/// What a model is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Learned values, over all graphs; `None` when the model is not read.
    pub parameters: Option<u64>,
    /// Multiply-adds for one sample, over all graphs; `None` when a shape is unknown.
    pub multiply_adds_per_sample: Option<u64>,
    /// Version of the standard operator set; 0 when the model is not read.
    pub opset: i64,
    /// Where the weights come from, in words: file names, `seeded random values`, `of m.onnx`.
    pub weights: String,
    /// Whether the weights are known to be random: then accuracy means nothing. configs/README.md has the rule for model
    /// files.
    pub weights_are_random: bool,
    /// Validation: every file that the graphs read weights from.
    #[serde(default)]
    pub weights_files: Vec<FileFacts>,
    /// Inputs by name, as specifications.
    pub inputs: IndexMap<String, String>,
    /// Outputs by name, as specifications.
    pub outputs: IndexMap<String, String>,
    /// Inference: the files that were opened, by graph: first the one that the engine was given, then those that are
    /// read with it. Empty where the engine was given a graph in memory or a placeholder.
    #[serde(default)]
    pub files: IndexMap<String, Vec<FileFacts>>,
}

/// A file by its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFacts {
    /// Where it is.
    pub path: String,
    /// Its size.
    pub size_bytes: Bytes,
    /// SHA-256 of its content, hexadecimal.
    pub sha256: String,
}

/// What a dataset is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DatasetFacts {
    /// Where it lies.
    pub location: String,
    /// Number of samples.
    pub samples: u64,
    /// SHA-256 over the index (names, sizes and classes in order), hexadecimal.
    pub index_sha256: String,
    /// The steps every sample goes through, as text.
    pub pipeline: Vec<String>,
    /// Whether the project drew it itself (no accuracy means anything on it).
    pub synthetic: bool,
}

/// What an engine is and how it was loaded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Its name in the table of engines.
    pub name: String,
    /// Version of the library behind it.
    pub version: String,
    /// The device it runs on, as the engine names it (`cpu`).
    pub device: String,
    /// What tells the device from every other one (a UUID), where the vendor's monitor knows for certain which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Version of the device's driver, where the device has one that tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The type it computes in.
    pub precision: String,
    /// Threads it computes with; 0 when it does not say.
    pub threads: u32,
    /// Options it was given.
    pub options: IndexMap<String, serde_json::Value>,
    /// Time of loading or compiling.
    pub load_s: Seconds,
    /// Nodes of the model by the provider that runs them, for an engine with providers.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub nodes_by_provider: IndexMap<String, u64>,
    /// The plug-in that it is in, when it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginFacts>,
    /// The process that it is, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarFacts>,
}

/// An engine that the vendor brings as a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarFacts {
    /// Its own name.
    pub name: String,
    /// Version of what computes, as it says.
    pub version: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// SHA-256 of the vendor's files that the command names, hexadecimal, by the name there.
    pub files_sha256: IndexMap<String, String>,
    /// Outputs that came in another shape than the model declares and were taken in the declared one, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub reshaped_outputs: IndexMap<String, ReshapedOutput>,
    /// What the first run gave besides outputs and seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third_value: Option<ThirdValue>,
}

/// An output that was taken in another shape than it came in; the order of its elements is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshapedOutput {
    /// As it came: `4000,f32`.
    pub from: String,
    /// As it was taken, which is what the model declares: `4,1000,f32`.
    pub to: String,
}

/// A value that a vendor's class gives after outputs and seconds; nothing is done with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThirdValue {
    /// The name of its type: `int`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The beginning of the value as text: `2048`.
    pub repr: String,
}

/// An engine that the vendor brings as a shared library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFacts {
    /// Its own name.
    pub name: String,
    /// Version of the library behind it.
    pub version: String,
    /// The shared library.
    pub library: String,
    /// SHA-256 of the shared library, hexadecimal; `None` when it could not be read.
    pub library_sha256: Option<String>,
}
