//! The clock of a measured loop, and the events that it emits.

use super::super::phase::Emit;
use flagperf_core::event::Event;
use flagperf_core::measure::{Clock, Nanos, STEPS_PER_EVENT, StepColumns, StepTimes};
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;
use flagperf_plan::Job;

/// Shortest time between two progress events of a run that is displayed.
const PROGRESS_INTERVAL: Seconds = Seconds(0.1);
/// The same of a trial of queries that is not displayed.
const TRIAL_INTERVAL: Seconds = Seconds(10.0);

/// Emits what a measured loop does.
pub struct Progress<'a> {
    job: &'a Job,
    pub(super) clock: &'a dyn Clock,
    pub(super) emit: &'a Emit,
    /// Number of batches of a pass.
    batches: u64,
    started: Nanos,
    last: Nanos,
}

impl<'a> Progress<'a> {
    /// Creates the progress of a loop with so many batches in a pass.
    pub fn new(job: &'a Job, clock: &'a dyn Clock, emit: &'a Emit, batches: u64) -> Self {
        let now = clock.now();
        Progress { job, clock, emit, batches, started: now, last: now }
    }

    /// Begins the time that is reported as elapsed.
    pub(super) fn begin_measurement(&mut self) {
        self.started = self.clock.now();
    }

    /// Emits progress every `log_freq` steps, or every [`PROGRESS_INTERVAL`] when the run is displayed.
    pub(super) fn report(&mut self, warmup: bool, pass: u32, batch: u64, samples: u64) {
        let now = self.clock.now();
        let due = match self.job.has_live_display {
            true => now.since(self.last).0 >= PROGRESS_INTERVAL.0 || [0, self.batches].contains(&batch),
            false => !warmup && batch.is_multiple_of(u64::from(self.job.settings.log_freq.max(1))),
        };
        if due {
            self.last = now;
            (self.emit)(Event::Progress {
                step: self.step(),
                warmup,
                pass,
                passes: self.job.settings.repeat,
                batch,
                batches: self.batches,
                samples,
                elapsed_s: now.since(self.started),
                repetition: None,
            });
        }
    }

    /// Emits how far a trial is, whose queries arrive for `expected` from `begin`.
    pub(super) fn report_trial(&mut self, trial: u32, answered: u64, begin: Nanos, expected_s: Seconds) {
        let now = self.clock.now();
        let interval = if self.job.has_live_display { PROGRESS_INTERVAL } else { TRIAL_INTERVAL };
        if now.since(self.last.max(begin)).0 >= interval.0 {
            self.last = now;
            (self.emit)(Event::TrialProgress { trial, answered, elapsed_s: now.since(begin), expected_s });
        }
    }

    /// Emits the times of the steps of a pass.
    pub(super) fn report_times(&self, steps: &[StepTimes]) {
        for steps in steps.chunks(STEPS_PER_EVENT) {
            (self.emit)(Event::Steps { step: self.step(), times: StepColumns(steps.to_vec()) });
        }
    }

    /// Returns the step that the loop measures.
    pub(super) fn step(&self) -> Step {
        self.job.phase().measured_step()
    }
}
