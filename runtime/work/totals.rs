//! What a measured loop has counted, and the figures that follow from it.
//!
//! Reads no clock and runs nothing.

use indexmap::IndexMap;

use super::outputs::KeptOutputs;
use super::step;
use crate::data::Batch;
use crate::measure::{Latency, Measurement, OutputCopy, PassTimes, StepTimes, VendorTime, Warmup};
use crate::metric::Accumulator;
use crate::script::{Output, Span};
use crate::step::Step;
use crate::tensor::Tensor;
use crate::units::{Bytes, SamplesPerSecond, Seconds};

/// Counts over all passes so far.
#[derive(Default)]
pub struct Totals {
    /// Samples that count.
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
    sent_passes: usize,
    spans: IndexMap<String, Seconds>,
    vendor_time: Option<VendorTime>,
    /// Outputs of one pass.
    pub kept: KeptOutputs,
}

impl Totals {
    /// Nothing counted yet; outputs of one of `compared_passes` passes will be kept.
    pub fn new(compared_passes: u32) -> Self {
        Totals { kept: KeptOutputs::of_any_pass(compared_passes), ..Totals::default() }
    }

    /// Counts a step with the outputs of its rows that count.
    pub fn add_step(&mut self, batch: &Batch, samples: u32, output: &Output<Tensor>, vendor_time: Option<Seconds>) {
        self.samples += u64::from(samples);
        self.failed += batch.failed.len() as u64;
        self.padded += (batch.rows - batch.tickets.len()) as u64;
        self.non_finite += output.iter().map(|(_, tensor)| step::non_finite(tensor)).sum::<u64>();
        if let Some(time) = vendor_time {
            self.vendor_time = Some(self.vendor_time.unwrap_or_default().and(time));
        }
        // Of the largest step: the last one may have fewer rows that count.
        let bytes = output.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum::<u64>();
        self.output_copy.bytes = Bytes(self.output_copy.bytes.0.max(bytes));
        self.output_copy.count = u32::try_from(output.iter().count()).unwrap_or(u32::MAX);
    }

    /// Counts a pass that has ended.
    pub fn add_pass(&mut self, steps: &[StepTimes], pass: PassTimes, seen: &Accumulator) {
        self.core.extend(steps.iter().map(|step| step.core_s));
        self.output.extend(steps.iter().map(|step| step.output_s));
        self.observations = self.observations.saturating_add(seen.observations());
        for (name, count) in seen.counts() {
            let sum = self.counted.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
        self.passes.push(pass);
    }

    /// Adds the time of sub-phases that the script named.
    pub fn add_spans(&mut self, spans: Vec<Span>) {
        for span in spans {
            let sum = self.spans.entry(span.name.to_string()).or_default();
            *sum = *sum + span.time;
        }
    }

    /// The figures so far. Each pass is given once: the record puts them together.
    pub fn measurement(&mut self, step: Step, batch_size: u32, warmup: &Warmup) -> Measurement {
        let sum = |part: fn(&PassTimes) -> Seconds| self.passes.iter().map(part).sum::<Seconds>();
        let new = std::mem::replace(&mut self.sent_passes, self.passes.len());
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
            spans: self.spans.clone(),
            vendor_time: self.vendor_time,
            device_memory_bytes_max: None,
            memory_bytes_max: Bytes(0),
        }
    }
}

/// The mean of each metric over the passes that have it.
fn mean_accuracy(passes: &[PassTimes]) -> IndexMap<String, f64> {
    let mut means = Accumulator::default();
    for (name, value) in passes.iter().flat_map(|pass| &pass.accuracy) {
        means.add(name, *value, 1);
    }
    means.finish()
}
