//! Raw times of every step, and the figures made from them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

use crate::step::Step;
use crate::units::{Bytes, SamplesPerSecond, Seconds, nulls_are_nan};

/// Where the wall time of one step (one batch) went. The five parts sum to the step's wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Pass, from 0.
    pub pass: u32,
    /// Samples in the batch that count (padding and failed samples do not).
    pub samples: u32,
    /// Waiting for the loader.
    pub load_wait_s: Seconds,
    /// The forward function until the device is synchronised.
    pub core_s: Seconds,
    /// Copying outputs to the host.
    pub output_s: Seconds,
    /// The evaluator.
    pub evaluate_s: Seconds,
    /// Everything else the host did.
    pub host_s: Seconds,
}

impl StepTimes {
    /// Wall time of the step.
    pub fn total(&self) -> Seconds {
        self.load_wait_s + self.core_s + self.output_s + self.evaluate_s + self.host_s
    }
}

/// One pass over the dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassTimes {
    /// Samples that count.
    pub samples: u64,
    /// Wall time from asking for the first sample, with an empty queue, to the last evaluation.
    pub whole_s: Seconds,
    /// Part of `whole_s` spent waiting for the loader.
    pub load_wait_s: Seconds,
    /// Part of `whole_s` spent in the forward function.
    pub core_s: Seconds,
    /// Part of `whole_s` spent copying outputs to the host.
    pub output_s: Seconds,
    /// Part of `whole_s` spent in the evaluator.
    pub evaluate_s: Seconds,
    /// Everything else the host did, measured: its part of every step, and after the last one.
    pub host_s: Seconds,
    /// Metrics of this pass by name; empty when they mean nothing.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub accuracy: IndexMap<String, f64>,
}

/// Distribution of the core time of a step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The distribution of `times`; `None` without any. Quantiles after Hyndman and Fan (1996), type 8.
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

/// Time that a vendor's own code asked to have taken off (FlagPerf's `foo_time`): recorded, never subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VendorTime {
    /// Over all steps.
    pub sum_s: Seconds,
    /// Most in one step.
    pub max_s: Seconds,
}

impl VendorTime {
    /// With one more step.
    #[must_use]
    pub fn and(self, step: Seconds) -> Self {
        VendorTime { sum_s: self.sum_s + step, max_s: Seconds(self.max_s.0.max(step.0)) }
    }
}

/// What the outputs of a step took to arrive in host memory, after the device was synchronised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputCopy {
    /// Outputs of a step.
    pub count: u32,
    /// Bytes of all outputs of a step.
    pub bytes: Bytes,
    /// Time of a step, as in [`StepTimes::output_s`].
    pub latency: Latency,
}

/// The figures of one measured loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Validation or inference.
    pub step: Step,
    /// Samples a batch holds when full.
    pub batch_size: u32,
    /// Samples that count, over all passes.
    pub samples: u64,
    /// Samples that could not be read, over all passes.
    pub failed_samples: u64,
    /// Rows of padding that were computed and left out, over all passes.
    pub padded_samples: u64,
    /// Number of measured steps.
    pub steps: u64,
    /// Warm-up steps before the clock counted.
    pub warmup_steps: u32,
    /// Time that warm-up took.
    pub warmup_s: Seconds,
    /// Whether warm-up ended because step times were steady (else a limit ended it).
    pub warmup_steady: bool,
    /// Samples over the wall time of the passes.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples over the time spent in the forward function.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
    /// Core time of a step.
    pub latency: Option<Latency>,
    /// Copying the outputs of a step to the host.
    #[serde(default)]
    pub output_copy: Option<OutputCopy>,
    /// Every pass. An event carries only the passes that no earlier event had: see [`Measurement::after`].
    pub passes: Vec<PassTimes>,
    /// Mean over the passes of each metric; empty when they mean nothing.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub accuracy: IndexMap<String, f64>,
    /// Why there is no accuracy, when there is none.
    pub accuracy_unknown: Option<String>,
    /// Observations that the evaluator counted, over all passes: the most that any of its metrics has.
    #[serde(default)]
    pub observations: u64,
    /// The same of each metric, also where its value means nothing.
    #[serde(default)]
    pub counted: IndexMap<String, u64>,
    /// Outputs that are NaN or infinite, over all passes.
    pub non_finite_outputs: u64,
    /// Time of sub-phases that the script named, over all passes.
    pub spans: IndexMap<String, Seconds>,
    /// Time that the vendor's code asked to have taken off; nothing was. `None` when it asked for none.
    #[serde(default)]
    pub vendor_time: Option<VendorTime>,
    /// The largest of the samples of memory in use on the device, by this and every other process, from before loading
    /// until after the last pass: a few in a second, and what the engine says after each pass. A shorter peak may be
    /// missed. Each device counts once. `None` when neither the vendor's monitor nor the engine says anything.
    pub device_memory_bytes_max: Option<Bytes>,
    /// Peak resident memory of the worker so far, and of the engine's own processes.
    pub memory_bytes_max: Bytes,
}

impl Measurement {
    /// The same with the passes of `earlier`, a measurement of the same loop, before its own.
    #[must_use]
    pub fn after(mut self, earlier: Measurement) -> Self {
        let new = std::mem::replace(&mut self.passes, earlier.passes);
        self.passes.extend(new);
        self
    }
}

/// Sums the steps of one pass. `whole_s` is the pass's wall time, `tail_s` the host's time after the last step.
pub fn summarise(steps: &[StepTimes], whole_s: Seconds, tail_s: Seconds, accuracy: IndexMap<String, f64>) -> PassTimes {
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
        let pass = summarise(&[step, step], Seconds(2.0), Seconds(0.0625), IndexMap::new());
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
