//! What a worker is told: one phase of one case, everything resolved.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Parameters;
use crate::event::Phase;
use crate::tensor::DType;
use crate::units::{Bytes, Seconds};

/// One phase of one case for one worker. Travels as one JSON line on the worker's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The case: `resnet50`.
    pub case: String,
    /// The vendor whose device is measured: `cpu`.
    pub vendor: String,
    /// The row in the table of monitors for that device, if there is one.
    #[serde(default)]
    pub monitor: Option<String>,
    /// Which half of the case.
    pub phase: Phase,
    /// The folder of the case's scripts.
    pub scripts: PathBuf,
    /// Datasets and weights lie here; scripts reach nothing else.
    pub data_dir: PathBuf,
    /// Logs, raw samples and outputs of the case go here; it exists.
    pub log_dir: PathBuf,
    /// The settings that are alike in every case, after every overlay.
    pub settings: Settings,
    /// What scripts see as `config`: settings, parameters, the vendor's own keys, and `vendor`, `case`, `framework`.
    pub config: IndexMap<String, Value>,
    /// What the host itself reads of the parameters, typed.
    pub parameters: Parameters,
    /// The framework (validate) or compiler (infer).
    pub engine: EngineChoice,
    /// Infer: what is loaded. Validate makes its model with the case's script.
    pub model: Option<ModelInput>,
    /// Validate: where the ONNX file goes; `None` leaves step d out. A model of several graphs adds `_<graph>` to the stem.
    /// The manifest lies beside it ([`super::Manifest::beside`]).
    pub export: Option<PathBuf>,
    /// Validate writes its outputs here, infer compares its own with them; `None` when there is nothing to compare.
    pub outputs: Option<PathBuf>,
    /// Whether someone watches: progress at every step instead of every `log_freq` steps.
    pub watched: bool,
    /// Variables that the worker's process starts with, beside those of the conductor.
    #[serde(default)]
    pub environment: IndexMap<String, String>,
    /// Limits of scripts and of the worker.
    pub limits: Limits,
}

impl Job {
    /// Where the worker puts what is of no use after the phase. The conductor removes it, however the worker ended.
    pub fn scratch(&self) -> PathBuf {
        self.log_dir.join("scratch")
    }
}

/// `configurations.yaml` after every overlay: FlagPerf's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Samples a batch.
    pub batch_size: u32,
    /// Floating-point operations for one sample, as declared: an expression such as `2*512*0.33e9`.
    pub flops: String,
    /// `flops`, evaluated.
    pub flops_per_sample: f64,
    /// Half precision.
    pub fp16: bool,
    /// The compiler; `None` ends the case after validation.
    pub compiler: Option<String>,
    /// Threads that load data; 0 loads in the thread of the loop.
    pub num_workers: u32,
    /// A line of progress every so many steps.
    pub log_freq: u32,
    /// Passes over the dataset.
    pub repeat: u32,
    /// Skips model, validation and export.
    pub no_validation: bool,
    /// Skips export; this file is compiled.
    pub exist_onnx_path: Option<PathBuf>,
    /// Skips compiling; this file is loaded.
    pub exist_compiler_path: Option<PathBuf>,
}

impl Settings {
    /// The floating-point type that the case computes in.
    pub const fn precision(&self) -> DType {
        if self.fp16 { DType::F16 } else { DType::F32 }
    }
}

/// An engine and how it is asked to work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// The name in the configuration: a framework (`candle`) or compiler (`rten`).
    pub name: String,
    /// The version that the name asks for beyond the vendor's: `2.11` of `pytorch_2.11`. What is loaded must be of it.
    #[serde(default)]
    pub version: Option<String>,
    /// The row in the table of engines.
    pub engine: String,
    /// Threads to compute with; 0 is the engine's default.
    pub threads: u32,
    /// The vendor's folder: relative paths of `library` and `command` count from here.
    #[serde(default)]
    pub folder: PathBuf,
    /// The shared library of an engine that the vendor brings as a plug-in.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// Program and arguments of an engine that the vendor brings as a sidecar.
    #[serde(default)]
    pub command: Vec<String>,
    /// Further options: the vendor's defaults under the overlay's new keys.
    pub options: IndexMap<String, Value>,
}

/// What an infer phase loads. A path names one file, or the manifest of a model of several graphs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelInput {
    /// The manifest of what validation of the same run exported, to be compiled.
    Exported(PathBuf),
    /// An ONNX file to compile.
    Onnx(PathBuf),
    /// Text in place of an ONNX file, for a compiler that opens none.
    Placeholder(PathBuf),
    /// A file that the compiler made earlier; step e is left out.
    Compiled(PathBuf),
}

impl ModelInput {
    /// The same in a run whose folder is `run`: what validation exports lies there.
    pub(super) fn placed(self, run: &Path) -> Self {
        match self {
            ModelInput::Exported(manifest) => ModelInput::Exported(run.join(manifest)),
            other => other,
        }
    }
}

/// Limits that hold scripts and workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Operations of a script in one call.
    pub script_operations: u64,
    /// Wall time of a script in one call, native calls included; time inside engines is not.
    pub script_time_s: Seconds,
    /// Heap that a script may hold, tensors included.
    pub script_memory_bytes: Bytes,
    /// Resident memory of the worker and all that it starts, and heap of the worker; beyond it the worker ends. 0 is no
    /// limit.
    pub worker_memory_bytes: Bytes,
    /// Wall time of a phase; beyond it the worker is killed.
    pub phase_time_s: Seconds,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            script_operations: 50_000_000,
            script_time_s: Seconds(30.0),
            script_memory_bytes: Bytes(1 << 30),
            worker_memory_bytes: Bytes(0),
            phase_time_s: Seconds(24.0 * 3600.0),
        }
    }
}
