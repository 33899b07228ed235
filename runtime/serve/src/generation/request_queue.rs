//! The requests of a language model that wait for a row.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flagperf_core::measure::Nanos;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::sampler::Sampler;
pub use crate::queue::Refusal;
use crate::worker_process::WorkerFailure;

/// A request for an answer.
#[derive(Debug)]
pub struct GenerationRequest {
    /// The tokens of the prompt, at least one.
    pub prompt: Vec<i64>,
    /// The most tokens of the answer. The prompt and these fit into the cache.
    pub tokens_max: usize,
    /// Whether the tokens that end an answer are tokens like others.
    pub ignores_ends: bool,
    /// How the tokens are chosen.
    pub sampler: Sampler,
    /// When it arrived.
    pub arrived: Nanos,
    /// Where the tokens go; closed when nobody waits for them. It holds at most `tokens_max` events.
    pub events: UnboundedSender<AnswerEvent>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerEvent {
    /// A token.
    Token(i64),
    /// The token that ends the answer, which has no text.
    EndToken(i64),
    /// There is no further token.
    Failed(WorkerFailure),
}

/// The requests that wait.
#[derive(Debug)]
pub struct RequestQueue {
    size_max: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<GenerationRequest>,
    is_closed: bool,
}

/// The next request, if there is one.
#[derive(Debug)]
pub enum Next {
    /// A request.
    Request(Box<GenerationRequest>),
    /// None waits now.
    Empty,
    /// None waits, and none will come.
    Closed,
}

impl RequestQueue {
    /// Creates a queue of at most `size_max` requests.
    pub fn new(size_max: usize) -> Self {
        RequestQueue { size_max, state: Mutex::default(), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// When the queue is full or closed; the request is returned.
    pub fn push(&self, request: GenerationRequest) -> Result<(), (Refusal, Box<GenerationRequest>)> {
        let mut state = self.lock();
        if state.is_closed {
            return Err((Refusal::Closed, Box::new(request)));
        }
        if state.waiting.len() >= self.size_max {
            // Those whose client has left do not count.
            state.waiting.retain(|waiting| !waiting.events.is_closed());
        }
        if state.waiting.len() >= self.size_max {
            return Err((Refusal::Full, Box::new(request)));
        }
        state.waiting.push_back(request);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Returns the number of requests that wait.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes the request that has waited longest, and drops those whose client has left.
    pub fn take(&self) -> Next {
        let mut state = self.lock();
        while let Some(request) = state.waiting.pop_front() {
            if !request.events.is_closed() {
                return Next::Request(Box::new(request));
            }
        }
        if state.is_closed { Next::Closed } else { Next::Empty }
    }

    /// Waits until a request waits or the queue is closed.
    pub async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From now on no notice is lost.
            changed.as_mut().enable();
            if self.has_news() {
                return;
            }
            changed.await;
        }
    }

    /// Returns whether a request waits or the queue is closed.
    fn has_news(&self) -> bool {
        let state = self.lock();
        state.is_closed || !state.waiting.is_empty()
    }

    /// Returns whether the queue is closed and empty.
    pub fn is_finished(&self) -> bool {
        let state = self.lock();
        state.is_closed && state.waiting.is_empty()
    }

    /// Accepts no more requests. Those that wait are still taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::sampler::Sampling;
    use super::*;

    fn request(token: i64) -> (GenerationRequest, UnboundedReceiver<AnswerEvent>) {
        let (events, receiver) = unbounded_channel();
        let sampler = Sampler::new(Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: Some(0) });
        let prompt = vec![token];
        (GenerationRequest { prompt, tokens_max: 1, ignores_ends: false, sampler, arrived: Nanos(0), events }, receiver)
    }

    fn taken(queue: &RequestQueue) -> Option<i64> {
        match queue.take() {
            Next::Request(request) => Some(request.prompt[0]),
            Next::Empty | Next::Closed => None,
        }
    }

    #[test]
    fn requests_are_taken_in_their_order_and_those_whose_client_has_left_are_dropped() {
        let queue = RequestQueue::new(2);
        let ((one, left), (two, _kept), (three, _also)) = (request(1), request(2), request(3));
        queue.push(one).unwrap();
        queue.push(two).unwrap();
        let (refusal, three) = queue.push(three).unwrap_err();
        assert_eq!(refusal, Refusal::Full);
        drop(left);
        queue.push(*three).unwrap();
        assert_eq!((taken(&queue), taken(&queue), taken(&queue)), (Some(2), Some(3), None));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_accepts_nothing() {
        let queue = RequestQueue::new(2);
        let ((one, _kept), (two, _also)) = (request(1), request(2));
        queue.push(one).unwrap();
        queue.close();
        assert_eq!(queue.push(two).unwrap_err().0, Refusal::Closed);
        assert_eq!(taken(&queue), Some(1));
        assert!(matches!(queue.take(), Next::Closed));
    }
}
