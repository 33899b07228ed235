//! Raw times of every step, and the figures computed from them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

use crate::step::Step;
use crate::units::{Bytes, SamplesPerSecond, Seconds, nulls_are_nan};

/// Wall time of one step (one batch) in five parts, which sum to the step's wall time.
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
}

impl StepTimes {
    /// Returns the wall time of the step.
    pub fn total(&self) -> Seconds {
        self.load_wait_s + self.core_s + self.output_s + self.evaluate_s + self.host_s
    }
}

/// Times and metrics of one pass over the dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Metrics of this pass by name; empty when they are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(test, schemars(with = "IndexMap<String, Option<f64>>"))]
    pub accuracy: IndexMap<String, f64>,
}

/// Distribution of the time of one part of a step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutputCopy {
    /// Number of outputs of a step.
    pub count: u32,
    /// Bytes of all outputs of a step.
    pub bytes: Bytes,
    /// Distribution of [`StepTimes::output_s`].
    pub latency: Latency,
}

/// The figures of one measured loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Distribution of the core time of a step.
    pub latency: Option<Latency>,
    /// Copy of the outputs of a step to the host.
    #[serde(default)]
    pub output_copy: Option<OutputCopy>,
    /// Every pass. An event contains only the passes that no earlier event contained: see
    /// [`Measurement::with_earlier_passes`].
    pub passes: Vec<PassTimes>,
    /// Mean of each metric over the passes; empty when the metrics are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(test, schemars(with = "IndexMap<String, Option<f64>>"))]
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
    /// Sum of the peak resident memory of the worker so far and of the engine's own processes.
    pub memory_bytes_max: Bytes,
}

impl Measurement {
    /// Prepends the passes of `earlier`, a measurement of the same loop, to the passes of this one.
    #[must_use]
    pub fn with_earlier_passes(mut self, earlier: Measurement) -> Self {
        let new = std::mem::replace(&mut self.passes, earlier.passes);
        self.passes.extend(new);
        self
    }
}

/// Sums the steps of one pass. `whole_s` is the wall time of the pass, `tail_s` the host's time after the last step.
pub fn summarise_pass(
    steps: &[StepTimes],
    whole_s: Seconds,
    tail_s: Seconds,
    accuracy: IndexMap<String, f64>,
) -> PassTimes {
    let sum = |part: fn(&StepTimes) -> Seconds| steps.iter().map(part).sum::<Seconds>();
    PassTimes {
        samples: steps.iter().map(|s| u64::from(s.samples)).sum(),
        whole_s,
        load_wait_s: sum(|s| s.load_wait_s),
        core_s: sum(|s| s.core_s),
        output_s: sum(|s| s.output_s),
        evaluate_s: sum(|s| s.evaluate_s),
        host_s: sum(|s| s.host_s) + tail_s,
        accuracy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_pass_is_the_sum_of_its_steps() {
        let step = StepTimes {
            pass: 0,
            samples: 4,
            load_wait_s: Seconds(0.5),
            core_s: Seconds(0.25),
            output_s: Seconds(0.125),
            evaluate_s: Seconds(0.0625),
            host_s: Seconds(0.03125),
        };
        let pass = summarise_pass(&[step, step], Seconds(2.0), Seconds(0.0625), IndexMap::new());
        let parts = [pass.load_wait_s, pass.core_s, pass.output_s, pass.evaluate_s, pass.host_s];
        assert_eq!(parts, [1.0, 0.5, 0.25, 0.125, 0.125].map(Seconds));
        assert_eq!((pass.samples, pass.whole_s), (8, Seconds(2.0)));
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
