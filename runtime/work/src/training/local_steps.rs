//! What training together costs: steps of the same model and batch size without any exchange, timed after the training.

use std::sync::Arc;

use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{Clock, EpochLosses, LocalSteps};
use flagperf_core::step::{EngineRole, Step};
use flagperf_core::units::Seconds;

use super::super::phase::{Worker, failure};
use super::loaded_batch::LoadedBatch;
use super::model::LoadedStep;
use super::state_reader::StateReader;
use super::training_loop::{Progress, TrainingLoop};
use super::transfer::Transfer;

/// Steps before those that are timed. An engine may capture the first one.
const WARMUP_STEPS: usize = 2;
/// Most and fewest timed steps. Between them, timing ends after a time.
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
            training.group().is_true_everywhere(true)?;
            (self.emit)(match self.time_steps_alone(training, role) {
                Ok(core_s) => Event::LocalSteps(LocalSteps { core_s }),
                Err(failed) => {
                    let reason = failed.reason.lines().next().unwrap_or_default();
                    let message = format!("the share of communication was not measured: {reason}");
                    Event::Log { level: Level::Warning, source: "training".to_owned(), message }
                }
            });
            Ok(())
        })
    }

    fn time_steps_alone(&self, training: &TrainingLoop<'_>, role: EngineRole) -> Result<Vec<Seconds>, Failure> {
        let (job, model) = (self.job, training.model);
        let sessions = model.load_local_step(job, role)?;
        let transfer = Transfer::load(model.fields(), &sessions, job, role)?;
        let (group, reader) = (training.group().alone(), StateReader::default());
        let loaded = LoadedStep { sessions, transfer, reader, group };
        let mut alone = TrainingLoop::new(job, training.settings, model, loaded, Arc::clone(&training.dataset))?;
        alone.time_steps(self.clock.as_ref())
    }
}

impl TrainingLoop<'_> {
    /// Trains from the first states, and returns the core times of steps after the warm-up.
    fn time_steps(&mut self, clock: &dyn Clock) -> Result<Vec<Seconds>, Failure> {
        let mut progress = Progress::first(self.model.kept_states(self.model.first_states.clone()), clock);
        let (mut losses, mut times) = (EpochLosses::default(), Vec::new());
        // A training keeps the states before a step until the next one has been computed.
        let mut kept = Vec::new();
        for epoch in 0.. {
            self.loader.start_epoch(&self.sampler, epoch, 0..self.sampler.batches());
            while let Some(LoadedBatch { batch, fields }) = self.next_batch()? {
                let begin = clock.now();
                let (_, mut inputs) = self.run_step(&batch, fields, &mut progress, &mut losses)?;
                times.push(clock.now().since(begin));
                inputs.drain(..self.model.fields().len());
                drop(std::mem::replace(&mut kept, inputs));
                self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
                let timed = times.len().saturating_sub(WARMUP_STEPS);
                let is_long = times.iter().skip(WARMUP_STEPS).map(|time| time.0).sum::<f64>() > TIME_MAX.0;
                if timed >= STEPS_MAX || timed >= STEPS_MIN && is_long {
                    return Ok(times.split_off(WARMUP_STEPS));
                }
            }
        }
        unreachable!("epochs do not end")
    }
}
