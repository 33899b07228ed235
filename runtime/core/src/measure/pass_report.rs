//! What a worker reports after each pass besides the times of the steps.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{SpanTimes, VendorTime};
use crate::step::Step;
use crate::units::{Bytes, Seconds, nulls_are_nan};

/// The counts of a measured loop over all passes so far. The conductor computes every figure that depends on time from
/// the raw times, so a report contains none. See [`super::Measurement`] for the fields of the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PassReport {
    /// Validation or inference.
    pub step: Step,
    /// Index of the pass that ended, from 0.
    pub pass: u32,
    /// Number of samples in a full batch.
    pub batch_size: u32,
    /// Samples that could not be read, in all passes.
    pub failed_samples: u64,
    /// Padding rows that were computed and discarded, in all passes.
    pub padded_samples: u64,
    /// Number of warm-up steps before measurement.
    pub warmup_steps: u32,
    /// Duration of warm-up.
    pub warmup_s: Seconds,
    /// Whether warm-up ended because step times were steady.
    pub warmup_steady: bool,
    /// Number of outputs of a step.
    pub output_count: u32,
    /// Bytes of all outputs of the largest step.
    pub output_bytes: Bytes,
    /// Shortest and longest time of copying the outputs of a step of warm-up again.
    #[serde(default)]
    pub output_again_s: [Seconds; 2],
    /// Time in *output* that counts as core, in all passes.
    #[serde(default)]
    pub output_deferred_s: Seconds,
    /// Metrics of this pass by name; empty when they are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub accuracy: IndexMap<String, f64>,
    /// Why accuracy is unknown; `None` when it is known.
    pub accuracy_unknown: Option<String>,
    /// Observations that the evaluator counted in all passes.
    pub observations: u64,
    /// Observations of each metric in all passes.
    pub counted: IndexMap<String, u64>,
    /// Output elements that are NaN or infinite, in all passes.
    pub non_finite_outputs: u64,
    /// Multiply-adds of convolutions and matrix products per row of the batches.
    pub multiply_adds_per_sample: Option<u64>,
    /// The most bytes that one set of states held.
    pub state_memory_bytes_max: Bytes,
    /// The parts of steps that the script named, in all passes.
    pub spans: IndexMap<String, SpanTimes>,
    /// Time that the vendor's code requested to be subtracted.
    pub vendor_time: Option<VendorTime>,
    /// The largest observed amount of memory in use on the devices.
    pub device_memory_bytes_max: Option<Bytes>,
    /// Sum of the peak resident memory of the worker and of the engine's own processes.
    pub memory_bytes_max: Bytes,
}

impl Default for PassReport {
    /// Returns the report of a pass of inference in which nothing was counted.
    fn default() -> Self {
        PassReport {
            step: Step::Inference,
            pass: 0,
            batch_size: 1,
            failed_samples: 0,
            padded_samples: 0,
            warmup_steps: 0,
            warmup_s: Seconds(0.0),
            warmup_steady: false,
            output_count: 0,
            output_bytes: Bytes(0),
            output_again_s: [Seconds(0.0); 2],
            output_deferred_s: Seconds(0.0),
            accuracy: IndexMap::new(),
            accuracy_unknown: None,
            observations: 0,
            counted: IndexMap::new(),
            non_finite_outputs: 0,
            multiply_adds_per_sample: None,
            state_memory_bytes_max: Bytes(0),
            spans: IndexMap::new(),
            vendor_time: None,
            device_memory_bytes_max: None,
            memory_bytes_max: Bytes(0),
        }
    }
}
