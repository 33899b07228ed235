//! The search for threads that load data, and for batches that are read ahead, before the measurement.
//!
//! Nothing here is part of a figure.

use super::super::phase::failure;
use super::MeasuredLoop;
use super::batches::{Batches, loader_options};
use flagperf_core::event::{Event, Failure, LoadingSearch, LoadingTrial};
use flagperf_core::step::Phase;
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_data::LoaderOptions;

/// The least gain for which more threads or batches are used.
const GAIN_MIN: f64 = 1.03;
/// How long a trial lasts, unless a pass is shorter.
const TRIAL_TIME: Seconds = Seconds(2.0);
/// The most threads and the most batches that are tried.
const WORKERS_MAX: usize = 64;
const PREFETCH_MAX: usize = 32;

impl MeasuredLoop<'_> {
    /// Doubles the batches that are read ahead, then the threads, then both again, as long as one of them makes the loop faster.
    /// Stays with the configuration if it asks for no search; validation is not measured for its speed.
    pub(super) fn search_loading(&mut self) -> Result<(), Failure> {
        if !self.job.settings.search_loading || self.job.phase() != Phase::Infer {
            return Ok(());
        }
        let mut options = loader_options(self.job);
        let mut search = LoadingSearch::default();
        let mut best = self.try_loading(&options, &mut search)?;
        let more: [fn(&LoaderOptions) -> LoaderOptions; 2] = [
            |options| LoaderOptions { prefetch: (options.prefetch * 2).min(PREFETCH_MAX), ..*options },
            |options| LoaderOptions { workers: (options.workers.max(1) * 2).min(WORKERS_MAX), ..*options },
        ];
        let mut gained = true;
        while std::mem::take(&mut gained) {
            for change in more {
                let next = change(&options);
                // Without memory for more batches, the search goes on with fewer.
                let Some(batches) = self.batches_with(next).filter(|_| next != options) else { continue };
                let current = std::mem::replace(&mut self.batches, batches);
                let speed = self.try_loading(&next, &mut search)?;
                if speed > best * GAIN_MIN {
                    (best, options, gained, search.chosen) = (speed, next, true, search.tried.len() - 1);
                } else {
                    self.batches = current;
                }
            }
        }
        (self.progress.emit)(Event::Loading(search));
        self.model.forget_unmeasured();
        Ok(())
    }

    /// Returns the batches with another loader; `None` if there is no memory for it.
    fn batches_with(&self, options: LoaderOptions) -> Option<Batches> {
        let dataset = self.batches.loader.dataset().clone();
        Batches::with_options(self.job, options, self.model.sessions(), dataset).ok()
    }

    /// Measures the samples per second from an empty queue with these options, which the loader has.
    fn try_loading(&mut self, options: &LoaderOptions, search: &mut LoadingSearch) -> Result<f64, Failure> {
        let clock = self.progress.clock;
        // No pass has this order, which the engine sees.
        let order = self.batches.order.shuffle("loading", search.tried.len() as u64, self.batches.count() as usize);
        let begun = clock.now();
        let mut samples = 0;
        self.batches.start_in_order(order)?;
        while clock.now().since(begun).0 < TRIAL_TIME.0
            && let Some(batch) = self.batches.next()?
        {
            self.model.run_unmeasured(&batch, clock)?;
            samples += batch.sample_indices.len() as u64;
            self.batches.recycle(batch)?;
        }
        let speed = SamplesPerSecond::of(samples, clock.now().since(begun));
        let speed = speed.ok_or_else(|| failure(&"no time passed in a trial of loading", ""))?;
        search.tried.push(LoadingTrial {
            num_workers: u32::try_from(options.workers).unwrap_or(u32::MAX),
            prefetch: u32::try_from(options.prefetch).unwrap_or(u32::MAX),
            samples_per_s: speed,
        });
        Ok(speed.0)
    }
}
