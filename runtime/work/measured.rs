//! The measured loop: warm-up, then passes over the dataset, every step timed.

use std::sync::Arc;

use indexmap::IndexMap;

use super::build::{Sessions, sidecar_facts};
use super::device_memory::DeviceMemory;
use super::outputs::KeptOutputs;
use super::phase::{Emit, failure, peak_memory};
use super::samples::SampleFile;
use super::step;
use super::totals::Totals;
use crate::data::{Batch, Dataset, Field, FieldRole, Loader, LoaderOptions};
use crate::engine::{EngineError, HeapMemory, LentMemory};
use crate::event::{Event, Failure, Level, SidecarFacts};
use crate::hash::hash_file;
use crate::measure::{Clock, Measurement, Nanos, StepTimes, Warmup, summarise};
use crate::metric::Accumulator;
use crate::plan::Job;
use crate::script::{EvaluatorFn, ForwardFn, Output};
use crate::step::Step;
use crate::tensor::Tensor;
use crate::units::{Bytes, Seconds};

/// Most warm-up steps.
const WARMUP_STEPS_MAX: usize = 20;
/// Warm-up ends after this much time, steady or not.
const WARMUP_TIME_MAX: Seconds = Seconds(10.0);
/// Someone who watches gets progress at most this often.
const WATCHED_EVERY: Seconds = Seconds(0.1);
/// Batches that the loader prepares ahead, at least.
const PREFETCH_MIN: usize = 2;
/// Samples that it prepares ahead for each of its threads, at least: small batches are many.
const PREFETCH_OF_A_WORKER: usize = 2;

const BAD_SAMPLES: &str = "`bad_samples: count` in the case's parameters.yaml counts unreadable samples instead";

/// What a measured loop leaves behind.
pub struct Measured {
    /// Outputs of one pass.
    pub kept: KeptOutputs,
}

/// A loop ready to run: sessions loaded, dataset opened, buffers lent.
pub struct MeasuredLoop<'a> {
    job: &'a Job,
    step: Step,
    clock: &'a Arc<dyn Clock>,
    emit: &'a Emit,
    sessions: Sessions,
    loader: Loader,
    batches: u64,
    accuracy_unknown: Option<String>,
    progress: Nanos,
    begun: Nanos,
    done: Totals,
    /// What was told of the sidecar since it ran.
    sidecar: Option<SidecarFacts>,
}

impl<'a> MeasuredLoop<'a> {
    /// Lends the sessions' buffers to a loader over `dataset`.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn new(
        job: &'a Job,
        step: Step,
        clock: &'a Arc<dyn Clock>,
        emit: &'a Emit,
        sessions: Sessions,
        dataset: Arc<dyn Dataset>,
        accuracy_unknown: Option<String>,
    ) -> Result<Self, Failure> {
        let (batch_size, workers) = (job.settings.batch_size as usize, job.settings.num_workers as usize);
        let options = LoaderOptions {
            batch_size,
            workers,
            prefetch: (PREFETCH_OF_A_WORKER * workers).div_ceil(batch_size.max(1)).max(PREFETCH_MIN),
            fixed_rows: true,
            preloaded: job.parameters.preloaded,
            on_bad_sample: job.parameters.bad_samples,
        };
        let batches = dataset.len().div_ceil(options.batch_size.max(1)) as u64;
        let inputs: Vec<_> = dataset.fields().iter().filter(|f| f.role == FieldRole::Input).cloned().collect();
        let lend_from = sessions.clone();
        let mut lend = |field: &Field, bytes: usize| -> Result<Box<dyn LentMemory>, EngineError> {
            let position = inputs.iter().position(|input| input.name == field.name);
            super::build::lend(&lend_from, &field.name, position, bytes)
                .unwrap_or_else(|| HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>))
        };
        let loader = Loader::new(dataset, options, &mut lend).map_err(|e| failure(&e, e.hint()))?;
        let now = clock.now();
        // Validation is what inference is compared with; of inference, any pass may be compared.
        let compared_passes = if step == Step::Inference { job.settings.repeat } else { 1 };
        Ok(MeasuredLoop {
            job,
            step,
            clock,
            emit,
            sessions,
            loader,
            batches,
            accuracy_unknown,
            progress: now,
            begun: now,
            done: Totals::new(compared_passes),
            sidecar: None,
        })
    }

    /// Warms up, then measures `repeat` passes; figures are told after each.
    ///
    /// # Errors
    /// When loading, computing, evaluating or writing raw samples fails.
    pub fn run(
        mut self,
        mut forward: ForwardFn,
        mut evaluator: EvaluatorFn,
        memory: &DeviceMemory,
    ) -> Result<Measured, Failure> {
        let full_disk = "is the disk full? what was measured so far is kept";
        let mut file = SampleFile::create(&self.job.log_dir, self.job.phase).map_err(|e| failure(&e, full_disk))?;
        let warmup = self.warm_up(&mut forward)?;
        self.tell_sidecar();
        self.begun = self.clock.now();
        for pass in 0..self.job.settings.repeat {
            let steps = self.pass(pass, &mut forward, &mut evaluator)?;
            file.append(&steps).map_err(|e| failure(&e, full_disk))?;
            self.done.add_spans(forward.take_spans());
            let figures = self.figures(&warmup, memory);
            (self.emit)(Event::Measured(Box::new(figures)));
            self.tell_sidecar();
        }
        file.check().map_err(|e| failure(&e, "only this program writes there"))?;
        let size = std::fs::metadata(file.path()).map_or(0, |m| m.len());
        (self.emit)(Event::Wrote {
            what: "samples".to_owned(),
            path: file.path().display().to_string(),
            size_bytes: Bytes(size),
            sha256: hash_file(file.path()).map_err(|e| failure(&e, ""))?,
        });
        self.close_sessions();
        Ok(Measured { kept: self.done.kept })
    }

    /// Ends what the engines run beside this process, and tells what was wrong with its end: the figures stand.
    fn close_sessions(&self) {
        let endings = self.sessions.values().filter_map(|session| session.lock().ok()?.close());
        for message in endings {
            (self.emit)(Event::Log { level: Level::Warning, source: self.job.engine.name.clone(), message });
        }
    }

    /// Runs the first batch again and again until step times are steady. Every batch has the same shape (the last is
    /// padded), so once is enough.
    fn warm_up(&mut self, forward: &mut ForwardFn) -> Result<Warmup, Failure> {
        let mut warmup = Warmup::new(WARMUP_STEPS_MAX, WARMUP_TIME_MAX);
        self.start_pass()?;
        let batch = self.next_batch()?.ok_or_else(|| failure(&"the dataset is empty", ""))?;
        while !warmup.is_done() {
            let start = self.clock.now();
            let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
            self.sync()?;
            warmup.push(self.clock.now().since(start));
            step::to_host(output).map_err(|e| failure(&e, ""))?;
            every_row_ran(forward, &batch)?;
            self.tell_progress(true, 0, u64::from(warmup.steps()));
        }
        self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        forward.take_spans();
        self.vendor_time();
        Ok(warmup)
    }

    /// One pass over the dataset, from an empty queue.
    fn pass(
        &mut self,
        pass: u32,
        forward: &mut ForwardFn,
        evaluator: &mut EvaluatorFn,
    ) -> Result<Vec<StepTimes>, Failure> {
        let mut steps = Vec::new();
        let mut seen = Accumulator::default();
        let start = self.clock.now();
        self.start_pass()?;
        let mut mark = start;
        while let Some(batch) = self.next_batch()? {
            let loaded = self.clock.now();
            let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
            self.sync()?;
            let computed = self.clock.now();
            let output = step::to_host(output).map_err(|e| failure(&e, ""))?;
            let copied = self.clock.now();
            let (samples, output) = self.evaluate(&batch, output, evaluator, &mut seen)?;
            let evaluated = self.clock.now();
            every_row_ran(forward, &batch)?;
            if pass == self.done.kept.pass {
                self.done.kept.keep(&batch.tickets, samples, step::named(&output));
            }
            self.account(&batch, samples, &output);
            drop(output);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep what it was given"))?;
            self.tell_progress(false, pass, steps.len() as u64 + 1);
            let end = self.clock.now();
            steps.push(StepTimes {
                pass,
                samples,
                load_wait_s: loaded.since(mark),
                core_s: computed.since(loaded),
                output_s: copied.since(computed),
                evaluate_s: evaluated.since(copied),
                host_s: end.since(evaluated),
            });
            mark = end;
        }
        let end = self.clock.now();
        let (whole, tail) = (end.since(start), end.since(mark));
        let accuracy = if self.accuracy_unknown.is_none() { seen.finish() } else { IndexMap::new() };
        self.done.add_pass(&steps, summarise(&steps, whole, tail, accuracy), &seen);
        Ok(steps)
    }

    fn start_pass(&mut self) -> Result<(), Failure> {
        self.loader.start_pass().map_err(|e| failure(&e, BAD_SAMPLES))
    }

    fn next_batch(&mut self) -> Result<Option<Batch>, Failure> {
        self.loader.next().transpose().map_err(|e| failure(&e, BAD_SAMPLES))
    }

    fn sync(&self) -> Result<(), Failure> {
        for session in self.sessions.values() {
            let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
            session.sync().map_err(|e| failure(&e, ""))?;
        }
        Ok(())
    }

    /// What the vendors' code asked to have taken off since this was last called.
    fn vendor_time(&self) -> Option<Seconds> {
        let sessions = self.sessions.values().filter_map(|session| session.lock().ok()?.vendor_time());
        sessions.reduce(|a, b| a + b)
    }

    /// Cuts what does not count and evaluates the rest; gives the number of samples and the outputs that count.
    fn evaluate(
        &mut self,
        batch: &Batch,
        output: Output<Tensor>,
        evaluator: &mut EvaluatorFn,
        seen: &mut Accumulator,
    ) -> Result<(u32, Output<Tensor>), Failure> {
        let rows = step::counting_rows(batch);
        if rows.is_some() {
            every_output_has_rows(&output, batch.rows)?;
        }
        let cut = |tensor: &Tensor| step::cut(tensor, rows.as_deref(), batch.rows);
        let output = output.try_map(|tensor| cut(&tensor)).map_err(|e| failure(&e, ""))?;
        let mut truth = IndexMap::with_capacity(batch.truth.len());
        for (name, tensor) in &batch.truth {
            truth.insert(name.clone(), cut(tensor).map_err(|e| failure(&e, ""))?);
        }
        seen.merge(&evaluator.call(&output, &truth).map_err(|e| failure(&e, ""))?);
        let samples = rows.map_or(batch.rows, |rows| rows.len());
        Ok((u32::try_from(samples).unwrap_or(u32::MAX), output))
    }

    fn account(&mut self, batch: &Batch, samples: u32, output: &Output<Tensor>) {
        let vendor_time = self.vendor_time();
        self.done.add_step(batch, samples, output, vendor_time);
        for (_, error) in &batch.failed {
            (self.emit)(Event::SampleFailed { sample: error.sample.clone(), reason: error.reason.clone() });
        }
    }

    /// Tells progress every `log_freq` steps, or to someone who watches every so often.
    fn tell_progress(&mut self, warmup: bool, pass: u32, batch: u64) {
        let now = self.clock.now();
        let due = match self.job.watched {
            true => now.since(self.progress).0 >= WATCHED_EVERY.0 || batch == self.batches,
            false => !warmup && batch.is_multiple_of(u64::from(self.job.settings.log_freq.max(1))),
        };
        if due {
            self.progress = now;
            (self.emit)(Event::Progress {
                step: self.step,
                warmup,
                pass,
                passes: self.job.settings.repeat,
                batch,
                batches: self.batches,
                samples: self.done.samples,
                elapsed_s: now.since(self.begun),
            });
        }
    }

    /// Tells what the sidecars showed when they ran, once and when there is more of it.
    fn tell_sidecar(&mut self) {
        let facts = sidecar_facts(&self.sessions)
            .filter(|facts| !facts.reshaped_outputs.is_empty() || facts.third_value.is_some());
        if facts != self.sidecar {
            self.sidecar = facts;
            (self.emit)(Event::Sidecar(Box::new(self.sidecar.clone().unwrap_or_default())));
        }
    }

    /// The figures so far: `passes` are those that were not sent yet.
    fn figures(&mut self, warmup: &Warmup, memory: &DeviceMemory) -> Measurement {
        let beside =
            self.sessions.values().filter_map(|s| s.lock().ok()?.process_memory_max()).map(|b| b.0).sum::<u64>();
        Measurement {
            accuracy_unknown: self.accuracy_unknown.clone(),
            device_memory_bytes_max: memory.max(&self.sessions),
            memory_bytes_max: Bytes(peak_memory().0 + beside),
            ..self.done.measurement(self.step, self.job.settings.batch_size, warmup)
        }
    }
}

/// Checks that every output has a row for each row of the batch: else what does not count cannot be left out.
fn every_output_has_rows(output: &Output<Tensor>, rows: usize) -> Result<(), Failure> {
    let Some((name, tensor)) = output.iter().find(|(_, tensor)| tensor.shape().first() != Some(&rows)) else {
        return Ok(());
    };
    let (spec, hint) = (tensor.spec(), "the first dimension of an output is that of the batch");
    let reason = format!("output `{name}` is `{spec}` for a batch of {rows}: rows of padding cannot be left out of it");
    Err(failure(&reason, hint))
}

/// Checks that the forward function ran a session on as many rows as the batch has.
fn every_row_ran(forward: &mut ForwardFn, batch: &Batch) -> Result<(), Failure> {
    let ran = forward.take_rows();
    if ran >= batch.rows as u64 {
        return Ok(());
    }
    let reason = format!("the forward function ran the model on {ran} of the {} rows of a batch", batch.rows);
    Err(failure(&reason, "every row of `batch` goes through `run` of a model, padding included"))
}
