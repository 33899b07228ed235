//! The progress that a measured loop reports.

use super::MeasuredLoop;
use flagperf_core::event::Event;
use flagperf_core::units::Seconds;

/// Shortest time between two progress events of a run that is displayed.
const PROGRESS_INTERVAL: Seconds = Seconds(0.1);

impl MeasuredLoop<'_> {
    /// Emits progress every `log_freq` steps, or every [`PROGRESS_INTERVAL`] when the run is displayed.
    pub(super) fn report_progress(&mut self, warmup: bool, pass: u32, batch: u64) {
        let now = self.clock.now();
        let due = match self.job.has_live_display {
            true => now.since(self.last_progress).0 >= PROGRESS_INTERVAL.0 || [0, self.batches].contains(&batch),
            false => !warmup && batch.is_multiple_of(u64::from(self.job.settings.log_freq.max(1))),
        };
        if due {
            self.last_progress = now;
            (self.emit)(Event::Progress {
                step: self.phase.measured_step,
                warmup,
                pass,
                passes: self.job.settings.repeat,
                batch,
                batches: self.batches,
                samples: self.totals.samples,
                elapsed_s: now.since(self.started),
            });
        }
    }
}
