//! The queue between the thread that issues queries and the model that answers them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::units::Seconds;

/// A query that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number in the trial, from 0.
    pub number: u64,
    /// When the schedule wants it.
    pub scheduled: Nanos,
    /// When it was put in the queue.
    pub issued: Nanos,
}

/// Queries in the order of their arrival.
#[derive(Debug, Default)]
pub struct QueryQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queries: VecDeque<Query>,
    /// Whether no query follows.
    is_closed: bool,
}

impl QueryQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a query, which is stamped with the time.
    pub fn push(&self, number: u64, scheduled: Nanos, clock: &dyn Clock) {
        let mut state = self.lock();
        state.queries.push_back(Query { number, scheduled, issued: clock.now() });
        self.changed.notify_one();
    }

    /// States that no query follows.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for a query, then for at most `delay` after its arrival until there are `count`, and takes up to so many. `None` when
    /// none is left and none follows.
    pub fn take(&self, count: usize, delay: Seconds, clock: &dyn Clock) -> Option<Vec<Query>> {
        let mut state = self.lock();
        let first = loop {
            match state.queries.front() {
                Some(first) => break *first,
                None if state.is_closed => return None,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        while state.queries.len() < count && !state.is_closed {
            let left = delay.0 - clock.now().since(first.issued).0;
            if left <= 0.0 {
                break;
            }
            let left = Duration::from_secs_f64(left);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let taken = state.queries.len().min(count.max(1));
        Some(state.queries.drain(..taken).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    fn numbers(taken: Option<Vec<Query>>) -> Option<Vec<u64>> {
        taken.map(|queries| queries.iter().map(|query| query.number).collect())
    }

    #[test]
    fn queries_are_taken_in_order_and_the_end_follows_the_last() {
        let (queue, clock) = (QueryQueue::default(), MonotonicClock::start());
        (0..5).for_each(|number| queue.push(number, clock.now(), &clock));
        assert_eq!(numbers(queue.take(3, Seconds(0.0), &clock)), Some(vec![0, 1, 2]));
        queue.close();
        assert_eq!(
            numbers(queue.take(3, Seconds(1e6), &clock)),
            Some(vec![3, 4]),
            "nothing follows that could be waited for"
        );
        assert_eq!(queue.take(3, Seconds(0.0), &clock), None);
    }

    #[test]
    fn a_batch_begins_when_it_is_full_or_when_its_first_query_has_waited() {
        let (queue, clock) = (QueryQueue::default(), MonotonicClock::start());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|number| queue.push(number, clock.now(), &clock)));
            assert_eq!(numbers(queue.take(2, Seconds(1e6), &clock)), Some(vec![0, 1]), "it waits for the second");
        });
        queue.push(2, clock.now(), &clock);
        assert_eq!(numbers(queue.take(2, Seconds(0.001), &clock)), Some(vec![2]), "it does not wait forever");
    }
}
