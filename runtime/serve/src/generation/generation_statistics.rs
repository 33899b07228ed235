//! What a language model has read and written since it was loaded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::statistics::Total;

/// The totals of a language model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationTotals {
    /// Tokens of prompts that were read.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub answer_tokens: u64,
    /// Times from the arrival of a request to its first token.
    pub first_token: Total,
    /// Times from a token of an answer to the next.
    pub next_token: Total,
    /// The rows that have a request.
    pub active_rows: u64,
    /// Answers whose client left before their end.
    pub left: u64,
}

/// The statistics of a language model.
#[derive(Debug, Default)]
pub struct GenerationStatistics(Mutex<GenerationTotals>);

impl GenerationStatistics {
    fn lock(&self) -> MutexGuard<'_, GenerationTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the totals.
    pub fn totals(&self) -> GenerationTotals {
        *self.lock()
    }

    /// Adds a request that has got a row.
    pub fn begin(&self, prompt_tokens: u64) {
        let mut totals = self.lock();
        totals.prompt_tokens += prompt_tokens;
        totals.active_rows += 1;
    }

    /// Notes that a row is free.
    pub fn end(&self) {
        let mut totals = self.lock();
        totals.active_rows = totals.active_rows.saturating_sub(1);
    }

    /// Adds the first token of an answer.
    pub fn add_first_token(&self, nanos: u64) {
        let mut totals = self.lock();
        totals.answer_tokens += 1;
        totals.first_token.add(1, nanos);
    }

    /// Adds a further token of an answer.
    pub fn add_next_token(&self, nanos: u64) {
        let mut totals = self.lock();
        totals.answer_tokens += 1;
        totals.next_token.add(1, nanos);
    }

    /// Adds an answer whose client left before its end.
    pub fn add_left(&self) {
        self.lock().left += 1;
    }
}
