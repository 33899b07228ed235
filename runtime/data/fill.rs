//! Filling one batch: the rows of a slot, read by a pool of threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;

use super::slot::Slot;
use super::{Dataset, SampleError};

/// Which samples a batch holds.
#[derive(Clone, Debug)]
pub struct Task {
    /// The pass it belongs to; rows of any other than the current one are left out.
    pub pass: u64,
    /// Number of the batch in its pass.
    pub batch: u64,
    /// The dataset's indices, one a row.
    pub tickets: Vec<u64>,
}

/// A filled slot.
pub struct Filled {
    /// The memory.
    pub slot: Slot,
    /// What was asked for.
    pub task: Task,
    /// Rows that could not be read, in order; their memory is zero.
    pub failed: Vec<(usize, SampleError)>,
}

/// Reads the samples of `task` into `slot` with the threads of `pool`, or without one in this thread; rows beyond them
/// are zeroed.
pub fn fill(mut slot: Slot, task: Task, dataset: &dyn Dataset, pool: Option<&ThreadPool>, pass: &AtomicU64) -> Filled {
    let failed = Mutex::new(Vec::new());
    let mut rows = slot.rows_mut().expect("a slot is filled only while no tensor of it is held");
    let padding = rows.split_off(task.tickets.len().min(rows.len()));
    padding.into_iter().flatten().for_each(|field| field.fill(0));
    let read_row = |row: usize, mut fields: Vec<&mut [u8]>| {
        if pass.load(Ordering::Relaxed) != task.pass {
            return;
        }
        if let Err(error) = read(dataset, task.tickets[row] as usize, &mut fields) {
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
    let mut failed = failed.into_inner().expect("no holder of this lock panics");
    failed.sort_by_key(|(row, _)| *row);
    Filled { slot, task, failed }
}

/// A decoder that panics on a damaged file must not take the loader with it.
fn read(dataset: &dyn Dataset, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
    catch_unwind(AssertUnwindSafe(|| dataset.read(index, fields))).unwrap_or_else(|panic| {
        let reason = format!("reading it panicked: {}", flagperf_onnx::panic_text(&*panic));
        Err(SampleError { sample: dataset.sample_name(index), reason })
    })
}
