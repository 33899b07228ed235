//! The result in FlagPerf's form, with its keys in its order.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{Record, Verdict};
use flagperf_core::step::Step;
use flagperf_core::units::{Bytes, FlopsPerSecond, SamplesPerSecond, Seconds, nulls_are_nan};
use flagperf_plan::CaseSettings;
use flagperf_sampling::{DeviceUsage, MemorySource};

/// FlagPerf's `Finish Info` with the keys that its host adds. `None` is unknown or meaningless; the record contains the
/// reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct FinishInfo {
    pub vendor: String,
    /// The compiler; `None` when the case has none.
    pub compiler: Option<String>,
    /// `fp32`, `fp16`, `bf16` or `tf32`; FlagPerf has the first two.
    pub precision: String,
    /// Number of samples in a full batch.
    pub batchsize: u32,
    /// Declared operations per sample times the core throughput of inference, or of validation if there was no
    /// inference.
    pub flops: Option<FlopsPerSecond>,
    /// Wall time of the whole case.
    #[serde(rename = "e2e_time(second)")]
    pub e2e_time: Seconds,
    /// Throughput of validation including loading and evaluation.
    #[serde(rename = "p_validation_whole(qps)")]
    pub validation_whole: Option<SamplesPerSecond>,
    /// Throughput of validation, computation only.
    #[serde(rename = "p_validation_core(qps)")]
    pub validation_core: Option<SamplesPerSecond>,
    /// Throughput of inference including loading and evaluation.
    #[serde(rename = "p_inference_whole(qps)")]
    pub inference_whole: Option<SamplesPerSecond>,
    /// Throughput of inference, computation only.
    #[serde(rename = "*p_inference_core(qps)")]
    pub inference_core: Option<SamplesPerSecond>,
    /// The first metric that the evaluator returns in validation; of a map of figures, the first by name.
    pub val_average_acc: Option<f64>,
    /// The first metric that the evaluator returns in inference; of a map of figures, the first by name.
    pub infer_average_acc: Option<f64>,
    /// The figures of a training; `None` for inference.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingFinish>,
    /// Peak memory in GiB in the phase whose throughput determines `flops`: of the run's processes on its devices, or, where the
    /// driver lists no processes, all that was in use on the device.
    #[serde(rename = "vendor_usage(GiB)")]
    pub vendor_usage: Option<f64>,
    /// Total memory of that device in GiB.
    #[serde(rename = "vendor_max_mem(GiB)")]
    pub vendor_max_mem: Option<f64>,
    /// `flops` divided by the device's peak: `45.3%`.
    #[serde(rename = "*MFU")]
    pub mfu: Option<String>,
}

/// The figures of the last repetition of a training, with the names of FlagPerf's tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingFinish {
    /// Samples divided by the wall time.
    #[serde(rename = "p_whole(qps)")]
    pub whole: Option<SamplesPerSecond>,
    /// Samples divided by the wall time without evaluations.
    #[serde(rename = "p_train(qps)")]
    pub train: Option<SamplesPerSecond>,
    /// Samples divided by the core time of all steps.
    #[serde(rename = "*p_core(qps)")]
    pub core: Option<SamplesPerSecond>,
    /// Whether the training ended and its last evaluation reached the target.
    pub converged: bool,
    /// The metrics of the last evaluation.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "IndexMap<String, Option<f64>>"))]
    pub final_metrics: IndexMap<String, f64>,
}

impl TrainingFinish {
    /// Returns the figures of a record whose accuracy is filled in; `None` for inference.
    fn of(record: &Record) -> Option<Self> {
        let round = record.phases.iter().find_map(|phase| phase.training.as_ref())?.rounds.last()?;
        Some(TrainingFinish {
            whole: round.throughput_whole_samples_per_s,
            train: round.throughput_train_samples_per_s,
            core: round.throughput_core_samples_per_s,
            converged: record.accuracy.verdict == Verdict::Met && round.train_s.is_some(),
            final_metrics: round.final_metrics().cloned().unwrap_or_default(),
        })
    }
}

impl FinishInfo {
    /// Creates the result from a record whose accuracy and flops are filled in.
    pub fn of(record: &Record, settings: &CaseSettings, e2e_time: Seconds) -> Self {
        let settings = FinishInfo {
            compiler: settings.compiler.clone(),
            precision: settings.precision.name().to_owned(),
            batchsize: settings.batch_size,
            e2e_time,
            ..FinishInfo::default()
        };
        settings.with_figures(record)
    }

    /// Replaces every figure by that of a record whose accuracy and flops are filled in.
    #[must_use]
    pub fn with_figures(self, record: &Record) -> Self {
        let (validation, inference) = (record.measurement(Step::Validation), record.measurement(Step::Inference));
        let device = record.headline_device();
        let gib = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64 / f64::from(1 << 30));
        FinishInfo {
            vendor: record.vendor.clone(),
            flops: record.flops.declared_flops_per_s,
            validation_whole: validation.and_then(|m| m.throughput_whole_samples_per_s),
            validation_core: validation.and_then(|m| m.throughput_core_samples_per_s),
            inference_whole: inference.and_then(|m| m.throughput_whole_samples_per_s),
            inference_core: inference.and_then(|m| m.throughput_core_samples_per_s),
            val_average_acc: record.accuracy.validation.values().next().copied(),
            infer_average_acc: record.accuracy.inference.values().next().copied(),
            training: TrainingFinish::of(record),
            vendor_usage: gib(own_memory(record).or_else(|| device.and_then(|d| d.memory_bytes_max))),
            vendor_max_mem: gib(device.and_then(|d| d.memory_bytes_total)),
            mfu: record.flops.declared_mfu.map(|share| format!("{:.1}%", 100.0 * share)),
            ..self
        }
    }
}

/// Returns the peak memory of the run's own processes on the devices of the headline phase, if the driver lists processes.
fn own_memory(record: &Record) -> Option<Bytes> {
    let devices = &record.headline_phase()?.usage.as_ref()?.devices;
    let own = |device: &DeviceUsage| {
        device.memory_bytes_max.filter(|_| device.memory_source == Some(MemorySource::Processes))
    };
    devices.iter().map(own).reduce(|sum, next| Some(Bytes(sum?.0.saturating_add(next?.0))))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flagperf_sampling::{DeviceIdentity, EnergyUsage, PhaseUsage};

    #[test]
    fn vendor_usage_is_the_memory_of_the_run_where_it_is_known() {
        let usage = |source| {
            let device = DeviceUsage {
                device: "a".into(),
                identified_by: DeviceIdentity::Id,
                memory_bytes_max: Some(Bytes(2 << 30)),
                memory_source: Some(source),
                other_processes: None,
                energy: EnergyUsage::default(),
            };
            let mut record = testing::record();
            let headline = record.headline_phase().expect("a headline").phase;
            let phase = record.phases.iter_mut().find(|phase| phase.phase == headline).expect("the phase");
            phase.usage = Some(PhaseUsage { devices: vec![device], ..PhaseUsage::default() });
            FinishInfo::default().with_figures(&record).vendor_usage
        };
        assert_eq!(usage(MemorySource::Processes), Some(2.0));
        assert_ne!(usage(MemorySource::Increase), Some(2.0), "memory in use on the whole device");
    }

    #[test]
    fn the_keys_and_their_order_are_those_of_flagperf() {
        let value = serde_json::to_value(FinishInfo::default()).unwrap();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        let text = serde_json::to_string(&FinishInfo::default()).unwrap();
        let mut positions: Vec<_> = keys.iter().map(|key| text.find(&format!("\"{key}\":")).unwrap()).collect();
        positions.sort_unstable();
        let in_order: Vec<&str> =
            positions.iter().map(|position| text[position + 1..].split('"').next().unwrap()).collect();
        assert_eq!(
            in_order,
            [
                "vendor",
                "compiler",
                "precision",
                "batchsize",
                "flops",
                "e2e_time(second)",
                "p_validation_whole(qps)",
                "p_validation_core(qps)",
                "p_inference_whole(qps)",
                "*p_inference_core(qps)",
                "val_average_acc",
                "infer_average_acc",
                "vendor_usage(GiB)",
                "vendor_max_mem(GiB)",
                "*MFU"
            ]
        );
    }
}
