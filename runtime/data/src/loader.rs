//! The loader: returns batches in order, which threads read ahead into memory lent by a session.
//!
//! A slot holds one batch. Each slot that is being filled has a thread that waits for its rows while the reader threads
//! read them, so several batches are in progress at once, and all readers are busy even with batches of one row.

mod epoch;
mod error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use self::error::LoadError;
pub use super::fill::BatchRequest;
use super::fill::{FillTask, FilledSlot, fill_slot};
use super::slot::{MemoryLender, Slot};
use super::{Batch, Dataset, Epoch, Field, RecycleError};
pub use flagperf_config::BadSamplePolicy;
use flagperf_core::engine_error::EngineError;
use flagperf_core::lent_memory::{HeapMemory, LentMemory};

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

/// Slots for batches that are not preloaded, in addition to those of the dataset.
const EXTRA_SLOTS: usize = 1;

/// Returns the batches of a dataset, with every sample once per pass.
pub struct Loader {
    /// The samples of each batch of a pass.
    batches: Vec<Arc<[u64]>>,
    /// The batches of the pass in progress, in order.
    plan: Vec<BatchRequest>,
    /// The epoch of a training that the pass in progress is.
    epoch: Option<Epoch>,
    /// Whether the pass in progress takes its batches from `preloaded_batches`.
    is_plan_preloaded: bool,
    dataset: Arc<dyn Dataset>,
    options: LoaderOptions,
    tasks: Option<Sender<(Slot, FillTask)>>,
    filled: Receiver<FilledSlot>,
    fillers: Vec<JoinHandle<()>>,
    /// The number of the pass; incremented to cancel the reads of an abandoned pass.
    pass: Arc<AtomicU64>,
    free: Vec<Slot>,
    /// Free slots in memory that is not lent, from which requested batches are copied.
    staging: Vec<Slot>,
    /// Whether the pass in progress uses them.
    is_plan_staged: bool,
    lent: Vec<Slot>,
    ready: BTreeMap<u64, FilledSlot>,
    preloaded_batches: Vec<Batch>,
    in_flight: usize,
    next_task: u64,
    next_batch: u64,
}

impl Loader {
    /// Creates a loader with memory from `lend`, which is called once per field and slot. Batches contain successive
    /// samples unless [`Loader::set_batches`] changes that. Nothing is read before a pass starts.
    ///
    /// # Errors
    /// [`LoadError::Memory`] when memory cannot be lent, [`LoadError::Threads`] when threads cannot be started,
    /// [`LoadError::BatchSize`] when the batch size is 0.
    pub fn new(dataset: Arc<dyn Dataset>, options: LoaderOptions, lend: MemoryLender<'_>) -> Result<Self, LoadError> {
        if options.batch_size == 0 {
            return Err(LoadError::BatchSize);
        }
        let samples: Vec<u64> = (0..dataset.len() as u64).collect();
        let batches: Vec<Arc<[u64]>> = samples.chunks(options.batch_size).map(Arc::from).collect();
        let slots = match options.preloaded {
            true => batches.len() + EXTRA_SLOTS,
            false => batches.len().min(options.prefetch + 1),
        };
        let mut free = (0..slots)
            .map(|_| Slot::new(dataset.as_ref(), options.batch_size, lend))
            .collect::<Result<Vec<_>, _>>()
            .map_err(LoadError::Memory)?;
        // The slots that were lent first are used first.
        free.reverse();
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
            batches,
            plan: Vec::new(),
            epoch: None,
            is_plan_preloaded: false,
            next_batch: 0,
            next_task: 0,
            dataset,
            options,
            tasks: (options.workers > 0).then_some(tasks),
            filled,
            fillers,
            pass,
            free,
            staging: Vec::new(),
            is_plan_staged: false,
            lent: Vec::new(),
            ready: BTreeMap::new(),
            preloaded_batches: Vec::new(),
            in_flight: 0,
        })
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.dataset
    }

    /// Returns the number of batches in a pass.
    pub fn batches(&self) -> u64 {
        self.batches.len() as u64
    }

    /// Returns the indices of the samples of a batch.
    pub fn samples(&self, batch: usize) -> &[u64] {
        &self.batches[batch]
    }

    /// Changes which samples form a batch. There must be as many batches as before, none larger than the batch size, and
    /// no pass may have been started.
    pub fn set_batches(&mut self, batches: Vec<Arc<[u64]>>) {
        assert!(batches.len() == self.batches.len() && self.preloaded_batches.is_empty(), "as many batches as before");
        self.batches = batches;
    }

    /// Returns whether batches may have different shapes.
    pub fn has_open_length(&self) -> bool {
        self.dataset.open_length().is_some()
    }

    /// Starts a pass at the first batch, with nothing read ahead. A pass in progress is abandoned.
    ///
    /// # Errors
    /// With `preloaded`, the errors of `next` on the first pass.
    pub fn start_pass(&mut self) -> Result<(), LoadError> {
        self.start_pass_in_order((0..self.batches.len()).collect())
    }

    /// Starts a pass over every batch in the given order. See [`Loader::start_pass`].
    ///
    /// # Errors
    /// With `preloaded`, the errors of `next` on the first pass.
    pub fn start_pass_in_order(&mut self, order: Vec<usize>) -> Result<(), LoadError> {
        if self.options.preloaded && self.preloaded_batches.is_empty() {
            let all = (0..self.batches.len()).map(|number| self.request(number)).collect();
            self.start_plan(all, false, None);
            self.preloaded_batches = self.by_ref().collect::<Result<_, _>>()?;
        }
        if self.preloaded_batches.is_empty() {
            self.start_plan(order.into_iter().map(|number| self.request(number)).collect(), false, None);
        } else {
            self.plan = order.into_iter().map(|number| self.request(number)).collect();
            (self.next_batch, self.next_task) = (0, self.plan.len() as u64);
            self.is_plan_preloaded = true;
        }
        Ok(())
    }

    /// Returns the next batch of a pass over the dataset if threads have read it already; does not wait.
    pub fn next_if_ready(&mut self) -> Option<Result<Batch, LoadError>> {
        while let Ok(filled) = self.filled.try_recv() {
            self.in_flight -= 1;
            self.ready.insert(filled.task.position, filled);
        }
        if self.ready.contains_key(&self.next_batch) { self.next() } else { None }
    }

    /// Reads one batch at once and returns it; a pass in progress is abandoned.
    ///
    /// # Errors
    /// As for a batch of a pass.
    pub fn load(&mut self, request: BatchRequest) -> Result<Batch, LoadError> {
        self.start_plan(vec![request], false, None);
        self.next().expect("the plan has a batch")
    }

    /// Starts a pass over other batches, which are read even if the dataset is preloaded. They are read ahead into memory
    /// of the loader and copied into lent memory when they are requested, so that an engine cannot see them before. No batch
    /// is read while one is in use: reading would slow down some steps and not others.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn start_requests(&mut self, plan: Vec<BatchRequest>) -> Result<(), LoadError> {
        let mut allocate = |_: &Field, bytes: usize| -> Result<Box<dyn LentMemory>, EngineError> {
            HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>)
        };
        // Without a pass in progress, every slot is free and can be counted.
        self.start_plan(Vec::new(), self.is_plan_staged, None);
        while self.staging.len() < self.batches.len().min(self.options.prefetch + 1) {
            let slot = Slot::new(self.dataset.as_ref(), self.options.batch_size, &mut allocate);
            self.staging.push(slot.map_err(LoadError::Memory)?);
        }
        self.start_plan(plan, true, None);
        Ok(())
    }

    fn start_plan(&mut self, plan: Vec<BatchRequest>, is_staged: bool, epoch: Option<Epoch>) {
        self.pass.fetch_add(1, Ordering::Relaxed);
        while self.in_flight > 0 {
            self.receive_filled();
        }
        for filled in std::mem::take(&mut self.ready).into_values() {
            self.release(filled.slot);
        }
        self.reclaim();
        self.is_plan_staged = is_staged;
        (self.plan, self.next_batch, self.next_task, self.is_plan_preloaded) = (plan, 0, 0, false);
        self.epoch = epoch;
        self.submit_tasks();
    }

    /// Returns the request for a batch of the dataset.
    fn request(&self, number: usize) -> BatchRequest {
        BatchRequest { number: number as u64, samples: self.batches[number].clone(), perturbation: None }
    }

    /// Returns the memory of a batch to the loader at once. Otherwise the loader reclaims it on the first request for a
    /// batch after the last tensor is dropped.
    ///
    /// # Errors
    /// When a tensor of the batch is still held elsewhere, or the batch did not come from this loader.
    pub fn recycle(&mut self, batch: Batch) -> Result<(), RecycleError> {
        let number = batch.index;
        let is_preloaded = self.preloaded_batches.get(number as usize).is_some_and(|own| own.is_same_memory(&batch));
        if is_preloaded {
            return Ok(());
        }
        let position = self.lent.iter().position(|slot| slot.owns(&batch)).ok_or(RecycleError::Unknown(number))?;
        drop(batch);
        if let Some(field) = self.lent[position].held_field() {
            return Err(RecycleError::Held { batch: number, field: self.dataset.fields()[field].name.clone() });
        }
        self.free.push(self.lent.swap_remove(position));
        if !self.is_plan_staged {
            self.submit_tasks();
        }
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
        self.ready.insert(filled.task.position, filled);
        true
    }

    /// Takes a free slot and the task of filling it with the next batch of the pass.
    fn take_task(&mut self) -> Option<(Slot, FillTask)> {
        let request = self.plan.get(self.next_task as usize)?.clone();
        let slot = if self.is_plan_staged { self.staging.pop() } else { self.free.pop() }?;
        let task =
            FillTask { pass: self.pass.load(Ordering::Relaxed), position: self.next_task, request, epoch: self.epoch };
        self.next_task += 1;
        Some((slot, task))
    }

    /// Waits for the next filled slot.
    fn receive_filled(&mut self) {
        let filled = self.filled.recv().expect("filler threads live as long as the queue");
        self.in_flight -= 1;
        self.ready.insert(filled.task.position, filled);
    }

    /// Takes back a slot of the pass in progress that is not handed out.
    fn release(&mut self, slot: Slot) {
        if self.is_plan_staged { self.staging.push(slot) } else { self.free.push(slot) }
    }

    /// Copies a slot into lent memory, which it returns.
    fn unstage(&mut self, staged: Slot) -> Result<Slot, LoadError> {
        let lent = self.free.pop().and_then(|mut lent| lent.copy_from(&staged).map(|()| lent));
        self.staging.push(staged);
        lent.ok_or(LoadError::AllHeld { slots: self.lent.len() })
    }

    /// Converts a filled slot to a batch, or to an error when a bad sample fails its batch.
    fn hand_out(&mut self, filled: FilledSlot) -> Result<Batch, LoadError> {
        let FilledSlot { slot, task, failed } = filled;
        if let (BadSamplePolicy::Fail, Some((_, error))) = (self.options.on_bad_sample, failed.first()) {
            let error = error.clone();
            self.release(slot);
            return Err(LoadError::Sample(error));
        }
        let slot = if self.is_plan_staged { self.unstage(slot)? } else { slot };
        let BatchRequest { number, samples, .. } = task.request;
        let rows = if self.options.pad_last_batch { self.options.batch_size } else { samples.len() };
        let tensors = slot.tensors(self.dataset.fields(), rows);
        self.lent.push(slot);
        let (inputs, truth) = tensors.map_err(LoadError::Tensor)?;
        Ok(Batch { index: number, inputs, truth, sample_indices: samples.to_vec(), failed, rows })
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoadError>;

    /// Returns the next batch of the pass; `None` at its end.
    fn next(&mut self) -> Option<Self::Item> {
        let position = self.next_batch;
        let request = self.plan.get(position as usize)?;
        if self.is_plan_preloaded
            && let Some(batch) = self.preloaded_batches.get(request.number as usize)
        {
            self.next_batch += 1;
            return Some(Ok(batch.clone()));
        }
        self.reclaim();
        self.submit_tasks();
        while self.is_plan_staged && self.in_flight > 0 {
            self.receive_filled();
        }
        loop {
            if let Some(filled) = self.ready.remove(&position) {
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
