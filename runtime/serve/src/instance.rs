//! An instance of a model version: a worker that takes requests from the queue, and is started again when it is lost.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use flagperf_core::measure::{Clock, Nanos};
use tokio::time::{sleep, timeout};
use tracing::{error, info};

use super::frame::{LoadRequest, LoadedModel, TensorHead};
use super::queue::{Pending, Queue, Tensors};
use super::statistics::{RunTimes, Statistics};
use super::worker_process::{RunOutputs, WorkerFailure, WorkerProcess};

/// How long a model may take to load: large ones are compiled.
pub const LOAD_LIMIT: Duration = Duration::from_secs(1800);
/// How long to wait before a lost worker is started again; doubled after each further loss, up to the longest.
const RESTART_DELAY: Duration = Duration::from_millis(100);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);

const FILES_CHANGED: &str = "the model's files have changed since it was loaded: load the model again";

/// What the instances of a model version share.
#[derive(Debug)]
pub struct Shared {
    /// The name and version, for messages.
    pub title: String,
    /// The waiting requests.
    pub queue: Queue,
    /// What was served.
    pub statistics: Statistics,
    /// The clock of all times.
    pub clock: Arc<dyn Clock>,
    /// The number of instances that can run a request.
    pub ready: AtomicUsize,
    /// What a worker loads.
    pub request: LoadRequest,
    /// What the first worker loaded.
    pub loaded: LoadedModel,
    /// The file for the standard error of workers.
    pub log: PathBuf,
    /// How the last worker was lost, or could not be started.
    pub last_failure: Mutex<String>,
    /// The longest time of a run.
    pub limit: Duration,
}

impl Shared {
    /// Notes how a worker was lost, or could not be started.
    pub fn note_failure(&self, failure: String) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// Runs an instance until the queue is closed and empty.
pub async fn run_instance(shared: Arc<Shared>, mut worker: WorkerProcess) {
    let mut losses = 0;
    loop {
        let served = tokio::select! {
            biased;
            pending = shared.queue.take() => match pending {
                Some(pending) => serve(&shared, &mut worker, pending).await,
                None => break,
            },
            failure = worker.lost() => Err(failure),
        };
        match served {
            Ok(()) => losses = 0,
            Err(failure) => {
                shared.ready.fetch_sub(1, Ordering::Relaxed);
                error!(model = shared.title, "{failure}");
                shared.note_failure(failure.to_string());
                let Some(started) = restart(&shared, &mut losses, || shared.queue.is_finished()).await else { return };
                worker = started;
            }
        }
    }
    shared.ready.fetch_sub(1, Ordering::Relaxed);
    worker.stop().await;
}

/// Runs requests together and answers each.
///
/// # Errors
/// When the worker is lost. The requests are answered nevertheless.
async fn serve(shared: &Shared, worker: &mut WorkerProcess, pending: Vec<Pending>) -> Result<(), WorkerFailure> {
    let taken = shared.clock.now();
    pending.iter().for_each(|pending| shared.statistics.add_wait(taken.0.saturating_sub(pending.arrived.0)));
    match run(shared, worker, &pending, taken).await {
        Ok(outputs) => answer(pending, outputs),
        Err(WorkerFailure::Engine(_)) if pending.len() > 1 => return serve_each(shared, worker, pending).await,
        Err(failure) => {
            for pending in pending {
                // A client that has left needs no answer.
                let _ = pending.reply.send(Err(failure.clone()));
            }
            if matches!(failure, WorkerFailure::Lost(_)) {
                return Err(failure);
            }
        }
    }
    Ok(())
}

/// Runs each request alone: one of them has made their common run fail, and must not be answered with the others' values, nor they with
/// its error.
///
/// # Errors
/// When the worker is lost. The requests are answered nevertheless.
async fn serve_each(shared: &Shared, worker: &mut WorkerProcess, pending: Vec<Pending>) -> Result<(), WorkerFailure> {
    let mut lost = None;
    for one in pending {
        let outputs = match &lost {
            None => run(shared, worker, std::slice::from_ref(&one), shared.clock.now()).await,
            Some(failure) => Err(WorkerFailure::clone(failure)),
        };
        match outputs {
            Ok(outputs) => answer(vec![one], outputs),
            Err(failure) => {
                lost =
                    lost.or_else(|| Some(failure.clone()).filter(|failure| matches!(failure, WorkerFailure::Lost(_))));
                // A client that has left needs no answer.
                let _ = one.reply.send(Err(failure));
            }
        }
    }
    lost.map_or(Ok(()), Err)
}

/// Runs requests together. Returns the outputs of each.
async fn run(
    shared: &Shared,
    worker: &mut WorkerProcess,
    pending: &[Pending],
    taken: Nanos,
) -> Result<Vec<Tensors>, WorkerFailure> {
    let inputs = join(pending);
    let rows = inputs.first().and_then(|(head, _)| head.shape.first()).map_or(1, |rows| *rows as u64);
    let RunOutputs { outputs, sent, computed } = worker.run(&inputs, shared.limit, &*shared.clock).await?;
    let received = shared.clock.now();
    let times = RunTimes {
        input: sent.0.saturating_sub(taken.0),
        infer: computed.0.saturating_sub(sent.0),
        output: received.0.saturating_sub(computed.0),
    };
    let answers = split(outputs, pending, shared.queue.joins_requests()).map_err(WorkerFailure::Engine)?;
    shared.statistics.add_run(pending.len() as u64, rows, times);
    Ok(answers)
}

fn answer(pending: Vec<Pending>, outputs: Vec<Tensors>) {
    for (pending, outputs) in pending.into_iter().zip(outputs) {
        // A client that has left needs no answer.
        let _ = pending.reply.send(Ok(outputs));
    }
}

/// Starts a worker in the place of a lost one, after a delay that grows with each loss; `None` when the model is unloaded.
pub async fn restart(shared: &Shared, losses: &mut u32, is_finished: impl Fn() -> bool) -> Option<WorkerProcess> {
    loop {
        let delay = RESTART_DELAY.saturating_mul(1 << (*losses).min(10)).min(RESTART_DELAY_MAX);
        *losses += 1;
        sleep(delay).await;
        if is_finished() {
            return None;
        }
        let started = WorkerProcess::start(&shared.request, &shared.log, LOAD_LIMIT).await;
        match started {
            Ok(worker) if *worker.loaded() == shared.loaded => {
                shared.statistics.add_restart();
                shared.ready.fetch_add(1, Ordering::Relaxed);
                info!(model = shared.title, "a worker was started again");
                return Some(worker);
            }
            Ok(worker) => {
                error!(model = shared.title, "{FILES_CHANGED}");
                shared.note_failure(FILES_CHANGED.to_owned());
                worker.stop().await;
            }
            Err(failure) => {
                error!(model = shared.title, "a worker cannot be started again: {failure}");
                shared.note_failure(failure.to_string());
            }
        }
    }
}

/// Joins the inputs of requests, one below the other.
fn join(pending: &[Pending]) -> Vec<(TensorHead, Vec<Bytes>)> {
    let Some(first) = pending.first() else { return Vec::new() };
    let joined = |(index, (head, _)): (usize, &(TensorHead, Bytes))| {
        let of_input = pending.iter().map(|pending| &pending.inputs[index]);
        let mut head = head.clone();
        if let (Some(rows), 2..) = (head.shape.first_mut(), pending.len()) {
            *rows = of_input.clone().map(|(head, _)| head.shape.first().copied().unwrap_or(1)).sum();
        }
        (head, of_input.map(|(_, bytes)| bytes.clone()).collect())
    };
    first.inputs.iter().enumerate().map(joined).collect()
}

/// Returns the rows of each request from the outputs of their run. If requests may be joined, also a request alone must have as many
/// rows in its outputs as in its inputs.
fn split(outputs: Tensors, pending: &[Pending], joins_requests: bool) -> Result<Vec<Tensors>, String> {
    if !joins_requests {
        return Ok(vec![outputs]);
    }
    let rows =
        |pending: &Pending| pending.inputs.first().and_then(|(head, _)| head.shape.first()).copied().unwrap_or(1);
    let total: usize = pending.iter().map(rows).sum();
    let mut answers = vec![Vec::with_capacity(outputs.len()); pending.len()];
    for (head, bytes) in outputs {
        if head.shape.first() != Some(&total) {
            return Err(format!("an output has the shape {:?} for {total} rows: set `max_batch_size: 0`", head.shape));
        }
        let row_bytes = bytes.len() / total.max(1);
        let mut begin = 0;
        for (answer, pending) in answers.iter_mut().zip(pending) {
            let count = rows(pending);
            let mut own = head.clone();
            own.shape[0] = count;
            let end = begin + count * row_bytes;
            answer.push((own, bytes.slice(begin..end)));
            begin = end;
        }
    }
    Ok(answers)
}

/// Waits until a number of instances have ended, for at most `limit`. Returns whether all have.
pub async fn wait_for_end(tasks: Vec<tokio::task::JoinHandle<()>>, limit: Duration) -> bool {
    let all = async {
        for task in tasks {
            // A task that panicked has ended, too.
            let _ = task.await;
        }
    };
    timeout(limit, all).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::tensor::DType;
    use tokio::sync::oneshot;

    fn pending(rows: usize, content: &[u8]) -> Pending {
        let head = TensorHead { shape: vec![rows, 2], dtype: DType::U8 };
        let (reply, _) = oneshot::channel();
        Pending { inputs: vec![(head, Bytes::copy_from_slice(content))], reply, arrived: Nanos(0) }
    }

    #[test]
    fn rows_are_joined_in_order_and_each_request_gets_its_own_rows() {
        let requests = [pending(1, &[1, 2]), pending(2, &[3, 4, 5, 6])];
        let joined = join(&requests);
        assert_eq!(joined[0].0.shape, [3, 2]);
        assert_eq!(joined[0].1.concat(), [1, 2, 3, 4, 5, 6]);
        let output = TensorHead { shape: vec![3, 1], dtype: DType::U8 };
        let answers = split(vec![(output, Bytes::from_static(&[7, 8, 9]))], &requests, true).unwrap();
        assert_eq!(answers[0], [(TensorHead { shape: vec![1, 1], dtype: DType::U8 }, Bytes::from_static(&[7]))]);
        assert_eq!(answers[1][0].1, [8, 9][..]);
    }

    #[test]
    fn an_output_that_does_not_have_a_row_for_each_row_is_an_error() {
        let requests = [pending(1, &[1, 2]), pending(1, &[3, 4])];
        let output = TensorHead { shape: vec![1], dtype: DType::U8 };
        let outputs = vec![(output, Bytes::from_static(&[7]))];
        let error = split(outputs.clone(), &requests, true).unwrap_err();
        assert_eq!(error, "an output has the shape [1] for 2 rows: set `max_batch_size: 0`");
        assert!(split(outputs.clone(), &requests[..1], true).is_ok() && split(outputs, &requests[..1], false).is_ok());
    }
}
