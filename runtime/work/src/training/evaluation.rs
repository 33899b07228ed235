//! Evaluates a model with the parameters of a training.

use std::sync::{Arc, Mutex, PoisonError};

use flagperf_core::event::Failure;
use flagperf_core::measure::Clock;
use flagperf_core::metric::Accumulator;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_data::{Batch, BatchRequest, Dataset, Field, LoadError, Loader};
use flagperf_engine::Session;
use flagperf_evaluation::name_outputs;
use flagperf_plan::Job;
use flagperf_script::{CaseScripts, EvaluatorFn, ForwardKind, Sessions};
use indexmap::IndexMap;

use super::super::lend::lend_field;
use super::super::measured_loop::{Evidence, LoadedModel, loader_options};
use super::super::order::SampleOrder;
use super::super::phase::failure;
use super::super::step::{self, EvaluatedStep};
use super::TrainingModel;
use super::session::{ParameterizedSession, SharedParameters};

/// Evaluates the model on the dataset of dataloader.rhai, with the forward function and the evaluator of the case.
pub struct Evaluator {
    model: LoadedModel,
    evaluator: EvaluatorFn,
    loader: Loader,
    parameters: SharedParameters,
    /// The states that are parameters or running statistics of the model.
    states: Vec<usize>,
    /// The samples of the dataset.
    pub samples: u64,
    /// The samples of a batch.
    pub batch_size: u64,
    /// The order in which batches are kept if not all fit.
    ranks: Vec<usize>,
    /// What is kept of the last evaluation.
    pub evidence: Evidence,
    /// Elements of the outputs of all evaluations that are NaN or infinite.
    pub non_finite: u64,
}

impl Evaluator {
    /// Loads the model into the job's engine and opens the dataset. The batch size is that of evaluations.
    ///
    /// # Errors
    /// When the engine or a script fails.
    pub fn new(
        scripts: &CaseScripts,
        job: &Job,
        role: EngineRole,
        model: &TrainingModel,
        dataset: Arc<dyn Dataset>,
    ) -> Result<Self, Failure> {
        let parameters = SharedParameters::default();
        let loaded = model.load_evaluated(job, role)?;
        let count = model.evaluated_states.len();
        let wrap = |(name, session): (String, Arc<Mutex<Box<dyn Session>>>)| {
            let session = Arc::into_inner(session).expect("a loaded session is not shared yet");
            let session = session.into_inner().unwrap_or_else(PoisonError::into_inner);
            let session = ParameterizedSession::new(session, count, Arc::clone(&parameters));
            (name, Arc::new(Mutex::new(Box::new(session) as Box<dyn Session>)))
        };
        let sessions: Sessions = loaded.into_iter().map(wrap).collect();
        let forward = scripts.forward(ForwardKind::Model, sessions.clone()).with_config(&job.config);
        let evaluator = scripts.evaluator().with_config(&job.config).map_err(|e| failure(&e, ""))?;
        let samples = dataset.len() as u64;
        let mut lend = |field: &Field, bytes| lend_field(&sessions, &field.name, None, bytes);
        let loader = Loader::new(dataset, loader_options(job), &mut lend).map_err(|e| failure(&e, hint(&e)))?;
        let forward = forward.map_err(|e| failure(&e, ""))?;
        let states = model.evaluated_states.clone();
        let model = LoadedModel::new(sessions, forward, IndexMap::new());
        let ranks = SampleOrder::new(job.run_seed, loader.batches() as usize).ranks();
        let evidence = Evidence::of_pass(0, ranks.clone());
        let batch_size = job.settings.batch_size.into();
        Ok(Evaluator {
            model,
            evaluator,
            loader,
            parameters,
            states,
            samples,
            batch_size,
            ranks,
            evidence,
            non_finite: 0,
        })
    }

    /// Returns the sessions that evaluate.
    pub fn sessions(&self) -> &Sessions {
        self.model.sessions()
    }

    fn set_parameters(&self, states: &[Tensor]) {
        let parameters = self.states.iter().map(|index| states[*index].clone()).collect();
        *self.parameters.lock().unwrap_or_else(PoisonError::into_inner) = parameters;
    }

    /// Returns the metrics of the model with these states, after the epoch that was the pass number `pass` of the loop.
    ///
    /// # Errors
    /// When reading, computing or evaluating fails.
    pub fn evaluate(
        &mut self,
        pass: u32,
        states: &[Tensor],
        clock: &dyn Clock,
    ) -> Result<IndexMap<String, f64>, Failure> {
        self.set_parameters(states);
        self.evidence = Evidence::of_pass(pass, self.ranks.clone());
        let mut metrics = Accumulator::default();
        self.loader.start_pass().map_err(|e| failure(&e, e.hint()))?;
        while let Some((batch, evaluated)) = self.evaluate_next(clock)? {
            let outputs = evaluated.stored.output.iter();
            self.non_finite += outputs.map(|(_, tensor)| step::count_non_finite(tensor)).sum::<u64>();
            metrics.merge(&evaluated.observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
            let named = name_outputs(&evaluated.stored.output);
            self.evidence.add_step(pass, &batch, &evaluated, named)?;
            drop(evaluated);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
        }
        Ok(metrics.finish())
    }

    /// Returns the metrics of the first batch with these states.
    ///
    /// # Errors
    /// As [`Evaluator::evaluate`].
    pub fn evaluate_first_batch(
        &mut self,
        states: &[Tensor],
        clock: &dyn Clock,
    ) -> Result<IndexMap<String, f64>, Failure> {
        self.set_parameters(states);
        let mut metrics = Accumulator::default();
        self.loader.start_pass().map_err(|e| failure(&e, e.hint()))?;
        if let Some((batch, evaluated)) = self.evaluate_next(clock)? {
            metrics.merge(&evaluated.observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
            drop(evaluated);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
        }
        Ok(metrics.finish())
    }

    /// Computes and evaluates the next batch of the loader; `None` after the last one.
    fn evaluate_next(&mut self, clock: &dyn Clock) -> Result<Option<(Batch, EvaluatedStep)>, Failure> {
        let Some(batch) = self.loader.next().transpose().map_err(|e| failure(&e, e.hint()))? else { return Ok(None) };
        let (_, _, output) = self.model.run_unmeasured(&batch, clock)?;
        let evaluated = step::evaluate(&batch, output, &mut self.evaluator)?;
        Ok(Some((batch, evaluated)))
    }

    /// Returns the outputs of the model with these states for each request.
    ///
    /// # Errors
    /// When reading or computing fails.
    pub fn compute(
        &mut self,
        states: &[Tensor],
        requests: Vec<BatchRequest>,
        clock: &dyn Clock,
    ) -> Result<Vec<Vec<(String, Tensor)>>, Failure> {
        self.set_parameters(states);
        self.loader.start_requests(requests).map_err(|e| failure(&e, e.hint()))?;
        let mut outputs = Vec::new();
        while let Some(batch) = self.loader.next().transpose().map_err(|e| failure(&e, e.hint()))? {
            let (_, _, output) = self.model.run_unmeasured(&batch, clock)?;
            let (_, output) = step::select_samples(&batch, step::sample_rows(&batch).as_deref(), output)?;
            outputs.push(name_outputs(&output));
            self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        }
        Ok(outputs)
    }
}

/// Returns what to do about an error of the loader of an evaluation.
fn hint(error: &LoadError) -> &'static str {
    match error {
        LoadError::Memory(_) => "a smaller `eval_batch_size` needs less memory",
        _ => error.hint(),
    }
}
