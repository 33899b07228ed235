//! Evaluates a model with the parameters of a training.

use std::sync::{Arc, Mutex, PoisonError};

use flagperf_core::event::Failure;
use flagperf_core::measure::Clock;
use flagperf_core::metric::Accumulator;
use flagperf_core::tensor::Tensor;
use flagperf_data::{Dataset, Field, Loader};
use flagperf_engine::Session;
use flagperf_onnx::Model;
use flagperf_plan::{Job, TrainingSettings};
use flagperf_script::{CaseScripts, EvaluatorFn, ForwardKind, Sessions};
use indexmap::IndexMap;

use super::super::lend::lend_field;
use super::super::load::load_model;
use super::super::measured_loop::{LoadedModel, loader_options};
use super::super::phase::failure;
use super::super::step;
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
}

impl Evaluator {
    /// Loads the model into the job's engine and opens the dataset.
    ///
    /// # Errors
    /// When the engine or a script fails.
    pub fn new(
        scripts: &CaseScripts,
        job: &Job,
        settings: &TrainingSettings,
        model: &TrainingModel,
        dataset: Arc<dyn Dataset>,
    ) -> Result<Self, Failure> {
        let mut evaluated = job.clone();
        evaluated.settings.batch_size = settings.eval_batch_size;
        evaluated.settings.precision = job.value_precision();
        let parameters = SharedParameters::default();
        let loaded = load_model(&Model::single(model.evaluated.clone()), &evaluated)?;
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
        let loader = Loader::new(dataset, loader_options(&evaluated), &mut lend).map_err(|e| failure(&e, e.hint()))?;
        let forward = forward.map_err(|e| failure(&e, ""))?;
        let states = model.evaluated_states.clone();
        let model = LoadedModel::new(sessions, forward, IndexMap::new());
        Ok(Evaluator { model, evaluator, loader, parameters, states, samples })
    }

    /// Returns the metrics of the model with these states.
    ///
    /// # Errors
    /// When reading, computing or evaluating fails.
    pub fn evaluate(&mut self, states: &[Tensor], clock: &dyn Clock) -> Result<IndexMap<String, f64>, Failure> {
        let parameters = self.states.iter().map(|index| states[*index].clone()).collect();
        *self.parameters.lock().unwrap_or_else(PoisonError::into_inner) = parameters;
        let mut metrics = Accumulator::default();
        self.loader.start_pass().map_err(|e| failure(&e, e.hint()))?;
        while let Some(batch) = self.loader.next().transpose().map_err(|e| failure(&e, e.hint()))? {
            let (_, output) = self.model.run_unmeasured(&batch, clock)?;
            let evaluated = step::evaluate(&batch, output, &mut self.evaluator)?;
            metrics.merge(&evaluated.observed).map_err(|e| failure(&e, "evaluator.rhai returns it"))?;
            drop(evaluated);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
        }
        Ok(metrics.finish())
    }
}
