//! The summary of a case that ran on several hosts or devices, computed from the results of its replicas.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{Communication, GroupCommunication, Record, ShortTime, Status, Validity};
use flagperf_config::{CaseKey, Replica};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{SamplesPerSecond, Seconds};

/// A case of a run on several hosts or devices. Each replica has a record of its own, from which this is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the run's folder.
    pub run: String,
    /// The case with framework and scale: `resnet50:pytorch:2x8`.
    pub case: String,
    pub vendor: String,
    /// What one sample counts as.
    pub unit: String,
    /// The status of the case, which is that of its worst replica.
    pub status: Status,
    /// Whether the result counts, which is decided by its worst replica and by [`Summary::validity_reasons`].
    pub validity: Validity,
    /// Reasons why the result as a whole does not count as valid, in addition to those of its replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validity_reasons: Vec<String>,
    /// The replicas, by host and device.
    pub replicas: Vec<ReplicaSummary>,
    /// The measured steps over all replicas, in order; empty unless every replica succeeded.
    pub steps: Vec<StepSummary>,
    /// Warnings about the case as a whole.
    pub warnings: Vec<String>,
}

/// A replica in a summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ReplicaSummary {
    /// Name of the host in `HOSTS`.
    pub host: String,
    /// Index of the host among those of the case.
    pub node_rank: u32,
    /// Index of the device on its host; `None` when the case runs on one device of each host.
    pub device: Option<u32>,
    /// Folder of the replica's record, relative to the folder of the case.
    pub folder: String,
    /// Status of the replica.
    pub status: Status,
    /// Whether the result of the replica counts.
    pub validity: Validity,
    /// Reasons why the replica failed; empty when it succeeded.
    pub reasons: Vec<String>,
    /// Reasons why the result does not count as valid; empty when it does.
    pub validity_reasons: Vec<String>,
    /// The measured time if it is one of these reasons, so that a report can join those of several replicas.
    #[serde(skip)]
    pub short_time: Option<ShortTime>,
    /// Digest of the replica's result; `None` when it has no manifest.
    pub digest: Option<String>,
    /// Processor time on its host; `None` when the replica was lost.
    pub processor: Option<ProcessorTime>,
    /// Id of the machine behind the name of the host, the same for two names of one machine; `None` when it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The measured steps of the replica.
    pub measured: Vec<ReplicaMeasurement>,
}

/// Processor time of a replica, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ProcessorTime {
    /// Time of this program without its workers: supervision, monitors and files.
    pub host_s: Seconds,
    /// The workers, with the engine and everything that they started and waited for, or that ran in their containers; `None` when
    /// the time of a container is unknown.
    pub workers_s: Option<Seconds>,
}

/// A measured step of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ReplicaMeasurement {
    /// Validation or inference.
    pub step: Step,
    /// Samples per second of *core*.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
    /// Samples per second of *whole*.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples in all passes.
    pub samples: u64,
    /// Begin and end of the passes in seconds since 1970, by the clock of the machine on which the run was started; `None`
    /// when the clocks of the hosts cannot be compared.
    pub window_s: Option<[Seconds; 2]>,
    /// Energy of the devices per sample, in joules; `None` when no monitor reports it.
    pub device_energy_j_per_sample: Option<f64>,
    /// What training together costs the replica; `None` unless it is one of several processes that trained a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication: Option<Communication>,
}

impl ReplicaSummary {
    /// Returns the part of a replica in the summary. `window` returns when the passes of a phase began and ended.
    pub fn of(
        replica: &Replica,
        record: &Record,
        digest: Option<String>,
        processor: Option<ProcessorTime>,
        window: impl Fn(Phase) -> Option<[Seconds; 2]>,
    ) -> Self {
        let usage = |phase: Phase| record.phases.iter().find(|own| own.phase == phase)?.usage.as_ref();
        let measured = Phase::ALL.into_iter().filter_map(|phase| {
            let found = record.measurement(phase.measured_step())?;
            Some(ReplicaMeasurement {
                step: found.step,
                throughput_core_samples_per_s: found.throughput_core_samples_per_s,
                throughput_whole_samples_per_s: found.throughput_whole_samples_per_s,
                samples: found.samples,
                window_s: window(phase),
                device_energy_j_per_sample: usage(phase).and_then(|usage| usage.device_energy_j_per_sample),
                communication: record.communication(),
            })
        });
        ReplicaSummary {
            host: replica.host.clone(),
            node_rank: replica.node_rank,
            device: replica.device,
            folder: replica.folder(),
            status: record.status,
            validity: record.validity.verdict,
            reasons: record.failures.iter().map(|failure| failure.reason.clone()).collect(),
            validity_reasons: record.validity.reasons.clone(),
            short_time: ShortTime::of(record),
            digest,
            processor,
            machine: None,
            measured: measured.collect(),
        }
    }

    /// Returns the host and the device.
    pub fn replica(&self) -> Replica {
        Replica { host: self.host.clone(), node_rank: self.node_rank, device: self.device }
    }
}

/// A measured step over all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepSummary {
    /// Validation or inference.
    pub step: Step,
    /// Number of replicas.
    pub replicas: u32,
    /// Sum of the replicas' samples per second of *core*.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
    /// Sum of the replicas' samples per second of *whole*.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples of all replicas divided by the time from the first begin to the last end of their passes, which includes the
    /// audit between passes and the time in which only some replicas ran.
    pub throughput_together_samples_per_s: Option<SamplesPerSecond>,
    /// The part of the longest window of a replica in which every replica ran its passes; 1 when all began and ended
    /// together.
    pub common_share: Option<f64>,
    /// Energy of all devices divided by the samples of all replicas, in joules; `None` unless it is known for each replica.
    pub device_energy_j_per_sample: Option<f64>,
    /// What training together costs; `None` unless it is known of all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication: Option<GroupCommunication>,
    /// Whether several replicas used the same device. The sums are then not sums over devices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_devices: bool,
}

/// What a record calls the file of the trained parameters and running statistics.
const MODEL_KIND: &str = "model";
/// Share of the time in which all replicas measured simultaneously, below which there is a warning.
const COMMON_SHARE_MIN: f64 = 0.9;

impl Summary {
    /// The version of the schema that this program writes.
    pub const SCHEMA: u32 = 1;

    /// Returns the summary of these replicas, of which there is at least one.
    pub fn of(case: &str, records: &[&Record], replicas: Vec<ReplicaSummary>) -> Self {
        let first = records.first();
        let of_first = |text: fn(&Record) -> &String| first.map(|record| text(record).clone()).unwrap_or_default();
        let steps: Vec<StepSummary> = Phase::ALL
            .into_iter()
            .filter_map(|phase| StepSummary::of(phase.measured_step(), &replicas))
            .map(|step| StepSummary { shares_devices: shares_devices(step.step, records, &replicas), ..step })
            .collect();
        let warnings = steps.iter().flat_map(StepSummary::warnings).collect();
        // The headline figures are those of the last step.
        let headline = steps.last().filter(|step| step.shares_devices);
        let sharing = headline.map(StepSummary::sharing);
        let different = different_parameters(case, records);
        let of_summary =
            [sharing.as_ref().map(|_| Validity::Unofficial), different.as_ref().map(|_| Validity::Invalid)];
        let has = |status| replicas.iter().any(|replica| replica.status == status);
        let status = [Status::Failed, Status::Interrupted].into_iter().find(|status| has(*status));
        Summary {
            schema: Summary::SCHEMA,
            run: of_first(|record| &record.run),
            case: case.to_owned(),
            vendor: of_first(|record| &record.vendor),
            unit: of_first(|record| &record.unit),
            status: status.unwrap_or(Status::Ok),
            validity: replicas
                .iter()
                .map(|replica| replica.validity)
                .chain(of_summary.into_iter().flatten())
                .max()
                .unwrap_or(Validity::Invalid),
            validity_reasons: sharing.into_iter().chain(different).collect(),
            replicas,
            steps,
            warnings,
        }
    }
}

impl StepSummary {
    /// Returns the summary of a step; `None` unless every replica succeeded and measured the step, because a sum over only some
    /// replicas would be misleading.
    fn of(step: Step, replicas: &[ReplicaSummary]) -> Option<Self> {
        if replicas.iter().any(|replica| replica.status != Status::Ok) {
            return None;
        }
        let measured = |replica: &ReplicaSummary| replica.measured.iter().find(|found| found.step == step).copied();
        let measured: Vec<ReplicaMeasurement> = replicas.iter().map(measured).collect::<Option<_>>()?;
        let sum = |rate: fn(&ReplicaMeasurement) -> Option<SamplesPerSecond>| {
            measured.iter().map(|found| rate(found).map(|rate| rate.0)).sum::<Option<f64>>().map(SamplesPerSecond)
        };
        let windows: Option<Vec<[Seconds; 2]>> = measured.iter().map(|found| found.window_s).collect();
        let windows = windows.filter(|windows| !windows.is_empty());
        let samples: u64 = measured.iter().map(|found| found.samples).sum();
        let energy = |found: &ReplicaMeasurement| Some(found.device_energy_j_per_sample? * found.samples as f64);
        let energy: Option<f64> = measured.iter().map(energy).sum();
        Some(StepSummary {
            step,
            replicas: u32::try_from(measured.len()).unwrap_or(u32::MAX),
            throughput_core_samples_per_s: sum(|found| found.throughput_core_samples_per_s),
            throughput_whole_samples_per_s: sum(|found| found.throughput_whole_samples_per_s),
            throughput_together_samples_per_s: windows
                .as_ref()
                .and_then(|windows| SamplesPerSecond::of(samples, Seconds(span(windows)))),
            common_share: windows.as_ref().map(|windows| common_share(windows)),
            device_energy_j_per_sample: energy.filter(|_| samples > 0).map(|energy| energy / samples as f64),
            communication: measured
                .iter()
                .map(|found| found.communication)
                .collect::<Option<Vec<_>>>()
                .and_then(|ranks| GroupCommunication::of(&ranks)),
            shares_devices: false,
        })
    }

    fn warnings(&self) -> Vec<String> {
        let name = self.step.name();
        let share = self.common_share.filter(|share| *share < COMMON_SHARE_MIN).map(|share| {
            format!(
                "{name}: the common share is only {:.0} %: for the rest of the time not all of the {} workers measured, so the sum of \
                 their throughputs is higher than what they reach at the same time",
                100.0 * share,
                self.replicas,
            )
        });
        let shared = self.shares_devices.then(|| self.sharing());
        share.into_iter().chain(shared).collect()
    }

    /// Describes that several replicas used one device.
    fn sharing(&self) -> String {
        format!(
            "{}: several workers used the same device or processor, so the sum of their throughputs is not a sum over devices",
            self.step.name()
        )
    }
}

/// Returns that the processes that trained a model together ended with different parameters, or that those of one are not known.
fn different_parameters(case: &str, records: &[&Record]) -> Option<String> {
    let key: CaseKey = case.parse().ok()?;
    // A program keeps its parameters to itself.
    if key.training.is_none()
        || records.iter().any(|record| record.is_reported_by_program())
        || records.iter().any(|record| record.status != Status::Ok)
    {
        return None;
    }
    let parameters = |record: &&Record| {
        let mut files = record.phases.iter().flat_map(|phase| &phase.files);
        files.find(|file| file.what == MODEL_KIND).map(|file| file.sha256.clone())
    };
    let own: Vec<Option<String>> = records.iter().map(parameters).collect();
    let other = own.iter().position(|own_hash| own_hash.is_none() || *own_hash != own[0])?;
    Some(format!("rank {other} ended with other parameters than rank 0, so that the processes did not train one model"))
}

/// Returns whether several replicas measured a step on the same device: on the processor of one machine, or on devices with the
/// same id. Devices that no monitor identifies may be the same, too.
fn shares_devices(step: Step, records: &[&Record], replicas: &[ReplicaSummary]) -> bool {
    let mut used = HashSet::new();
    let is_new = |(record, replica): (&&Record, &ReplicaSummary)| {
        let Some(engine) = record.phase_of(step).and_then(|phase| phase.engine.as_ref()) else { return true };
        // Neither is known of an older result.
        let has_place = record.device.is_some() || replica.machine.is_some();
        match &engine.device_id {
            Some(id) => used.insert(id.clone()),
            None if engine.runs_on_processor() && has_place => {
                used.insert(replica.machine.as_ref().unwrap_or(&replica.host).clone())
            }
            None => true,
        }
    };
    !records.iter().zip(replicas).all(is_new)
}

/// Returns the time from the first begin to the last end.
fn span(windows: &[[Seconds; 2]]) -> f64 {
    let begin = windows.iter().map(|window| window[0].0).fold(f64::INFINITY, f64::min);
    let end = windows.iter().map(|window| window[1].0).fold(f64::NEG_INFINITY, f64::max);
    end - begin
}

/// Returns the time that all windows have in common, as a share of the longest window.
fn common_share(windows: &[[Seconds; 2]]) -> f64 {
    let begin = windows.iter().map(|window| window[0].0).fold(f64::NEG_INFINITY, f64::max);
    let end = windows.iter().map(|window| window[1].0).fold(f64::INFINITY, f64::min);
    let longest = windows.iter().map(|window| window[1].0 - window[0].0).fold(0.0, f64::max);
    if longest > 0.0 { ((end - begin) / longest).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn replica(rate: f64, window: Option<[f64; 2]>) -> ReplicaSummary {
        ReplicaSummary {
            host: "h".into(),
            node_rank: 0,
            device: None,
            folder: "h_noderank0".into(),
            status: Status::Ok,
            validity: Validity::Valid,
            reasons: Vec::new(),
            validity_reasons: Vec::new(),
            short_time: None,
            digest: None,
            processor: None,
            machine: None,
            measured: vec![ReplicaMeasurement {
                step: Step::Inference,
                throughput_core_samples_per_s: Some(SamplesPerSecond(rate)),
                throughput_whole_samples_per_s: None,
                samples: 100,
                window_s: window.map(|window| window.map(Seconds)),
                device_energy_j_per_sample: Some(rate / 10.0),
                communication: None,
            }],
        }
    }

    #[test]
    fn throughputs_are_summed_and_the_common_time_is_known() {
        let record = testing::record();
        let summary =
            Summary::of("a:b:2x1", &[&record], vec![replica(10.0, Some([0.0, 10.0])), replica(20.0, Some([1.0, 6.0]))]);
        let step = summary.steps[0];
        assert_eq!(step.throughput_core_samples_per_s, Some(SamplesPerSecond(30.0)));
        assert_eq!(step.throughput_whole_samples_per_s, None);
        assert_eq!(step.throughput_together_samples_per_s, Some(SamplesPerSecond(20.0)));
        assert_eq!(step.common_share, Some(0.5));
        assert_eq!(step.device_energy_j_per_sample, Some(1.5));
        assert!(
            summary.warnings[0].starts_with("inference: the common share is only 50 %: "),
            "{:?}",
            summary.warnings
        );
        let apart =
            Summary::of("a:b:2x1", &[&record], vec![replica(1.0, Some([0.0, 1.0])), replica(1.0, Some([2.0, 3.0]))]);
        assert_eq!(apart.steps[0].common_share, Some(0.0));
    }

    #[test]
    fn a_sum_over_workers_that_used_one_device_is_a_warning_and_not_official() {
        let record = |device: &str, id: Option<&str>| {
            let mut record = testing::record();
            let id = id.map(str::to_owned);
            let engine =
                flagperf_core::event::EngineFacts { device: device.into(), device_id: id, ..Default::default() };
            record.device = Some(0);
            record.phases[0].measured = vec![testing::measurement(Step::Inference)];
            record.phases[0].engine = Some(engine);
            record
        };
        let summary = |first: Record, second: Record| {
            Summary::of("a:b:1x2", &[&first, &second], vec![replica(10.0, None), replica(10.0, None)])
        };
        for (device, id) in [("cpu", None), ("cuda:0 X", Some("GPU-1"))] {
            let shared = summary(record(device, id), record(device, id));
            assert!(shared.steps[0].shares_devices, "{device}");
            assert_eq!(
                (shared.validity, shared.validity_reasons.len(), shared.warnings.len()),
                (Validity::Unofficial, 1, 1)
            );
        }
        let mut record_of_host = record("cpu", None);
        record_of_host.device = None;
        let on_machine = |machine: &str| ReplicaSummary { machine: Some(machine.to_owned()), ..replica(1.0, None) };
        let two_hosts = |other: &str| {
            Summary::of("a:b:2x1", &[&record_of_host, &record_of_host], vec![on_machine("m"), on_machine(other)])
        };
        assert!(two_hosts("m").steps[0].shares_devices, "two names of one machine");
        assert!(!two_hosts("n").steps[0].shares_devices);
        for (device, id, other) in [("cuda:0 X", Some("GPU-1"), Some("GPU-2")), ("npu:0", None, None)] {
            let separate = summary(record(device, id), record(device, other));
            assert_eq!((separate.steps[0].shares_devices, separate.validity), (false, Validity::Valid), "{device}");
        }
    }

    #[test]
    fn the_worst_replica_decides_and_without_it_there_is_no_sum() {
        let record = testing::record();
        let lost = ReplicaSummary { status: Status::Failed, validity: Validity::Invalid, ..replica(5.0, None) };
        let summary = Summary::of("a:b:2x1", &[&record], vec![replica(10.0, None), lost]);
        assert_eq!((summary.status, summary.validity, summary.steps.len()), (Status::Failed, Validity::Invalid, 0));
        let unknown = Summary::of("a:b:2x1", &[&record], vec![replica(10.0, None), replica(1.0, None)]);
        assert_eq!((unknown.steps[0].common_share, unknown.warnings.len()), (None, 0));
    }
}
