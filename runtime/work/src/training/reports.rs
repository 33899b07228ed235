//! What a training loop reports while it runs.

use flagperf_core::event::Event;
use flagperf_core::measure::{PassReport, TrainingSteps};
use flagperf_core::step::Step;
use flagperf_core::units::Bytes;
use flagperf_host::descendants_peak;
use indexmap::IndexMap;

use super::super::phase::peak_memory;
use super::RESULTS;
use super::training_loop::{Output, Progress, TrainingLoop};

impl TrainingLoop<'_> {
    /// Emits the end of the pass. A training has no warm-up: its first steps count.
    pub(super) fn end_pass(&self, accuracy: IndexMap<String, f64>, non_finite_outputs: u64, (_, emit): Output<'_>) {
        let device_memory = self.sessions.values().filter_map(|session| Some(session.lock().ok()?.device_memory()?.0));
        emit(Event::PassEnd(Box::new(PassReport {
            step: Step::Training,
            pass: self.passes - 1,
            batch_size: self.job.settings.batch_size,
            warmup_steady: true,
            output_count: RESULTS as u32,
            accuracy,
            non_finite_outputs,
            multiply_adds_per_sample: self.multiply_adds_per_sample,
            device_memory_bytes_max: device_memory.max().map(Bytes),
            memory_bytes_max: Bytes(peak_memory().0 + descendants_peak()),
            ..PassReport::default()
        })));
    }

    /// Reports how far the training has come.
    pub(super) fn report(&self, progress: &Progress, (clock, emit): Output<'_>) {
        let TrainingSteps { per_epoch, .. } = self.steps;
        let (epoch, batch) = ((progress.steps - 1) / per_epoch, (progress.steps - 1) % per_epoch + 1);
        if batch.is_multiple_of(u64::from(self.job.settings.log_freq.max(1))) {
            emit(Event::Progress {
                step: Step::Training,
                warmup: false,
                pass: epoch as u32,
                passes: self.steps.epochs() as u32,
                batch,
                batches: per_epoch,
                samples: progress.steps * u64::from(self.job.settings.batch_size),
                // Those before a resumption are among the samples.
                elapsed_s: progress.earlier + clock.now().since(progress.start),
                repetition: Some([progress.round + 1, self.job.settings.repeat]).filter(|[_, all]| *all > 1),
            });
        }
    }
}
