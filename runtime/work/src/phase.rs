//! The two phases: validation (init, data, model, validation, export) and inference (init, data, compile, inference).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use flagperf_onnx::{Graph, Model};
use indexmap::IndexMap;
use tracing::{debug, debug_span};

use super::changed_model::write_changed_model;
use super::device_memory::DeviceMemorySampler;
use super::engine_facts::{check_threads, engine_facts, engine_warnings};
use super::export;
use super::facts::{self, KnownModel};
use super::load::{
    convert_precision, delivery, load_model, load_model_input, load_profiled_input, load_profiled_model,
};
use super::measured_loop::{Batches, Evidence, LoadedModel, LoopResult, MeasuredLoop, Progress, Schedule};
use super::memory_need;
use super::model_files::{HashedFile, ModelFiles};
use super::outputs::{DrawnSamples, ValidationOutputs};
use super::reference;
use super::rewrite::{check_rewrite, proof_limits};
use flagperf_core::description::Delivery;
use flagperf_core::event::{Event, Failure, Level, ModelFacts};
use flagperf_core::file::write_hint;
use flagperf_core::measure::{ChangedModelReport, Clock, MonotonicClock, StepTimes};
use flagperf_core::metric::Agreement;
use flagperf_core::precision::Precision;
use flagperf_core::step::{EngineRole, Step};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_data::{DataError, Dataset, Pipeline, drawn};
use flagperf_engine::open_decoders;
use flagperf_evaluation::{FILE_KIND, file_name};
use flagperf_plan::{AuditScope, DecoderChoice, FULL_BATCHES_MIN, Job, ModelInput, OUTPUTS_KIND, Task};
use flagperf_script::{
    CaseScripts, Exported, ForwardKind, HostServices, ScriptChoice, Sessions, limit_worker_memory, run_on_script_stack,
};

/// Receives the events of a worker.
pub type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// Runs one phase of one case and passes its events to `emit`. For a job that waits, `release` returns when the measured loop
/// may begin.
///
/// # Errors
/// When a step fails. The failure names the step, the reason, and what to do.
pub fn run(job: &Job, emit: &Emit, release: &(dyn Fn() + Sync)) -> Result<(), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    limit_worker_memory(job.limits.worker_memory_bytes.0);
    emit(Event::Started { pid: std::process::id(), run_seed_sha256: job.run_seed.sha256() });
    let memory = DeviceMemorySampler::start(job.monitor.as_deref().and_then(flagperf_monitor::find));
    let worker = Worker { job, emit, release, clock, memory, memory_peak: OnceLock::new() };
    let phase = || match &job.task {
        Task::Validate { export } => worker.validate(export.as_deref()),
        Task::Infer { model } => worker.infer(model),
        Task::Train { training, role } => worker.train(training, *role),
    };
    let thread_failure =
        |reason: String| failure(&format!("the worker {reason}"), "the worker's last lines are in stdout_err.out.log");
    let ran = run_on_script_stack(job.limits.script_memory_bytes.0, phase).map_err(thread_failure).flatten();
    ran.map_err(|failed| Failure { reason: relative_scripts(&failed.reason, &job.scripts), ..failed })?;
    emit(Event::Finished { memory_bytes_max: *worker.memory_peak.get_or_init(peak_memory) });
    Ok(())
}

/// Names the scripts in a reason by their paths in the checkout, as the plan does. `folder` is that of the case.
fn relative_scripts(reason: &str, folder: &Path) -> String {
    match folder.parent() {
        Some(scripts) if scripts.ends_with("scripts") => reason.replace(&format!("{}/", scripts.display()), "scripts/"),
        _ => reason.to_owned(),
    }
}

/// Returns the peak resident memory of this process.
pub fn peak_memory() -> Bytes {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    // Linux reports `ru_maxrss` in KiB.
    Bytes(usage.ok().and_then(|u| u64::try_from(u.max_rss()).ok()).unwrap_or(0) * 1024)
}

pub(super) struct Worker<'a> {
    pub(super) job: &'a Job,
    pub(super) emit: &'a Emit,
    pub(super) release: &'a (dyn Fn() + Sync),
    pub(super) clock: Arc<dyn Clock>,
    memory: DeviceMemorySampler,
    /// Peak resident memory before the host computed anything beside the engine.
    memory_peak: OnceLock<Bytes>,
}

impl Worker<'_> {
    fn validate(&self, export: Option<&Path>) -> Result<(), Failure> {
        let job = self.job;
        let scripts = self.load_scripts()?;
        let (dataset, model, facts, weights) = self.run_step(Step::Build, "building dataloader and model", || {
            let dataset = self.open_dataset(&scripts)?;
            let model = scripts.create_model(&job.config, &job.data_dir).map_err(|e| failure(&e, ""))?;
            let model = convert_precision(model, &job.settings, &job.parameters.keep_f32)?;
            memory_need::check(model.graphs.values(), job)?;
            let (facts, weights) = facts::model_facts(&model, &job.data_dir, &scripts.model_files())?;
            Ok((dataset, model, facts, weights))
        })?;
        (self.emit)(Event::Model(facts.clone()));
        let measured = self.run_step(Step::Validation, &format!("validation with {}", job.engine.name), || {
            let sessions = self.load_timed(|| load_model(&model, job))?;
            let known = KnownModel { graphs: model.graphs.clone(), facts: facts.clone() };
            weights.iter().try_for_each(HashedFile::check_path)?;
            let measured = self.measure(&scripts, Arc::clone(&dataset), sessions, known)?;
            weights.iter().try_for_each(HashedFile::check_content).map(|()| measured)
        })?;
        self.write_evaluation(&measured.evidence)?;
        if let Some(path) = &job.outputs {
            measured.evidence.kept.write(path, &facts).map_err(|e| failure(&e, write_hint(&e)))?;
            (self.emit)(export::written(OUTPUTS_KIND, export::file_facts(path)?));
        }
        if reference::is_due(job) {
            let drawn = measured.evidence.kept.draw_samples();
            let agreement = self.compare_with_interpreter(drawn, &facts, (Step::Validation, 2))?;
            (self.emit)(Event::Agreement(agreement));
        }
        if job.parameters.trace {
            let known = KnownModel { graphs: IndexMap::new(), facts };
            self.trace(&scripts, dataset, known, |clock| load_profiled_model(&model, job, clock))?;
        }
        match export {
            Some(path) => self.export(&scripts, model, &weights, path),
            None => Ok(()),
        }
    }

    /// Returns the agreement of some outputs with those of the interpreter, of so many batches. That it cannot run the model is no
    /// failure: the agreement contains the reason.
    fn compare_with_interpreter(
        &self,
        drawn: Vec<DrawnSamples>,
        facts: &ModelFacts,
        (step, batches): (Step, usize),
    ) -> Result<Agreement, Failure> {
        self.keep_memory_peak();
        self.run_step(step, "some samples with flagperf's interpreter", || {
            let agreement = match reference::too_large(self.job, facts.parameters) {
                Some(reason) => Err(failure(&reason, "")),
                None if drawn.len() < batches => Err(failure(
                    &"a sample of each batch could not be read, or the outputs of a batch are too large to keep",
                    "",
                )),
                None => self.run_interpreter(&drawn, facts),
            };
            Ok(agreement.unwrap_or_else(reference::not_compared))
        })
    }

    /// Runs the model on some samples with the interpreter, and compares the outputs.
    fn run_interpreter(&self, drawn: &[DrawnSamples], facts: &ModelFacts) -> Result<Agreement, Failure> {
        let (job, emit): (_, Emit) = (reference::job(self.job), Arc::new(|_| ()));
        let worker = Worker {
            job: &job,
            emit: &emit,
            release: self.release,
            clock: Arc::clone(&self.clock),
            memory: DeviceMemorySampler::start(None),
            memory_peak: OnceLock::new(),
        };
        // Those of validation: a vendor may have scripts of its own for inference.
        let scripts = worker.load_scripts()?;
        let dataset = worker.read_dataset(&scripts, job.settings.precision)?;
        let model = scripts.create_model(&job.config, &job.data_dir).map_err(|e| failure(&e, ""))?;
        let sessions = load_model(&model, &job)?;
        let known = KnownModel { graphs: IndexMap::new(), facts: facts.clone() };
        let requests = drawn.iter().map(|drawn| drawn.request.clone()).collect();
        let outputs = worker.prepare_loop(&scripts, dataset, sessions, known)?.run_requests(requests)?;
        Ok(reference::compare(drawn, &outputs))
    }

    fn infer(&self, input: &ModelInput) -> Result<(), Failure> {
        let job = self.job;
        let scripts = self.load_scripts()?;
        let validation = self.take_validation_outputs()?;
        let dataset = self.run_step(Step::Build, "building dataloader", || self.open_dataset(&scripts))?;
        let compiler = format!("{}.{}", job.vendor, job.engine.name);
        let known = validation.as_ref().and_then(|v| v.model.as_ref());
        let facts = known.cloned();
        let (sessions, model, files) = match input {
            ModelInput::Compiled(_) => self.load_model(input, known)?,
            _ => {
                self.run_step(Step::Compile, &format!("compiling with {compiler}"), || self.load_model(input, known))?
            }
        };
        let again = (job.audit == AuditScope::Full).then(|| (model.graphs.clone(), Arc::clone(&dataset)));
        let traced = KnownModel { graphs: IndexMap::new(), facts: model.facts.clone() };
        let traced = job.parameters.trace.then(|| (traced, Arc::clone(&dataset)));
        let mut measured = self.run_step(Step::Inference, &format!("inference with {compiler}"), || {
            let measured = self.measure(&scripts, dataset, sessions, model)?;
            files.as_ref().map_or(Ok(()), ModelFiles::check_contents).map(|()| measured)
        })?;
        self.write_evaluation(&measured.evidence)?;
        if let (Some((graphs, dataset)), Some(audit)) = (again, &mut measured.audit) {
            let detail = "inference with changed weights";
            audit.changed_model = self.run_step(Step::Inference, detail, || {
                self.run_changed_model(&scripts, dataset, (input, &graphs), &measured.first_pass)
            })?;
        }
        if let (Some(audit), Some(facts), true) = (&mut measured.audit, facts, reference::is_due(job)) {
            let drawn = measured.evidence.kept.draw_unseen().into_iter().collect();
            audit.unseen = Some(self.compare_with_interpreter(drawn, &facts, (Step::Inference, 1))?);
        }
        if let Some((model, dataset)) = traced {
            self.trace(&scripts, dataset, model, |clock| load_profiled_input(input, files.as_ref(), job, clock))?;
        }
        self.compare_outputs(validation, measured)
    }

    /// Runs a pass of the model with changed weights; `None` with a warning when its weights cannot be changed.
    fn run_changed_model(
        &self,
        scripts: &CaseScripts,
        dataset: Arc<dyn Dataset>,
        (input, graphs): (&ModelInput, &IndexMap<String, Graph>),
        first_pass: &[StepTimes],
    ) -> Result<Option<ChangedModelReport>, Failure> {
        let (ModelInput::Exported(original)
        | ModelInput::Onnx(original)
        | ModelInput::Placeholder(original)
        | ModelInput::Compiled(original)) = input;
        let changed = match delivery(self.job) == Some(Delivery::Server) {
            true => None,
            false => write_changed_model(graphs, original, &self.job.scratch())?,
        };
        let Some(manifest) = changed else {
            let message =
                "no pass with changed weights: only the compiler can read its model, or it has none".to_owned();
            (self.emit)(Event::Log { level: Level::Warning, source: "audit".to_owned(), message });
            return Ok(None);
        };
        let files = ModelFiles::open_onnx(&manifest)?;
        let known = facts::onnx_facts(&files, &manifest)?;
        let sessions = load_model_input(&ModelInput::Exported(manifest), Some(&files), self.job)?;
        let (steps, accuracy) = self.prepare_loop(scripts, dataset, sessions, known)?.run_unreported()?;
        Ok(Some(ChangedModelReport::of(&steps, first_pass, accuracy)))
    }

    /// Opens the model's files, emits the model's properties, and loads the files into the engine.
    fn load_model(
        &self,
        input: &ModelInput,
        validated: Option<&ModelFacts>,
    ) -> Result<(Sessions, KnownModel, Option<ModelFiles>), Failure> {
        let unread = |facts| KnownModel { facts, graphs: IndexMap::new() };
        let (files, model) = match input {
            ModelInput::Exported(path) | ModelInput::Onnx(path) => {
                let files = ModelFiles::open_onnx(path)?;
                let mut model = facts::onnx_facts(&files, path)?;
                if let (ModelInput::Exported(_), Some(validated), 2..) = (input, validated, model.graphs.len()) {
                    // The files of several graphs do not show which weights the graphs share.
                    model.facts.parameters = validated.parameters;
                }
                (Some(files), model)
            }
            ModelInput::Placeholder(path) => (None, unread(facts::opaque_facts(None, path, validated))),
            ModelInput::Compiled(path) => {
                let files = ModelFiles::open_compiled(path)?;
                let facts = facts::opaque_facts(Some(&files), path, validated);
                (Some(files), unread(facts))
            }
        };
        (self.emit)(Event::Model(model.facts.clone()));
        memory_need::check(model.graphs.values(), self.job)?;
        let sessions = self.load_timed(|| load_model_input(input, files.as_ref(), self.job))?;
        Ok((sessions, model, files))
    }

    /// Compiles and checks the scripts (step `init`).
    pub(super) fn load_scripts(&self) -> Result<CaseScripts, Failure> {
        self.run_step(Step::Init, "reading scripts", || {
            let emit = self.emit.clone();
            let log = move |level, source, message| emit(Event::Log { level, source, message });
            let host = HostServices { log: Arc::new(log), clock: self.clock.clone() };
            let choice = ScriptChoice::new(&self.job.parameters, self.job.phase().role() == EngineRole::Compiler);
            CaseScripts::load(&self.job.scripts, &choice, &self.job.limits, host)
                .and_then(|scripts| scripts.for_vendor(&self.job.vendor))
                .map_err(|e| failure(&e, ""))
        })
    }

    pub(super) fn open_dataset(&self, scripts: &CaseScripts) -> Result<Arc<dyn Dataset>, Failure> {
        let dataset = self.read_dataset(scripts, self.job.value_precision())?;
        debug!(samples = dataset.len(), "opened the dataset");
        (self.emit)(Event::Dataset(dataset.facts().clone()));
        Ok(dataset)
    }

    /// Opens the dataset, with floating-point numbers of this precision.
    pub(super) fn read_dataset(
        &self,
        scripts: &CaseScripts,
        precision: Precision,
    ) -> Result<Arc<dyn Dataset>, Failure> {
        let job = self.job;
        let pipeline: Pipeline = scripts.build_dataloader(&job.config).map_err(|e| failure(&e, ""))?;
        drawn::ensure(&job.data_dir).map_err(|e| failure(&e, e.hint()))?;
        let least = FULL_BATCHES_MIN as usize * job.settings.batch_size as usize;
        let opened = match &job.decoder {
            None => pipeline.open_with_samples(&job.data_dir, precision.dtype(), least),
            Some(DecoderChoice { name, library, device }) => {
                let library = open_decoders(name, library, device).map_err(|e| failure(&e, &e.remedy))?;
                pipeline.open_decoded_by(library, &job.data_dir, precision.dtype(), least)
            }
        };
        opened.map_err(|error| match &error {
            DataError::NoDirectory { .. } => failure(&error, error.hint()),
            _ => failure(&scripts.dataset_error(error.to_string()), error.hint()),
        })
    }

    /// Loads sessions and emits the properties of the engine with the time that loading took.
    pub(super) fn load_timed(&self, load: impl FnOnce() -> Result<Sessions, Failure>) -> Result<Sessions, Failure> {
        let start = self.clock.now();
        let sessions = load()?;
        let facts = engine_facts(self.job, &sessions, self.clock.now().since(start));
        let warnings = check_threads(&self.job.engine, &sessions)?.into_iter().chain(engine_warnings(&sessions));
        for message in warnings {
            (self.emit)(Event::Log { level: Level::Warning, source: self.job.engine.name.clone(), message });
        }
        debug!(engine = %facts.name, version = %facts.version, device = %facts.device, seconds = facts.load_s.0, "loaded");
        (self.emit)(Event::Engine(Box::new(facts)));
        self.memory.restrict_to(&sessions);
        Ok(sessions)
    }

    fn measure(
        &self,
        scripts: &CaseScripts,
        dataset: Arc<dyn Dataset>,
        sessions: Sessions,
        model: KnownModel,
    ) -> Result<LoopResult, Failure> {
        self.prepare_loop(scripts, dataset, sessions, model)?.run(&self.memory)
    }

    /// Returns a measured loop of these sessions over the dataset.
    pub(super) fn prepare_loop(
        &self,
        scripts: &CaseScripts,
        dataset: Arc<dyn Dataset>,
        sessions: Sessions,
        model: KnownModel,
    ) -> Result<MeasuredLoop<'_>, Failure> {
        let which = match self.job.phase().role() {
            EngineRole::Framework => ForwardKind::Model,
            EngineRole::Compiler => ForwardKind::Engine,
        };
        let (job, config) = (self.job, &self.job.config);
        let forward = scripts.forward(which, sessions.clone()).with_config(config);
        let forward = forward.map_err(|e| failure(&e, ""))?;
        let evaluator = scripts.evaluator().with_config(config).map_err(|e| failure(&e, ""))?;
        let unknown = facts::accuracy_unknown_reason(&model.facts, dataset.facts());
        let batches = Batches::new(job, &sessions, dataset)?;
        let schedule = Schedule::new(job, self.release);
        let progress = Progress::new(job, self.clock.as_ref(), self.emit, batches.count());
        let model = LoadedModel::new(sessions, forward, model.graphs);
        Ok(MeasuredLoop::new(job, schedule, batches, model, evaluator, unknown, progress))
    }

    fn export(&self, scripts: &CaseScripts, model: Model, weights: &[HashedFile], path: &Path) -> Result<(), Failure> {
        let detail = format!("exporting the model to {}", path.display());
        self.run_step(Step::Export, &detail, || {
            let limits = proof_limits(self.job);
            let Exported { model, rewrites } =
                scripts.export_model(model, &self.job.config, Some(limits)).map_err(|e| failure(&e, ""))?;
            for rewrite in &rewrites {
                for changed in check_rewrite(rewrite, limits)? {
                    (self.emit)(Event::Rewrite(Box::new(changed)));
                }
            }
            for written in export::write_model(&model, path)? {
                (self.emit)(written);
            }
            weights.iter().try_for_each(HashedFile::check_path)
        })
    }

    /// Writes what the evaluator received in one pass.
    pub(super) fn write_evaluation(&self, evidence: &Evidence) -> Result<(), Failure> {
        let path = self.job.log_dir.join(file_name(self.job.phase()));
        evidence.stored.write(&path).map_err(|e| failure(&e, write_hint(&e)))?;
        (self.emit)(export::written(FILE_KIND, export::file_facts(&path)?));
        Ok(())
    }

    /// Reads the outputs of validation and masks their file, in which an engine could find what it should compute. The conductor
    /// restores it when this worker has ended.
    fn take_validation_outputs(&self) -> Result<Option<ValidationOutputs>, Failure> {
        let (Some(path), Some(masked)) = (&self.job.outputs, self.job.masked_outputs()) else { return Ok(None) };
        let hint = "only flagperf may write to the folder of the run";
        let outputs =
            ValidationOutputs::read(path, self.job.outputs_sha256.as_deref()).map_err(|e| failure(&e, hint))?;
        // Who finds the file by its name has not read what is masked.
        let hidden = std::fs::rename(path, &masked).and_then(|()| self.job.run_seed.mask_file(&masked));
        hidden.map_err(|e| failure(&e, write_hint(&e)))?;
        Ok(Some(outputs))
    }

    /// Compares the outputs of inference with those of validation (the worker's part of step `record`).
    fn compare_outputs(&self, validation: Option<ValidationOutputs>, inference: LoopResult) -> Result<(), Failure> {
        let LoopResult { mut audit, evidence, .. } = inference;
        let Some(validation) = validation else {
            audit.into_iter().for_each(|audit| (self.emit)(Event::Audit(Box::new(audit))));
            return Ok(());
        };
        if let Some(mut audit) = audit.take() {
            audit.fresh = Some(validation.compare_fresh(&evidence.kept).map_err(|e| failure(&e, ""))?);
            audit.nearest = validation.nearest().map_err(|e| failure(&e, ""))?;
            (self.emit)(Event::Audit(Box::new(audit)));
        }
        let compared = validation.compare(&evidence.kept).map_err(|e| failure(&e, ""))?;
        let (passes, between_passes) = evidence.comparison.finish();
        (self.emit)(Event::Agreement(Agreement { passes, between_passes, ..compared }));
        Ok(())
    }

    /// Keeps the peak memory until now as that of the phase: what the host computes from here on is not the engine's.
    pub(super) fn keep_memory_peak(&self) {
        self.memory_peak.get_or_init(peak_memory);
    }

    /// Runs a step and emits its begin and end events. A failure names the step.
    pub(super) fn run_step<T>(
        &self,
        step: Step,
        detail: &str,
        body: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _span = debug_span!("step", step = ?step).entered();
        debug!("{detail}");
        (self.emit)(Event::StepBegin { step, detail: detail.to_owned() });
        let start = self.clock.now();
        let result = body().map_err(|f| Failure { step: f.step.or(Some(step)), ..f })?;
        let time_s: Seconds = self.clock.now().since(start);
        (self.emit)(Event::StepEnd { step, time_s });
        Ok(result)
    }
}

/// Creates a failure with the text of `error` as its reason. `Worker::run_step` adds the step.
pub fn failure(error: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure { step: None, reason: error.to_string(), hint: hint.to_owned() }
}
