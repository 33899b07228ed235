//! The counts of a measured loop.
//!
//! Reads no clock and runs no engine.

use indexmap::IndexMap;

use super::step::{EvaluatedStep, count_non_finite, output_bytes, output_count};
use flagperf_core::measure::{Latency, OutputLink, PassReport, SpanTimes, VendorTime, Warmup};
use flagperf_core::metric::Accumulator;
use flagperf_core::step::Step;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::{Bytes, SamplesPerSecond, Seconds};
use flagperf_data::Batch;
use flagperf_script::{SPAN_TIMES_MAX, Span, StepOutput};

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
    output_count: u32,
    output_bytes: Bytes,
    /// The link over which outputs reach the host.
    pub link: OutputLink,
    deferred: Seconds,
    passes: u32,
    /// The metrics of the last pass; empty when they are meaningless.
    pub accuracy: IndexMap<String, f64>,
    spans: IndexMap<String, Span>,
    vendor_time: Option<VendorTime>,
    /// Why accuracy is meaningless; `None` when it is meaningful.
    accuracy_unknown: Option<String>,
}

impl Totals {
    /// Creates empty totals of a loop whose accuracy is meaningless for this reason, if there is one.
    pub fn new(accuracy_unknown: Option<String>) -> Self {
        Totals { accuracy_unknown, ..Totals::default() }
    }

    /// Counts a step.
    pub fn add_step(&mut self, batch: &Batch, step: &EvaluatedStep, vendor_time: Option<Seconds>) {
        let output = &step.stored.output;
        self.samples += u64::from(step.samples);
        self.failed += batch.failed.len() as u64;
        self.padded += (batch.rows - batch.sample_indices.len()) as u64;
        self.non_finite += output.iter().map(|(_, tensor)| count_non_finite(tensor)).sum::<u64>();
        if let Some(time) = vendor_time {
            self.vendor_time = Some(self.vendor_time.unwrap_or_default().with_step(time));
        }
        // The largest step is decisive because the last one may have fewer samples.
        self.output_bytes = Bytes(self.output_bytes.0.max(output_bytes(output)));
        self.output_count = output_count(output);
    }

    /// Counts the part of the time `output_s`, in which an output reached the host, that counts as core, and returns it.
    pub fn add_deferred(&mut self, output_s: Seconds, output: &StepOutput<Tensor>) -> Seconds {
        let deferred = self.link.deferred(output_s, output_count(output), output_bytes(output));
        self.deferred = self.deferred + deferred;
        deferred
    }

    /// Counts a completed pass with its metrics.
    pub fn add_pass(&mut self, metrics: &Accumulator) {
        self.observations = self.observations.saturating_add(metrics.observations());
        for (name, count) in metrics.counts() {
            let sum = self.counted.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
        self.accuracy = if self.accuracy_unknown.is_none() { metrics.finish() } else { IndexMap::new() };
        self.passes += 1;
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

    /// Returns the counts after the last pass.
    pub fn report(&self, step: Step, batch_size: u32, warmup: &Warmup) -> PassReport {
        PassReport {
            step,
            pass: self.passes.saturating_sub(1),
            batch_size,
            failed_samples: self.failed,
            padded_samples: self.padded,
            warmup_steps: warmup.steps(),
            warmup_s: warmup.total(),
            warmup_steady: warmup.is_steady(),
            output_count: self.output_count,
            output_bytes: self.output_bytes,
            output_again_s: self.link.again_s,
            output_deferred_s: self.deferred,
            accuracy: self.accuracy.clone(),
            observations: self.observations,
            counted: self.counted.clone(),
            non_finite_outputs: self.non_finite,
            spans: self.spans.iter().map(|(name, span)| (name.clone(), span_times(span))).collect(),
            vendor_time: self.vendor_time,
            accuracy_unknown: self.accuracy_unknown.clone(),
            ..PassReport::default()
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
