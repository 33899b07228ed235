//! The two phases: validate (init, data, model, validation, export) and infer (data, compile, inference).

use std::path::Path;
use std::sync::Arc;

use flagperf_onnx::Model;

use super::build::{self, Sessions};
use super::device_memory::DeviceMemory;
use super::measured::{Measured, MeasuredLoop};
use super::model_files::{ModelFiles, ReadFile};
use super::outputs::ValidationOutputs;
use super::{export, facts};
use crate::data::{Dataset, Pipeline, drawn};
use crate::event::{Event, Failure, ModelFacts};
use crate::measure::{Clock, MonotonicClock};
use crate::monitor;
use crate::plan::{Job, ModelInput};
use crate::script::{CaseScripts, Forward, ScriptHost, limit_worker, on_script_stack};
use crate::step::{Phase, Step};
use crate::units::{Bytes, Seconds};

/// Where a worker's events go.
pub type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// Runs one phase of one case, telling `emit` what happens.
///
/// # Errors
/// When a step fails: which one, why, and what to do.
pub fn run(job: &Job, emit: &Emit) -> Result<(), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    limit_worker(job.limits.worker_memory_bytes.0);
    emit(Event::Started { pid: std::process::id() });
    let memory = DeviceMemory::start(job.monitor.as_deref().and_then(monitor::find));
    let worker = Worker { job, emit, clock, memory };
    let phase = || match job.phase {
        Phase::Validate => worker.validate(),
        Phase::Infer => worker.infer(),
    };
    let no_thread =
        |reason: String| failure(&format!("the worker {reason}"), "its last lines are in stdout_err.out.log");
    on_script_stack(job.limits.script_memory_bytes.0, phase).map_err(no_thread)??;
    emit(Event::Finished { memory_bytes_max: peak_memory() });
    Ok(())
}

/// Peak resident memory of this process.
pub fn peak_memory() -> Bytes {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    // Linux counts `ru_maxrss` in KiB.
    Bytes(usage.ok().and_then(|u| u64::try_from(u.max_rss()).ok()).unwrap_or(0) * 1024)
}

struct Worker<'a> {
    job: &'a Job,
    emit: &'a Emit,
    clock: Arc<dyn Clock>,
    memory: DeviceMemory,
}

impl Worker<'_> {
    fn validate(&self) -> Result<(), Failure> {
        let job = self.job;
        let scripts = self.init()?;
        let (dataset, model, facts, weights) = self.step(Step::Build, "building dataloader and model", || {
            let dataset = self.dataset(&scripts)?;
            let model = scripts.create_model(&job.config, &job.data_dir).map_err(|e| failure(&e, ""))?;
            let model = build::prepare(model, &job.settings, &job.parameters.keep_f32)?;
            let (facts, weights) = facts::model_facts(&model, &job.data_dir)?;
            Ok((dataset, model, facts, weights))
        })?;
        (self.emit)(Event::Model(facts.clone()));
        let measured = self.step(Step::Validation, &format!("validation with {}", job.engine.name), || {
            let sessions = self.timed_load(|| build::load_model(&model, job))?;
            weights.iter().try_for_each(ReadFile::check_path)?;
            let measured = self.measure(Step::Validation, &scripts, dataset, sessions, &facts)?;
            weights.iter().try_for_each(ReadFile::check_content).map(|()| measured)
        })?;
        if let Some(path) = &job.outputs {
            measured.kept.write(path, &facts).map_err(|e| failure(&e, "is the disk full?"))?;
        }
        match &job.export {
            Some(path) => self.export(&scripts, model, &weights, path),
            None => Ok(()),
        }
    }

    fn infer(&self) -> Result<(), Failure> {
        let job = self.job;
        let scripts = self.init()?;
        let validation = self.validation_outputs()?;
        let dataset = self.step(Step::Build, "building dataloader", || self.dataset(&scripts))?;
        let input =
            job.model.as_ref().ok_or_else(|| failure(&"the job names no model", "this is a defect of the plan"))?;
        let compiler = format!("{}.{}", job.vendor, job.engine.name);
        let known = validation.as_ref().and_then(|v| v.model.as_ref());
        let (sessions, facts, files) = match input {
            ModelInput::Compiled(_) => self.load(input, known)?,
            _ => self.step(Step::Compile, &format!("compiling with {compiler}"), || self.load(input, known))?,
        };
        let measured = self.step(Step::Inference, &format!("inference with {compiler}"), || {
            let measured = self.measure(Step::Inference, &scripts, dataset, sessions, &facts)?;
            files.as_ref().map_or(Ok(()), ModelFiles::check_contents).map(|()| measured)
        })?;
        self.compare(validation, &measured)
    }

    /// Opens the model's files, tells what they are, and has the engine load them.
    fn load(
        &self,
        input: &ModelInput,
        validated: Option<&ModelFacts>,
    ) -> Result<(Sessions, ModelFacts, Option<ModelFiles>), Failure> {
        let (files, facts) = match input {
            ModelInput::Exported(path) | ModelInput::Onnx(path) => {
                let files = ModelFiles::open_onnx(path)?;
                let facts = facts::onnx_facts(&files, path)?;
                (Some(files), facts)
            }
            ModelInput::Placeholder(path) => (None, facts::opaque_facts(None, path, validated)),
            ModelInput::Compiled(path) => {
                let files = ModelFiles::open_compiled(path)?;
                let facts = facts::opaque_facts(Some(&files), path, validated);
                (Some(files), facts)
            }
        };
        (self.emit)(Event::Model(facts.clone()));
        let sessions = self.timed_load(|| build::load_input(input, files.as_ref(), self.job))?;
        Ok((sessions, facts, files))
    }

    /// Step a: scripts compiled and checked.
    fn init(&self) -> Result<CaseScripts, Failure> {
        self.step(Step::Init, "reading scripts", || {
            let emit = self.emit.clone();
            let log = move |level, source, message| emit(Event::Log { level, source, message });
            let host = ScriptHost { log: Arc::new(log), clock: self.clock.clone() };
            CaseScripts::load(&self.job.scripts, &self.job.limits, host)
                .and_then(|scripts| scripts.for_vendor(&self.job.vendor))
                .map_err(|e| failure(&e, ""))
        })
    }

    fn dataset(&self, scripts: &CaseScripts) -> Result<Arc<dyn Dataset>, Failure> {
        let job = self.job;
        let pipeline: Pipeline = scripts.build_dataloader(&job.config).map_err(|e| failure(&e, ""))?;
        let dtype = job.settings.precision();
        drawn::ensure(&job.data_dir).map_err(|e| failure(&e, "is the disk full?"))?;
        let dataset = pipeline.open(&job.data_dir, dtype).map_err(|e| failure(&e, ""))?;
        (self.emit)(Event::Dataset(dataset.facts().clone()));
        Ok(dataset)
    }

    /// Loads sessions and tells what was loaded and how long it took.
    fn timed_load(&self, load: impl FnOnce() -> Result<Sessions, Failure>) -> Result<Sessions, Failure> {
        let start = self.clock.now();
        let sessions = load()?;
        let facts = build::engine_facts(self.job, &sessions, self.clock.now().since(start));
        (self.emit)(Event::Engine(Box::new(facts)));
        self.memory.watch(&sessions);
        Ok(sessions)
    }

    fn measure(
        &self,
        step: Step,
        scripts: &CaseScripts,
        dataset: Arc<dyn Dataset>,
        sessions: Sessions,
        model: &ModelFacts,
    ) -> Result<Measured, Failure> {
        let which = if step == Step::Validation { Forward::Model } else { Forward::Engine };
        let forward = scripts.forward(which, sessions.clone()).map_err(|e| failure(&e, ""))?;
        let evaluator = scripts.evaluator();
        let unknown = facts::accuracy_unknown(model, dataset.facts());
        MeasuredLoop::new(self.job, step, &self.clock, self.emit, sessions, dataset, unknown)?.run(
            forward,
            evaluator,
            &self.memory,
        )
    }

    fn export(&self, scripts: &CaseScripts, model: Model, weights: &[ReadFile], path: &Path) -> Result<(), Failure> {
        let detail = format!("exporting the model to {}", path.display());
        self.step(Step::Export, &detail, || {
            let model = scripts.export_model(model, &self.job.config).map_err(|e| failure(&e, ""))?;
            for written in export::write(&model, path)? {
                (self.emit)(written);
            }
            weights.iter().try_for_each(ReadFile::check_path)
        })
    }

    fn validation_outputs(&self) -> Result<Option<ValidationOutputs>, Failure> {
        match &self.job.outputs {
            Some(path) => ValidationOutputs::open(path).map(Some).map_err(|e| failure(&e, "")),
            None => Ok(None),
        }
    }

    /// Step g, the worker's part: how inference agrees with validation.
    fn compare(&self, validation: Option<ValidationOutputs>, inference: &Measured) -> Result<(), Failure> {
        let Some(validation) = validation else { return Ok(()) };
        (self.emit)(Event::Agreement(validation.compare(&inference.kept).map_err(|e| failure(&e, ""))?));
        Ok(())
    }

    /// Runs a step between its two events; a failure names the step.
    fn step<T>(&self, step: Step, detail: &str, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        (self.emit)(Event::StepBegin { step, detail: detail.to_owned() });
        let start = self.clock.now();
        let result = body().map_err(|f| Failure { step: f.step.or(Some(step)), ..f })?;
        let time_s: Seconds = self.clock.now().since(start);
        (self.emit)(Event::StepEnd { step, time_s });
        Ok(result)
    }
}

/// A failure with the reason of `error`; the step is added by the step it happens in.
pub fn failure(error: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure { step: None, reason: error.to_string(), hint: hint.to_owned() }
}
