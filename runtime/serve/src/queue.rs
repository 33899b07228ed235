//! The requests of a model version that wait, and the choice of those that run together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use flagperf_core::measure::{Clock, Nanos};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::frame::TensorHead;
use super::worker_process::WorkerFailure;

/// Tensors with their bytes.
pub type Tensors = Vec<(TensorHead, Bytes)>;

/// A request that waits.
#[derive(Debug)]
pub struct Pending {
    /// The inputs in the engine's order.
    pub inputs: Tensors,
    /// Where its outputs go.
    pub reply: oneshot::Sender<Result<Tensors, WorkerFailure>>,
    /// When it arrived.
    pub arrived: Nanos,
}

impl Pending {
    /// Returns the number of rows: the first dimension of the first input.
    fn rows(&self) -> u64 {
        self.inputs.first().and_then(|(head, _)| head.shape.first()).map_or(1, |rows| *rows as u64)
    }

    /// Returns whether the inputs differ from those of another request in nothing but the number of rows.
    fn joins(&self, other: &Pending) -> bool {
        let below = |(head, _): &(TensorHead, Bytes)| (head.dtype, head.shape.get(1..).map(<[usize]>::to_vec));
        self.inputs.iter().map(below).eq(other.inputs.iter().map(below))
    }
}

/// How requests are joined to runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPolicy {
    /// The most rows of a run; 0 if requests are never joined.
    pub rows_max: u64,
    /// Numbers of rows at which a run starts at once.
    pub preferred: Vec<u64>,
    /// How long the oldest request may wait for others.
    pub delay: Duration,
}

impl BatchPolicy {
    /// Returns how many of the first requests run together now; `None` if they wait for others. `rows` has the rows of the
    /// requests that can be joined to the first one, `more` says whether others follow, and `age` is that of the first.
    fn choose(&self, rows: &[u64], more: bool, age: Duration) -> Option<usize> {
        if self.rows_max == 0 {
            return Some(1);
        }
        let sums: Vec<u64> = (1..=rows.len()).map(|count| rows[..count].iter().sum()).collect();
        let fitting = sums.iter().take_while(|sum| **sum <= self.rows_max).count().max(1);
        let is_full = more || fitting < rows.len() || sums.get(fitting - 1) == Some(&self.rows_max);
        let preferred = sums[..fitting].iter().rposition(|sum| self.preferred.contains(sum));
        match preferred {
            _ if is_full => Some(fitting),
            Some(last) => Some(last + 1),
            None => (age >= self.delay).then_some(fitting),
        }
    }
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many requests wait as may wait.
    Full,
    /// The model is being unloaded.
    Closed,
}

/// The requests of a model version that wait.
#[derive(Debug)]
pub struct Queue {
    policy: BatchPolicy,
    size_max: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its ticket, in the order of the tickets.
    waiting: VecDeque<(u64, Pending)>,
    last_ticket: u64,
    is_closed: bool,
}

/// What an instance does next.
enum Next {
    Run(Vec<Pending>),
    Wait(Option<Duration>),
    End,
}

impl Queue {
    /// Creates a queue of at most `size_max` requests.
    pub fn new(policy: BatchPolicy, size_max: usize, clock: Arc<dyn Clock>) -> Self {
        Queue { policy, size_max, clock, state: Mutex::default(), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns the ticket with which it can be removed.
    ///
    /// # Errors
    /// When the queue is full or closed: the request is dropped.
    pub fn push(&self, pending: Pending) -> Result<u64, Refusal> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refusal::Closed);
        }
        if state.waiting.len() >= self.size_max {
            return Err(Refusal::Full);
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.waiting.push_back((ticket, pending));
        drop(state);
        self.changed.notify_one();
        Ok(ticket)
    }

    /// Removes a request for which nobody waits any more, unless it runs already.
    pub fn remove(&self, ticket: u64) {
        let mut state = self.lock();
        if let Ok(at) = state.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            state.waiting.remove(at);
        }
    }

    /// Returns the number of requests that wait.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns whether requests may run together.
    pub fn joins_requests(&self) -> bool {
        self.policy.rows_max > 0
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
        self.changed.notify_one();
    }

    /// Waits for requests that run together; `None` when the queue is closed and empty.
    pub async fn take(&self) -> Option<Vec<Pending>> {
        loop {
            let changed = self.changed.notified();
            match self.next() {
                Next::Run(pending) => return Some(pending),
                Next::End => return None,
                Next::Wait(None) => changed.await,
                Next::Wait(Some(rest)) => {
                    // When the time is over, the choice is made again.
                    let _ = timeout(rest, changed).await;
                }
            }
        }
    }

    fn next(&self) -> Next {
        let mut state = self.lock();
        let Some((_, first)) = state.waiting.front() else {
            if !state.is_closed {
                return Next::Wait(None);
            }
            // Another instance that waits ends, too.
            self.changed.notify_one();
            return Next::End;
        };
        let age = Duration::from_nanos(self.clock.now().0.saturating_sub(first.arrived.0));
        let joined = state.waiting.iter().map(|(_, pending)| pending).take_while(|pending| pending.joins(first));
        let rows: Vec<u64> = joined.take(self.policy.rows_max.max(1) as usize + 1).map(Pending::rows).collect();
        let more = rows.len() < state.waiting.len();
        let is_last_chance = state.is_closed.then_some(self.policy.delay);
        match self.policy.choose(&rows, more, is_last_chance.unwrap_or(age)) {
            Some(count) => {
                let taken = state.waiting.drain(..count).map(|(_, pending)| pending).collect();
                if !state.waiting.is_empty() {
                    self.changed.notify_one();
                }
                Next::Run(taken)
            }
            None => Next::Wait(Some(self.policy.delay.saturating_sub(age))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rows_max: u64, preferred: &[u64], delay_us: u64) -> BatchPolicy {
        BatchPolicy { rows_max, preferred: preferred.to_vec(), delay: Duration::from_micros(delay_us) }
    }

    #[test]
    fn a_run_starts_when_it_is_full_preferred_or_the_first_request_has_waited_long_enough() {
        let (young, old) = (Duration::ZERO, Duration::from_micros(100));
        let eight = policy(8, &[4], 100);
        assert_eq!(eight.choose(&[1, 1], false, young), None);
        assert_eq!(eight.choose(&[1, 1], false, old), Some(2));
        assert_eq!(eight.choose(&[1, 1, 2], false, young), Some(3), "four rows are preferred");
        assert_eq!(eight.choose(&[4, 1], false, young), Some(1));
        assert_eq!(eight.choose(&[4, 4], false, young), Some(2));
        assert_eq!(eight.choose(&[4, 3, 2], false, young), Some(2), "the third does not fit");
        assert_eq!(eight.choose(&[1, 1], true, young), Some(2), "one with other shapes follows");
        assert_eq!(policy(8, &[], 0).choose(&[1, 1], false, young), Some(2));
        assert_eq!(policy(0, &[], 0).choose(&[1], true, young), Some(1));
    }

    fn pending(rows: usize, columns: usize) -> (Pending, oneshot::Receiver<Result<Tensors, WorkerFailure>>) {
        let head = TensorHead { shape: vec![rows, columns], dtype: flagperf_core::tensor::DType::U8 };
        let (reply, receiver) = oneshot::channel();
        let inputs = vec![(head, Bytes::from(vec![0; rows * columns]))];
        (Pending { inputs, reply, arrived: Nanos(0) }, receiver)
    }

    fn queue(policy: BatchPolicy) -> Queue {
        Queue::new(policy, 3, Arc::new(flagperf_core::measure::FixedClock::default()))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_full_queue_refuses_and_a_request_that_is_removed_makes_room() {
        let queue = queue(policy(0, &[], 0));
        let tickets: Vec<u64> = (0..3).map(|_| queue.push(pending(1, 1).0).unwrap()).collect();
        assert_eq!(queue.push(pending(1, 1).0), Err(Refusal::Full));
        queue.remove(tickets[1]);
        queue.remove(tickets[1]);
        assert_eq!(queue.len(), 2);
        queue.push(pending(1, 1).0).unwrap();
        queue.close();
        assert_eq!(queue.push(pending(1, 1).0), Err(Refusal::Closed));
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn only_requests_of_the_same_shapes_run_together_and_a_closed_queue_is_emptied() {
        let queue = queue(policy(8, &[], 1_000_000_000));
        let (first, _a) = pending(1, 2);
        let (second, _b) = pending(2, 2);
        let (other, _c) = pending(1, 3);
        [first, second, other].into_iter().for_each(|pending| _ = queue.push(pending).unwrap());
        assert_eq!(block_on(queue.take()).unwrap().len(), 2);
        queue.close();
        assert_eq!(block_on(queue.take()).unwrap().len(), 1);
        assert!(block_on(queue.take()).is_none());
    }
}
