//! The counts of a measured loop, and the figures computed from them.
//!
//! Reads no clock and runs no engine.

use indexmap::IndexMap;

use super::outputs::KeptOutputs;
use super::step;
use crate::data::Batch;
use crate::measure::{Latency, Measurement, OutputCopy, PassTimes, SpanTimes, StepTimes, VendorTime, Warmup};
use crate::metric::{Accumulator, MetricSum};
use crate::script::{SPAN_TIMES_MAX, Span, StepOutput};
use crate::step::Step;
use crate::tensor::Tensor;
use crate::units::{Bytes, SamplesPerSecond, Seconds};

/// Counts over all passes so far.
#[derive(Default)]
pub struct Totals {
    /// Samples, without padding and failed samples.
    pub samples: u64,
    failed: u64,
    padded: u64,
    non_finite: u64,
    observations: u64,
    counted: IndexMap<String, u64>,
    core: Vec<Seconds>,
    output: Vec<Seconds>,
    output_copy: OutputCopy,
    passes: Vec<PassTimes>,
    emitted_passes: usize,
    spans: IndexMap<String, Span>,
    vendor_time: Option<VendorTime>,
    /// The kept outputs of one pass.
    pub kept: KeptOutputs,
}

impl Totals {
    /// Creates empty totals, which keep the outputs of a random one of `compared_passes` passes.
    pub fn new(compared_passes: u32) -> Self {
        Totals { kept: KeptOutputs::of_random_pass(compared_passes), ..Totals::default() }
    }

    /// Counts a step with the outputs of its samples.
    pub fn add_step(&mut self, batch: &Batch, samples: u32, output: &StepOutput<Tensor>, vendor_time: Option<Seconds>) {
        self.samples += u64::from(samples);
        self.failed += batch.failed.len() as u64;
        self.padded += (batch.rows - batch.sample_indices.len()) as u64;
        self.non_finite += output.iter().map(|(_, tensor)| step::count_non_finite(tensor)).sum::<u64>();
        if let Some(time) = vendor_time {
            self.vendor_time = Some(self.vendor_time.unwrap_or_default().with_step(time));
        }
        // The largest step is decisive because the last one may have fewer samples.
        let bytes = output.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum::<u64>();
        self.output_copy.bytes = Bytes(self.output_copy.bytes.0.max(bytes));
        self.output_copy.count = u32::try_from(output.iter().count()).unwrap_or(u32::MAX);
    }

    /// Counts a completed pass.
    pub fn add_pass(&mut self, steps: &[StepTimes], pass: PassTimes, metrics: &Accumulator) {
        self.core.extend(steps.iter().map(|step| step.core_s));
        self.output.extend(steps.iter().map(|step| step.output_s));
        self.observations = self.observations.saturating_add(metrics.observations());
        for (name, count) in metrics.counts() {
            let sum = self.counted.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
        self.passes.push(pass);
    }

    /// Adds the times of the spans that the script named.
    pub fn add_spans(&mut self, spans: Vec<Span>) {
        for span in spans {
            let sum = self.spans.entry(span.name.to_string()).or_default();
            sum.runs += span.runs;
            sum.items = sum.items.saturating_add(span.items);
            sum.total = sum.total + span.total;
            let room = SPAN_TIMES_MAX.saturating_sub(sum.times.len());
            sum.times.extend(span.times.into_iter().take(room));
        }
    }

    /// Returns the figures so far. Each pass is contained in one measurement only; the record combines them.
    pub fn measurement(&mut self, step: Step, batch_size: u32, warmup: &Warmup) -> Measurement {
        let sum = |part: fn(&PassTimes) -> Seconds| self.passes.iter().map(part).sum::<Seconds>();
        let new = std::mem::replace(&mut self.emitted_passes, self.passes.len());
        Measurement {
            step,
            batch_size,
            samples: self.samples,
            failed_samples: self.failed,
            padded_samples: self.padded,
            steps: self.core.len() as u64,
            warmup_steps: warmup.steps(),
            warmup_s: warmup.total(),
            warmup_steady: warmup.is_steady(),
            throughput_whole_samples_per_s: SamplesPerSecond::of(self.samples, sum(|pass| pass.whole_s)),
            throughput_core_samples_per_s: SamplesPerSecond::of(self.samples, sum(|pass| pass.core_s)),
            latency: Latency::of(&self.core),
            output_copy: Latency::of(&self.output).map(|latency| OutputCopy { latency, ..self.output_copy }),
            passes: self.passes[new..].to_vec(),
            accuracy: mean_accuracy(&self.passes),
            accuracy_unknown: None,
            observations: self.observations,
            counted: self.counted.clone(),
            non_finite_outputs: self.non_finite,
            multiply_adds_per_sample: None,
            state_memory_bytes_max: Bytes(0),
            spans: self.spans.iter().map(|(name, span)| (name.clone(), span_times(span))).collect(),
            vendor_time: self.vendor_time,
            device_memory_bytes_max: None,
            memory_bytes_max: Bytes(0),
        }
    }
}

fn span_times(span: &Span) -> SpanTimes {
    SpanTimes {
        runs: span.runs,
        items: span.items,
        total_s: span.total,
        throughput_items_per_s: SamplesPerSecond::of(span.items, span.total).filter(|_| span.items > 0),
        latency: Latency::of(&span.times),
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
