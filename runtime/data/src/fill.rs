//! Fills one batch: a pool of threads reads the rows of a slot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rayon::ThreadPool;

use super::perturbation::Perturbation;
use super::random::Epoch;
use super::slot::Slot;
use super::{Dataset, SampleError};

/// The samples to read into a slot.
#[derive(Clone, Debug)]
pub struct FillTask {
    /// Number of the pass; rows are skipped unless this is the current pass.
    pub pass: u64,
    /// Position of the batch in its pass.
    pub position: u64,
    pub request: BatchRequest,
    /// The epoch of a training, whose random transforms are applied.
    pub epoch: Option<Epoch>,
}

/// A batch to read.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The number that the batch gets.
    pub number: u64,
    /// The indices of the samples in the dataset, one per row. A sample may occur several times.
    pub samples: Arc<[u64]>,
    /// Changes the inputs, each sample in its own way.
    pub perturbation: Option<Perturbation>,
}

/// A filled slot.
pub struct FilledSlot {
    pub slot: Slot,
    pub task: FillTask,
    /// Rows whose samples could not be read, in order; their memory is zeroed.
    pub failed: Vec<(usize, SampleError)>,
}

/// Reads the samples of `task` into `slot` with the threads of `pool`, or on this thread without a pool. The remaining
/// rows are zeroed, and fields of an open length are shortened to the longest sample.
pub fn fill_slot(
    mut slot: Slot,
    task: FillTask,
    dataset: &dyn Dataset,
    pool: Option<&ThreadPool>,
    pass: &AtomicU64,
) -> FilledSlot {
    let failed = Mutex::new(Vec::new());
    let mut rows = slot.rows_mut().expect("a slot is filled only while no tensor of it is held");
    let padding = rows.split_off(task.request.samples.len().min(rows.len()));
    padding.into_iter().flatten().for_each(|field| field.fill(0));
    let read_row = |row: usize, mut fields: Vec<&mut [u8]>| {
        if pass.load(Ordering::Relaxed) != task.pass {
            return;
        }
        let sample = task.request.samples[row];
        match (read_sample(dataset, sample as usize, task.epoch, &mut fields), &task.request.perturbation) {
            (Ok(()), None) => {}
            (Ok(()), Some(perturbation)) => perturb(perturbation, dataset, sample, &mut fields),
            (Err(error), _) => {
                fields.iter_mut().for_each(|field| field.fill(0));
                failed.lock().expect("no holder of this lock panics").push((row, error));
            }
        }
    };
    let rows = rows.into_iter().enumerate();
    match pool {
        Some(pool) => pool.in_place_scope_fifo(|scope| {
            let read_row = &read_row;
            rows.for_each(|(row, fields)| scope.spawn_fifo(move |_| read_row(row, fields)));
        }),
        None => rows.for_each(|(row, fields)| read_row(row, fields)),
    }
    if let (Some(epoch), Some(mixing)) = (task.epoch, dataset.mixing())
        && let Some(rows) = slot.rows_mut()
    {
        let mix = || mixing.apply(epoch, &task.request.samples, dataset.fields(), rows);
        match pool {
            Some(pool) => pool.install(mix),
            None => mix(),
        }
    }
    if let Some(open) = dataset.open_length() {
        slot.shorten(dataset.fields(), &open);
    }
    let mut failed = failed.into_inner().expect("no holder of this lock panics");
    failed.sort_by_key(|(row, _)| *row);
    FilledSlot { slot, task, failed }
}

/// Mixes a sample with another one. If that cannot be read, numbers still change.
fn perturb(perturbation: &Perturbation, dataset: &dyn Dataset, sample: u64, fields: &mut [&mut [u8]]) {
    let other = perturbation.other_sample(sample, dataset.len() as u64).and_then(|other| {
        let mut memory: Vec<Vec<u8>> = fields.iter().map(|field| vec![0; field.len()]).collect();
        let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
        read_sample(dataset, other as usize, None, &mut slices).ok().map(|()| memory)
    });
    perturbation.apply(dataset, sample, fields, other.as_deref());
}

/// Reads a sample and converts a panic to an error: a decoder that panics on a damaged file must not end the loader.
fn read_sample(
    dataset: &dyn Dataset,
    index: usize,
    epoch: Option<Epoch>,
    fields: &mut [&mut [u8]],
) -> Result<(), SampleError> {
    let read = || match epoch {
        Some(epoch) => dataset.read_in_epoch(index, epoch, fields),
        None => dataset.read(index, fields),
    };
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let reason = format!("panicked while reading: {}", flagperf_core::panic::panic_text(&*panic));
        Err(SampleError { sample: dataset.sample_name(index), reason })
    })
}
