//! The batches of a measured loop: which samples form a batch, in which order each pass runs them, and their memory.

use std::sync::Arc;

use super::super::lend::lend_field;
use super::super::order::SampleOrder;
use super::super::phase::failure;
use flagperf_core::event::Failure;
use flagperf_core::step::Phase;
use flagperf_data::{Batch, BatchRequest, Dataset, Field, FieldRole, Loader, LoaderOptions};
use flagperf_plan::Job;
use flagperf_script::Sessions;

/// Smallest number of batches that the loader prepares ahead.
const PREFETCH_MIN: usize = 2;
/// Smallest number of samples that the loader prepares ahead per thread, so that small batches keep all threads busy.
const PREFETCH_PER_THREAD: usize = 2;

const BAD_SAMPLES_HINT: &str =
    "`bad_samples: count` in the case's parameters.yaml counts unreadable samples as failed instead";

/// The loader of a dataset with the random order of its batches.
pub struct Batches {
    pub(super) loader: Loader,
    pub(super) order: SampleOrder,
    phase: Phase,
}

impl Batches {
    /// Creates a loader over `dataset` that fills the sessions' buffers.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn new(job: &Job, sessions: &Sessions, dataset: Arc<dyn Dataset>) -> Result<Self, Failure> {
        Self::with_options(job, loader_options(job), sessions, dataset)
    }

    /// Creates a loader as [`Batches::new`] does, with these options.
    ///
    /// # Errors
    /// As [`Batches::new`].
    pub(super) fn with_options(
        job: &Job,
        options: LoaderOptions,
        sessions: &Sessions,
        dataset: Arc<dyn Dataset>,
    ) -> Result<Self, Failure> {
        let inputs: Vec<_> = dataset.fields().iter().filter(|f| f.role == FieldRole::Input).cloned().collect();
        let mut lend = |field: &Field, bytes: usize| {
            let position = inputs.iter().position(|input| input.name == field.name);
            lend_field(sessions, &field.name, position, bytes)
        };
        let (samples, batch_size) = (dataset.len(), options.batch_size);
        let mut loader = Loader::new(dataset, options, &mut lend).map_err(|e| failure(&e, e.hint()))?;
        let order = SampleOrder::new(job.run_seed, loader.batches() as usize);
        // Samples of similar length may have been placed together on purpose.
        if !loader.has_open_length() {
            loader.set_batches(order.divide(samples, batch_size));
        }
        Ok(Batches { loader, order, phase: job.phase() })
    }

    /// Returns the number of batches of a pass.
    pub fn count(&self) -> u64 {
        self.loader.batches()
    }

    /// Returns the order of the batches in a pass.
    pub(super) fn order_of_pass(&self, pass: u32) -> Vec<usize> {
        self.order.of_pass(self.phase, pass)
    }

    /// Starts a pass in this order with nothing read ahead.
    pub(super) fn start_in_order(&mut self, order: Vec<usize>) -> Result<(), Failure> {
        self.loader.start_pass_in_order(order).map_err(|e| failure(&e, BAD_SAMPLES_HINT))
    }

    /// Starts to load the batches of these requests.
    pub(super) fn start_requests(&mut self, requests: Vec<BatchRequest>) -> Result<(), Failure> {
        self.loader.start_requests(requests).map_err(|e| failure(&e, e.hint()))
    }

    /// Starts a pass at the first batch.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.loader.start_pass().map_err(|e| failure(&e, BAD_SAMPLES_HINT))
    }

    /// Starts a pass at the first batch and returns this batch.
    pub(super) fn start_with_first(&mut self) -> Result<Batch, Failure> {
        self.start()?;
        self.next()?.ok_or_else(|| failure(&"the dataset is empty", ""))
    }

    /// Waits for the next batch; `None` at the end of the pass.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, Failure> {
        self.loader.next().transpose().map_err(|e| failure(&e, BAD_SAMPLES_HINT))
    }

    /// Returns the memory of a batch to the loader.
    pub(super) fn recycle(&mut self, batch: Batch) -> Result<(), Failure> {
        self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))
    }
}

/// Returns the options of a loader for the batches of a job.
pub fn loader_options(job: &Job) -> LoaderOptions {
    let (batch_size, workers) = (job.settings.batch_size as usize, job.settings.num_workers as usize);
    let derived = || (PREFETCH_PER_THREAD * workers).div_ceil(batch_size.max(1)).max(PREFETCH_MIN);
    LoaderOptions {
        batch_size,
        workers,
        prefetch: job.settings.prefetch.map_or_else(derived, |prefetch| prefetch as usize),
        pad_last_batch: true,
        preloaded: job.parameters.preloaded,
        on_bad_sample: job.parameters.bad_samples,
    }
}
