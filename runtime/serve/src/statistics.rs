//! What a model version has served since it was loaded: the counts and times of the statistics extension and of /metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A number of events, and the sum of their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// The sum of their times in nanoseconds.
    pub nanos: u64,
}

impl Total {
    /// Adds events and their times.
    pub fn add(&mut self, count: u64, nanos: u64) {
        self.count += count;
        self.nanos += nanos;
    }
}

/// The times of a run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Sending the inputs to the worker.
    pub input: u64,
    /// From then to the first bytes of the answer.
    pub infer: u64,
    /// Receiving the outputs.
    pub output: u64,
}

/// The totals of a model version.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Requests that were answered with outputs, from their arrival to the answer.
    pub success: Total,
    /// Requests that failed after they had been accepted.
    pub fail: Total,
    /// The time that requests waited.
    pub queue: Total,
    /// The parts of runs, each counted once per request.
    pub input: Total,
    pub infer: Total,
    pub output: Total,
    /// Rows that were computed, and runs.
    pub rows: u64,
    pub runs: u64,
    /// The runs by their number of rows.
    pub batches: BTreeMap<u64, BatchTotals>,
    /// Requests that were refused because too many waited.
    pub refused: u64,
    /// Accepted requests whose client left before the answer.
    pub cancelled: Total,
    /// How often a worker was started again.
    pub restarts: u64,
    /// When the last request was answered: milliseconds since 1970.
    pub last_ms: u64,
}

/// The totals of runs with one number of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchTotals {
    pub input: Total,
    pub infer: Total,
    pub output: Total,
}

/// The statistics of a model version.
#[derive(Debug, Default)]
pub struct Statistics(Mutex<Totals>);

impl Statistics {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the totals.
    pub fn totals(&self) -> Totals {
        self.lock().clone()
    }

    /// Adds a run of `requests` requests with `rows` rows.
    pub fn add_run(&self, requests: u64, rows: u64, times: RunTimes) {
        let mut totals = self.lock();
        totals.rows += rows;
        totals.runs += 1;
        totals.input.add(requests, times.input * requests);
        totals.infer.add(requests, times.infer * requests);
        totals.output.add(requests, times.output * requests);
        let batch = totals.batches.entry(rows).or_default();
        batch.input.add(1, times.input);
        batch.infer.add(1, times.infer);
        batch.output.add(1, times.output);
    }

    /// Adds the time that a request waited.
    pub fn add_wait(&self, nanos: u64) {
        self.lock().queue.add(1, nanos);
    }

    /// Adds the end of a request that had been accepted, `now_ms` milliseconds after 1970.
    pub fn add_request(&self, succeeded: bool, nanos: u64, now_ms: u64) {
        let mut totals = self.lock();
        totals.last_ms = totals.last_ms.max(now_ms);
        if succeeded { totals.success.add(1, nanos) } else { totals.fail.add(1, nanos) }
    }

    /// Adds a request that was refused because too many waited.
    pub fn add_refused(&self) {
        self.lock().refused += 1;
    }

    /// Adds an accepted request whose client left before the answer.
    pub fn add_cancelled(&self, nanos: u64) {
        self.lock().cancelled.add(1, nanos);
    }

    /// Adds the start of another worker in the place of a lost one.
    pub fn add_restart(&self) {
        self.lock().restarts += 1;
    }
}
