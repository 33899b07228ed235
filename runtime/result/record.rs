//! The record's shape. Units are in the keys; additions are free, any other change is a new [`Record::SCHEMA`].

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Accuracy, AgreementCheck, FinishInfo, FlopCount, Machine, Peak, Provenance};
use crate::event::{DatasetFacts, EngineFacts, ModelFacts};
use crate::measure::Measurement;
use crate::metric::Agreement;
use crate::step::{Phase, Step};
use crate::units::{Bytes, Seconds};

/// One case of one run, on any number of hosts and devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Version of this shape.
    pub schema: u32,
    /// The run's folder: `run20240703142530`.
    pub run: String,
    /// The case: `resnet50`.
    pub case: String,
    /// The framework: `candle`.
    pub framework: String,
    /// The vendor: `cpu`.
    pub vendor: String,
    /// When the case began, local time with its offset (RFC 3339).
    pub started: String,
    /// How the case ended.
    pub status: Status,
    /// Why it did not end well; empty when it did.
    pub failures: Vec<FailureRecord>,
    /// What a reader of the figures should know.
    pub warnings: Vec<String>,
    /// FlagPerf's result, under FlagPerf's keys.
    pub finish_info: FinishInfo,
    /// The standard configuration's settings that were changed for this run (`--set`); empty on a standard run.
    pub departures: Vec<String>,
    /// Every effective setting with its origin.
    pub settings: IndexMap<String, Setting>,
    /// Accuracy against the target.
    pub accuracy: Accuracy,
    /// Agreement of inference with validation against its limits.
    #[serde(default)]
    pub agreement: AgreementCheck,
    /// Work of a sample, as declared and as counted, and what follows from each.
    pub flops: FlopCount,
    /// The phases that ran, in order.
    pub phases: Vec<PhaseRecord>,
    /// Where it ran.
    pub hosts: Vec<HostRecord>,
    /// What exactly was measured, as hashes.
    pub provenance: Provenance,
}

impl Record {
    /// The version that this program writes.
    pub const SCHEMA: u32 = 2;

    /// The measured loop of a step, if it got that far.
    pub fn measurement(&self, step: Step) -> Option<&Measurement> {
        self.phases.iter().flat_map(|phase| &phase.measured).find(|measured| measured.step == step)
    }

    /// The phase that the headline figures are of: inference where it was measured, else validation. Work of a sample,
    /// peak and memory are those of this phase, for they stand beside its throughput.
    pub fn headline_phase(&self) -> Option<&PhaseRecord> {
        let measured = |step| self.phases.iter().find(|phase| phase.measured.iter().any(|m| m.step == step));
        [Step::Inference, Step::Validation].into_iter().find_map(measured)
    }

    /// The device of [`Record::headline_phase`].
    pub fn headline_device(&self) -> Option<&DeviceRecord> {
        let phase = self.headline_phase()?.phase;
        self.hosts.iter().flat_map(|host| &host.devices).find(|device| device.phase == phase)
    }

    /// The case's name in logs and errors: `resnet50:candle`.
    pub fn key(&self) -> String {
        format!("{}:{}", self.case, self.framework)
    }
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every step ran, the accuracy is not below its target, and inference agrees with validation.
    Ok,
    /// Something failed; what was measured before is kept.
    Failed,
    /// Somebody ended the run; what was measured before is kept.
    Interrupted,
}

/// Why a case did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The phase; `None` when it is about the case as a whole.
    pub phase: Option<Phase>,
    /// The step in which it happened, when known.
    pub step: Option<Step>,
    /// What happened.
    pub reason: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// The worker's last lines on standard error.
    pub stderr: Vec<String>,
}

/// An effective setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Its value.
    pub value: Value,
    /// The file and line, or the argument, that set it.
    pub origin: String,
}

/// One phase: one worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Which half of the case.
    pub phase: Phase,
    /// Wall time from the worker's start to its end, by the conductor's clock.
    pub time_s: Seconds,
    /// The steps that began, in order.
    pub steps: Vec<StepRecord>,
    /// What the model is.
    pub model: Option<ModelFacts>,
    /// What the dataset is.
    pub dataset: Option<DatasetFacts>,
    /// Which engine was loaded.
    pub engine: Option<EngineFacts>,
    /// The figures of each measured loop.
    pub measured: Vec<Measurement>,
    /// How the outputs agree with those of validation.
    pub agreement: Option<Agreement>,
    /// Samples that could not be read, with the reasons: the first ones of many.
    pub failed_samples: Vec<SampleFailure>,
    /// Files that the phase wrote.
    pub files: Vec<FileRecord>,
    /// Peak resident memory of the worker; `None` when it did not end well.
    pub memory_bytes_max: Option<Bytes>,
    /// How the worker's process ended: `exited with status 0`.
    pub ending: Option<String>,
}

impl PhaseRecord {
    /// A phase of which nothing is known yet.
    pub fn new(phase: Phase) -> Self {
        PhaseRecord {
            phase,
            time_s: Seconds(0.0),
            steps: Vec::new(),
            model: None,
            dataset: None,
            engine: None,
            measured: Vec::new(),
            agreement: None,
            failed_samples: Vec::new(),
            files: Vec::new(),
            memory_bytes_max: None,
            ending: None,
        }
    }
}

/// One of the seven steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step.
    pub step: Step,
    /// What it did.
    pub detail: String,
    /// Wall time by the worker's clock; `None` when it did not end.
    pub time_s: Option<Seconds>,
    /// The same by the conductor's clock.
    pub clock: Option<ClockCheck>,
}

/// The worker's clock beside the conductor's: a plug-in shares the worker's memory, but not the conductor's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockCheck {
    /// Time between the arrivals of the events that begin and end the step.
    pub conductor_s: Seconds,
    /// Worker's time over conductor's time, less one.
    pub discrepancy: f64,
}

/// A sample that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleFailure {
    /// The file or other name.
    pub sample: String,
    /// Why.
    pub reason: String,
}

/// A file that a phase wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// What it is: `onnx`, `samples`, `outputs`.
    pub what: String,
    /// Where it is.
    pub path: String,
    /// Its size.
    pub size_bytes: Bytes,
    /// SHA-256, hexadecimal; empty when it was not taken.
    pub sha256: String,
}

/// A machine that took part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its name in `HOSTS`.
    pub name: String,
    /// What it is.
    pub machine: Machine,
    /// The device of each phase that loaded an engine.
    pub devices: Vec<DeviceRecord>,
}

/// The device of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// The phase.
    pub phase: Phase,
    /// As the engine names it.
    pub name: String,
    /// On a processor, peak resident memory of the worker and of the engine's own processes. Else the largest of the
    /// phase's samples of the device's memory: see [`Measurement::device_memory_bytes_max`].
    pub memory_bytes_max: Option<Bytes>,
    /// Memory it has.
    pub memory_bytes_total: Option<Bytes>,
    /// Peak rate for the precision that ran, with its source.
    pub peak: Option<Peak>,
}
