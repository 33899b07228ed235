//! The phase that trains a model: the host draws batches, gives learning rates, evaluates, and stops at the target.

mod checkpoint;
mod drawn_steps;
mod evaluation;
mod group;
mod kept_steps;
mod labels;
mod loaded_batch;
mod local_steps;
mod model;
mod program;
mod reach;
mod remembered;
mod replay;
mod reports;
mod session;
mod state_reader;
mod step_parts;
mod training_loop;
mod transfer;

use std::sync::Arc;

use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::file::write_hint;
use flagperf_core::measure::{TrainingProgress, TrainingReplay};
use flagperf_core::metric::Agreement;
use flagperf_core::step::{EngineRole, Step};
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Seconds;
use flagperf_data::{Dataset, drawn};
use flagperf_plan::{Job, TrainingSettings};
use flagperf_script::CaseScripts;

use super::engine_facts::sidecar_facts_with_modules;
use super::export::{file_facts, written};
use super::phase::{Worker, failure};
use super::{facts, reference};
use checkpoint::{Checkpoint, MODEL_FILE, write_model};
use drawn_steps::DrawnStep;
use evaluation::Evaluator;
use group::Group;
use model::{LoadedStep, TrainingModel};
use replay::StepReplayer;
use state_reader::StateReader;
use training_loop::TrainingLoop;
use transfer::Transfer;

/// The time from which on it is said how far computing steps again has come.
const REPLAY_REPORTED: Seconds = Seconds(10.0);
/// The outputs of a step before the states: the loss and the norm of the gradients.
const RESULTS: usize = 2;

impl Worker<'_> {
    /// Trains the case's model until the target or the last epoch, as often as the case repeats it. Then another engine computes
    /// some steps and outputs again.
    pub(super) fn train(&self, settings: &TrainingSettings, role: EngineRole) -> Result<(), Failure> {
        let job = self.job;
        if job.engine.engine == PROGRAM_ENGINE {
            return self.train_with_program(settings);
        }
        let begin = self.clock.now();
        let scripts = self.load_scripts()?;
        let (training_data, evaluation_data, model) =
            self.run_step(Step::Build, "building dataloaders and training step", || {
                let (training, evaluation) = (self.open_training_data(&scripts)?, self.open_dataset(&scripts)?);
                let model = TrainingModel::build(&scripts, &job.with_seed(job.training_seed(0)), settings)?;
                let (facts, _) = facts::model_facts(&model.model, &job.data_dir, &scripts.model_files())?;
                (self.emit)(Event::Model(facts));
                self.warn_of_untrained(&model);
                Ok((training, evaluation, model))
            })?;
        let (evaluator, mut training) =
            self.run_step(Step::Training, &format!("training with {}", job.engine.name), || {
                // Whoever joins the group late makes the others wait.
                self.wait_for_others();
                let group = Group::join(job, role)?;
                let sessions = self.load_timed(|| model.load_step(job, role))?;
                let transfer = Transfer::load(model.fields(), &sessions, job, role)?;
                let reader = StateReader::load(&model, job, role)?;
                let loaded = LoadedStep { sessions, transfer, reader, group };
                let mut evaluated = job.clone();
                evaluated.settings.batch_size = settings.eval_batch_size;
                evaluated.settings.precision = job.value_precision();
                let mut evaluator = Evaluator::new(&scripts, &evaluated, role, &model, evaluation_data)?;
                let mut training = TrainingLoop::new(job, settings, &model, loaded, training_data)?;
                training.try_evaluation(&mut evaluator, self.clock.as_ref())?;
                let mut resumed = self.find_checkpoint(&mut training, &model)?;
                let first = resumed.as_ref().map_or(0, |resumed| resumed.progress.rounds);
                (first..job.settings.repeat).try_for_each(|round| {
                    let start = match resumed.take() {
                        Some(checkpoint) => checkpoint,
                        None => self.first_checkpoint(round, &scripts, settings, &model)?,
                    };
                    let init = if round == first { self.clock.now().since(begin) } else { Seconds(0.0) };
                    training.run(init, start, &mut evaluator, (self.clock.as_ref(), self.emit))
                })?;
                if let Some(facts) = sidecar_facts_with_modules(&[training.sessions(), evaluator.sessions()]) {
                    (self.emit)(Event::Sidecar(Box::new(facts)));
                }
                training.checkpoints().remove();
                self.write_model(&model, training.evaluated())?;
                self.write_evaluation(&evaluator.evidence).map(|()| (evaluator, training))
            })?;
        if job.parameters.trace {
            let message = "the trace has the passes and steps of a training, not its operators".to_owned();
            (self.emit)(Event::Log { level: Level::Warning, source: "trace".to_owned(), message });
        }
        self.keep_memory_peak();
        self.time_local_steps(&mut training, role)?;
        let (engine, _) = replay::replay_engine(&job.engine.engine);
        self.run_step(Step::Training, &format!("computing some steps again with {engine}"), || {
            let replay = self.replay(&scripts, &model, &evaluator, &training);
            (self.emit)(Event::TrainingReplay(Box::new(TrainingReplay { engine: engine.to_owned(), ..replay })));
            Ok(())
        })
    }

    /// Waits until all devices are about to begin.
    fn wait_for_others(&self) {
        if self.job.waits {
            (self.emit)(Event::Ready { step: Step::Training });
            (self.release)();
        }
    }

    /// Returns a training before its first step, with parameters of its own seed.
    fn first_checkpoint(
        &self,
        round: u32,
        scripts: &CaseScripts,
        settings: &TrainingSettings,
        model: &TrainingModel,
    ) -> Result<Checkpoint, Failure> {
        let seed = self.job.training_seed(round);
        let states = match seed == self.job.training_seed(0) {
            true => model.first_states.clone(),
            false => TrainingModel::build(scripts, &self.job.with_seed(seed), settings)?.first_states,
        };
        let progress = TrainingProgress { rounds: round, seed, ..TrainingProgress::default() };
        Ok(Checkpoint { progress, states, trained_by: Vec::new() })
    }

    /// Returns the newest checkpoint of an earlier attempt at the case, of which `flagperf resume` moves them here.
    ///
    /// # Errors
    /// When processes that train together do not all have the same one.
    fn find_checkpoint(
        &self,
        training: &mut TrainingLoop<'_>,
        model: &TrainingModel,
    ) -> Result<Option<Checkpoint>, Failure> {
        let (checkpoints, states, group) = (training.checkpoints(), &model.step.states, training.group());
        let (found, unusable) = match group.size {
            1 => checkpoints.newest(states, &self.job.checkpoints),
            _ => group.common_checkpoint(&checkpoints, states, &self.job.checkpoints)?,
        };
        for message in unusable {
            (self.emit)(Event::Log { level: Level::Warning, source: "training".to_owned(), message });
        }
        let Some(checkpoint) = found else { return Ok(None) };
        let message = format!("goes on after step {}, from a checkpoint", checkpoint.progress.steps);
        (self.emit)(Event::Log { level: Level::Info, source: "training".to_owned(), message });
        (self.emit)(Event::TrainingResumed(checkpoint.progress));
        (self.emit)(Event::TrainedBy { parts: training.resume(&checkpoint).to_vec() });
        // The events of this attempt state the checkpoints from which the next one may go on.
        for (name, sha256) in &self.job.checkpoints {
            (self.emit)(Event::Checkpoint { name: name.clone(), sha256: sha256.clone() });
        }
        Ok(Some(checkpoint))
    }

    /// Writes the parameters and running statistics of the trained model.
    fn write_model(&self, model: &TrainingModel, states: &[Tensor]) -> Result<(), Failure> {
        let path = self.job.log_dir.join(MODEL_FILE);
        write_model(&path, (&model.step.states, states)).map_err(|e| failure(&e, write_hint(&e)))?;
        (self.emit)(written("model", file_facts(&path)?));
        Ok(())
    }

    /// Computes the steps that were kept, and the outputs of the last evaluation, again on another engine. That it cannot is no
    /// failure: the replay contains the reason.
    fn replay(
        &self,
        scripts: &CaseScripts,
        model: &TrainingModel,
        evaluator: &Evaluator,
        training: &TrainingLoop<'_>,
    ) -> TrainingReplay {
        let mut replay = TrainingReplay::default();
        if training.group().rank > 0 {
            return replay;
        }
        let reason =
            |what: &str, failed: Failure| format!("{what}: {}", failed.reason.lines().next().unwrap_or_default());
        let steps = StepReplayer::new(model, self.job).and_then(|replayer| {
            let kept = training.kept_steps(replayer.steps_max)?;
            let earlier = |drawn: &DrawnStep| {
                kept.iter()
                    .filter(|other| other.round == drawn.round && other.step < drawn.step)
                    .max_by_key(|other| other.step)
            };
            let begin = self.clock.now();
            let replay = |(number, drawn): (usize, &DrawnStep)| {
                let replayed = replayer.replay(drawn, earlier(drawn))?;
                self.report_replay(number, kept.len(), self.clock.now().since(begin));
                Ok(replayed)
            };
            (1..).zip(&kept).map(replay).collect::<Result<Vec<_>, Failure>>()
        });
        match steps {
            Ok(steps) => replay.steps = steps,
            Err(failed) => replay.not_computed.push(reason("the training steps", failed)),
        }
        replay.steps.sort_by_key(|step| (step.round, step.step));
        let not_kept = training.not_kept();
        if !not_kept.is_empty() {
            let size = model.state_bytes().0 as f64 / 1e9;
            let kinds = not_kept.join(", ");
            replay.not_computed.push(format!("{kinds}: the states, of {size:.1} GB, are too large to keep"));
        }
        match self.replay_evaluation(scripts, model, evaluator, training.evaluated()) {
            Ok(agreement) => replay.evaluation = Some(agreement),
            Err(failed) => replay.not_computed.push(reason("the last evaluation", failed)),
        }
        replay
    }

    /// Says how far computing steps again has come, if it takes long.
    fn report_replay(&self, number: usize, of: usize, Seconds(time): Seconds) {
        if time > REPLAY_REPORTED.0 {
            let message = format!("{number} of {of} steps are computed again after {time:.0} s");
            (self.emit)(Event::Log { level: Level::Info, source: "training".to_owned(), message });
        }
    }

    fn replay_evaluation(
        &self,
        scripts: &CaseScripts,
        model: &TrainingModel,
        evaluator: &Evaluator,
        states: &[Tensor],
    ) -> Result<Agreement, Failure> {
        let samples_max = replay::samples_max(model);
        let batch_size = evaluator.batch_size.min(samples_max as u64) as u32;
        let evaluated = evaluator.evidence.kept.all_samples(samples_max, batch_size as usize);
        if evaluated.is_empty() {
            return Err(failure(&"the outputs of its batches are too large to keep", ""));
        }
        let (job, role) = replay::replay_job(self.job, batch_size);
        let dataset = self.read_dataset(scripts, job.settings.precision)?;
        let mut other = Evaluator::new(scripts, &job, role, model, dataset)?;
        let requests = evaluated.iter().map(|drawn| drawn.request.clone()).collect();
        Ok(reference::compare(&evaluated, &other.compute(states, requests, self.clock.as_ref())?))
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
        let Job { config, data_dir, settings, .. } = self.job;
        drawn::ensure(data_dir).map_err(|e| failure(&e, e.hint()))?;
        let pipeline = scripts.build_training_dataloader(config).map_err(|e| failure(&e, ""))?;
        let dataset = pipeline.open_for_training(data_dir, self.job.value_precision().dtype());
        let dataset = dataset.map_err(|e| failure(&scripts.training_data_error(e.to_string()), e.hint()))?;
        let processes = self.job.process_group.as_ref().map_or(1, |group| group.size as usize);
        let (samples, batch) = (dataset.len(), settings.batch_size as usize * processes);
        if samples < batch {
            let reason = format!("the training data has {samples} samples, fewer than a batch of {batch}");
            return Err(failure(&reason, "give a larger dataset or a smaller `batch_size`"));
        }
        (self.emit)(Event::TrainingDataset(dataset.facts().clone()));
        Ok(dataset)
    }
}
