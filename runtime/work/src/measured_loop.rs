//! The measured loop: warm-up, then passes over the dataset in which every step is timed.

mod audit_run;
mod batches;
mod evidence;
mod loaded_model;
mod loading_search;
mod progress;
mod scenario;
mod schedule;
mod server_queries;
mod traced;
mod warm_up;

use indexmap::IndexMap;
use tracing::debug;

use super::audit::Audit;
use super::device_memory::DeviceMemorySampler;
use super::engine_facts::sidecar_facts_with_modules;
use super::phase::{failure, peak_memory};
use super::step::{self, EvaluatedStep};
use super::totals::Totals;
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::hash::OutputDigest;
use flagperf_core::measure::{AuditReport, Nanos, PassReport, StepTimes, Warmup};
use flagperf_core::metric::Accumulator;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::{Bytes, Seconds};
use flagperf_data::{Batch, BatchRequest, check_decoder};
use flagperf_evaluation::{digest_outputs, name_outputs};
use flagperf_host::descendants_peak;
use flagperf_plan::Job;
use flagperf_script::EvaluatorFn;

pub use batches::{Batches, loader_options};
pub use evidence::Evidence;
pub use loaded_model::LoadedModel;
pub use progress::Progress;
pub use schedule::Schedule;

/// Number of images that a vendor's decoder decodes again, to compare their pixels.
const DECODED_COMPARED: usize = 64;
const DECODER_HINT: &str = "`decoder: null` decodes on the processor";

/// The result of a measured loop.
pub struct LoopResult {
    /// What the audit observed, without the agreement of fresh inputs; `None` for a phase that is not audited.
    pub audit: Option<AuditReport>,
    /// The outputs that were kept.
    pub evidence: Evidence,
    /// The steps of the first pass.
    pub first_pass: Vec<StepTimes>,
}

/// A measured loop that is ready to run: its model is loaded, its dataset is open and its buffers are lent.
pub struct MeasuredLoop<'a> {
    job: &'a Job,
    schedule: Schedule<'a>,
    batches: Batches,
    model: LoadedModel,
    evaluator: EvaluatorFn,
    evidence: Evidence,
    totals: Totals,
    progress: Progress<'a>,
}

impl<'a> MeasuredLoop<'a> {
    /// Creates a loop that runs the batches through the model. Accuracy is meaningless for the reason `accuracy_unknown`,
    /// if there is one.
    pub fn new(
        job: &'a Job,
        schedule: Schedule<'a>,
        batches: Batches,
        model: LoadedModel,
        evaluator: EvaluatorFn,
        accuracy_unknown: Option<String>,
        progress: Progress<'a>,
    ) -> Self {
        let is_compared = job.phase().facts().compared_with.is_some();
        let evidence = Evidence::new(schedule.passes, is_compared, batches.order.ranks());
        let totals = Totals::new(accuracy_unknown);
        MeasuredLoop { job, schedule, batches, model, evaluator, evidence, totals, progress }
    }

    /// Warms up, then measures the passes of the schedule and emits the figures after each.
    ///
    /// # Errors
    /// When loading, computing, evaluating or writing raw samples fails.
    pub fn run(mut self, memory: &DeviceMemorySampler) -> Result<LoopResult, Failure> {
        let (warmup, inputs) = self.warm_up()?;
        debug!(steps = warmup.steps(), "warmed up");
        self.search_loading()?;
        self.report_sidecar();
        self.wait_for_others();
        self.progress.begin_measurement();
        let mut audit = None;
        let mut first_pass = Vec::new();
        for pass in self.schedule.passes() {
            (self.progress.emit)(Event::PassBegin { step: self.progress.step(), pass });
            let steps = self.run_pass(pass)?;
            self.report_pass(&steps, &warmup, memory);
            let audit = audit.get_or_insert_with(|| self.plan_audit(&steps));
            self.run_audit(audit, &steps)?;
            if pass == 0 {
                first_pass = steps;
            }
        }
        self.run_scenario(&first_pass)?;
        self.check_inputs(&inputs)?;
        self.report_decoder()?;
        self.report_modules();
        self.close_sessions();
        let audit = audit.filter(|_| self.job.phase().facts().is_audited).map(Audit::finish);
        self.evidence.kept.have_tokens = self.model.has_answers();
        Ok(LoopResult { audit, evidence: self.evidence, first_pass })
    }

    /// Warms up and runs one pass in the order of the first one, which is part of no figure. Returns its steps and metrics.
    ///
    /// # Errors
    /// As [`MeasuredLoop::run`].
    pub fn run_unreported(mut self) -> Result<(Vec<StepTimes>, IndexMap<String, f64>), Failure> {
        self.warm_up()?;
        let steps = self.run_pass(0)?;
        self.close_sessions();
        Ok((steps, self.totals.accuracy))
    }

    /// Runs the samples of each request without a warm-up, which is part of no figure. Returns their outputs by name.
    ///
    /// # Errors
    /// As [`MeasuredLoop::run`].
    pub fn run_requests(mut self, requests: Vec<BatchRequest>) -> Result<Vec<Vec<(String, Tensor)>>, Failure> {
        self.batches.start_requests(requests)?;
        let mut outputs = Vec::new();
        while let Some(batch) = self.batches.next()? {
            let (_, _, output) = self.model.run_unmeasured(&batch, self.progress.clock)?;
            let (_, output) = step::select_samples(&batch, step::sample_rows(&batch).as_deref(), output)?;
            outputs.push(name_outputs(&output));
            self.batches.recycle(batch)?;
        }
        self.close_sessions();
        Ok(outputs)
    }

    /// Runs one pass over the dataset, starting with an empty queue.
    fn run_pass(&mut self, pass: u32) -> Result<Vec<StepTimes>, Failure> {
        let clock = self.progress.clock;
        let mut steps: Vec<StepTimes> = Vec::new();
        let mut metrics = Accumulator::default();
        let order = self.batches.order_of_pass(pass);
        let mut mark = clock.now();
        self.batches.start_in_order(order)?;
        while let Some(batch) = self.batches.next()? {
            let number = steps.len() as u64 + 1;
            let (step, end) = self.run_step((pass, number), batch, mark, &mut metrics)?;
            steps.push(step);
            mark = end;
        }
        self.evidence.end_pass();
        self.totals.add_pass(&metrics);
        if let Some(last) = steps.last_mut() {
            last.host_s = last.host_s + clock.now().since(mark);
        }
        Ok(steps)
    }

    /// Runs and evaluates the batch that was requested at `requested` and has just been loaded. Returns the times of the
    /// step, and its end.
    fn run_step(
        &mut self,
        (pass, number): (u32, u64),
        batch: Batch,
        requested: Nanos,
        metrics: &mut Accumulator,
    ) -> Result<(StepTimes, Nanos), Failure> {
        let clock = self.progress.clock;
        let loaded = clock.now();
        let output = self.model.run(&batch)?;
        let computed = clock.now();
        let output = step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
        let copied = clock.now();
        let deferred = self.totals.add_deferred(copied.since(computed), &output);
        let step = step::evaluate(&batch, output, &mut self.evaluator)?;
        metrics.merge(&step.observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
        let evaluated = clock.now();
        let samples = step.samples;
        let outputs = self.account(pass, batch, step)?;
        self.progress.report(false, pass, number, self.totals.samples);
        let end = clock.now();
        let times = StepTimes {
            pass,
            samples,
            load_wait_s: loaded.since(requested),
            core_s: computed.since(loaded) + deferred,
            output_s: Seconds(copied.since(computed).0 - deferred.0),
            evaluate_s: evaluated.since(copied),
            host_s: end.since(evaluated),
            outputs,
        };
        Ok((times, end))
    }

    /// Counts a step, keeps its outputs as evidence, and returns the memory of the batch to the loader. Returns the digest
    /// of the outputs.
    fn account(&mut self, pass: u32, batch: Batch, step: EvaluatedStep) -> Result<OutputDigest, Failure> {
        self.model.check_all_rows_ran(&batch)?;
        let named = name_outputs(&step.stored.output);
        let digest = digest_outputs(self.batches.order.seed(), &step.stored.samples, &named);
        self.evidence.add_step(pass, &batch, &step, named)?;
        self.totals.add_step(&batch, &step, self.model.take_vendor_time());
        for (_, error) in &batch.failed {
            let (sample, reason) = (error.sample.clone(), error.reason.clone());
            (self.progress.emit)(Event::SampleFailed { sample, reason });
        }
        drop(step);
        self.batches.recycle(batch)?;
        Ok(digest)
    }

    /// Emits the times and the figures of a pass.
    fn report_pass(&mut self, steps: &[StepTimes], warmup: &Warmup, memory: &DeviceMemorySampler) {
        self.progress.report_times(steps);
        self.totals.add_spans(self.model.take_spans());
        self.model.count_operations((steps.len() * self.job.settings.batch_size as usize) as u64);
        let report = PassReport {
            multiply_adds_per_sample: self.model.multiply_adds_per_sample(),
            state_memory_bytes_max: self.model.state_memory_max(),
            device_memory_bytes_max: memory.peak(&self.model.sessions),
            memory_bytes_max: Bytes(peak_memory().0 + descendants_peak()),
            ..self.totals.report(self.progress.step(), self.job.settings.batch_size, warmup)
        };
        debug!(pass = report.pass, steps = steps.len(), "measured a pass");
        (self.progress.emit)(Event::PassEnd(Box::new(report)));
        self.report_sidecar();
    }

    /// Emits what the sidecars' runs have revealed, when there is something new.
    fn report_sidecar(&mut self) {
        if let Some(facts) = self.model.new_sidecar_facts() {
            (self.progress.emit)(Event::Sidecar(Box::new(facts)));
        }
    }

    /// Emits the hashes of the modules that the sidecars have imported.
    fn report_modules(&self) {
        if let Some(facts) = sidecar_facts_with_modules(&[self.model.sessions()]) {
            (self.progress.emit)(Event::Sidecar(Box::new(facts)));
        }
    }

    /// Compares some images that a vendor's decoder has decoded with flagperf's, and emits what it is.
    fn report_decoder(&self) -> Result<(), Failure> {
        let dataset = self.batches.loader.dataset();
        let order = self.batches.order.shuffle("decoded images", 0, dataset.len());
        let samples: Vec<u64> = order.into_iter().take(DECODED_COMPARED).map(|sample| sample as u64).collect();
        let checked = check_decoder(dataset.as_ref(), &samples);
        if let Some(facts) = checked.map_err(|reason| failure(&reason, DECODER_HINT))? {
            (self.progress.emit)(Event::Decoder(facts));
        }
        Ok(())
    }

    /// Waits until the other loops that begin together with this one are ready, too.
    fn wait_for_others(&self) {
        if let Some(barrier) = self.schedule.barrier {
            (self.progress.emit)(Event::Ready { step: self.progress.step() });
            barrier();
        }
    }

    /// Ends the processes of the engines. A faulty end is logged as a warning and does not invalidate the figures.
    fn close_sessions(&self) {
        for message in self.model.close() {
            let source = self.job.engine.name.clone();
            (self.progress.emit)(Event::Log { level: Level::Warning, source, message });
        }
    }
}
