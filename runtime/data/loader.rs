//! The loader: returns batches in order, which threads read ahead into memory lent by a session.
//!
//! A slot holds one batch. Each slot that is being filled has a thread that waits for its rows while the reader threads
//! read them, so several batches are in progress at once, and all readers are busy even with batches of one row.

mod error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use self::error::LoadError;
use super::fill::{FillTask, FilledSlot, fill_slot};
use super::slot::{MemoryLender, Slot};
use super::{Batch, Dataset, RecycleError};
pub use crate::config::BadSamplePolicy;

/// The options of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples per batch.
    pub batch_size: usize,
    /// Number of threads that read samples; with 0, the thread that requests a batch reads it.
    pub workers: usize,
    /// Number of batches read ahead of the one in use. The loader needs the memory of `prefetch + 1` batches.
    pub prefetch: usize,
    /// Whether the last batch is padded to `batch_size` rows; otherwise it is shorter.
    pub pad_last_batch: bool,
    /// How a sample that cannot be read is handled.
    pub on_bad_sample: BadSamplePolicy,
    /// Whether the whole dataset is read once and kept in memory, to measure a host without loading. The memory needed
    /// grows with the dataset.
    pub preloaded: bool,
}

/// Returns the batches of a dataset in order, with every sample once per pass.
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    options: LoaderOptions,
    tasks: Option<Sender<(Slot, FillTask)>>,
    filled: Receiver<FilledSlot>,
    fillers: Vec<JoinHandle<()>>,
    /// The number of the pass; incremented to cancel the reads of an abandoned pass.
    pass: Arc<AtomicU64>,
    free: Vec<Slot>,
    lent: Vec<Slot>,
    ready: BTreeMap<u64, FilledSlot>,
    preloaded_batches: Vec<Batch>,
    in_flight: usize,
    next_task: u64,
    next_batch: u64,
}

impl Loader {
    /// Creates a loader with memory from `lend`, which is called once per field and slot. Nothing is read before
    /// [`Loader::start_pass`].
    ///
    /// # Errors
    /// [`LoadError::Memory`] when memory cannot be lent, [`LoadError::Threads`] when threads cannot be started,
    /// [`LoadError::BatchSize`] when the batch size is 0.
    pub fn new(dataset: Arc<dyn Dataset>, options: LoaderOptions, lend: MemoryLender<'_>) -> Result<Self, LoadError> {
        if options.batch_size == 0 {
            return Err(LoadError::BatchSize);
        }
        let batches = dataset.len().div_ceil(options.batch_size);
        let slots = if options.preloaded { batches } else { batches.min(options.prefetch + 1) };
        let free = (0..slots)
            .map(|_| Slot::new(dataset.as_ref(), options.batch_size, lend))
            .collect::<Result<_, _>>()
            .map_err(LoadError::Memory)?;
        let pass = Arc::new(AtomicU64::new(0));
        let (tasks, task_receiver) = unbounded();
        let (filled_sender, filled) = unbounded();
        let mut fillers = Vec::new();
        if options.workers > 0 {
            let failed = |reason: String| LoadError::Threads { workers: options.workers, reason };
            let threads = ThreadPoolBuilder::new().num_threads(options.workers).thread_name(|i| format!("load {i}"));
            let pool = Arc::new(threads.build().map_err(|error| failed(error.to_string()))?);
            for _ in 0..slots.min(options.prefetch + 1) {
                let filler = start_filler(&dataset, &pool, &pass, &task_receiver, &filled_sender);
                fillers.push(filler.map_err(|error| failed(error.to_string()))?);
            }
        }
        Ok(Loader {
            next_batch: batches as u64,
            next_task: batches as u64,
            dataset,
            options,
            tasks: (options.workers > 0).then_some(tasks),
            filled,
            fillers,
            pass,
            free,
            lent: Vec::new(),
            ready: BTreeMap::new(),
            preloaded_batches: Vec::new(),
            in_flight: 0,
        })
    }

    /// Returns the number of batches in a pass.
    pub fn batches(&self) -> u64 {
        self.dataset.len().div_ceil(self.options.batch_size) as u64
    }

    /// Returns whether batches may have different shapes.
    pub fn has_open_length(&self) -> bool {
        self.dataset.open_length().is_some()
    }

    /// Starts a pass at the first sample, with nothing read ahead. A pass in progress is abandoned.
    ///
    /// # Errors
    /// With `preloaded`, the errors of `next` on the first pass.
    pub fn start_pass(&mut self) -> Result<(), LoadError> {
        self.next_batch = 0;
        if !self.preloaded_batches.is_empty() {
            return Ok(());
        }
        self.pass.fetch_add(1, Ordering::Relaxed);
        while self.in_flight > 0 {
            self.receive_filled();
        }
        self.free.extend(std::mem::take(&mut self.ready).into_values().map(|filled| filled.slot));
        self.reclaim();
        self.next_task = 0;
        self.submit_tasks();
        if self.options.preloaded {
            self.preloaded_batches = self.by_ref().collect::<Result<_, _>>()?;
            self.next_batch = 0;
        }
        Ok(())
    }

    /// Returns the memory of a batch to the loader at once. Otherwise the loader reclaims it on the first request for a
    /// batch after the last tensor is dropped.
    ///
    /// # Errors
    /// When a tensor of the batch is still held elsewhere, or the batch did not come from this loader.
    pub fn recycle(&mut self, batch: Batch) -> Result<(), RecycleError> {
        if !self.preloaded_batches.is_empty() {
            return Ok(());
        }
        let number = batch.index;
        let position = self.lent.iter().position(|slot| slot.owns(&batch)).ok_or(RecycleError::Unknown(number))?;
        drop(batch);
        if let Some(field) = self.lent[position].held_field() {
            return Err(RecycleError::Held { batch: number, field: self.dataset.fields()[field].name.clone() });
        }
        self.free.push(self.lent.swap_remove(position));
        self.submit_tasks();
        Ok(())
    }

    /// Reclaims every slot whose tensors have all been dropped.
    fn reclaim(&mut self) {
        self.free.extend(self.lent.extract_if(.., |slot| slot.held_field().is_none()));
    }

    /// Submits a task for every free slot, if there are threads to read the samples.
    fn submit_tasks(&mut self) {
        let Some(tasks) = self.tasks.clone() else { return };
        while let Some(task) = self.take_task() {
            tasks.send(task).expect("filler threads live as long as the queue");
            self.in_flight += 1;
        }
    }

    /// Reads the next batch on this thread; returns false when there is no free slot or no further batch.
    fn fill_on_this_thread(&mut self) -> bool {
        let Some((slot, task)) = self.take_task() else { return false };
        let filled = fill_slot(slot, task, self.dataset.as_ref(), None, &self.pass);
        self.ready.insert(filled.task.batch, filled);
        true
    }

    /// Takes a free slot and the task of filling it with the next samples.
    fn take_task(&mut self) -> Option<(Slot, FillTask)> {
        if self.next_task == self.batches() {
            return None;
        }
        let slot = self.free.pop()?;
        let first = self.next_task * self.options.batch_size as u64;
        let end = (first + self.options.batch_size as u64).min(self.dataset.len() as u64);
        let pass = self.pass.load(Ordering::Relaxed);
        let task = FillTask { pass, batch: self.next_task, sample_indices: (first..end).collect() };
        self.next_task += 1;
        Some((slot, task))
    }

    /// Waits for the next filled slot.
    fn receive_filled(&mut self) {
        let filled = self.filled.recv().expect("filler threads live as long as the queue");
        self.in_flight -= 1;
        self.ready.insert(filled.task.batch, filled);
    }

    /// Converts a filled slot to a batch, or to an error when a bad sample fails its batch.
    fn hand_out(&mut self, filled: FilledSlot) -> Result<Batch, LoadError> {
        let FilledSlot { slot, task, failed } = filled;
        if let (BadSamplePolicy::Fail, Some((_, error))) = (self.options.on_bad_sample, failed.first()) {
            let error = error.clone();
            self.free.push(slot);
            return Err(LoadError::Sample(error));
        }
        let rows = if self.options.pad_last_batch { self.options.batch_size } else { task.sample_indices.len() };
        let tensors = slot.tensors(self.dataset.fields(), rows);
        self.lent.push(slot);
        let (inputs, truth) = tensors.map_err(LoadError::Tensor)?;
        Ok(Batch { index: task.batch, inputs, truth, sample_indices: task.sample_indices, failed, rows })
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoadError>;

    /// Returns the next batch of the pass; `None` at its end.
    fn next(&mut self) -> Option<Self::Item> {
        if self.next_batch == self.batches() {
            return None;
        }
        let number = self.next_batch;
        if let Some(batch) = self.preloaded_batches.get(number as usize) {
            self.next_batch += 1;
            return Some(Ok(batch.clone()));
        }
        self.reclaim();
        self.submit_tasks();
        loop {
            if let Some(filled) = self.ready.remove(&number) {
                self.next_batch += 1;
                return Some(self.hand_out(filled));
            }
            if self.tasks.is_none() && self.fill_on_this_thread() {
                continue;
            }
            if self.in_flight == 0 {
                return Some(Err(LoadError::AllHeld { slots: self.lent.len() }));
            }
            self.receive_filled();
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Rows that are not being read yet are skipped, so this waits for at most one sample per reader thread.
        self.pass.fetch_add(1, Ordering::Relaxed);
        self.tasks = None;
        for filler in self.fillers.drain(..) {
            let _ = filler.join();
        }
    }
}

fn start_filler(
    dataset: &Arc<dyn Dataset>,
    pool: &Arc<ThreadPool>,
    pass: &Arc<AtomicU64>,
    tasks: &Receiver<(Slot, FillTask)>,
    filled: &Sender<FilledSlot>,
) -> std::io::Result<JoinHandle<()>> {
    let (dataset, pool, pass) = (Arc::clone(dataset), Arc::clone(pool), Arc::clone(pass));
    let (tasks, filled) = (tasks.clone(), filled.clone());
    std::thread::Builder::new().name("load batch".to_owned()).spawn(move || {
        for (slot, task) in tasks {
            let done = fill_slot(slot, task, dataset.as_ref(), Some(&pool), &pass);
            if filled.send(done).is_err() {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests;
