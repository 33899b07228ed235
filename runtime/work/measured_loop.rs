//! The measured loop: warm-up, then passes over the dataset in which every step is timed.

use std::sync::Arc;

use flagperf_onnx::Graph;
use indexmap::IndexMap;
use tracing::debug;

use super::device_memory::DeviceMemorySampler;
use super::engine_facts::sidecar_facts;
use super::input_check::InputHashes;
use super::lend::lend_input;
use super::operations::OperationCounter;
use super::outputs::KeptOutputs;
use super::pass_comparison::PassComparison;
use super::phase::{Emit, failure, peak_memory};
use super::samples::SampleFile;
use super::step;
use super::totals::Totals;
use crate::data::{Batch, Dataset, Field, FieldRole, Loader, LoaderOptions};
use crate::engine::{EngineError, HeapMemory, LentMemory};
use crate::event::{Event, Failure, Level, SidecarFacts};
use crate::hash::hash_file;
use crate::measure::{Clock, Measurement, Nanos, StepTimes, Warmup, summarise_pass};
use crate::metric::Accumulator;
use crate::plan::Job;
use crate::script::{EvaluatorFn, ForwardFn, Sessions, StepOutput};
use crate::step::Step;
use crate::tensor::Tensor;
use crate::units::{Bytes, Seconds};

/// Largest number of warm-up steps.
const WARMUP_STEPS_MAX: usize = 20;
/// Warm-up ends after this time even if steps are not steady.
const WARMUP_TIME_MAX: Seconds = Seconds(10.0);
/// Shortest time between two progress events of a run that is displayed.
const PROGRESS_INTERVAL: Seconds = Seconds(0.1);
/// Smallest number of batches that the loader prepares ahead.
const PREFETCH_MIN: usize = 2;
/// Smallest number of samples that the loader prepares ahead per thread, so that small batches keep all threads busy.
const PREFETCH_PER_THREAD: usize = 2;

const BAD_SAMPLES_HINT: &str =
    "`bad_samples: count` in the case's parameters.yaml counts unreadable samples as failed instead";

/// The result of a measured loop.
pub struct LoopResult {
    /// The outputs of one pass.
    pub kept: KeptOutputs,
    /// How the passes differ from each other.
    pub comparison: PassComparison,
}

/// A measured loop that is ready to run: its sessions are loaded, its dataset is open and its buffers are lent.
pub struct MeasuredLoop<'a> {
    job: &'a Job,
    step: Step,
    clock: &'a Arc<dyn Clock>,
    emit: &'a Emit,
    sessions: Sessions,
    loader: Loader,
    batches: u64,
    accuracy_unknown: Option<String>,
    last_progress: Nanos,
    started: Nanos,
    totals: Totals,
    /// Compares the passes of inference with each other.
    comparison: PassComparison,
    operations: OperationCounter,
    /// The sidecar properties that were last emitted.
    sidecar: Option<SidecarFacts>,
}

impl<'a> MeasuredLoop<'a> {
    /// Creates a loader over `dataset` that fills the sessions' buffers.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
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
            prefetch: (PREFETCH_PER_THREAD * workers).div_ceil(batch_size.max(1)).max(PREFETCH_MIN),
            pad_last_batch: true,
            preloaded: job.parameters.preloaded,
            on_bad_sample: job.parameters.bad_samples,
        };
        let batches = dataset.len().div_ceil(options.batch_size.max(1)) as u64;
        let inputs: Vec<_> = dataset.fields().iter().filter(|f| f.role == FieldRole::Input).cloned().collect();
        let lend_from = sessions.clone();
        let mut lend = |field: &Field, bytes: usize| -> Result<Box<dyn LentMemory>, EngineError> {
            let position = inputs.iter().position(|input| input.name == field.name);
            lend_input(&lend_from, &field.name, position, bytes)
                .unwrap_or_else(|| HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>))
        };
        let loader = Loader::new(dataset, options, &mut lend).map_err(|e| failure(&e, e.hint()))?;
        let now = clock.now();
        // Validation keeps its first pass; inference is compared with it in a random pass.
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
            last_progress: now,
            started: now,
            totals: Totals::new(compared_passes),
            comparison: PassComparison::default(),
            operations: OperationCounter::new(IndexMap::new()),
            sidecar: None,
        })
    }

    /// Counts the operations of these graphs, by the names of their sessions.
    #[must_use]
    pub fn counting(self, graphs: IndexMap<String, Graph>) -> Self {
        MeasuredLoop { operations: OperationCounter::new(graphs), ..self }
    }

    /// Warms up, then measures `repeat` passes and emits the figures after each.
    ///
    /// # Errors
    /// When loading, computing, evaluating or writing raw samples fails.
    pub fn run(
        mut self,
        mut forward: ForwardFn,
        mut evaluator: EvaluatorFn,
        memory: &DeviceMemorySampler,
    ) -> Result<LoopResult, Failure> {
        let full_disk = "is the disk full? the results measured so far are kept";
        let mut file = SampleFile::create(&self.job.log_dir, self.job.phase()).map_err(|e| failure(&e, full_disk))?;
        let (warmup, inputs) = self.warm_up(&mut forward)?;
        debug!(steps = warmup.steps(), "warmed up");
        self.report_sidecar();
        self.started = self.clock.now();
        for pass in 0..self.job.settings.repeat {
            let steps = self.run_pass(pass, &mut forward, &mut evaluator)?;
            file.append(&steps).map_err(|e| failure(&e, full_disk))?;
            self.totals.add_spans(forward.take_spans());
            let rows = steps.len() * self.job.settings.batch_size as usize;
            self.operations.add_pass(&forward.take_runs(), rows as u64);
            let measurement =
                Measurement { state_memory_bytes_max: forward.state_memory_max(), ..self.measurement(&warmup, memory) };
            debug!(pass, steps = steps.len(), "measured a pass");
            (self.emit)(Event::Measured(Box::new(measurement)));
            self.report_sidecar();
        }
        file.check().map_err(|e| failure(&e, "only flagperf may write to the folder of the run"))?;
        let size = std::fs::metadata(file.path()).map_or(0, |m| m.len());
        (self.emit)(Event::Wrote {
            what: "samples".to_owned(),
            path: file.path().display().to_string(),
            size_bytes: Bytes(size),
            sha256: hash_file(file.path()).map_err(|e| failure(&e, ""))?,
        });
        self.check_inputs(&mut forward, &inputs)?;
        self.close_sessions();
        Ok(LoopResult { kept: self.totals.kept, comparison: self.comparison })
    }

    /// Ends the processes of the engines. A faulty end is logged as a warning and does not invalidate the figures.
    fn close_sessions(&self) {
        let endings = self.sessions.values().filter_map(|session| session.lock().ok()?.close());
        for message in endings {
            (self.emit)(Event::Log { level: Level::Warning, source: self.job.engine.name.clone(), message });
        }
    }

    /// Repeats the first batch until step times are steady. One batch suffices when all have the same shape: the last is
    /// padded. Otherwise the rest of a pass follows, in which the first batch of each further shape runs once. Returns also
    /// the hashes of preloaded inputs.
    fn warm_up(&mut self, forward: &mut ForwardFn) -> Result<(Warmup, InputHashes), Failure> {
        let mut warmup = Warmup::new(WARMUP_STEPS_MAX, WARMUP_TIME_MAX);
        self.report_progress(true, 0, 0);
        self.start_pass()?;
        let batch = self.next_batch()?.ok_or_else(|| failure(&"the dataset is empty", ""))?;
        let inputs = if self.job.parameters.preloaded { InputHashes::of(&batch) } else { InputHashes::default() };
        while !warmup.is_done() {
            let start = self.clock.now();
            let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
            self.sync()?;
            warmup.push(self.clock.now().since(start));
            step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
            check_all_rows_ran(forward, &batch)?;
            self.report_progress(true, 0, u64::from(warmup.steps()));
        }
        let warm = input_shapes(&batch);
        self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        self.warm_up_further_shapes(forward, vec![warm])?;
        forward.take_spans();
        forward.take_runs();
        // Discards the vendor time of warm-up.
        self.take_vendor_time();
        Ok((warmup, inputs))
    }

    /// Runs the first batch of each shape in the rest of the pass that is not `warm`.
    fn warm_up_further_shapes(
        &mut self,
        forward: &mut ForwardFn,
        mut warm: Vec<Vec<Vec<usize>>>,
    ) -> Result<(), Failure> {
        while self.loader.has_open_length()
            && let Some(batch) = self.next_batch()?
        {
            let shapes = input_shapes(&batch);
            if !warm.contains(&shapes) {
                let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
                self.sync()?;
                step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
                check_all_rows_ran(forward, &batch)?;
                warm.push(shapes);
            }
            self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        }
        Ok(())
    }

    /// Checks after the last pass, outside the measurement, that no engine writes to its inputs: that preloaded inputs are
    /// still those of warm-up, and that sidecars, which share memory with the host, do not write to them in a late run.
    fn check_inputs(&mut self, forward: &mut ForwardFn, at_first: &InputHashes) -> Result<(), Failure> {
        let has_sidecar = self.sessions.values().any(|session| session.lock().is_ok_and(|s| s.sidecar().is_some()));
        if !has_sidecar && !self.job.parameters.preloaded {
            return Ok(());
        }
        self.start_pass()?;
        let batch = self.next_batch()?.ok_or_else(|| failure(&"the dataset is empty", ""))?;
        at_first.check(&batch)?;
        if has_sidecar {
            self.sessions
                .values()
                .filter_map(|session| session.lock().ok())
                .for_each(|mut s| s.check_inputs_of_next_run());
            drop(forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?);
            self.sync()?;
        }
        self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))
    }

    /// Runs one pass over the dataset, starting with an empty queue.
    fn run_pass(
        &mut self,
        pass: u32,
        forward: &mut ForwardFn,
        evaluator: &mut EvaluatorFn,
    ) -> Result<Vec<StepTimes>, Failure> {
        let mut steps = Vec::new();
        let mut metrics = Accumulator::default();
        let start = self.clock.now();
        self.start_pass()?;
        let mut mark = start;
        while let Some(batch) = self.next_batch()? {
            let loaded = self.clock.now();
            let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
            self.sync()?;
            let computed = self.clock.now();
            let output = step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
            let copied = self.clock.now();
            let (samples, output) = self.evaluate(&batch, output, evaluator, &mut metrics)?;
            let evaluated = self.clock.now();
            check_all_rows_ran(forward, &batch)?;
            self.keep_outputs(pass, &batch, samples, &output);
            self.count_batch(&batch, samples, &output);
            drop(output);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
            self.report_progress(false, pass, steps.len() as u64 + 1);
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
        self.comparison.end_pass();
        let accuracy = if self.accuracy_unknown.is_none() { metrics.finish() } else { IndexMap::new() };
        self.totals.add_pass(&steps, summarise_pass(&steps, whole, tail, accuracy), &metrics);
        Ok(steps)
    }

    fn start_pass(&mut self) -> Result<(), Failure> {
        self.loader.start_pass().map_err(|e| failure(&e, BAD_SAMPLES_HINT))
    }

    fn next_batch(&mut self) -> Result<Option<Batch>, Failure> {
        self.loader.next().transpose().map_err(|e| failure(&e, BAD_SAMPLES_HINT))
    }

    fn sync(&self) -> Result<(), Failure> {
        for session in self.sessions.values() {
            let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
            session.sync().map_err(|e| failure(&e, ""))?;
        }
        Ok(())
    }

    /// Returns the time that the vendor's code has requested to be subtracted since the last call.
    fn take_vendor_time(&self) -> Option<Seconds> {
        let sessions = self.sessions.values().filter_map(|session| session.lock().ok()?.vendor_time());
        sessions.reduce(|a, b| a + b)
    }

    /// Removes padding and failed samples and evaluates the rest. Returns the number of samples and their outputs.
    fn evaluate(
        &mut self,
        batch: &Batch,
        output: StepOutput<Tensor>,
        evaluator: &mut EvaluatorFn,
        metrics: &mut Accumulator,
    ) -> Result<(u32, StepOutput<Tensor>), Failure> {
        let rows = step::sample_rows(batch);
        if rows.is_some() {
            check_output_rows(&output, batch.rows)?;
        }
        let select = |tensor: &Tensor| step::select_rows(tensor, rows.as_deref(), batch.rows);
        let output = output.try_map(|tensor| select(&tensor)).map_err(|e| failure(&e, ""))?;
        let mut truth = IndexMap::with_capacity(batch.truth.len());
        for (name, tensor) in &batch.truth {
            truth.insert(name.clone(), select(tensor).map_err(|e| failure(&e, ""))?);
        }
        let observed = evaluator.call(&output, &truth).map_err(|e| failure(&e, ""))?;
        metrics.merge(&observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
        let samples = rows.map_or(batch.rows, |rows| rows.len());
        Ok((u32::try_from(samples).unwrap_or(u32::MAX), output))
    }

    /// Keeps what the outputs of a step are compared by: with those of validation, and with those of the other passes.
    fn keep_outputs(&mut self, pass: u32, batch: &Batch, samples: u32, output: &StepOutput<Tensor>) {
        let is_kept = pass == self.totals.kept.pass;
        let is_compared = self.step == Step::Inference && self.job.settings.repeat > 1;
        if !is_kept && !is_compared {
            return;
        }
        let outputs = step::name_outputs(output);
        if is_compared {
            self.comparison.add_step(&outputs);
        }
        if is_kept {
            self.totals.kept.keep(&batch.sample_indices, samples, outputs);
        }
    }

    fn count_batch(&mut self, batch: &Batch, samples: u32, output: &StepOutput<Tensor>) {
        let vendor_time = self.take_vendor_time();
        self.totals.add_step(batch, samples, output, vendor_time);
        for (_, error) in &batch.failed {
            (self.emit)(Event::SampleFailed { sample: error.sample.clone(), reason: error.reason.clone() });
        }
    }

    /// Emits progress every `log_freq` steps, or every [`PROGRESS_INTERVAL`] when the run is displayed.
    fn report_progress(&mut self, warmup: bool, pass: u32, batch: u64) {
        let now = self.clock.now();
        let due = match self.job.has_live_display {
            true => now.since(self.last_progress).0 >= PROGRESS_INTERVAL.0 || [0, self.batches].contains(&batch),
            false => !warmup && batch.is_multiple_of(u64::from(self.job.settings.log_freq.max(1))),
        };
        if due {
            self.last_progress = now;
            (self.emit)(Event::Progress {
                step: self.step,
                warmup,
                pass,
                passes: self.job.settings.repeat,
                batch,
                batches: self.batches,
                samples: self.totals.samples,
                elapsed_s: now.since(self.started),
            });
        }
    }

    /// Emits what the sidecars' runs have revealed, when there is something new.
    fn report_sidecar(&mut self) {
        let facts = sidecar_facts(&self.sessions)
            .filter(|facts| !facts.reshaped_outputs.is_empty() || facts.third_value.is_some());
        if facts != self.sidecar {
            self.sidecar = facts;
            (self.emit)(Event::Sidecar(Box::new(self.sidecar.clone().unwrap_or_default())));
        }
    }

    /// Returns the figures so far; `passes` contains those that have not been emitted yet.
    fn measurement(&mut self, warmup: &Warmup, memory: &DeviceMemorySampler) -> Measurement {
        let processes =
            self.sessions.values().filter_map(|s| s.lock().ok()?.child_memory_peak()).map(|b| b.0).sum::<u64>();
        Measurement {
            accuracy_unknown: self.accuracy_unknown.clone(),
            multiply_adds_per_sample: self.operations.per_sample(),
            device_memory_bytes_max: memory.peak(&self.sessions),
            memory_bytes_max: Bytes(peak_memory().0 + processes),
            ..self.totals.measurement(self.step, self.job.settings.batch_size, warmup)
        }
    }
}

/// Returns the shape of every input of a batch.
fn input_shapes(batch: &Batch) -> Vec<Vec<usize>> {
    batch.inputs.values().map(|tensor| tensor.shape().to_vec()).collect()
}

/// Checks that every output has one row per row of the batch, so that padding and failed samples can be removed.
fn check_output_rows(output: &StepOutput<Tensor>, rows: usize) -> Result<(), Failure> {
    let Some((name, tensor)) = output.iter().find(|(_, tensor)| tensor.shape().first() != Some(&rows)) else {
        return Ok(());
    };
    let (spec, hint) = (tensor.spec(), "the first dimension of every output must be the batch");
    let reason = format!("output `{name}` is `{spec}` for a batch of {rows}: padding rows cannot be removed from it");
    Err(failure(&reason, hint))
}

/// Checks that the forward function ran sessions on at least as many rows as the batch has.
fn check_all_rows_ran(forward: &mut ForwardFn, batch: &Batch) -> Result<(), Failure> {
    let ran = forward.take_rows();
    if ran >= batch.rows as u64 {
        return Ok(());
    }
    let reason = format!("the forward function ran the model on {ran} of the {} rows of a batch", batch.rows);
    Err(failure(&reason, "pass every row of `batch`, including padding, to `run` of a model"))
}
