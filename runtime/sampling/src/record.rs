//! The part of the record about the monitors of a case.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::state::contradiction;
use flagperf_core::units::Seconds;

/// The monitors of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct MonitorRecord {
    /// Readings of each source per second, as `MONITOR_RATE` sets it; 0 when nothing was read.
    pub rate_per_s: u32,
    /// Lines of `monitor.jsonl` that could not be written.
    pub lines_lost: u64,
    /// The sources by name.
    pub sources: IndexMap<String, SourceRecord>,
}

/// The readings of a source during the case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct SourceRecord {
    /// Time between two readings: as `MONITOR_RATE` sets it, or longer for a source that is slow to read.
    pub interval_s: Seconds,
    /// Readings that succeeded.
    pub readings: u64,
    /// Readings that failed.
    pub failures: u64,
    /// Readings that were skipped because the previous one took too long, or began too late because the machine was busy.
    pub late: u64,
    /// Impossible values, such as a negative power, which were discarded.
    pub refused_values: u64,
    /// Why the source is not available on this machine; `None` when it is.
    pub unavailable: Option<String>,
    /// The first failure, impossible value, contradiction between values and slow reading, and the readings that began late,
    /// separated by `; `; `None` without a problem.
    pub problem: Option<String>,
}

impl SourceRecord {
    /// Adds a contradiction between the values of the source, and returns it as a problem.
    pub fn add_contradiction(&mut self, what: &str) -> String {
        let added = contradiction(what);
        self.problem = Some(self.problem.take().map_or_else(|| added.clone(), |first| format!("{first}; {added}")));
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradiction_is_added_to_an_earlier_problem() {
        let mut record = SourceRecord::default();
        record.add_contradiction("a");
        assert_eq!(record.add_contradiction("b"), "it reported contradictory values: b");
        let expected = "it reported contradictory values: a; it reported contradictory values: b";
        assert_eq!(record.problem.as_deref(), Some(expected));
    }
}
