//! The training loop: passes of steps, which are epochs or parts of them, and evaluations between them.

use std::sync::Arc;

use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{
    Clock, EpochLosses, Evaluation, Nanos, STEPS_PER_EVENT, StepColumns, StepTimes, TrainedBy, TrainingEnd,
    TrainingProgress, TrainingSteps,
};
use flagperf_core::metric;
use flagperf_core::step::Step;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Seconds;
use flagperf_data::{Batch, Dataset, Field, Loader, TrainingSampler};
use flagperf_engine::Value;
use flagperf_onnx::{Accumulation, StepScalars};
use flagperf_plan::{Job, TrainingSettings};
use flagperf_script::Sessions;
use indexmap::IndexMap;

use super::super::lend::lend_field;
use super::super::measured_loop::loader_options;
use super::super::phase::{Emit, failure};
use super::checkpoint::{Checkpoint, Checkpoints, Extent};
use super::drawn_steps::{BatchPlace, ComputedStep, DrawnSteps};
use super::kept_steps::pairs_max;
use super::loaded_batch::LoadedBatch;
use super::model::{ACCUMULATION, LoadedStep};
use super::remembered::RememberedNorms;
use super::state_reader::StateReader;
use super::transfer::Transfer;
use super::{Evaluator, Group, RESULTS, TrainingModel};

/// Updates in a row that may be skipped. The scale of the loss is then less than the first one by a factor of four thousand
/// million: it is not what makes the gradients overflow.
const SKIPPED_MAX: u32 = 32;

/// A training that is ready to run.
pub struct TrainingLoop<'a> {
    pub(super) job: &'a Job,
    pub(super) settings: &'a TrainingSettings,
    pub(super) model: &'a TrainingModel,
    pub(super) sessions: Sessions,
    /// Copies batches during steps; `None` if the steps read them from host memory.
    pub(super) transfer: Option<Transfer>,
    /// The batch of the next step, which was copied during the last one.
    pub(super) ahead: Option<Result<LoadedBatch, Failure>>,
    reader: StateReader,
    /// The processes that train together.
    group: Group,
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) loader: Loader,
    /// Draws samples by the seed of the current round.
    pub(super) sampler: TrainingSampler,
    /// When evaluations, checkpoints and the end are due.
    pub(super) steps: TrainingSteps,
    /// Multiply-adds of a step for each sample: three times those of the model.
    pub(super) multiply_adds_per_sample: Option<u64>,
    /// Passes of all rounds that have ended.
    pub(super) passes: u32,
    /// The steps of the last round that another engine computes again.
    pub(super) drawn: DrawnSteps,
    /// The states of the last evaluation.
    evaluated: Vec<Tensor>,
    /// The hash of the index of the dataset.
    data_sha256: String,
    /// How many processes have trained which steps.
    trained_by: Vec<TrainedBy>,
}

/// What changes while a training runs.
pub(super) struct Progress {
    pub(super) round: u32,
    /// Steps done: batches.
    pub(super) steps: u64,
    /// Updates that were skipped because gradients were not finite, and how many of them since the last other one.
    skipped: u64,
    skipped_in_a_row: u32,
    states: Vec<Value>,
    pub(super) start: Nanos,
    /// The time before the training was resumed.
    pub(super) earlier: Seconds,
}

impl Progress {
    /// Returns the progress of a training before its first step, with these states.
    pub(super) fn first(states: Vec<Tensor>, clock: &dyn Clock) -> Self {
        let states = states.into_iter().map(Value::Host).collect();
        let (start, earlier) = (clock.now(), Seconds(0.0));
        Progress { round: 0, steps: 0, skipped: 0, skipped_in_a_row: 0, states, start, earlier }
    }
}

/// Where the events of a loop go, and its clock.
pub(super) type Output<'o> = (&'o dyn Clock, &'o Emit);

impl<'a> TrainingLoop<'a> {
    /// Prepares a loop over a dataset, of which every epoch leaves out the samples that do not fill a batch.
    ///
    /// # Errors
    /// When memory cannot be lent.
    pub fn new(
        job: &'a Job,
        settings: &'a TrainingSettings,
        model: &'a TrainingModel,
        LoadedStep { sessions, transfer, reader, group }: LoadedStep,
        dataset: Arc<dyn Dataset>,
    ) -> Result<Self, Failure> {
        let batch = job.settings.batch_size as usize;
        let data_sha256 = dataset.facts().index_sha256.clone();
        let (rank, world) = (group.rank as usize, group.size as usize);
        let sampler = TrainingSampler { seed: 0, samples: dataset.len(), batch, rank, world, drop_last: true };
        let steps = settings.length.in_steps(sampler.batches() as u64);
        let mut lend = |field: &Field, bytes: usize| {
            let position = model.step.graph.inputs.iter().position(|input| input.name == field.name);
            lend_field(&sessions, &field.name, position, bytes)
        };
        let loader =
            Loader::new(Arc::clone(&dataset), loader_options(job), &mut lend).map_err(|e| failure(&e, e.hint()))?;
        // Forward, gradient of the inputs and gradient of the weights take as many each: the convention of the field.
        let forward = flagperf_onnx::count(&model.evaluated).multiply_adds_per_sample;
        let multiply_adds_per_sample = forward.map(|forward| 3 * forward);
        // Rank 0 computes steps again. The others follow which it keeps, to wait for it outside of *core*.
        let keeps = group.rank == 0;
        let own_pairs = if keeps { pairs_max(job, model.state_bytes()) } else { DrawnSteps::PAIRS_MAX };
        let pairs = if group.size == 1 { own_pairs } else { group.smallest(own_pairs, DrawnSteps::PAIRS_MAX)? };
        let drawn = DrawnSteps::new(job.run_seed, job.audit, model.optimizer.kind, pairs, keeps);
        let (evaluated, ranks) = (Vec::new(), group.size);
        Ok(TrainingLoop {
            job,
            settings,
            model,
            sessions,
            transfer,
            ahead: None,
            reader,
            group,
            dataset,
            loader,
            sampler,
            steps,
            multiply_adds_per_sample,
            passes: 0,
            drawn,
            evaluated,
            data_sha256,
            trained_by: vec![TrainedBy { ranks, ..TrainedBy::default() }],
        })
    }

    /// Notes that a training goes on from a checkpoint. Returns how many processes have trained which steps.
    pub fn resume(&mut self, checkpoint: &Checkpoint) -> &[TrainedBy] {
        let TrainingProgress { rounds: round, steps: after_step, .. } = checkpoint.progress;
        let now = TrainedBy { round, after_step, ranks: self.group.size };
        self.trained_by.clone_from(&checkpoint.trained_by);
        if self.trained_by.last().is_none_or(|last| last.ranks != now.ranks) {
            self.trained_by.push(now);
        }
        &self.trained_by
    }

    /// Returns the checkpoints of the case.
    pub fn checkpoints(&self) -> Checkpoints<'_> {
        let extent = Extent { rounds: self.job.settings.repeat, steps: self.steps, data: &self.data_sha256 };
        Checkpoints::of_case(&self.job.log_dir, extent)
    }

    /// Trains from the first states, or from those of a checkpoint, until the target or the last step. `init` is the time
    /// before the training.
    ///
    /// # Errors
    /// When a step fails, or its loss is not finite.
    pub fn run(
        &mut self,
        init: Seconds,
        begin: Checkpoint,
        evaluator: &mut Evaluator,
        output: Output<'_>,
    ) -> Result<(), Failure> {
        let (clock, emit) = output;
        let TrainingProgress { rounds: round, epochs: _, steps, skipped, train_s: earlier, seed } = begin.progress;
        let first = Progress::first(self.model.kept_states(&begin.states), clock);
        let mut progress = Progress { round, steps, skipped, earlier, ..first };
        self.sampler.seed = seed;
        // A norm is that of one batch, and the optimizer of a checkpoint remembers earlier ones.
        let is_known = steps == 0 && self.settings.gradient_accumulation_steps == 1;
        self.drawn.start(round, is_known.then(RememberedNorms::default));
        while progress.steps < self.steps.all {
            let end = self.steps.pass_end(progress.steps);
            let is_due = self.steps.is_evaluated(end);
            self.run_pass(end, &mut progress, output)?;
            let metrics = match is_due {
                true => self.evaluate(&mut progress, evaluator, output)?,
                false => IndexMap::new(),
            };
            let is_reached = is_due && self.is_reached(&metrics)?;
            self.end_pass(metrics, evaluator.non_finite, output);
            if is_reached || end == self.steps.all {
                break;
            }
            if self.steps.has_checkpoint(end) {
                let reads = self.group.writes_checkpoints || self.reader.reads_together();
                // An evaluation has read the states already.
                let read = if is_due || !reads { Vec::new() } else { self.reader.read(&progress.states)? };
                if self.group.writes_checkpoints {
                    let states = if is_due { &self.evaluated } else { &read };
                    self.write_checkpoint(&progress, states, output);
                }
                self.group.wait()?;
            }
        }
        emit(Event::TrainingEnd(TrainingEnd { round, train_s: clock.now().since(progress.start), init_s: init }));
        Ok(())
    }

    /// Writes a checkpoint. That the disk is full does not end the training.
    fn write_checkpoint(&self, progress: &Progress, states: &[Tensor], (clock, emit): Output<'_>) {
        let train_s = progress.earlier + clock.now().since(progress.start);
        let Progress { round, steps, skipped, .. } = *progress;
        let seed = self.sampler.seed;
        let epochs = (steps / self.steps.per_epoch) as u32;
        let reached = TrainingProgress { rounds: round, epochs, steps, skipped, train_s, seed };
        let checkpoints = self.checkpoints();
        match checkpoints.write(reached, (&self.model.step.states, states), &self.trained_by) {
            Ok((name, sha256)) => emit(Event::Checkpoint { name, sha256 }),
            Err(error) => {
                let folder = checkpoints.folder().display();
                let message = format!("no checkpoint after step {steps} in `{folder}`: {error}");
                emit(Event::Log { level: Level::Warning, source: "training".to_owned(), message });
            }
        }
    }

    /// Evaluates one batch with the first states: an error of the case is found before the training, not after its first epoch.
    ///
    /// # Errors
    /// When computing or evaluating fails, or `target` names a metric that the evaluator does not return.
    pub fn try_evaluation(&self, evaluator: &mut Evaluator, clock: &dyn Clock) -> Result<(), Failure> {
        self.is_reached(&evaluator.evaluate_first_batch(&self.model.first_states, clock)?).map(drop)
    }

    /// Returns whether metrics reach the target; without a target, every step is trained.
    fn is_reached(&self, metrics: &IndexMap<String, f64>) -> Result<bool, Failure> {
        let target = &self.settings.target;
        if let Some(name) = target.keys().find(|name| !metrics.contains_key(*name)) {
            let known = metrics.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let reason = format!("the evaluator returns no metric `{name}`, which `target` names (known: {known})");
            return Err(failure(&reason, "`target` is set in the case's training.yaml or by `--set target=..`"));
        }
        let is_reached =
            !target.is_empty() && target.iter().all(|(name, target)| metric::is_reached(name, metrics[name], *target));
        // Devices may round differently, but all processes must end with the same step.
        self.group.is_true_everywhere(is_reached)
    }

    /// Returns the metrics of the model with the states, which are read back from the engine.
    fn evaluate(
        &mut self,
        progress: &mut Progress,
        evaluator: &mut Evaluator,
        (clock, emit): Output<'_>,
    ) -> Result<IndexMap<String, f64>, Failure> {
        let start = clock.now();
        self.evaluated = self.reader.read(&progress.states)?;
        self.drawn.keep_last(&self.evaluated, &self.reader)?;
        let metrics = evaluator.evaluate(self.passes - 1, &self.evaluated, clock)?;
        let time_s = clock.now().since(start);
        let shown: Vec<String> = metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        let epochs = self.steps.epochs_begun(progress.steps) as u32;
        let message = format!("epoch {epochs}, step {}: {}", progress.steps, shown.join(", "));
        emit(Event::Log { level: Level::Info, source: "evaluation".to_owned(), message });
        emit(Event::Evaluation(Evaluation {
            round: progress.round,
            epochs,
            steps: progress.steps,
            samples: evaluator.samples,
            metrics: metrics.clone(),
            time_s,
        }));
        Ok(metrics)
    }

    /// Runs the steps of a pass, the last of which is the step `end`, and emits what they computed. The last step is kept if an
    /// evaluation follows.
    fn run_pass(&mut self, end: u64, progress: &mut Progress, output: Output<'_>) -> Result<(), Failure> {
        let (clock, emit) = output;
        let pass = self.passes;
        let (epoch, first) = (progress.steps / self.steps.per_epoch, progress.steps % self.steps.per_epoch);
        let batches = first as usize..(first + end - progress.steps) as usize;
        let mut losses = EpochLosses { round: progress.round, epoch: epoch as u32, ..EpochLosses::default() };
        let mut steps: Vec<StepTimes> = Vec::new();
        emit(Event::PassBegin { step: Step::Training, pass });
        let mut mark = clock.now();
        self.loader.start_epoch(&self.sampler, epoch, batches);
        while let Some(LoadedBatch { batch, fields }) = self.next_batch()? {
            let loaded = clock.now();
            let step = progress.steps + 1;
            let (results, inputs) = self.run_step(&batch, fields, progress, &mut losses).map_err(|failed| {
                let reason = format!("step {step} of the training: {}", failed.reason);
                Failure { reason, ..failed }
            })?;
            let computed = clock.now();
            let is_last = step == end && self.steps.is_evaluated(end);
            let place =
                BatchPlace { seed: self.sampler.seed, epoch, batch: ((step - 1) % self.steps.per_epoch) as usize };
            let computed_step = ComputedStep::new(step, place, inputs, &results, progress.states.len());
            if self.drawn.add(computed_step, &progress.states, is_last, &self.reader)? {
                self.group.wait()?;
            }
            let [loss, norm] = results;
            self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
            self.check_finite([loss, norm], progress)?;
            losses.loss.push(loss);
            losses.gradient_norm.push(norm);
            self.report(progress, output);
            let done = clock.now();
            steps.push(StepTimes {
                pass,
                samples: self.job.settings.batch_size,
                load_wait_s: loaded.since(mark),
                core_s: computed.since(loaded),
                host_s: done.since(computed),
                ..StepTimes::default()
            });
            mark = done;
        }
        self.passes += 1;
        for steps in steps.chunks(STEPS_PER_EVENT) {
            emit(Event::Steps { step: Step::Training, times: StepColumns(steps.to_vec()) });
        }
        emit(Event::EpochLosses(Box::new(losses)));
        Ok(())
    }

    /// Returns the sessions that train.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Ends the sessions that train, with what they keep on the device. Steps and evaluations that were kept stay.
    pub fn free_device(&mut self) {
        self.drawn.forget_recent();
        (self.transfer, self.reader) = (None, StateReader::default());
        self.sessions.clear();
    }

    /// Returns the processes that train together.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the states of the last evaluation.
    pub fn evaluated(&self) -> &[Tensor] {
        &self.evaluated
    }

    /// Returns which steps were too large to keep.
    pub fn not_kept(&self) -> Vec<String> {
        self.drawn.not_kept()
    }

    /// Runs one step, and returns its loss, the norm of its gradients and its inputs.
    pub(super) fn run_step(
        &mut self,
        batch: &Batch,
        fields: Vec<Value>,
        progress: &mut Progress,
        losses: &mut EpochLosses,
    ) -> Result<([f64; RESULTS], Vec<Value>), Failure> {
        self.model.classes.iter().try_for_each(|classes| classes.check(batch))?;
        let scalars = self.scalars(progress, losses).values();
        let mut numbers = fields;
        numbers.extend(scalars.map(|scalar| Value::Host(Tensor::scalar(scalar))));
        let accumulation = self.model.step.accumulation.as_ref().filter(|_| !self.is_update(progress));
        let session = match accumulation {
            None => self.sessions.values().next(),
            Some(_) => self.sessions.get(ACCUMULATION),
        };
        let session = Arc::clone(session.expect("the graphs of the training step are loaded"));
        let before = &progress.states;
        let read: Vec<&Value> = match accumulation {
            None => before.iter().collect(),
            Some(Accumulation { inputs, .. }) => inputs.iter().map(|index| &before[*index]).collect(),
        };
        let given: Vec<Value> = numbers.iter().chain(read).cloned().collect();
        let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
        let mut outputs = session.submit(&given).map_err(|e| failure(&e, ""))?;
        self.copy_next();
        session.sync().map_err(|e| failure(&e, ""))?;
        if let Some(transfer) = &self.transfer {
            transfer.finish()?;
        }
        let changed = outputs.split_off(RESULTS);
        let next = match accumulation {
            None => changed,
            Some(Accumulation { outputs: places, .. }) => {
                let mut next = before.clone();
                places.iter().zip(changed).for_each(|(place, value)| next[*place] = value);
                next
            }
        };
        let mut inputs = numbers;
        inputs.append(&mut std::mem::replace(&mut progress.states, next));
        let mut results = [0.0; RESULTS];
        for (result, output) in results.iter_mut().zip(&outputs) {
            *result = output.to_host().map_err(|e| failure(&e, ""))?.to_f64()[0];
        }
        Ok((results, inputs))
    }

    /// Returns the numbers of the next step. Schedules and bias corrections count updates.
    fn scalars(&self, progress: &mut Progress, losses: &mut EpochLosses) -> StepScalars {
        let per_update = u64::from(self.settings.gradient_accumulation_steps);
        let factor = self.model.schedule.factor(progress.steps, self.steps.per_epoch, per_update);
        let rate = self.settings.learning_rate * factor;
        losses.learning_rate.push(rate);
        progress.steps += 1;
        let update = progress.steps.div_ceil(per_update) - progress.skipped;
        let masks = self.mask_step(progress.steps, self.sampler.rank);
        let scalars = self.model.optimizer.scalars(update, rate).with_masks(self.sampler.seed, masks);
        if self.is_update(progress) { scalars } else { scalars.without_update() }
    }

    /// Returns whether the last step was the last one of an update.
    fn is_update(&self, progress: &Progress) -> bool {
        progress.steps.is_multiple_of(u64::from(self.settings.gradient_accumulation_steps))
    }

    /// Checks that loss and gradients are finite. With a scale of the loss, they need not be: the step halved the scale.
    fn check_finite(&self, [loss, norm]: [f64; RESULTS], progress: &mut Progress) -> Result<(), Failure> {
        if loss.is_finite() && norm.is_finite() {
            progress.skipped_in_a_row = 0;
            return Ok(());
        }
        if self.model.scales_loss && progress.skipped_in_a_row < SKIPPED_MAX {
            let skips = self.is_update(progress);
            progress.skipped += u64::from(skips);
            progress.skipped_in_a_row += u32::from(skips);
            return Ok(());
        }
        let step = progress.steps;
        let reason = format!("step {step}: the loss is {loss} and the norm of the gradients {norm}");
        let hint = "a smaller `learning_rate`, a warm-up or `clip_norm` may keep them finite, if the data have no NaN";
        Err(failure(&reason, hint))
    }
}
