//! The state of a source while a case runs, from which its record and its warning are made.

use super::{Source, SourceRecord};
use crate::measure::Nanos;
use crate::text::{one_line, truncate};
use crate::units::Seconds;

/// Longest reason in bytes.
const REASON_BYTES: usize = 300;

/// The state of a source. The source's thread updates it, and the sampler reads it at the end.
#[derive(Debug, Default)]
pub(super) struct SourceState {
    /// Whether the source was opened.
    pub(super) is_open: bool,
    /// Time between two readings.
    pub(super) interval: Seconds,
    /// Why the source could not be opened.
    unavailable: Option<String>,
    readings: u64,
    failures: u64,
    /// Readings that were skipped because the previous one took too long.
    late: u64,
    /// Impossible values.
    refused: u64,
    /// The first failure, late reading or refused value.
    problem: Option<String>,
    /// When the current opening or reading of the source began; `None` between readings.
    pub(super) busy_since: Option<Nanos>,
}

impl SourceState {
    pub(super) fn note_opened(&mut self, opened: Result<(), String>) {
        self.is_open = opened.is_ok();
        self.unavailable = opened.err().map(|reason| short(&reason));
    }

    /// Counts a reading, with the values in it that were refused.
    pub(super) fn note_reading(&mut self, refused: &[String]) {
        self.readings += 1;
        self.refused += refused.len() as u64;
        if let Some(first) = refused.first() {
            self.note_problem(&format!("it reported an impossible value: {first}"));
        }
    }

    pub(super) fn note_failure(&mut self, reason: &str) {
        self.failures += 1;
        self.note_problem(reason);
    }

    /// Notes that a reading was stopped because the case ended. This is a failure only if there was no other reading.
    pub(super) fn note_stopped(&mut self) {
        if self.readings + self.failures == 0 {
            self.note_failure("the case ended before the first reading was complete");
        }
    }

    /// Counts readings that were due while the source did not answer.
    pub(super) fn note_late(&mut self, readings: u64, took: Seconds) {
        self.late += readings;
        if readings > 0 {
            self.note_problem(&format!("a reading took {:.1} s", took.0));
        }
    }

    /// Notes that the source did not answer when the case ended.
    pub(super) fn note_abandoned(&mut self, waited: Seconds) {
        let reason = format!("it did not answer for {:.1} s and was abandoned", waited.0);
        if self.is_open {
            self.failures += 1;
        } else {
            self.unavailable.get_or_insert_with(|| reason.clone());
        }
        // This is more important than an earlier problem.
        self.problem = Some(reason);
    }

    fn note_problem(&mut self, reason: &str) {
        self.problem.get_or_insert_with(|| short(reason));
    }

    /// Returns the record of the source.
    pub(super) fn record(&self) -> SourceRecord {
        SourceRecord {
            interval_s: self.interval,
            readings: self.readings,
            failures: self.failures,
            late: self.late,
            refused_values: self.refused,
            unavailable: self.unavailable.clone(),
            problem: self.problem.clone(),
        }
    }

    /// Returns a warning if there was a problem; `None` for a source that worked, or that is not available on this machine.
    pub(super) fn warning(&self, source: &dyn Source) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let mut counts = format!("readings: {}", self.readings);
        for (what, count) in [("failed", self.failures), ("skipped", self.late), ("impossible values", self.refused)] {
            if count > 0 {
                counts += &format!("; {what}: {count}");
            }
        }
        Some(format!("monitor `{}`: {problem} ({counts})", source.name()))
    }
}

fn short(reason: &str) -> String {
    truncate(&one_line(reason), REASON_BYTES).into_owned()
}
