//! The measured loop: warm-up, then passes over the dataset in which every step is timed.

mod audit_run;
mod progress;
mod warm_up;

use std::sync::Arc;

use flagperf_onnx::Graph;
use indexmap::IndexMap;
use tracing::debug;

use super::audit::Audit;
use super::device_memory::DeviceMemorySampler;
use super::engine_facts::sidecar_facts;
use super::lend::lend_input;
use super::operations::OperationCounter;
use super::order::SampleOrder;
use super::outputs::KeptOutputs;
use super::pass_comparison::PassComparison;
use super::phase::{Emit, failure, peak_memory};
use super::step;
use super::totals::Totals;
use flagperf_core::event::{Event, Failure, Level, SidecarFacts};
use flagperf_core::measure::{AuditReport, Clock, Nanos, PassReport, STEPS_PER_EVENT, StepColumns, StepTimes, Warmup};
use flagperf_core::metric::Accumulator;
use flagperf_core::step::PhaseFacts;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::{Bytes, Seconds};
use flagperf_data::{Batch, Dataset, Field, FieldRole, Loader, LoaderOptions};
use flagperf_engine::{EngineError, HeapMemory, LentMemory};
use flagperf_evaluation::{StoredPass, StoredStep, digest_outputs, name_outputs};
use flagperf_plan::Job;
use flagperf_script::{EvaluatorFn, ForwardFn, Sessions, StepOutput};

/// Smallest number of batches that the loader prepares ahead.
const PREFETCH_MIN: usize = 2;
/// Smallest number of samples that the loader prepares ahead per thread, so that small batches keep all threads busy.
const PREFETCH_PER_THREAD: usize = 2;

const BAD_SAMPLES_HINT: &str =
    "`bad_samples: count` in the case's parameters.yaml counts unreadable samples as failed instead";

/// The result of a measured loop.
pub struct LoopResult {
    /// What the audit observed, without the agreement of fresh inputs; `None` for a phase that is not audited.
    pub audit: Option<AuditReport>,
    /// The outputs of one pass.
    pub kept: KeptOutputs,
    /// How the passes differ from each other.
    pub comparison: PassComparison,
    /// What the evaluator received in that pass.
    pub stored: StoredPass,
    /// The steps of the first pass.
    pub first_pass: Vec<StepTimes>,
}

/// A measured loop that is ready to run: its sessions are loaded, its dataset is open and its buffers are lent.
pub struct MeasuredLoop<'a> {
    job: &'a Job,
    phase: &'static PhaseFacts,
    clock: &'a Arc<dyn Clock>,
    emit: &'a Emit,
    sessions: Sessions,
    loader: Loader,
    batches: u64,
    accuracy_unknown: Option<String>,
    last_progress: Nanos,
    started: Nanos,
    totals: Totals,
    order: SampleOrder,
    /// The rank of each batch when only some can be kept: those of the lowest ranks are.
    ranks: Vec<usize>,
    stored: StoredPass,
    /// Compares the passes with each other if the phase is compared with another one.
    comparison: PassComparison,
    operations: OperationCounter,
    /// The sidecar properties that were last emitted.
    sidecar: Option<SidecarFacts>,
    /// Returns when a job that waits may begin.
    release: &'a (dyn Fn() + Sync),
}

impl<'a> MeasuredLoop<'a> {
    /// Creates a loader over `dataset` that fills the sessions' buffers.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn new(
        job: &'a Job,
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
        let samples = dataset.len();
        let mut loader = Loader::new(dataset, options, &mut lend).map_err(|e| failure(&e, e.hint()))?;
        let order = SampleOrder::new(job.run_seed, loader.batches() as usize);
        // Samples of similar length may have been placed together on purpose.
        if !loader.has_open_length() {
            loader.set_batches(order.divide(samples, batch_size));
        }
        let now = clock.now();
        let phase = job.phase().facts();
        // A phase keeps its first pass, unless it is compared with another phase, which it is in a random pass.
        let compared_passes = if phase.compared_with.is_some() { job.settings.repeat } else { 1 };
        let ranks = order.ranks();
        let totals = Totals::new(compared_passes, ranks.clone());
        Ok(MeasuredLoop {
            job,
            phase,
            clock,
            emit,
            sessions,
            loader,
            batches,
            accuracy_unknown,
            last_progress: now,
            started: now,
            stored: StoredPass::new(totals.kept.pass),
            totals,
            order,
            ranks,
            comparison: PassComparison::default(),
            operations: OperationCounter::new(IndexMap::new()),
            sidecar: None,
            release: &|| (),
        })
    }

    /// Calls `release`, which returns when other workers are ready, after the warm-up of a job that waits.
    #[must_use]
    pub fn released_by(self, release: &'a (dyn Fn() + Sync)) -> Self {
        MeasuredLoop { release, ..self }
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
        let (warmup, inputs) = self.warm_up(&mut forward)?;
        debug!(steps = warmup.steps(), "warmed up");
        self.report_sidecar();
        if self.job.waits {
            (self.emit)(Event::Ready { step: self.phase.measured_step });
            (self.release)();
        }
        self.started = self.clock.now();
        let mut audit = None;
        let mut first_pass = Vec::new();
        for pass in 0..self.job.settings.repeat {
            (self.emit)(Event::PassBegin { step: self.phase.measured_step, pass });
            let steps = self.run_pass(pass, &mut forward, &mut evaluator)?;
            self.emit_times(&steps);
            self.totals.add_spans(forward.take_spans());
            let rows = steps.len() * self.job.settings.batch_size as usize;
            self.operations.add_pass(&forward.take_runs(), rows as u64);
            let report = self.report(&warmup, memory, forward.state_memory_max());
            debug!(pass, steps = steps.len(), "measured a pass");
            (self.emit)(Event::PassEnd(Box::new(report)));
            self.report_sidecar();
            let audit = audit.get_or_insert_with(|| self.plan_audit(&steps));
            self.run_audit(audit, &steps, &mut forward)?;
            if pass == 0 {
                first_pass = steps;
            }
        }
        self.check_inputs(&mut forward, &inputs)?;
        self.close_sessions();
        Ok(LoopResult {
            audit: audit.filter(|_| self.phase.is_audited).map(Audit::finish),
            kept: self.totals.kept,
            comparison: self.comparison,
            stored: self.stored,
            first_pass,
        })
    }

    /// Warms up and runs one pass in the order of the first one, which is part of no figure. Returns its steps and metrics.
    ///
    /// # Errors
    /// As [`MeasuredLoop::run`].
    pub fn run_unreported(
        mut self,
        mut forward: ForwardFn,
        mut evaluator: EvaluatorFn,
    ) -> Result<(Vec<StepTimes>, IndexMap<String, f64>), Failure> {
        self.warm_up(&mut forward)?;
        let steps = self.run_pass(0, &mut forward, &mut evaluator)?;
        self.close_sessions();
        Ok((steps, self.totals.accuracy))
    }

    fn emit_times(&self, steps: &[StepTimes]) {
        for steps in steps.chunks(STEPS_PER_EVENT) {
            (self.emit)(Event::Steps { step: self.phase.measured_step, times: StepColumns(steps.to_vec()) });
        }
    }

    /// Ends the processes of the engines. A faulty end is logged as a warning and does not invalidate the figures.
    fn close_sessions(&self) {
        let endings = self.sessions.values().filter_map(|session| session.lock().ok()?.close());
        for message in endings {
            (self.emit)(Event::Log { level: Level::Warning, source: self.job.engine.name.clone(), message });
        }
    }

    /// Runs one pass over the dataset, starting with an empty queue.
    fn run_pass(
        &mut self,
        pass: u32,
        forward: &mut ForwardFn,
        evaluator: &mut EvaluatorFn,
    ) -> Result<Vec<StepTimes>, Failure> {
        let mut steps: Vec<StepTimes> = Vec::new();
        let mut metrics = Accumulator::default();
        let order = self.order.of_pass(self.job.phase(), pass);
        let mut mark = self.clock.now();
        self.loader.start_pass_in_order(order).map_err(|e| failure(&e, BAD_SAMPLES_HINT))?;
        while let Some(batch) = self.next_batch()? {
            let loaded = self.clock.now();
            let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
            self.sync()?;
            let computed = self.clock.now();
            let output = step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
            let copied = self.clock.now();
            let (samples, step, observed) = self.evaluate(&batch, output, evaluator)?;
            metrics.merge(&observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
            let evaluated = self.clock.now();
            check_all_rows_ran(forward, &batch)?;
            let named = name_outputs(&step.output);
            let outputs = digest_outputs(self.order.seed(), &step.samples, &named);
            self.keep_outputs(pass, &batch, samples, named);
            self.store_step(pass, &batch, &step, &observed)?;
            self.count_batch(&batch, samples, &step.output);
            drop(step);
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
                outputs,
            });
            mark = end;
        }
        self.comparison.end_pass();
        let accuracy = if self.accuracy_unknown.is_none() { metrics.finish() } else { IndexMap::new() };
        self.totals.add_pass(accuracy, &metrics);
        if let Some(last) = steps.last_mut() {
            last.host_s = last.host_s + self.clock.now().since(mark);
        }
        Ok(steps)
    }

    /// Runs a step that is part of no figure. Returns its core time and its outputs, with padding.
    fn run_unmeasured(&self, forward: &mut ForwardFn, batch: &Batch) -> Result<(Seconds, StepOutput<Tensor>), Failure> {
        let start = self.clock.now();
        let output = forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
        self.sync()?;
        let core = self.clock.now().since(start);
        let output = step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
        check_all_rows_ran(forward, batch)?;
        Ok((core, output))
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

    /// Removes padding and failed samples and evaluates the rest. Returns the number of samples, what the evaluator
    /// received, and its metrics.
    fn evaluate(
        &mut self,
        batch: &Batch,
        output: StepOutput<Tensor>,
        evaluator: &mut EvaluatorFn,
    ) -> Result<(u32, StoredStep, Accumulator), Failure> {
        let rows = step::sample_rows(batch);
        let (samples, output) = select_samples(batch, rows.as_deref(), output)?;
        let select = |tensor: &Tensor| step::select_rows(tensor, rows.as_deref(), batch.rows);
        let mut truth = IndexMap::with_capacity(batch.truth.len());
        for (name, tensor) in &batch.truth {
            truth.insert(name.clone(), select(tensor).map_err(|e| failure(&e, ""))?);
        }
        let observed = evaluator.call(&output, &truth).map_err(|e| failure(&e, ""))?;
        Ok((samples, StoredStep { samples: batch.sample_indices.clone(), output, truth }, observed))
    }

    /// Stores what the evaluator received, if this is the pass that is stored.
    fn store_step(
        &mut self,
        pass: u32,
        batch: &Batch,
        step: &StoredStep,
        observed: &Accumulator,
    ) -> Result<(), Failure> {
        if pass != self.stored.pass() {
            return Ok(());
        }
        let rank = self.ranks.get(batch.index as usize).copied().unwrap_or_default();
        self.stored.add(step, rank, observed).map_err(|e| failure(&e, ""))
    }

    /// Keeps what the outputs of a step are compared by: with those of validation, and with those of the other passes.
    fn keep_outputs(&mut self, pass: u32, batch: &Batch, samples: u32, outputs: Vec<(String, Tensor)>) {
        let is_kept = pass == self.totals.kept.pass;
        let is_compared = self.phase.compared_with.is_some() && self.job.settings.repeat > 1;
        if is_compared {
            self.comparison.add_step(batch.index, &outputs);
        }
        if is_kept {
            self.totals.kept.keep(batch, samples, outputs);
        }
    }

    fn count_batch(&mut self, batch: &Batch, samples: u32, output: &StepOutput<Tensor>) {
        let vendor_time = self.take_vendor_time();
        self.totals.add_step(batch, samples, output, vendor_time);
        for (_, error) in &batch.failed {
            (self.emit)(Event::SampleFailed { sample: error.sample.clone(), reason: error.reason.clone() });
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

    /// Returns the counts so far; `state_memory` is the most that the states of the forward function held.
    fn report(&mut self, warmup: &Warmup, memory: &DeviceMemorySampler, state_memory: Bytes) -> PassReport {
        let processes =
            self.sessions.values().filter_map(|s| s.lock().ok()?.child_memory_peak()).map(|b| b.0).sum::<u64>();
        PassReport {
            accuracy_unknown: self.accuracy_unknown.clone(),
            multiply_adds_per_sample: self.operations.per_sample(),
            state_memory_bytes_max: state_memory,
            device_memory_bytes_max: memory.peak(&self.sessions),
            memory_bytes_max: Bytes(peak_memory().0 + processes),
            ..self.totals.report(self.phase.measured_step, self.job.settings.batch_size, warmup)
        }
    }
}

/// Removes padding and failed samples from the outputs of a batch; `rows` are those of the samples, if not all are. Returns
/// the number of samples and their outputs.
fn select_samples(
    batch: &Batch,
    rows: Option<&[usize]>,
    output: StepOutput<Tensor>,
) -> Result<(u32, StepOutput<Tensor>), Failure> {
    if rows.is_some() {
        check_output_rows(&output, batch.rows)?;
    }
    let select = |tensor: &Tensor| step::select_rows(tensor, rows, batch.rows);
    let output = output.try_map(|tensor| select(&tensor)).map_err(|e| failure(&e, ""))?;
    let samples = rows.map_or(batch.rows, <[usize]>::len);
    Ok((u32::try_from(samples).unwrap_or(u32::MAX), output))
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
