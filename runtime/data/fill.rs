//! Filling one batch: a pool of threads reads the rows of a slot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;

use super::slot::Slot;
use super::{Dataset, SampleError};

/// The samples to read into a slot.
#[derive(Clone, Debug)]
pub struct FillTask {
    /// Number of the pass; rows are skipped unless this is the current pass.
    pub pass: u64,
    /// Number of the batch in its pass.
    pub batch: u64,
    /// The indices of the samples in the dataset, one per row.
    pub sample_indices: Vec<u64>,
}

/// A filled slot.
pub struct FilledSlot {
    /// The slot.
    pub slot: Slot,
    /// The task that filled it.
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
    let padding = rows.split_off(task.sample_indices.len().min(rows.len()));
    padding.into_iter().flatten().for_each(|field| field.fill(0));
    let read_row = |row: usize, mut fields: Vec<&mut [u8]>| {
        if pass.load(Ordering::Relaxed) != task.pass {
            return;
        }
        if let Err(error) = read_sample(dataset, task.sample_indices[row] as usize, &mut fields) {
            fields.iter_mut().for_each(|field| field.fill(0));
            failed.lock().expect("no holder of this lock panics").push((row, error));
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
    if let Some(open) = dataset.open_length() {
        slot.shorten(dataset.fields(), &open);
    }
    let mut failed = failed.into_inner().expect("no holder of this lock panics");
    failed.sort_by_key(|(row, _)| *row);
    FilledSlot { slot, task, failed }
}

/// Reads a sample and converts a panic to an error: a decoder that panics on a damaged file must not end the loader.
fn read_sample(dataset: &dyn Dataset, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
    catch_unwind(AssertUnwindSafe(|| dataset.read(index, fields))).unwrap_or_else(|panic| {
        let reason = format!("panicked while reading: {}", flagperf_onnx::panic_text(&*panic));
        Err(SampleError { sample: dataset.sample_name(index), reason })
    })
}
