//! The schema of the record. Keys contain the units. Keys may be added; any other change requires a new
//! [`Record::SCHEMA`].

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Accuracy, AgreementCheck, AuditCheck, FinishInfo, FlopCount, Machine, PeakRecord, PhaseRecord, Provenance,
    TrainingRecord, ValidityCheck,
};
use flagperf_config::{CaseKey, Vendor, default_unit, display_value};
use flagperf_core::measure::Measurement;
use flagperf_core::metric::Agreement;
use flagperf_core::run_files::{CONFIG_FILE, SOURCES_FOLDER};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Bytes;
use flagperf_sampling::MonitorRecord;

/// One case of one run, on any number of hosts and devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Record {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the run's folder: `run20240703142530`.
    pub run: String,
    /// The case: `resnet50`.
    pub case: String,
    /// The framework: `interpreter`.
    pub framework: String,
    /// The key of a training with hardware, scale and repetitions: `resnet50:pytorch:A100:1:1:1`; `None` for inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_key: Option<String>,
    /// The vendor: `cpu`.
    pub vendor: String,
    /// Start of the case, local time with its offset (RFC 3339).
    pub started: String,
    /// How the case ended.
    pub status: Status,
    /// Whether the result counts as an official one, with the reasons.
    #[serde(default)]
    pub validity: ValidityCheck,
    /// Why the case failed; empty when it succeeded.
    pub failures: Vec<FailureRecord>,
    /// Warnings for the reader of the figures.
    pub warnings: Vec<String>,
    /// FlagPerf's result, with FlagPerf's keys.
    pub finish_info: FinishInfo,
    /// Departures from the standard configuration (`--set`); empty on a standard run.
    pub departures: Vec<String>,
    /// Every effective setting with its origin.
    pub settings: IndexMap<String, Setting>,
    /// Accuracy compared with the target.
    pub accuracy: Accuracy,
    /// Agreement of inference with validation compared with its limits.
    #[serde(default)]
    pub agreement: AgreementCheck,
    /// Whether inference computes what it returns.
    #[serde(default)]
    pub audit: AuditCheck,
    /// Operations per sample, declared and counted, and the resulting rates and utilisation.
    pub flops: FlopCount,
    /// What one sample counts as: throughput in samples per second is in this unit.
    #[serde(default = "default_unit")]
    pub unit: String,
    /// The phases that ran, in order.
    pub phases: Vec<PhaseRecord>,
    /// The machines that took part.
    pub hosts: Vec<HostRecord>,
    /// Variables in the environment of the workers with which they execute code that the record does not describe, as
    /// `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code_variables: Vec<String>,
    /// Why it is not certain that the case had its host, and a machine, for itself; `BUSY_HOST: share` is a setting and not listed
    /// here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_doubts: Vec<String>,
    /// Index of the worker's device on its host when the case runs on several devices of each host; `None` when it runs on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// What was read while the case ran; `None` in an older record, and for a case that did not begin.
    #[serde(default)]
    pub monitors: Option<MonitorRecord>,
    /// Hashes of everything on which the figures depend.
    pub provenance: Provenance,
}

impl Record {
    /// The version of the schema that this program writes.
    pub const SCHEMA: u32 = 7;

    /// Returns the measured loop of a step; `None` when the step was not measured.
    pub fn measurement(&self, step: Step) -> Option<&Measurement> {
        self.phases.iter().flat_map(|phase| &phase.measured).find(|measured| measured.step == step)
    }

    /// Returns the measured loop of each phase that has one, in the order of the phases.
    pub fn measured_loops(&self) -> impl DoubleEndedIterator<Item = &Measurement> {
        Phase::ALL.into_iter().filter_map(|phase| self.measurement(phase.measured_step()))
    }

    /// Returns the phase that determines the headline figures: inference if it was measured, otherwise validation.
    /// Operations per sample, peak and memory are those of this phase too, so that they match its throughput.
    pub fn headline_phase(&self) -> Option<&PhaseRecord> {
        self.phase_of(self.headline_step()?)
    }

    /// Returns the device of [`Record::headline_phase`].
    pub fn headline_device(&self) -> Option<&DeviceRecord> {
        let phase = self.headline_phase()?.phase;
        self.hosts.iter().flat_map(|host| &host.devices).find(|device| device.phase == phase)
    }

    /// Returns the step that determines the headline figures: see [`Record::headline_phase`].
    pub fn headline_step(&self) -> Option<Step> {
        Some(self.measured_loops().next_back()?.step)
    }

    /// Returns the phase that measured a step; `None` when the step was not measured.
    pub fn phase_of(&self, step: Step) -> Option<&PhaseRecord> {
        self.phases.iter().find(|phase| phase.measured.iter().any(|measured| measured.step == step))
    }

    /// Returns what a training observed; `None` for inference.
    pub fn training(&self) -> Option<&TrainingRecord> {
        self.phases.iter().find_map(|phase| phase.training.as_ref())
    }

    /// Returns the agreement of the outputs of inference with those of validation.
    pub fn inference_agreement(&self) -> Option<&Agreement> {
        self.phases.iter().find(|phase| phase.phase == Phase::Infer)?.agreement.as_ref()
    }

    /// Returns the name of the case in logs and errors: `resnet50:interpreter`, or the key of a training.
    pub fn key(&self) -> String {
        self.training_key.clone().unwrap_or_else(|| format!("{}:{}", self.case, self.framework))
    }

    /// Returns where it was measured: the name of its host, and its device if there are several.
    pub fn place(&self) -> (Option<&str>, Option<u32>) {
        (self.hosts.first().map(|host| host.name.as_str()), self.device)
    }

    /// Returns what its copies have in common and no other result has: the run, the case and the place.
    pub fn identity(&self) -> (&str, String, (Option<&str>, Option<u32>)) {
        (&self.run, self.key(), self.place())
    }

    /// Returns the number of passes of each loop, or of trainings; 0 when the record does not state it.
    pub fn repeat(&self) -> u32 {
        let training = self.training_key.as_ref().and_then(|key| key.parse::<CaseKey>().ok()?.training);
        let setting = || self.settings.get("repeat").and_then(|setting| setting.value.as_u64());
        training.map_or_else(|| setting().and_then(|repeat| u32::try_from(repeat).ok()).unwrap_or(0), |key| key.repeat)
    }

    /// Returns the SHA-256 of the files of the result that the record states, by path in the folder of the result.
    pub fn file_hashes(&self) -> BTreeMap<String, String> {
        let Provenance { scripts_sha256, config_files_sha256, config_sha256, .. } = &self.provenance;
        let source =
            |folder: &str, (name, hash): (&String, &String)| (format!("{SOURCES_FOLDER}/{folder}{name}"), hash.clone());
        let scripts = scripts_sha256.iter().map(|entry| source("scripts/", entry));
        let config =
            (!config_sha256.is_empty()).then(|| (format!("{SOURCES_FOLDER}/{CONFIG_FILE}"), config_sha256.clone()));
        let written = self.phases.iter().flat_map(|phase| &phase.files).filter(|file| !file.sha256.is_empty());
        let written =
            written.filter_map(|file| Some((file.path_in_result(&self.run)?.to_owned(), file.sha256.clone())));
        scripts.chain(config_files_sha256.iter().map(|entry| source("", entry))).chain(config).chain(written).collect()
    }

    /// Records a failure of the case as a whole.
    pub fn fail(&mut self, reason: String, hint: &str) {
        self.status = Status::Failed;
        let hint = hint.to_owned();
        self.failures.push(FailureRecord { phase: None, step: None, reason, hint, stderr: Vec::new() });
    }

    /// Adds reasons why it is not certain that the case had the host for itself, and a warning for each.
    pub fn doubt_host(&mut self, doubts: impl IntoIterator<Item = String>) {
        for doubt in doubts {
            self.warnings.push(doubt.clone());
            self.host_doubts.push(doubt);
        }
    }
}

/// Returns a departure as a record states it, in the form that `--set` accepts.
pub fn departure_text(key: &str, value: &Value) -> String {
    format!("{key}={}", display_value(value))
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every step ran, no accuracy target was missed, and no limit of agreement was exceeded.
    Ok,
    /// Something failed; earlier results are kept.
    Failed,
    /// The run was interrupted; earlier results are kept.
    Interrupted,
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct FailureRecord {
    /// The phase that failed; `None` when the failure concerns the case as a whole.
    pub phase: Option<Phase>,
    /// The step that failed, if known.
    pub step: Option<Step>,
    pub reason: String,
    /// What to do about the failure; may be empty.
    pub hint: String,
    /// The last lines of the worker's standard error.
    pub stderr: Vec<String>,
}

/// An effective setting with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Setting {
    pub value: Value,
    /// The file and line, or the argument, that set the value.
    pub origin: String,
}

/// A machine that took part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct HostRecord {
    /// Name in `HOSTS`.
    pub name: String,
    /// Properties of the machine.
    pub machine: Machine,
    /// The device of each phase that loaded an engine.
    pub devices: Vec<DeviceRecord>,
}

impl DeviceRecord {
    /// Returns the device of each phase that loaded an engine, with the figures of its vendor's data sheet.
    pub fn of_phases(phases: &[PhaseRecord], machine: &Machine, vendor: &Vendor) -> Vec<Self> {
        let device = |phase: &PhaseRecord| {
            let engine = phase.engine.as_ref()?;
            let is_cpu = engine.runs_on_processor();
            // vendor.yaml lists a processor by its model, or any by the engine's name for it.
            let by_model = is_cpu && vendor.device(&machine.cpu).is_some();
            let detected = if by_model { &machine.cpu } else { &engine.device };
            let total = vendor.device(detected).and_then(|device| device.memory_bytes);
            let precision = engine.precision.clone();
            let peak = vendor.peak(detected, &precision);
            Some(DeviceRecord {
                phase: phase.phase,
                name: engine.device.clone(),
                memory_bytes_max: phase.device_memory_used(),
                memory_bytes_total: total.or(is_cpu.then_some(machine.memory_bytes)),
                peak: peak.map(|peak| PeakRecord { flops_per_s: peak.flops_per_s, precision, source: peak.source }),
            })
        };
        phases.iter().filter_map(device).collect()
    }
}

/// The device of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct DeviceRecord {
    pub phase: Phase,
    /// The engine's name for the device.
    pub name: String,
    /// On a CPU, peak resident memory of the worker and of the engine's own processes. On any other device, peak memory
    /// in use on the device during the phase: see [`Measurement::device_memory_bytes_max`].
    pub memory_bytes_max: Option<Bytes>,
    /// Total memory of the device.
    pub memory_bytes_total: Option<Bytes>,
    /// Peak rate in the precision of the phase, with its source.
    pub peak: Option<PeakRecord>,
}
