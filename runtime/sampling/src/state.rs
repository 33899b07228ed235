//! The state of a source while a case runs. Its part of the record and its warning are computed from this state.

use std::collections::BTreeMap;

use super::{Source, SourceRecord};
use flagperf_core::measure::Nanos;
use flagperf_core::text::{one_line, truncate};
use flagperf_core::units::Seconds;

/// Longest reason in bytes.
const REASON_BYTES: usize = 300;

/// The kinds of problems, in the order in which the record lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemKind {
    Failure,
    ImpossibleValue,
    Contradiction,
    SlowReading,
}

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
    /// Readings that were skipped because the previous one took too long, or began too late.
    late: u64,
    /// Readings that began so late that others were skipped.
    delayed: u64,
    /// The longest delay of such a reading.
    delay_max: Seconds,
    /// Impossible values.
    refused: u64,
    /// The first problem of each kind.
    problems: BTreeMap<ProblemKind, String>,
    /// When the current opening or reading of the source began; `None` between readings.
    pub(super) busy_since: Option<Nanos>,
}

impl SourceState {
    pub(super) fn note_opened(&mut self, opened: Result<(), String>) {
        self.is_open = opened.is_ok();
        self.unavailable = opened.err().map(|reason| short(&reason));
    }

    /// Counts a reading, with the values in it that were refused and the contradictions between its values.
    pub(super) fn note_reading(&mut self, refused: &[String], contradictions: &[String]) {
        self.readings += 1;
        self.refused += refused.len() as u64;
        if let Some(first) = refused.first() {
            self.note_problem(ProblemKind::ImpossibleValue, &format!("it reported an impossible value: {first}"));
        }
        if let Some(first) = contradictions.first() {
            self.note_problem(ProblemKind::Contradiction, &contradiction(first));
        }
    }

    pub(super) fn note_failure(&mut self, reason: &str) {
        self.failures += 1;
        self.note_problem(ProblemKind::Failure, reason);
    }

    /// Notes that a reading was stopped because the case ended. This is a failure only if there was no other reading.
    pub(super) fn note_stopped(&mut self) {
        if self.readings + self.failures == 0 {
            self.note_failure("the case ended before the first reading was complete");
        }
    }

    /// Counts readings that were skipped because of a reading that began `delay` after it was due, and took `took`.
    pub(super) fn note_late(&mut self, skipped: u64, delay: Seconds, took: Seconds) {
        if skipped == 0 {
            return;
        }
        self.late += skipped;
        if delay > took {
            self.delayed += 1;
            self.delay_max = if delay > self.delay_max { delay } else { self.delay_max };
        } else {
            self.note_problem(ProblemKind::SlowReading, &format!("a reading took {:.1} s", took.0));
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
        // This is more important than an earlier failure.
        self.problems.insert(ProblemKind::Failure, reason);
    }

    fn note_problem(&mut self, kind: ProblemKind, reason: &str) {
        self.problems.entry(kind).or_insert_with(|| short(reason));
    }

    /// Returns the problems, separated by `; `; `None` without one.
    fn problem(&self) -> Option<String> {
        let delays = (self.delayed > 0).then(|| {
            format!(
                "readings began late because the machine was busy (number: {}; longest delay: {:.0} ms)",
                self.delayed,
                1000.0 * self.delay_max.0
            )
        });
        let all: Vec<String> = self.problems.values().cloned().chain(delays).collect();
        (!all.is_empty()).then(|| all.join("; "))
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
            problem: self.problem(),
        }
    }

    /// Returns a warning if there was a problem; `None` for a source that worked, or that is not available on this machine.
    pub(super) fn warning(&self, source: &dyn Source) -> Option<String> {
        let problem = self.problem()?;
        let mut counts = format!("readings: {}", self.readings);
        for (what, count) in [("failed", self.failures), ("skipped", self.late), ("impossible values", self.refused)] {
            if count > 0 {
                counts += &format!("; {what}: {count}");
            }
        }
        Some(format!("monitor `{}`: {problem} ({counts})", source.name()))
    }
}

/// Describes a contradiction between the values of a source as a problem.
pub(super) fn contradiction(what: &str) -> String {
    format!("it reported contradictory values: {what}")
}

fn short(reason: &str) -> String {
    truncate(&one_line(reason), REASON_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_that_began_late_are_told_from_a_reading_that_took_long() {
        let mut state = SourceState::default();
        state.note_late(0, Seconds(0.05), Seconds(0.0));
        assert_eq!(state.record().problem, None, "no reading was skipped");
        state.note_late(2, Seconds(0.25), Seconds(0.001));
        state.note_late(12, Seconds(1.2345), Seconds(0.001));
        let late = "readings began late because the machine was busy (number: 2; longest delay: 1234 ms)";
        assert_eq!((state.record().problem.as_deref(), state.record().late), (Some(late), 14));
        state.note_late(3, Seconds(-0.1), Seconds(3.5));
        assert_eq!(state.record().problem, Some(format!("a reading took 3.5 s; {late}")));
    }

    #[test]
    fn the_first_problem_of_each_kind_is_recorded() {
        let mut state = SourceState::default();
        state.note_reading(&["`power_w` is -5".into()], &["the counter decreased".into()]);
        state.note_failure("no driver");
        state.note_failure("another reason");
        let expected = "no driver; it reported an impossible value: `power_w` is -5; it reported contradictory values: the \
                        counter decreased";
        assert_eq!(state.record().problem.as_deref(), Some(expected));
        state.note_abandoned(Seconds(2.0));
        let problem = state.record().problem.unwrap();
        assert!(problem.starts_with("it did not answer for 2.0 s and was abandoned; it reported an imp"), "{problem}");
    }
}
