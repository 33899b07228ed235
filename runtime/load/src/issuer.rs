//! The thread that issues queries: it waits until each is due and puts it in the queue, whatever the model does.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{QueryQueue, Schedule};
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::units::Seconds;

/// Ends the thread before the end of its schedule.
#[derive(Debug, Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl Stop {
    /// Ends the thread at once.
    pub fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.set.notify_all();
    }

    /// Waits for a time; returns whether the thread is to end.
    fn wait(&self, time: Seconds) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_set {
            return true;
        }
        let waited = self.set.wait_timeout(is_set, Duration::from_secs_f64(time.0));
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Issues the queries of a schedule.
pub struct Issuer<'a> {
    pub schedule: &'a Schedule,
    pub queue: &'a QueryQueue,
    pub stop: &'a Stop,
    pub clock: &'a dyn Clock,
    /// The beginning of the trial, from which the times of the schedule count.
    pub begin: Nanos,
}

impl Issuer<'_> {
    /// Puts each query in the queue when it is due, and closes the queue after the last one. A query that is late does not delay
    /// those after it.
    pub fn run(&self) {
        // The kernel otherwise lets a thread sleep up to 50 µs longer. Without the right to change it, queries are later, which is
        // recorded.
        let _ = nix::sys::prctl::set_timerslack(1);
        for (number, at) in self.schedule.times().enumerate() {
            let due = Nanos(self.begin.0.saturating_add((at.0 * 1e9) as u64));
            loop {
                let now = self.clock.now();
                if now >= due {
                    break;
                }
                if self.stop.wait(due.since(now)) {
                    return self.queue.close();
                }
            }
            self.queue.push(number as u64, due, self.clock);
        }
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    #[test]
    fn queries_arrive_by_their_schedule_while_the_model_is_busy() {
        let (queue, clock, stop) = (QueryQueue::default(), MonotonicClock::start(), Stop::default());
        let schedule = Schedule::Bursts { queries: 20, queries_per_s: 1000.0, size: 1 };
        let begin = clock.now();
        let issuer = Issuer { schedule: &schedule, queue: &queue, stop: &stop, clock: &clock, begin };
        let queries = std::thread::scope(|scope| {
            scope.spawn(|| issuer.run()).join().unwrap();
            // Nobody took a query until now.
            queue.take(100, Seconds(0.0), &clock).unwrap()
        });
        assert_eq!(queries.len(), 20);
        for query in queries {
            assert_eq!(query.scheduled.since(begin), Seconds(query.number as f64 / 1000.0));
            assert!(query.issued >= query.scheduled);
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_distant_query_ends_at_once() {
        let (queue, clock, stop) = (QueryQueue::default(), MonotonicClock::start(), Stop::default());
        let schedule = Schedule::Recorded(vec![Seconds(1e6)]);
        let begin = clock.now();
        let issuer = Issuer { schedule: &schedule, queue: &queue, stop: &stop, clock: &clock, begin };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| issuer.run());
            stop.set();
            thread.join().unwrap();
        });
        assert_eq!(queue.take(1, Seconds(0.0), &clock), None);
    }
}
