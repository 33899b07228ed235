//! The phase that trains a model: the host draws batches, gives learning rates, evaluates, and stops at the target.

mod evaluation;
mod labels;
mod model;
mod session;
mod skipped;
mod training_loop;

use std::sync::Arc;

use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;
use flagperf_data::{Dataset, drawn};
use flagperf_plan::{Job, TrainingSettings};
use flagperf_script::CaseScripts;

use super::facts;
use super::phase::{Worker, failure};
use evaluation::Evaluator;
use model::TrainingModel;
use training_loop::TrainingLoop;

impl Worker<'_> {
    /// Trains the case's model until the target or the last epoch, as often as the case repeats it.
    pub(super) fn train(&self, settings: &TrainingSettings) -> Result<(), Failure> {
        let job = self.job;
        let begin = self.clock.now();
        let scripts = self.load_scripts()?;
        let (training_data, evaluation_data, model) =
            self.run_step(Step::Build, "building dataloaders and training step", || {
                let (training, evaluation) = (self.open_training_data(&scripts)?, self.open_dataset(&scripts)?);
                let model = TrainingModel::build(&scripts, job, settings)?;
                let (facts, _) = facts::model_facts(&model.model, &job.data_dir)?;
                (self.emit)(Event::Model(facts));
                self.warn_of_untrained(&model);
                Ok((training, evaluation, model))
            })?;
        self.run_step(Step::Training, &format!("training with {}", job.engine.name), || {
            let sessions = self.load_timed(|| model.load_step(job))?;
            let mut evaluator = Evaluator::new(&scripts, job, settings, &model, evaluation_data)?;
            let mut training = TrainingLoop::new(job, settings, &model, sessions, training_data)?;
            (0..job.settings.repeat).try_for_each(|round| {
                let init = if round == 0 { self.clock.now().since(begin) } else { Seconds(0.0) };
                training.run(round, init, &mut evaluator, (self.clock.as_ref(), self.emit))
            })
        })
    }

    fn warn_of_untrained(&self, model: &TrainingModel) {
        if let [first, more @ ..] = &model.step.untrained[..] {
            let message = format!(
                "the loss does not depend on `{first}` and {} more parameters: they are not trained",
                more.len()
            );
            (self.emit)(Event::Log { level: Level::Warning, source: "training".to_owned(), message });
        }
    }

    fn open_training_data(&self, scripts: &CaseScripts) -> Result<Arc<dyn Dataset>, Failure> {
        let Job { config, data_dir, .. } = self.job;
        drawn::ensure(data_dir).map_err(|e| failure(&e, e.hint()))?;
        let pipeline = scripts.build_training_dataloader(config).map_err(|e| failure(&e, ""))?;
        let dataset = pipeline.open_for_training(data_dir, self.job.value_precision().dtype());
        let dataset = dataset.map_err(|e| failure(&scripts.training_data_error(e.to_string()), e.hint()))?;
        (self.emit)(Event::TrainingDataset(dataset.facts().clone()));
        Ok(dataset)
    }
}
