//! Events: workers emit them; the display, the logs and the record read them.
//!
//! A worker writes one JSON line per event to standard output. JSON has neither NaN nor infinity: both are written as
//! null and read back as NaN. Knows nothing about the readers.

mod budget;
mod dataset;
mod rewrite;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::measure::{
    AuditReport, EpochLosses, Evaluation, LocalSteps, PassReport, QueryColumns, ScenarioReport, StepColumns, TraceSpan,
    TrainedBy, TrainingEnd, TrainingProgress, TrainingReplay, TrialEnd,
};
use crate::metric::Agreement;
use crate::units::{Bytes, Seconds};

pub use crate::step::{Phase, Step};
pub use budget::{EventBudget, LINE_BYTES_MAX, LINES_BYTES_MAX, LINES_MAX, TEXT_BYTES_MAX};
pub use dataset::{DatasetFacts, DecoderFacts, LoadingSearch, LoadingTrial};
pub use rewrite::{GraphChange, GraphProof, GraphRewrite};

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Detail for developers.
    Debug,
    /// Normal operation.
    Info,
    /// Something that a reader of the results should know.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    /// Returns the level for a value of `FLAGPERF_LOG_LEVEL`, in any letter case; an unknown word selects `Info`.
    pub fn from_word(word: &str) -> Self {
        match word.to_ascii_uppercase().as_str() {
            "DEBUG" => Level::Debug,
            "WARNING" => Level::Warning,
            "ERROR" => Level::Error,
            _ => Level::Info,
        }
    }
}

/// Something that happened in a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The worker has read its job.
    Started {
        /// Process id of the worker.
        pid: u32,
        /// The SHA-256 of the seed of the order of samples and of the audit. An engine can read events while it is measured, so the
        /// seed itself is only in the record, which is written when the case has ended.
        #[serde(default)]
        run_seed_sha256: String,
    },
    /// The worker has restricted itself and its children.
    Protected(Protection),
    /// A step begins.
    StepBegin {
        step: Step,
        /// A description for people: `compiling with cpu.rten`.
        detail: String,
    },
    /// A step ended.
    StepEnd {
        step: Step,
        /// Wall time by the worker's monotonic clock.
        time_s: Seconds,
    },
    /// Progress of a measured loop: several times a second when the run is displayed, otherwise every `log_freq` steps.
    Progress {
        /// Validation or inference, also during warm-up.
        step: Step,
        /// Whether this is warm-up, which is not part of the results.
        warmup: bool,
        /// Index of the pass, from 0.
        pass: u32,
        /// Number of passes; 0 when unknown.
        passes: u32,
        /// Batches done in this pass.
        batch: u64,
        /// Number of batches in a pass; 0 when unknown.
        batches: u64,
        /// Samples done since the loop began.
        samples: u64,
        /// Time since the loop began.
        elapsed_s: Seconds,
        /// The number of the repetition of a training, from 1, and of all; `None` if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repetition: Option<[u32; 2]>,
    },
    /// The model: created in the validation phase, or read from its files in the inference phase.
    Model(ModelFacts),
    /// A script changed a graph before it was exported.
    Rewrite(Box<GraphRewrite>),
    /// The dataset.
    Dataset(DatasetFacts),
    /// What decoded the images of the dataset, once they are decoded.
    Decoder(DecoderFacts),
    /// The threads and the batches for loading that the measurement uses were searched for.
    Loading(LoadingSearch),
    /// The engine that was loaded.
    Engine(Box<EngineFacts>),
    /// The engine's sidecar, including what is known only after its first run.
    Sidecar(Box<SidecarFacts>),
    /// A sample could not be read and is counted as failed.
    SampleFailed {
        /// The file or other name of the sample.
        sample: String,
        /// Why.
        reason: String,
    },
    /// The phase wrote a file.
    Wrote {
        /// The kind of file: `onnx`, `manifest`, `samples`.
        what: String,
        /// Path of the file.
        path: String,
        /// Size of the file.
        size_bytes: Bytes,
        /// SHA-256 of the content, hexadecimal; empty for a file that is rewritten during the run.
        sha256: String,
    },
    /// The worker waits for others before its measured loop.
    Ready {
        /// Validation or inference.
        step: Step,
    },
    /// A pass over the dataset begins.
    PassBegin {
        /// Validation or inference.
        step: Step,
        /// Index of the pass, from 0.
        pass: u32,
    },
    /// A pass ended: the raw times of its steps, or of the next ones of a long pass. Nothing is emitted between the
    /// end of the pass and this event.
    Steps {
        /// Validation or inference.
        step: Step,
        /// The times, in order.
        #[serde(flatten)]
        times: StepColumns,
    },
    /// The counts so far, emitted after the times of every pass.
    PassEnd(Box<PassReport>),
    /// The agreement of the outputs of inference with those of validation; in validation, of some of its outputs with those of
    /// flagperf's interpreter.
    Agreement(Agreement),
    /// What the audit of inference observed.
    Audit(Box<AuditReport>),
    /// A trial of a scenario begins.
    TrialBegin {
        /// Index of the trial, from 0.
        trial: u32,
        /// Queries of its schedule, and their mean rate; `None` if each waits for the answer to its predecessor.
        scheduled: Option<u64>,
        queries_per_s: Option<f64>,
    },
    /// Progress of a trial: several times a second when the run is displayed, otherwise every ten seconds.
    TrialProgress {
        trial: u32,
        answered: u64,
        /// Time since the trial began, and the time in which its queries arrive.
        elapsed_s: Seconds,
        expected_s: Seconds,
    },
    /// Queries of a scenario that were answered, in the order of their answers.
    Queries {
        /// Their times.
        #[serde(flatten)]
        times: QueryColumns,
    },
    /// A trial of a scenario ended, after the times of its queries.
    TrialEnd(TrialEnd),
    /// The scenario ended, after its trials.
    Scenario(Box<ScenarioReport>),
    /// Some of what ran during batches that were traced after the measurement.
    Trace { spans: Vec<TraceSpan> },
    /// The dataset with which a model is trained; [`Event::Dataset`] is that of its evaluation.
    TrainingDataset(DatasetFacts),
    /// What the steps of an epoch computed, after the times of its pass.
    EpochLosses(Box<EpochLosses>),
    /// The model was evaluated between epochs.
    Evaluation(Evaluation),
    /// A training reached its target or its last epoch.
    TrainingEnd(TrainingEnd),
    /// The training goes on from a checkpoint.
    TrainingResumed(TrainingProgress),
    /// How many processes have trained the steps of a training that goes on.
    TrainedBy { parts: Vec<TrainedBy> },
    /// A checkpoint is on disk.
    Checkpoint {
        /// Name of its folder.
        name: String,
        /// SHA-256 over the hashes of its files, hexadecimal.
        sha256: String,
    },
    /// Steps without exchange between the processes that trained together were timed.
    LocalSteps(LocalSteps),
    /// Some steps of the trainings were computed again by another engine.
    TrainingReplay(Box<TrainingReplay>),
    /// What a training program printed about itself at its end.
    Reported {
        /// Which training of the case, from 0.
        round: u32,
        /// The values by the program's own names.
        values: IndexMap<String, serde_json::Value>,
    },
    /// A line for the logs.
    Log {
        /// Severity.
        level: Level,
        /// The origin of the line: `script resnet50/model.rhai:12`, `loader`.
        source: String,
        /// The text of the line.
        message: String,
    },
    /// The phase failed. This is the last event.
    Failed(Failure),
    /// The phase succeeded. This is the last event.
    Finished {
        /// Peak resident memory of the worker.
        memory_bytes_max: Bytes,
    },
    /// What the conductor of a case observed and decided itself, as the record states it: the last line of the events of a case. A
    /// worker never emits it.
    Observed {
        /// The parts of the record, by their keys in the record.
        facts: serde_json::Value,
    },
}

impl Event {
    /// Returns whether the event only says how far the run is, so that it is displayed and not stored.
    pub const fn is_progress(&self) -> bool {
        matches!(self, Event::Progress { .. } | Event::TrialProgress { .. })
    }
}

/// Restrictions that a worker set on itself before it ran an engine. The worker's children have them, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Protection {
    /// Neither the memory nor the open files of processes outside can be reached (Landlock); with Landlock ABI 6 or
    /// later, they cannot be signalled.
    pub isolated: bool,
    /// Files can be written only in the folder of the case, in the data directory and in the folder of temporary files.
    pub limited_writes: bool,
    /// No TCP connection can be made or accepted.
    pub no_tcp: bool,
    /// System calls that trace other processes, set the clock or change the machine are refused (seccomp).
    pub refused_system_calls: bool,
}

/// A failure: the step in which it happened, the reason, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// The step that failed.
    pub step: Option<Step>,
    /// A lower-case fragment with values in backticks. It may have several lines, such as the source line of a script.
    pub reason: String,
    /// What to do about the failure; may be empty.
    pub hint: String,
}

/// Properties of a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ModelFacts {
    /// Number of learned values in all graphs, those that several graphs share once; `None` when the host does not read
    /// the model.
    pub parameters: Option<u64>,
    /// Version of the standard operator set; 0 when the host does not read the model.
    pub opset: i64,
    /// The origin of the weights, for people: file names, `seeded random values`, `from m.onnx`.
    pub weights: String,
    /// Whether the weights are known to be random, so that accuracy is meaningless. configs/README.md states the rule
    /// for model files.
    pub weights_are_random: bool,
    /// In validation, every file from which the graphs read weights.
    #[serde(default)]
    pub weights_files: Vec<FileFacts>,
    /// Tensor specifications of the inputs by name.
    pub inputs: IndexMap<String, String>,
    /// Tensor specifications of the outputs by name.
    pub outputs: IndexMap<String, String>,
    /// In inference, the opened files of each graph: first the file that was passed to the engine, then its data files.
    /// Empty when the engine received a graph in memory or a placeholder.
    #[serde(default)]
    pub files: IndexMap<String, Vec<FileFacts>>,
}

/// A file, identified by its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FileFacts {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: Bytes,
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
}

/// Properties of an engine and how it was loaded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct EngineFacts {
    /// Name in the table of engines.
    pub name: String,
    /// Version of the underlying library; `not told` for a sidecar that does not report it.
    pub version: String,
    /// Device on which the engine runs, by the engine's name for it (`cpu`); `not told` for a sidecar that does not
    /// report it.
    pub device: String,
    /// Unique id of the device (a UUID), when the vendor's monitor can identify the device with certainty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Version of the device's driver, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Element type in which the engine computes.
    pub precision: String,
    /// Number of compute threads; 0 when the engine does not report it.
    pub threads: u32,
    /// Options that were passed to the engine.
    pub options: IndexMap<String, serde_json::Value>,
    /// Time spent loading or compiling.
    pub load_s: Seconds,
    /// Number of model nodes per execution provider, for an engine that has providers.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub nodes_by_provider: IndexMap<String, u64>,
    /// The plug-in that contains the engine, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginFacts>,
    /// The sidecar that is the engine, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarFacts>,
    /// The server that is the engine, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerFacts>,
    /// The libraries of the vendor's operators that the model uses, as `VENDOR.NAME/cuda.so`, with their SHA-256; for every kind
    /// of device for which they were built.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub operators: IndexMap<String, String>,
}

impl EngineFacts {
    /// Returns whether the engine's device is the processor.
    pub fn runs_on_processor(&self) -> bool {
        is_processor(&self.device)
    }
}

/// Returns whether a device, as an engine names it, is the processor.
pub fn is_processor(device: &str) -> bool {
    device.starts_with("cpu")
}

/// A server that was started by somebody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ServerFacts {
    /// Its address.
    pub url: String,
    /// The model that it was asked for, by its own name.
    pub model: String,
    /// What the server's replies say it is: the header `Server`, and the owner of the model.
    pub reported: Vec<String>,
}

/// An engine that a vendor supplies as a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct SidecarFacts {
    /// Name that the sidecar reports.
    pub name: String,
    /// Version of the computing library that the sidecar reports.
    pub version: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The program that the command starts, without links: for a script of the vendor, the one that its first line names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether the process that the command starts maps the buffers with inputs and outputs itself: otherwise another one computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maps_buffers: Option<bool>,
    /// SHA-256, hexadecimal, of the vendor's files in the command, by their names in the command, and of the program.
    pub files_sha256: IndexMap<String, String>,
    /// SHA-256, hexadecimal, of the files of the Python modules that the sidecar reported at the end of its phase, by path. The files
    /// of a package in `site-packages` have one hash, over their relative paths and their hashes, as have those of the standard
    /// library.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub modules_sha256: IndexMap<String, String>,
    /// Files of modules that could not be hashed, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_not_hashed: Vec<String>,
    /// Outputs whose shape differed from the one that the model declares, and which were reshaped to it, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub reshaped_outputs: IndexMap<String, ReshapedOutput>,
    /// The value that the first run returned besides outputs and seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third_value: Option<ThirdValue>,
}

/// An output that was reshaped to the declared shape; the order of its elements is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ReshapedOutput {
    /// Specification of the received output: `4000,f32`.
    pub from: String,
    /// Specification that the model declares: `4,1000,f32`.
    pub to: String,
}

/// A value that a vendor's class returns after outputs and seconds. It is recorded and not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ThirdValue {
    /// Name of the value's type: `int`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The beginning of the value as text: `2048`.
    pub repr: String,
}

/// An engine that a vendor supplies as a shared library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PluginFacts {
    /// Name that the plug-in reports.
    pub name: String,
    /// Version of the underlying library.
    pub version: String,
    /// Path of the shared library.
    pub library: String,
    /// SHA-256 of the shared library, hexadecimal; `None` when it could not be read.
    pub library_sha256: Option<String>,
}
