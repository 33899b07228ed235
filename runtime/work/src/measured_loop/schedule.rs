//! The schedule of a measured loop: when warm-up ends, when the measurement begins, and how many passes follow.
//!
//! A step starts as soon as the previous one has ended, so nothing here is asked during a pass.

use std::ops::Range;

use flagperf_core::measure::Warmup;
use flagperf_core::units::Seconds;
use flagperf_plan::Job;

/// Largest number of warm-up steps.
const WARMUP_STEPS_MAX: usize = 20;
/// Warm-up ends after this time even if steps are not steady.
const WARMUP_TIME_MAX: Seconds = Seconds(10.0);

/// Decides when a measured loop goes on and when it ends.
pub struct Schedule<'a> {
    /// Number of passes over the dataset.
    pub(super) passes: u32,
    /// Returns when the measurement may begin; `None` when it begins right after warm-up.
    pub(super) barrier: Option<&'a (dyn Fn() + Sync)>,
}

impl<'a> Schedule<'a> {
    /// Returns the schedule of a job. `release` returns when the measurement of a job that waits may begin.
    pub fn new(job: &Job, release: &'a (dyn Fn() + Sync)) -> Self {
        Schedule { passes: job.settings.repeat, barrier: job.waits.then_some(release) }
    }

    /// Returns what decides when warm-up ends.
    pub(super) fn warm_up() -> Warmup {
        Warmup::new(WARMUP_STEPS_MAX, WARMUP_TIME_MAX)
    }

    /// Returns the indices of the passes.
    pub(super) fn passes(&self) -> Range<u32> {
        0..self.passes
    }
}
