//! What training together costs: steps of the same model and batch size without any exchange, timed after the training.

use std::sync::Arc;

use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{Clock, EpochLosses, LocalSteps};
use flagperf_core::step::{EngineRole, Step};
use flagperf_core::units::Seconds;
use flagperf_engine::Value;

use super::super::phase::{Worker, failure};
use super::loaded_batch::LoadedBatch;
use super::model::LoadedStep;
use super::state_reader::StateReader;
use super::training_loop::{Progress, TrainingLoop};
use super::transfer::Transfer;

/// Steps before those that are timed. An engine may capture the first one.
const WARMUP_STEPS: usize = 2;
/// Most and fewest timed steps, but at least those of an update. Between them, timing ends after a time.
const STEPS_MAX: usize = 50;
const STEPS_MIN: usize = 3;
const TIME_MAX: Seconds = Seconds(10.0);

impl Worker<'_> {
    /// Times steps of this process without exchange, when all processes have trained, and at the same time in all of them: what they share
    /// besides the network, such as the processor and its memory, then costs as much as in the training. That it cannot is no failure.
    ///
    /// # Errors
    /// When another process cannot be reached.
    pub(super) fn time_local_steps(&self, training: &mut TrainingLoop<'_>, role: EngineRole) -> Result<(), Failure> {
        if training.group().size == 1 {
            return Ok(());
        }
        self.run_step(Step::Training, "timing steps without communication", || {
            training.free_device();
            let per_update = training.settings.gradient_accumulation_steps;
            let prepared = self.prepare_local_steps(training, role);
            let timed = match (training.group().is_true_everywhere(prepared.is_ok())?, prepared) {
                (true, Ok(mut steps)) => steps.time(per_update, self.clock.as_ref()),
                (false, Ok(_)) => Err(failure(&"another process could not prepare its steps", "")),
                (_, Err(failed)) => Err(failed),
            };
            (self.emit)(match timed {
                Ok(core_s) => Event::LocalSteps(LocalSteps { core_s, per_update }),
                Err(failed) => {
                    let reason = failed.reason.lines().next().unwrap_or_default();
                    let message = format!("the share of communication was not measured: {reason}");
                    Event::Log { level: Level::Warning, source: "training".to_owned(), message }
                }
            });
            Ok(())
        })
    }

    /// Loads the step without exchange, and runs it until it is warm.
    fn prepare_local_steps<'a>(
        &'a self,
        training: &TrainingLoop<'a>,
        role: EngineRole,
    ) -> Result<LocalTraining<'a>, Failure> {
        let (job, model) = (self.job, training.model);
        let sessions = model.load_local_step(job, role)?;
        let transfer = Transfer::load(model.fields(), &sessions, job, role)?;
        let (group, reader) = (training.group().alone(), StateReader::default());
        let loaded = LoadedStep { sessions, transfer, reader, group };
        let alone = TrainingLoop::new(job, training.settings, model, loaded, Arc::clone(&training.dataset))?;
        let clock = self.clock.as_ref();
        let progress = Progress::first(model.kept_states(&model.first_states), clock);
        let mut steps = LocalTraining { alone, progress, losses: EpochLosses::default(), kept: Vec::new(), epoch: 0 };
        steps.alone.start_whole_epoch(0);
        let warm_up = (training.settings.gradient_accumulation_steps as usize).max(WARMUP_STEPS);
        (0..warm_up).try_for_each(|_| steps.run_step(clock).map(drop))?;
        Ok(steps)
    }
}

/// A training of this process alone.
struct LocalTraining<'a> {
    alone: TrainingLoop<'a>,
    progress: Progress,
    losses: EpochLosses,
    /// The states before the last step, which a training keeps until the next one has been computed.
    kept: Vec<Value>,
    epoch: u64,
}

impl LocalTraining<'_> {
    /// Returns the core times of steps.
    fn time(&mut self, per_update: u32, clock: &dyn Clock) -> Result<Vec<Seconds>, Failure> {
        let per_update = per_update as usize;
        let mut times: Vec<Seconds> = Vec::new();
        while times.len() < STEPS_MAX.max(per_update) {
            let is_long = times.iter().map(|time| time.0).sum::<f64>() > TIME_MAX.0;
            if is_long && times.len() >= STEPS_MIN.max(per_update) {
                break;
            }
            times.push(self.run_step(clock)?);
        }
        Ok(times)
    }

    /// Runs the next step, and returns its core time.
    fn run_step(&mut self, clock: &dyn Clock) -> Result<Seconds, Failure> {
        let alone = &mut self.alone;
        let LoadedBatch { batch, fields } = loop {
            match alone.next_batch()? {
                Some(loaded) => break loaded,
                None => {
                    self.epoch += 1;
                    alone.start_whole_epoch(self.epoch);
                }
            }
        };
        let begin = clock.now();
        let (_, mut inputs) = alone.run_step(&batch, fields, &mut self.progress, &mut self.losses)?;
        let core_s = clock.now().since(begin);
        inputs.drain(..alone.model.fields().len());
        self.kept = inputs;
        alone.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        Ok(core_s)
    }
}

impl TrainingLoop<'_> {
    /// Starts to load all batches of an epoch.
    fn start_whole_epoch(&mut self, epoch: u64) {
        self.loader.start_epoch(&self.sampler, epoch, 0..self.sampler.batches());
    }
}
