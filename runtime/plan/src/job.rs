//! The job of a worker: one phase of one case, with every value resolved.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use flagperf_config::Parameters;
use flagperf_core::event::Phase;
use flagperf_core::hash::Seed;
use flagperf_core::limits::Limits;
use flagperf_core::measure::TrainingLength;
use flagperf_core::precision::Precision;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::step::EngineRole;
use flagperf_onnx::TrainingBatches;

/// One phase of one case. The conductor sends it as one JSON line to the worker's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The case: `resnet50`.
    pub case: String,
    /// The vendor whose device is measured: `cpu`.
    pub vendor: String,
    /// Row in the table of monitors for that device; `None` when there is none.
    #[serde(default)]
    pub monitor: Option<String>,
    /// The phase, with the files that only this phase needs.
    #[serde(flatten)]
    pub task: Task,
    /// The folder of the case's scripts.
    pub scripts: PathBuf,
    /// Folder with datasets and weights; scripts can access nothing else.
    pub data_dir: PathBuf,
    /// Existing folder for logs, raw samples and outputs of the case.
    pub log_dir: PathBuf,
    /// The values of configurations.yaml, or of training.yaml for a case that trains, after every overlay.
    pub settings: CaseSettings,
    /// The `config` of scripts: settings, parameters, the vendor's own keys, and `vendor`, `case` and `framework`.
    pub config: IndexMap<String, Value>,
    /// The parameters that the host itself reads, with their types.
    pub parameters: Parameters,
    /// The engine, in the role of the phase: a framework or a compiler.
    pub engine: EngineChoice,
    /// What decodes the images of the dataset; `None` for the processor.
    #[serde(default)]
    pub decoder: Option<DecoderChoice>,
    /// File to which validation writes its outputs and with which inference compares its own; `None` when only one of
    /// the phases runs.
    pub outputs: Option<PathBuf>,
    /// SHA-256 of that file, in hexadecimal, once validation has written it.
    #[serde(default)]
    pub outputs_sha256: Option<String>,
    /// The seed of the order of samples and of the audit, which the conductor draws when the case begins.
    #[serde(default)]
    pub run_seed: Seed,
    /// The processes that train the model together; `None` for one process.
    #[serde(default)]
    pub process_group: Option<ProcessGroup>,
    /// The hashes of the checkpoints of an earlier attempt at the training, by their names.
    #[serde(default)]
    pub checkpoints: IndexMap<String, String>,
    /// What the audit of inference includes.
    #[serde(default)]
    pub audit: AuditScope,
    /// Whether the worker waits for a line of input before each measured loop, so that several begin together.
    #[serde(default)]
    pub waits: bool,
    /// Whether a live display is attached: the worker then reports progress at every step instead of every `log_freq`
    /// steps.
    pub has_live_display: bool,
    /// Environment variables of the worker, in addition to those that it inherits.
    #[serde(default)]
    pub environment: IndexMap<String, String>,
    /// Limits of scripts and of the worker.
    pub limits: Limits,
}

impl Job {
    /// Returns the phase.
    pub const fn phase(&self) -> Phase {
        match self.task {
            Task::Validate { .. } => Phase::Validate,
            Task::Infer { .. } => Phase::Infer,
            Task::Train { .. } => Phase::Train,
        }
    }

    /// Returns the precision that the engine computes in.
    pub fn precision(&self) -> Precision {
        self.settings.precision_of(self.phase())
    }

    /// Returns the precision of weights, inputs and outputs: in a training, of which mixed precision only computes products in
    /// another one, fp32.
    pub fn value_precision(&self) -> Precision {
        if self.phase() == Phase::Train { Precision::Fp32 } else { self.precision() }
    }

    /// Returns the seed of a repetition of the training, from 0: that of the case, or else one that follows from the seed of the
    /// run, so that no engine can know it before.
    pub fn training_seed(&self, round: u32) -> u64 {
        self.parameters.seed.unwrap_or_else(|| self.run_seed.of_training(round))
    }

    /// Returns the job with this seed for its scripts and its command.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Job {
        let mut job = self.clone();
        job.config.insert("seed".to_owned(), seed.into());
        job
    }

    /// Returns the file of validation's outputs while inference runs, in which nobody can read them. The files of a host whose names have
    /// this end are not sent to another one.
    pub fn masked_outputs(&self) -> Option<PathBuf> {
        let mut path = self.outputs.clone()?.into_os_string();
        path.push(".part");
        Some(path.into())
    }

    /// Returns the folder for files that are not needed after the phase. The conductor removes it, however the worker
    /// ended.
    pub fn scratch(&self) -> PathBuf {
        self.log_dir.join("scratch")
    }
}

/// What the audit of inference includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditScope {
    /// Between passes, run the same batch, fresh inputs, one sample in every row, and samples in another order.
    #[default]
    Standard,
    /// Also run a pass of the model with changed weights: its accuracy must fall, and its speed must not change.
    Full,
}

/// What the record calls the file of validation's outputs.
pub const OUTPUTS_KIND: &str = "outputs";

/// What a phase does, beyond the settings that all phases share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Task {
    /// Validation: the case's script creates the model, and the framework runs it.
    Validate {
        /// Path of the exported ONNX file; `None` skips step d. For a model of several graphs, `_<graph>` is appended
        /// to the stem. The manifest lies beside the file ([`super::Manifest::path_beside`]).
        export: Option<PathBuf>,
    },
    /// Inference: the compiler loads a model and runs it.
    Infer { model: ModelInput },
    /// Training: the case's script creates the model, and the engine trains it until it reaches the target. A framework is
    /// given the training step as a graph, a compiler as a file.
    Train { training: Box<TrainingSettings>, role: EngineRole },
}

impl Task {
    /// Returns the task for an engine in this role; only a training has a choice of roles.
    pub(super) fn with_role(self, role: EngineRole) -> Self {
        match self {
            Task::Train { training, .. } => Task::Train { training, role },
            other => other,
        }
    }

    /// Returns the task for a run in the folder `run`.
    pub(super) fn in_run_folder(self, run: &Path) -> Self {
        match self {
            Task::Validate { export } => Task::Validate { export: export.map(|path| run.join(path)) },
            Task::Infer { model } => Task::Infer { model: model.in_run_folder(run) },
            Task::Train { .. } => self,
        }
    }
}

/// The values of training.yaml after every overlay, beside those in [`CaseSettings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingSettings {
    /// Samples per batch of an evaluation.
    pub eval_batch_size: u32,
    /// The learning rate that the case's schedule starts from.
    pub learning_rate: f64,
    /// The batches whose mean gradient makes one update.
    pub gradient_accumulation_steps: u32,
    /// When the training evaluates and ends.
    #[serde(flatten)]
    pub length: TrainingLength,
    /// The metric and the value of it that end the training.
    pub target: IndexMap<String, f64>,
    /// The hardware in the key of the case: `A100`.
    pub hardware: String,
    /// The number of processes that train together, one for each device.
    #[serde(default = "one")]
    pub processes: u32,
    /// Whether batch normalizations use the statistics of the batches of all processes.
    #[serde(default)]
    pub sync_batch_norm: bool,
    /// Whether each process keeps what the optimizer remembers of its part of the parameters only.
    #[serde(default)]
    pub shard_optimizer: bool,
    /// The training program and its arguments, with placeholders: see [`Job::program`]. Empty if an engine trains.
    #[serde(default)]
    pub command: Vec<String>,
    /// The folder in which the program starts, relative to the data directory.
    #[serde(default)]
    pub command_folder: Option<String>,
    /// A regular expression for each figure in the program's lines.
    #[serde(default)]
    pub patterns: IndexMap<String, String>,
    /// The variable of visible devices, with all devices of the case on a host: a program chooses its own by its number.
    #[serde(default)]
    pub devices_of_host: Option<(String, String)>,
}

impl TrainingSettings {
    /// Returns the batches of an update of the process with this number, each of `size` samples.
    pub fn batches(&self, size: u32, rank: u32) -> TrainingBatches {
        let TrainingSettings { gradient_accumulation_steps: accumulated, processes, sync_batch_norm, .. } = *self;
        let shard = (self.shard_optimizer && processes > 1).then_some(rank);
        TrainingBatches { size, accumulated, processes, sync_batch_norm, shard }
    }
}

const fn one() -> u32 {
    1
}

/// The values of configurations.yaml after every overlay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseSettings {
    /// Samples per batch.
    pub batch_size: u32,
    /// Floating-point operations per sample, as declared: an expression such as `2*512*0.33e9`; empty for a training that
    /// declares none.
    pub flops: String,
    /// The value of `flops`; 0 without one.
    pub flops_per_sample: f64,
    /// Operations that `flops` counts for a multiply-add, 1 or 2; `None` when the case does not state it.
    #[serde(default)]
    pub flops_per_multiply_add: Option<u8>,
    /// The precision of the model's computation.
    pub precision: Precision,
    /// The compiler; `None` ends the case after validation.
    pub compiler: Option<String>,
    /// Threads that load data; 0 loads data in the thread of the main loop.
    pub num_workers: u32,
    /// Batches that are read ahead; `None` derives them from the batch size and the threads.
    #[serde(default)]
    pub prefetch: Option<u32>,
    /// Whether more threads and batches are searched for before the measurement.
    #[serde(default)]
    pub search_loading: bool,
    /// The decoder of the vendor that decodes images; `None` for the processor.
    #[serde(default)]
    pub decoder: Option<String>,
    /// Steps from one line of progress to the next.
    pub log_freq: u32,
    /// Passes over the dataset; of a training, how often the case is trained.
    pub repeat: u32,
    /// Microseconds for which a query of a scenario waits at most for others.
    #[serde(default)]
    pub queue_delay_us: u32,
    /// Whether model, validation and export are skipped.
    pub no_validation: bool,
    /// Existing ONNX file to compile; skips the export.
    pub exist_onnx_path: Option<PathBuf>,
    /// Existing compiled file to load; skips the compilation.
    pub exist_compiler_path: Option<PathBuf>,
}

impl CaseSettings {
    /// Returns the precision that the engine of a phase computes in. In place of TF32, a phase with whose outputs another is
    /// compared computes in fp32, so that the comparison is with outputs that are more precise.
    pub fn precision_of(&self, phase: Phase) -> Precision {
        match self.precision {
            Precision::Tf32 if phase.is_reference() => Precision::Fp32,
            precision => precision,
        }
    }
}

/// An engine with its configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// The name in the configuration: a framework (`interpreter`) or compiler (`rten`).
    pub name: String,
    /// Version in the name beyond the name in vendor.yaml: `2.11` for `pytorch_2.11`. The loaded library must have this
    /// version.
    #[serde(default)]
    pub version: Option<String>,
    /// Row in the table of engines.
    pub engine: String,
    /// Threads for the computation; 0 selects the engine's default.
    pub threads: u32,
    /// The vendor's folder; relative paths in `library` and `command` start here.
    #[serde(default)]
    pub folder: PathBuf,
    /// The shared library of a plug-in.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// Program and arguments of a sidecar.
    #[serde(default)]
    pub command: Vec<String>,
    /// Further options: the vendor's defaults, with the overlay's values applied.
    pub options: IndexMap<String, Value>,
}

impl EngineChoice {
    /// Returns the name of the engine's entry in vendor.yaml: the name in the configuration without the version.
    pub fn entry_name(&self) -> &str {
        let version = self.version.as_deref();
        let entry = version.and_then(|version| self.name.strip_suffix(version)?.strip_suffix('_'));
        entry.unwrap_or(&self.name)
    }

    /// Returns the version in the engine's name if the found version is another one: `2.11` admits `2.11.0`.
    pub fn version_mismatch(&self, found: &str) -> Option<&str> {
        let required = self.version.as_deref()?;
        let rest = found.strip_prefix(required);
        let is_admitted = rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()));
        (!is_admitted).then_some(required)
    }
}

/// A decoder of images that a vendor brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecoderChoice {
    /// The name in the configuration.
    pub name: String,
    /// The library.
    pub library: PathBuf,
    /// The option `device` of the engine; empty if it has none.
    pub device: String,
}

/// The model that inference loads. A path refers to one file, or to the manifest of a model of several graphs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelInput {
    /// The manifest of the model that validation of the same run exported; it is compiled.
    Exported(PathBuf),
    /// An ONNX file to compile.
    Onnx(PathBuf),
    /// Arbitrary text instead of an ONNX file, for a compiler that does not open ONNX files.
    Placeholder(PathBuf),
    /// A file that the compiler wrote earlier; step e is skipped.
    Compiled(PathBuf),
}

impl ModelInput {
    /// Returns the input for a run in the folder `run`, in which the export of validation lies.
    fn in_run_folder(self, run: &Path) -> Self {
        match self {
            ModelInput::Exported(manifest) => ModelInput::Exported(run.join(manifest)),
            other => other,
        }
    }
}
