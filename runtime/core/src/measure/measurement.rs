//! Raw times of every step, and the figures computed from them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

use super::{LatencyBounds, PassReport, StepTimeChange, ThroughputInterval};
use crate::hash::OutputDigest;
use crate::metric::MetricSum;
use crate::step::Step;
use crate::units::{Bytes, SamplesPerSecond, Seconds, nulls_are_nan};

/// Wall time of one step (one batch) in five parts, which sum to the step's wall time, and the digest of its outputs.
///
/// The host's time after the last step of a pass belongs to that step, so the steps of a pass sum to its wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Index of the pass, from 0.
    pub pass: u32,
    /// Samples in the batch, without padding and failed samples.
    pub samples: u32,
    /// Time spent waiting for the loader.
    pub load_wait_s: Seconds,
    /// Time from the start of the forward function until the device is synchronised.
    pub core_s: Seconds,
    /// Time spent copying outputs to the host.
    pub output_s: Seconds,
    /// Time spent in the evaluator.
    pub evaluate_s: Seconds,
    /// Time that the host spent on everything else.
    pub host_s: Seconds,
    /// Digest of the outputs of the step's samples.
    pub outputs: OutputDigest,
}

impl StepTimes {
    /// Returns the wall time of the step.
    pub fn total(&self) -> Seconds {
        self.parts().map(|(_, time)| time).into_iter().sum()
    }

    /// Returns the parts of the step by their names, in order.
    pub fn parts(&self) -> [(&'static str, Seconds); 5] {
        [
            ("load_wait", self.load_wait_s),
            ("core", self.core_s),
            ("output", self.output_s),
            ("evaluate", self.evaluate_s),
            ("host", self.host_s),
        ]
    }
}

/// Times and metrics of one pass over the dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PassTimes {
    /// Samples, without padding and failed samples.
    pub samples: u64,
    /// Wall time from the request for the first sample, with an empty queue, to the end of the last evaluation.
    pub whole_s: Seconds,
    /// Part of `whole_s` spent waiting for the loader.
    pub load_wait_s: Seconds,
    /// Part of `whole_s` spent in the forward function.
    pub core_s: Seconds,
    /// Part of `whole_s` spent copying outputs to the host.
    pub output_s: Seconds,
    /// Part of `whole_s` spent in the evaluator.
    pub evaluate_s: Seconds,
    /// Time that the host spent on everything else, in every step and after the last one.
    pub host_s: Seconds,
    /// Wall time of the pass by the conductor's clock, from the arrival of its begin to that of its times; `None` in an
    /// older record.
    #[serde(default)]
    pub conductor_s: Option<Seconds>,
    /// Metrics of this pass by name; empty when they are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "IndexMap<String, Option<f64>>"))]
    pub accuracy: IndexMap<String, f64>,
}

/// Distribution of the time of one part of a step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Shortest.
    pub min_s: Seconds,
    /// Arithmetic mean.
    pub mean_s: Seconds,
    /// Median.
    pub p50_s: Seconds,
    /// 90 % of the steps were at most this long.
    pub p90_s: Seconds,
    /// 99 % of the steps were at most this long.
    pub p99_s: Seconds,
    /// 99.9 % of the steps were at most this long.
    pub p999_s: Seconds,
    /// Longest.
    pub max_s: Seconds,
}

impl Latency {
    /// Returns the distribution of `times`; `None` when `times` is empty. Quantiles follow Hyndman and Fan (1996), type
    /// 8.
    pub fn of(times: &[Seconds]) -> Option<Latency> {
        if times.is_empty() {
            return None;
        }
        let raw: Vec<f64> = times.iter().map(|t| t.0).collect();
        let mean = raw.iter().sum::<f64>() / raw.len() as f64;
        let (min, max) = raw.iter().fold((f64::INFINITY, 0.0f64), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
        let mut data = Data::new(raw);
        let mut at = |tau| Seconds(data.quantile(tau).clamp(min, max));
        Some(Latency {
            min_s: Seconds(min),
            mean_s: Seconds(mean),
            p50_s: at(0.5),
            p90_s: at(0.9),
            p99_s: at(0.99),
            p999_s: at(0.999),
            max_s: Seconds(max),
        })
    }
}

/// Times of one named part of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct SpanTimes {
    /// Number of runs in all passes.
    pub runs: u64,
    /// Items, such as tokens, that the script processed in all runs; 0 when the script states none.
    pub items: u64,
    /// Wall time of all runs.
    pub total_s: Seconds,
    /// Items divided by the wall time; `None` without items.
    pub throughput_items_per_s: Option<SamplesPerSecond>,
    /// Distribution of the wall time of a run, over at most the first million runs.
    pub latency: Option<Latency>,
}

/// Time that a vendor's code requested to be subtracted (FlagPerf's `foo_time`). It is recorded and never subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct VendorTime {
    /// Total of all steps.
    pub sum_s: Seconds,
    /// Largest value of one step.
    pub max_s: Seconds,
}

impl VendorTime {
    /// Returns these figures with those of one more step added.
    #[must_use]
    pub fn with_step(self, step: Seconds) -> Self {
        VendorTime { sum_s: self.sum_s + step, max_s: Seconds(self.max_s.0.max(step.0)) }
    }
}

/// Time that the outputs of a step take to reach host memory after the device was synchronised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct OutputCopy {
    /// Number of outputs of a step.
    pub count: u32,
    /// Bytes of all outputs of a step.
    pub bytes: Bytes,
    /// Distribution of [`StepTimes::output_s`].
    pub latency: Latency,
    /// Shortest and longest time of copying the outputs of a step of warm-up again, when nothing was left to compute.
    pub again_s: [Seconds; 2],
    /// Time in all steps in which the outputs took longer to reach the host than a copy takes: it counts as core.
    pub deferred_s: Seconds,
}

/// The figures of one measured loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Measurement {
    /// Validation or inference.
    pub step: Step,
    /// Number of samples in a full batch.
    pub batch_size: u32,
    /// Samples in all passes, without padding and failed samples.
    pub samples: u64,
    /// Samples that could not be read, in all passes.
    pub failed_samples: u64,
    /// Padding rows that were computed and discarded, in all passes.
    pub padded_samples: u64,
    /// Number of measured steps.
    pub steps: u64,
    /// Number of warm-up steps before measurement.
    pub warmup_steps: u32,
    /// Duration of warm-up.
    pub warmup_s: Seconds,
    /// Whether warm-up ended because step times were steady; otherwise it ended at a limit.
    pub warmup_steady: bool,
    /// Samples divided by the wall time of the passes.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples divided by the time spent in the forward function.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
    /// The 95 % confidence interval of `throughput_core_samples_per_s`; `None` with fewer than four steps.
    #[serde(default)]
    pub throughput_core_interval: Option<ThroughputInterval>,
    /// The 95 % confidence interval of `throughput_whole_samples_per_s`; `None` with fewer than four steps.
    #[serde(default)]
    pub throughput_whole_interval: Option<ThroughputInterval>,
    /// How the core time of the steps changed within the loop; `None` if it did not, as far as a test shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time_change: Option<StepTimeChange>,
    /// Distribution of the core time of a step.
    pub latency: Option<Latency>,
    /// Upper bounds of percentiles of the core time of a step, at 99 % confidence.
    #[serde(default)]
    pub latency_bounds: LatencyBounds,
    /// Copy of the outputs of a step to the host.
    #[serde(default)]
    pub output_copy: Option<OutputCopy>,
    /// Every pass.
    pub passes: Vec<PassTimes>,
    /// Mean of each metric over the passes; empty when the metrics are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "IndexMap<String, Option<f64>>"))]
    pub accuracy: IndexMap<String, f64>,
    /// Why accuracy is unknown; `None` when it is known.
    pub accuracy_unknown: Option<String>,
    /// Observations that the evaluator counted in all passes: the largest number of any of its metrics.
    #[serde(default)]
    pub observations: u64,
    /// Observations of each metric in all passes, also when accuracy is unknown.
    #[serde(default)]
    pub counted: IndexMap<String, u64>,
    /// Output elements that are NaN or infinite, in all passes.
    pub non_finite_outputs: u64,
    /// Multiply-adds of convolutions and matrix products per row of the batches, in all runs of all graphs; `None` when
    /// a shape is unknown.
    #[serde(default)]
    pub multiply_adds_per_sample: Option<u64>,
    /// The most bytes that one set of states (`session::states`) held; 0 without states.
    #[serde(default)]
    pub state_memory_bytes_max: Bytes,
    /// The parts of steps that the script named, in all passes.
    pub spans: IndexMap<String, SpanTimes>,
    /// Time that the vendor's code requested to be subtracted, which is never subtracted. `None` without such a
    /// request.
    #[serde(default)]
    pub vendor_time: Option<VendorTime>,
    /// The largest observed amount of memory in use on the devices, by this and every other process, from before
    /// loading until after the last pass. The vendor's monitor is read several times a second, the engine after each
    /// pass; a shorter peak may be missed. Each device counts once. `None` when neither the monitor nor the engine
    /// reports memory.
    pub device_memory_bytes_max: Option<Bytes>,
    /// Sum of the peak resident memory of the worker so far and of every process below it that runs at the end of a pass.
    /// Pages shared with other processes count whole, so this may exceed `WORKER_MEMORY`, for which they count in part.
    pub memory_bytes_max: Bytes,
}

impl Measurement {
    /// Computes the figures of a loop from the raw times of its steps. `passes` contains the metrics of each pass and
    /// its wall time by the conductor's clock, `report` the counts after the last pass. The steps must be in order.
    pub fn of(report: &PassReport, passes: &[PassEvidence], steps: &[StepTimes]) -> Self {
        let by_pass: Vec<&[StepTimes]> = steps.chunk_by(|a, b| a.pass == b.pass).collect();
        let passes: Vec<PassTimes> = by_pass.into_iter().zip(passes).map(|(steps, pass)| pass.times(steps)).collect();
        let times = |part: fn(&StepTimes) -> Seconds| steps.iter().map(part).collect::<Vec<_>>();
        let measurement = Measurement {
            step: report.step,
            batch_size: report.batch_size,
            samples: 0,
            failed_samples: report.failed_samples,
            padded_samples: report.padded_samples,
            steps: steps.len() as u64,
            warmup_steps: report.warmup_steps,
            warmup_s: report.warmup_s,
            warmup_steady: report.warmup_steady,
            throughput_whole_samples_per_s: None,
            throughput_core_samples_per_s: None,
            throughput_core_interval: ThroughputInterval::of(steps, |step| step.core_s),
            throughput_whole_interval: ThroughputInterval::of(steps, StepTimes::total),
            step_time_change: StepTimeChange::of(steps),
            latency: Latency::of(&times(|step| step.core_s)),
            latency_bounds: LatencyBounds::of(steps),
            output_copy: Latency::of(&times(|step| step.output_s)).map(|latency| OutputCopy {
                count: report.output_count,
                bytes: report.output_bytes,
                latency,
                again_s: report.output_again_s,
                deferred_s: report.output_deferred_s,
            }),
            accuracy: IndexMap::new(),
            passes,
            accuracy_unknown: report.accuracy_unknown.clone(),
            observations: report.observations,
            counted: report.counted.clone(),
            non_finite_outputs: report.non_finite_outputs,
            multiply_adds_per_sample: report.multiply_adds_per_sample,
            state_memory_bytes_max: report.state_memory_bytes_max,
            spans: report.spans.clone(),
            vendor_time: report.vendor_time,
            device_memory_bytes_max: report.device_memory_bytes_max,
            memory_bytes_max: report.memory_bytes_max,
        };
        measurement.with_sums()
    }

    /// Computes the figures that follow from the passes alone: samples, throughputs and accuracy.
    #[must_use]
    pub fn with_sums(self) -> Self {
        let samples = self.passes.iter().map(|pass| pass.samples).sum();
        let sum = |part: fn(&PassTimes) -> Seconds| self.passes.iter().map(part).sum::<Seconds>();
        Measurement {
            samples,
            throughput_whole_samples_per_s: SamplesPerSecond::of(samples, sum(|pass| pass.whole_s)),
            throughput_core_samples_per_s: SamplesPerSecond::of(samples, sum(|pass| pass.core_s)),
            accuracy: mean_accuracy(&self.passes),
            ..self
        }
    }
}

/// What is known about a pass besides the times of its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassEvidence {
    /// Metrics of the pass by name; empty when they are meaningless.
    pub accuracy: IndexMap<String, f64>,
    /// Wall time of the pass by the conductor's clock.
    pub conductor_s: Option<Seconds>,
}

impl PassEvidence {
    /// Sums the steps of the pass.
    fn times(&self, steps: &[StepTimes]) -> PassTimes {
        let sum = |part: fn(&StepTimes) -> Seconds| steps.iter().map(part).sum::<Seconds>();
        PassTimes {
            samples: steps.iter().map(|step| u64::from(step.samples)).sum(),
            whole_s: sum(|step| step.total()),
            load_wait_s: sum(|step| step.load_wait_s),
            core_s: sum(|step| step.core_s),
            output_s: sum(|step| step.output_s),
            evaluate_s: sum(|step| step.evaluate_s),
            host_s: sum(|step| step.host_s),
            conductor_s: self.conductor_s,
            accuracy: self.accuracy.clone(),
        }
    }
}

/// Returns the mean of each metric over the passes that have it.
fn mean_accuracy(passes: &[PassTimes]) -> IndexMap<String, f64> {
    let mut means: IndexMap<String, MetricSum> = IndexMap::new();
    for (name, value) in passes.iter().flat_map(|pass| &pass.accuracy) {
        means.entry(name.clone()).or_default().add(*value, 1);
    }
    means.into_iter().map(|(name, sum)| (name, sum.mean())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_computed_from_the_times_of_the_steps() {
        let step = |pass| StepTimes {
            pass,
            samples: 4,
            load_wait_s: Seconds(0.5),
            core_s: Seconds(0.25),
            output_s: Seconds(0.125),
            evaluate_s: Seconds(0.0625),
            host_s: Seconds(0.0625),
            outputs: OutputDigest::default(),
        };
        let report = PassReport { failed_samples: 3, ..PassReport::default() };
        let top1 = |top1| PassEvidence {
            accuracy: IndexMap::from([("top1".to_owned(), top1)]),
            conductor_s: Some(Seconds(2.5)),
        };
        let figures = Measurement::of(&report, &[top1(0.5), top1(1.0)], &[step(0), step(0), step(1)]);
        let pass = &figures.passes[0];
        let parts = [pass.load_wait_s, pass.core_s, pass.output_s, pass.evaluate_s, pass.host_s, pass.whole_s];
        assert_eq!(parts, [1.0, 0.5, 0.25, 0.125, 0.125, 2.0].map(Seconds));
        assert_eq!((pass.samples, pass.conductor_s, figures.passes.len()), (8, Some(Seconds(2.5)), 2));
        assert_eq!((figures.samples, figures.steps, figures.failed_samples), (12, 3, 3));
        assert_eq!(figures.throughput_whole_samples_per_s, Some(SamplesPerSecond(4.0)));
        assert_eq!(figures.throughput_core_samples_per_s, Some(SamplesPerSecond(16.0)));
        assert_eq!(figures.accuracy["top1"], 0.75);
        assert_eq!(figures.latency.unwrap().p50_s, Seconds(0.25));
    }

    #[test]
    fn percentiles_stay_within_the_samples() {
        let times: Vec<Seconds> = (1..=100).map(|i| Seconds(f64::from(i))).collect();
        let latency = Latency::of(&times).unwrap();
        assert_eq!(latency.max_s, Seconds(100.0));
        assert!(latency.p999_s.0 <= 100.0 && latency.p99_s.0 > 98.0);
        assert!((latency.p50_s.0 - 50.5).abs() < 1e-9);
        assert_eq!(Latency::of(&[]), None);
    }
}
