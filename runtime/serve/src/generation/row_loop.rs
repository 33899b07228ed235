//! The loop of a worker's rows: between two runs, requests that wait get free rows, and rows whose answer has ended become free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use flagperf_core::measure::Nanos;
use flagperf_core::tensor::DType;
use tracing::error;

use super::request_queue::{AnswerEvent, GenerationRequest, Next};
use super::row::{Row, Window, run_size};
use super::text_model::TextModel;
use crate::frame::TensorHead;
use crate::instance::{Shared, restart};
use crate::queue::Tensors;
use crate::statistics::RunTimes;
use crate::worker_process::{RunOutputs, WorkerFailure, WorkerProcess};

/// The rows of a worker; `None` is a free one.
struct Rows {
    rows: Vec<Option<Active>>,
    /// Whether a row could not get its next token in the run before.
    waited: bool,
}

/// A row with a request.
struct Active {
    row: Row,
    request: GenerationRequest,
    written: usize,
    last_token: Nanos,
}

/// Runs the rows of a worker until the queue is closed and every answer has ended.
pub async fn run_rows(shared: Arc<Shared>, model: Arc<TextModel>, mut worker: WorkerProcess) {
    let mut losses = 0;
    let mut rows = Rows { rows: (0..model.rows()).map(|_| None).collect(), waited: false };
    loop {
        let is_closed = rows.take_requests(&shared, &model);
        let served = match rows.is_empty() {
            true if is_closed => break,
            true => tokio::select! {
                biased;
                () = model.queue().wait() => continue,
                failure = worker.lost() => Err(failure),
            },
            false => rows.run(&shared, &model, &mut worker).await,
        };
        match served {
            Ok(()) => losses = 0,
            Err(failure @ WorkerFailure::Engine(_)) => rows.fail(&shared, &model, &failure),
            Err(failure @ WorkerFailure::Lost(_)) => {
                rows.fail(&shared, &model, &failure);
                shared.ready.fetch_sub(1, Ordering::Relaxed);
                error!(model = shared.title, "{failure}");
                shared.note_failure(failure.to_string());
                let Some(started) = restart(&shared, &mut losses, || model.queue().is_finished()).await else { return };
                worker = started;
            }
        }
    }
    shared.ready.fetch_sub(1, Ordering::Relaxed);
    worker.stop().await;
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.rows.iter().all(Option::is_none)
    }

    /// Frees the rows whose client has left, and gives free rows to requests that wait. Returns whether no request will come.
    fn take_requests(&mut self, shared: &Shared, model: &TextModel) -> bool {
        for slot in &mut self.rows {
            if slot.as_ref().is_some_and(|active| active.request.events.is_closed()) {
                *slot = None;
                model.statistics().end();
            }
            if slot.is_some() {
                continue;
            }
            match model.queue().take() {
                Next::Request(request) => *slot = Some(begin(*request, shared, model)),
                Next::Empty => {}
                Next::Closed => return true,
            }
        }
        false
    }

    /// Runs the model once, and gives every row whose prompt is read its next token.
    async fn run(
        &mut self,
        shared: &Shared,
        model: &TextModel,
        worker: &mut WorkerProcess,
    ) -> Result<(), WorkerFailure> {
        let begun = shared.clock.now();
        let size = run_size(self.rows.iter().flatten().map(|active| &active.row), model.chunk(), self.waited);
        let windows: Vec<Option<Window>> =
            self.rows.iter().map(|slot| slot.as_ref().map(|active| active.row.window(size))).collect();
        let inputs = inputs(&windows, size);
        let RunOutputs { outputs, sent, computed } = worker.run(&inputs, shared.limit, &*shared.clock).await?;
        let now = shared.clock.now();
        let count = windows.iter().flatten().count() as u64;
        let since = |begin: Nanos, end: Nanos| end.0.saturating_sub(begin.0);
        let times = RunTimes { input: since(begun, sent), infer: since(sent, computed), output: since(computed, now) };
        shared.statistics.add_run(count, count, times);
        self.waited = false;
        let rows = self.rows.len();
        for (index, window) in windows.iter().enumerate() {
            let (Some(active), Some(window)) = (&mut self.rows[index], window) else { continue };
            self.waited |= active.row.advance(window);
            if window.is_next {
                let token = next_token(&outputs, index, rows, active, model);
                if !self.give(index, token, now, model) {
                    self.rows[index] = None;
                    model.statistics().end();
                }
            }
        }
        Ok(())
    }

    /// Sends a row its next token. Returns whether the answer goes on.
    fn give(&mut self, index: usize, token: Result<i64, WorkerFailure>, now: Nanos, model: &TextModel) -> bool {
        let Some(active) = &mut self.rows[index] else { return false };
        let token = match token {
            Ok(token) => token,
            Err(failure) => {
                // A client that has left needs no answer.
                let _ = active.request.events.send(AnswerEvent::Failed(failure));
                return false;
            }
        };
        if active.written == 0 {
            model.statistics().add_first_token(now.0.saturating_sub(active.request.arrived.0));
        } else {
            model.statistics().add_next_token(now.0.saturating_sub(active.last_token.0));
        }
        active.written += 1;
        active.last_token = now;
        active.row.push(token);
        let ends = !active.request.ignores_ends && model.language().ends_answer(token);
        let event = if ends { AnswerEvent::EndToken(token) } else { AnswerEvent::Token(token) };
        let is_heard = active.request.events.send(event).is_ok();
        is_heard && !ends && active.written < active.request.tokens_max
    }

    /// Ends every answer with a failure.
    fn fail(&mut self, shared: &Shared, model: &TextModel, failure: &WorkerFailure) {
        if matches!(failure, WorkerFailure::Engine(_)) {
            error!(model = shared.title, "{failure}");
        }
        for active in self.rows.iter_mut().filter_map(Option::take) {
            // A client that has left needs no answer.
            let _ = active.request.events.send(AnswerEvent::Failed(failure.clone()));
            model.statistics().end();
        }
        self.waited = false;
    }
}

/// Gives a request a row.
fn begin(request: GenerationRequest, shared: &Shared, model: &TextModel) -> Active {
    let now = shared.clock.now();
    shared.statistics.add_wait(now.0.saturating_sub(request.arrived.0));
    model.statistics().begin(request.prompt.len() as u64);
    Active { row: Row::new(request.prompt.clone()), request, written: 0, last_token: now }
}

/// Returns the inputs of a run: the tokens of every row, and the place of the first one. A free row writes places that the next
/// request of the row writes before it sees them.
fn inputs(windows: &[Option<Window>], size: usize) -> Vec<(TensorHead, Vec<Bytes>)> {
    let (mut tokens, mut first) = (Vec::new(), Vec::new());
    let add = |bytes: &mut Vec<u8>, number: i64| bytes.extend_from_slice(&number.to_le_bytes());
    for window in windows {
        match window {
            Some(window) => {
                window.tokens.iter().for_each(|token| add(&mut tokens, *token));
                add(&mut first, window.first as i64);
            }
            None => {
                (0..size).for_each(|_| add(&mut tokens, 0));
                add(&mut first, 0);
            }
        }
    }
    let head = |shape: Vec<usize>| TensorHead { shape, dtype: DType::I64 };
    let rows = windows.len();
    vec![(head(vec![rows, size]), vec![Bytes::from(tokens)]), (head(vec![rows]), vec![Bytes::from(first)])]
}

/// Returns the next token of a row from the output of a run of `rows` rows.
fn next_token(
    outputs: &Tensors,
    index: usize,
    rows: usize,
    active: &mut Active,
    model: &TextModel,
) -> Result<i64, WorkerFailure> {
    let failed = |reason: String| WorkerFailure::Engine(reason);
    let (head, bytes) = outputs.first().ok_or_else(|| failed("there is no output".to_owned()))?;
    let row_bytes = bytes.len() / rows.max(1);
    let row = &bytes[index * row_bytes..(index + 1) * row_bytes];
    if !model.language().graph().has_logits {
        let token = row.try_into().map(i64::from_le_bytes).ok().filter(|_| head.dtype == DType::I64);
        return token.ok_or_else(|| {
            failed(format!("the next tokens have the shape {:?} and the type {}", head.shape, head.dtype))
        });
    }
    let scores = flagperf_core::tensor::Tensor::from_bytes([row_bytes / head.dtype.size()], head.dtype, row);
    let scores = scores.map_err(|error| failed(error.to_string()))?.cast(DType::F32);
    let scores = scores.as_slice::<f32>().map_err(|error| failed(error.to_string()))?;
    active
        .request
        .sampler
        .choose(scores)
        .ok_or_else(|| failed("the scores of the next token are no numbers".to_owned()))
}
