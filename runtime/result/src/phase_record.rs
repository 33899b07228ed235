//! What the record says of one phase.

use serde::{Deserialize, Serialize};

use super::{DeviceConditions, LibraryRecord, TrainingRecord};
use flagperf_core::event::{DatasetFacts, EngineFacts, GraphRewrite, ModelFacts, Protection};
use flagperf_core::measure::{AuditReport, Measurement, ScenarioFigures};
use flagperf_core::metric::Agreement;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_sampling::PhaseUsage;

/// One phase, which is one worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PhaseRecord {
    pub phase: Phase,
    /// Wall time from the worker's start to its end, by the conductor's clock.
    pub time_s: Seconds,
    /// The steps that were started, in order.
    pub steps: Vec<StepRecord>,
    /// The restrictions under which the worker ran its engine; `None` when there were none.
    #[serde(default)]
    pub protection: Option<Protection>,
    /// Properties of the model.
    pub model: Option<ModelFacts>,
    /// How scripts changed the graphs before they were exported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<GraphRewrite>,
    /// Properties of the dataset.
    pub dataset: Option<DatasetFacts>,
    /// Properties of the engine that was loaded.
    pub engine: Option<EngineFacts>,
    /// The figures of each measured loop.
    pub measured: Vec<Measurement>,
    /// Agreement of the outputs of inference with those of validation; in validation, of some of its outputs with those of
    /// flagperf's interpreter, if the framework is a plug-in or a sidecar.
    pub agreement: Option<Agreement>,
    /// What the audit of inference observed.
    #[serde(default)]
    pub audit: Option<AuditReport>,
    /// The latency of queries that arrived after the passes; `None` without a scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<ScenarioFigures>,
    /// What a training observed besides the times of its steps; `None` for a phase that does not train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingRecord>,
    /// The first samples that could not be read, with the reasons.
    pub failed_samples: Vec<SampleFailure>,
    /// Files that the phase wrote.
    pub files: Vec<FileRecord>,
    /// Peak resident memory of the worker, in which pages shared with other processes count whole; `None` when the phase did not
    /// succeed. `WORKER_MEMORY` limits another quantity, in which such pages count in part.
    pub memory_bytes_max: Option<Bytes>,
    /// The most memory that the conductor saw in use by the worker and every process that it started, until its measured step ended:
    /// processes that left the worker count, too, shared pages count whole in each process, and files in memory (memfd, /dev/shm)
    /// that a process has open count with their size. It is read four times a second, so a shorter peak may be missed, and a file
    /// in /dev/shm that no process has open or mapped is not seen. `None` when the phase was too short for a reading.
    #[serde(default)]
    pub observed_memory_bytes_max: Option<Bytes>,
    /// How the worker's process ended: `exited with status 0`.
    pub ending: Option<String>,
    /// State of the device; `None` when no monitor tells.
    #[serde(default)]
    pub conditions: Option<DeviceConditions>,
    /// Memory, power and energy that the phase used; `None` when nothing was read.
    #[serde(default)]
    pub usage: Option<PhaseUsage>,
    /// Programs and shared libraries from which the worker and its processes executed code.
    #[serde(default)]
    pub libraries: Vec<LibraryRecord>,
}

impl PhaseRecord {
    /// Creates an empty record of a phase.
    pub fn new(phase: Phase) -> Self {
        PhaseRecord {
            phase,
            time_s: Seconds(0.0),
            steps: Vec::new(),
            protection: None,
            model: None,
            rewrites: Vec::new(),
            dataset: None,
            engine: None,
            measured: Vec::new(),
            agreement: None,
            audit: None,
            scenario: None,
            training: None,
            failed_samples: Vec::new(),
            files: Vec::new(),
            memory_bytes_max: None,
            observed_memory_bytes_max: None,
            ending: None,
            conditions: None,
            usage: None,
            libraries: Vec::new(),
        }
    }
}

impl PhaseRecord {
    /// Returns the peak memory of the worker and the processes that it started: the largest figure that the worker reported or the
    /// conductor saw. `None` when nothing is known.
    pub fn memory_used(&self) -> Option<Bytes> {
        let reported = self.measured.iter().map(|measured| measured.memory_bytes_max);
        let all = reported.chain(self.memory_bytes_max).chain(self.observed_memory_bytes_max);
        all.map(|bytes| bytes.0).max().map(Bytes)
    }

    /// Returns the peak memory in use on the device of the phase: see [`DeviceRecord::memory_bytes_max`]. `None` when no
    /// engine was loaded, or nothing is known.
    pub fn device_memory_used(&self) -> Option<Bytes> {
        if self.engine.as_ref()?.runs_on_processor() {
            return self.memory_used();
        }
        let reported = self.measured.iter().filter_map(|measured| measured.device_memory_bytes_max);
        reported.map(|bytes| bytes.0).max().map(Bytes)
    }
}

/// One of the seven steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepRecord {
    pub step: Step,
    /// Description of the step for people.
    pub detail: String,
    /// Wall time by the worker's clock; `None` when the step did not end.
    pub time_s: Option<Seconds>,
    /// Wall time by the conductor's clock, for comparison.
    pub clock: Option<ClockCheck>,
}

/// Comparison of the worker's clock with the conductor's. A plug-in shares the worker's memory, but not the
/// conductor's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ClockCheck {
    /// Time between the arrivals of the events that begin and end the step.
    pub conductor_s: Seconds,
    /// The worker's time divided by the conductor's time, minus one.
    pub discrepancy: f64,
}

/// A sample that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct SampleFailure {
    /// File or other name of the sample.
    pub sample: String,
    /// Why it could not be read.
    pub reason: String,
}

/// A file that a phase wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct FileRecord {
    /// The kind of file: `onnx`, `manifest`, `samples`.
    pub what: String,
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: Bytes,
    /// SHA-256 of the content, hexadecimal; empty when it was not computed.
    pub sha256: String,
}

impl FileRecord {
    /// Returns the path in the folder of the result of `run`, which is `.../RUN/CASE/HOST`; `None` for a file elsewhere.
    pub fn path_in_result(&self, run: &str) -> Option<&str> {
        let (_, below) = self.path.rsplit_once(&format!("/{run}/"))?;
        below.splitn(3, '/').nth(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_in_the_result_follows_run_case_and_host() {
        let path = |path: &str| {
            let file = FileRecord { what: "x".into(), path: path.into(), size_bytes: Bytes(0), sha256: String::new() };
            file.path_in_result("run1").map(str::to_owned)
        };
        assert_eq!(path("/a/result/run1/tiny_mock/localhost_noderank0/m.onnx").as_deref(), Some("m.onnx"));
        assert_eq!(path("/a/result/run1/tiny_mock/localhost_noderank0/x/y").as_deref(), Some("x/y"));
        assert_eq!((path("/a/models/m.onnx"), path("/a/run1/m.onnx")), (None, None));
    }
}
