//! Batches in order, read ahead by threads into memory that a session lent.
//!
//! A slot holds one batch. Each slot has a thread that waits for its rows, which the workers read: so several batches
//! are under way at once, and a batch of one row keeps every worker busy too.

mod error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use self::error::LoadError;
use super::fill::{Filled, Task, fill};
use super::slot::{Lend, Slot};
use super::{Batch, Dataset, RecycleError};
pub use crate::config::OnBadSample;

/// How samples become batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples a batch.
    pub batch_size: usize,
    /// Threads that read samples; with 0 a batch is read by the thread that asks for it, when it asks.
    pub workers: usize,
    /// Batches read ahead of the one in use. Memory is that of `prefetch + 1` batches.
    pub prefetch: usize,
    /// Whether the last batch is padded to `batch_size` rows; otherwise it is shorter.
    pub fixed_rows: bool,
    /// What a sample that cannot be read does.
    pub on_bad_sample: OnBadSample,
    /// Whether the whole dataset is read once and kept: to measure a host without its loading. Memory grows with the
    /// dataset.
    pub preloaded: bool,
}

/// Gives the batches of a dataset in order, every sample once a pass.
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    options: LoaderOptions,
    tasks: Option<Sender<(Slot, Task)>>,
    filled: Receiver<Filled>,
    fillers: Vec<JoinHandle<()>>,
    pass: Arc<AtomicU64>,
    free: Vec<Slot>,
    lent: Vec<Slot>,
    ready: BTreeMap<u64, Filled>,
    kept: Vec<Batch>,
    in_flight: usize,
    next_task: u64,
    next_batch: u64,
}

impl Loader {
    /// A loader over memory from `lend`, which is asked once a field and slot. Nothing is read before
    /// [`Loader::start_pass`].
    ///
    /// # Errors
    /// [`LoadError::Memory`] when memory cannot be lent, [`LoadError::Threads`] when threads cannot be started,
    /// [`LoadError::BatchSize`].
    pub fn new(dataset: Arc<dyn Dataset>, options: LoaderOptions, lend: Lend<'_>) -> Result<Self, LoadError> {
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
        let (tasks, tasks_in) = unbounded();
        let (filled_out, filled) = unbounded();
        let mut fillers = Vec::new();
        if options.workers > 0 {
            let failed = |reason: String| LoadError::Threads { workers: options.workers, reason };
            let threads = ThreadPoolBuilder::new().num_threads(options.workers).thread_name(|i| format!("load {i}"));
            let pool = Arc::new(threads.build().map_err(|error| failed(error.to_string()))?);
            for _ in 0..slots.min(options.prefetch + 1) {
                let filler = start_filler(&dataset, &pool, &pass, &tasks_in, &filled_out);
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
            kept: Vec::new(),
            in_flight: 0,
        })
    }

    /// Batches in a pass.
    pub fn batches(&self) -> u64 {
        self.dataset.len().div_ceil(self.options.batch_size) as u64
    }

    /// Starts to read from the first sample, with nothing read ahead. A pass under way ends here.
    ///
    /// # Errors
    /// With `preloaded`, on the first pass: as `next`.
    pub fn start_pass(&mut self) -> Result<(), LoadError> {
        self.next_batch = 0;
        if !self.kept.is_empty() {
            return Ok(());
        }
        self.pass.fetch_add(1, Ordering::Relaxed);
        while self.in_flight > 0 {
            self.receive();
        }
        self.free.extend(std::mem::take(&mut self.ready).into_values().map(|filled| filled.slot));
        self.reclaim();
        self.next_task = 0;
        self.submit();
        if self.options.preloaded {
            self.kept = self.by_ref().collect::<Result<_, _>>()?;
            self.next_batch = 0;
        }
        Ok(())
    }

    /// Takes the memory of a batch back at once. Without it, the memory comes back when the last tensor is dropped and
    /// the next batch is asked for.
    ///
    /// # Errors
    /// When a tensor of the batch is still held elsewhere, or the batch is not this loader's.
    pub fn recycle(&mut self, batch: Batch) -> Result<(), RecycleError> {
        if !self.kept.is_empty() {
            return Ok(());
        }
        let number = batch.index;
        let position = self.lent.iter().position(|slot| slot.owns(&batch)).ok_or(RecycleError::Unknown(number))?;
        drop(batch);
        if let Some(field) = self.lent[position].held() {
            return Err(RecycleError::Held { batch: number, field: self.dataset.fields()[field].name.clone() });
        }
        self.free.push(self.lent.swap_remove(position));
        self.submit();
        Ok(())
    }

    /// Takes back every slot that nobody reads any more.
    fn reclaim(&mut self) {
        self.free.extend(self.lent.extract_if(.., |slot| slot.held().is_none()));
    }

    /// Gives every free slot its next samples, when there are threads to read them.
    fn submit(&mut self) {
        let Some(tasks) = self.tasks.clone() else { return };
        while let Some(task) = self.take_task() {
            tasks.send(task).expect("fillers live as long as the queue");
            self.in_flight += 1;
        }
    }

    /// Reads the next batch in this thread, when a slot is free.
    fn fill_here(&mut self) -> bool {
        let Some((slot, task)) = self.take_task() else { return false };
        let filled = fill(slot, task, self.dataset.as_ref(), None, &self.pass);
        self.ready.insert(filled.task.batch, filled);
        true
    }

    /// A free slot, and the samples that it is to be filled with.
    fn take_task(&mut self) -> Option<(Slot, Task)> {
        if self.next_task == self.batches() {
            return None;
        }
        let slot = self.free.pop()?;
        let first = self.next_task * self.options.batch_size as u64;
        let end = (first + self.options.batch_size as u64).min(self.dataset.len() as u64);
        let pass = self.pass.load(Ordering::Relaxed);
        let task = Task { pass, batch: self.next_task, tickets: (first..end).collect() };
        self.next_task += 1;
        Some((slot, task))
    }

    fn receive(&mut self) {
        let filled = self.filled.recv().expect("fillers live as long as the queue");
        self.in_flight -= 1;
        self.ready.insert(filled.task.batch, filled);
    }

    fn hand_out(&mut self, filled: Filled) -> Result<Batch, LoadError> {
        let Filled { slot, task, failed } = filled;
        if let (OnBadSample::Fail, Some((_, error))) = (self.options.on_bad_sample, failed.first()) {
            let error = error.clone();
            self.free.push(slot);
            return Err(LoadError::Sample(error));
        }
        let rows = if self.options.fixed_rows { self.options.batch_size } else { task.tickets.len() };
        let tensors = slot.tensors(self.dataset.fields(), rows);
        self.lent.push(slot);
        let (inputs, truth) = tensors.map_err(LoadError::Tensor)?;
        Ok(Batch { index: task.batch, inputs, truth, tickets: task.tickets, failed, rows })
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoadError>;

    /// The next batch of the pass; `None` at its end.
    fn next(&mut self) -> Option<Self::Item> {
        if self.next_batch == self.batches() {
            return None;
        }
        let number = self.next_batch;
        if let Some(batch) = self.kept.get(number as usize) {
            self.next_batch += 1;
            return Some(Ok(batch.clone()));
        }
        self.reclaim();
        self.submit();
        loop {
            if let Some(filled) = self.ready.remove(&number) {
                self.next_batch += 1;
                return Some(self.hand_out(filled));
            }
            if self.tasks.is_none() && self.fill_here() {
                continue;
            }
            if self.in_flight == 0 {
                return Some(Err(LoadError::AllHeld { slots: self.lent.len() }));
            }
            self.receive();
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Rows that have not begun are left out, so this waits for one sample a worker at most.
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
    tasks: &Receiver<(Slot, Task)>,
    filled: &Sender<Filled>,
) -> std::io::Result<JoinHandle<()>> {
    let (dataset, pool, pass) = (Arc::clone(dataset), Arc::clone(pool), Arc::clone(pass));
    let (tasks, filled) = (tasks.clone(), filled.clone());
    std::thread::Builder::new().name("load batch".to_owned()).spawn(move || {
        for (slot, task) in tasks {
            let done = fill(slot, task, dataset.as_ref(), Some(&pool), &pass);
            if filled.send(done).is_err() {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests;
