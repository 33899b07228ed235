//! The part of the record about the monitors of a case.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::units::Seconds;

/// The monitors of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceRecord {
    /// Time between two readings: as `MONITOR_RATE` sets it, or longer for a source that is slow to read.
    pub interval_s: Seconds,
    /// Readings that succeeded.
    pub readings: u64,
    /// Readings that failed.
    pub failures: u64,
    /// Readings that were skipped because the previous one took too long.
    pub late: u64,
    /// Impossible values, such as a negative power, which were discarded.
    pub refused_values: u64,
    /// Why the source is not available on this machine; `None` when it is.
    pub unavailable: Option<String>,
    /// The first failure, late reading or refused value.
    pub problem: Option<String>,
}
