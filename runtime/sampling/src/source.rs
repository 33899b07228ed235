//! The table of sources.

use super::device::DeviceSource;
use super::ipmi::IpmiSource;
use super::memory::MemorySource;
use super::processor::ProcessorSource;
use super::rapl::RaplSource;
use super::{Reading, SourceContext};
use flagperf_core::units::Seconds;

/// A source of readings while a case runs.
pub trait Source: Send + Sync {
    /// Name in `monitor.jsonl` and in the record.
    fn name(&self) -> &'static str;
    /// One-line description.
    fn about(&self) -> &'static str;
    /// Returns whether the source is also read when a pass begins or ends, so that the energy of short passes is known.
    fn follows_passes(&self) -> bool {
        false
    }
    /// Whether a reading also precedes each phase, so that it is known what was in use before.
    fn precedes_phases(&self) -> bool {
        false
    }
    /// Returns whether the case has such a source at all: not every vendor has a monitor.
    fn applies(&self, context: &SourceContext) -> bool {
        let _ = context;
        true
    }
    /// Opens the source. This may block for any time.
    ///
    /// # Errors
    /// Fails with a description of what is missing on this machine.
    fn open(&self, context: &SourceContext) -> Result<Box<dyn SourceReader>, String>;
}

/// Reads a source, in a thread of its own.
pub trait SourceReader: Send {
    /// Returns the shortest time between two readings, which is longer for sources that are slow to read.
    fn interval_min(&self) -> Seconds {
        Seconds(0.1)
    }
    /// Reads the source. Returns nothing if the values need a previous reading. `at_pass` states that a pass begins or ends, or
    /// that the case ends: counters that are slow to read are then needed, too. This may block for any time.
    ///
    /// # Errors
    /// Fails with the reason as a fragment; the next reading may succeed.
    fn read(&mut self, at_pass: bool) -> Result<Vec<Reading>, String>;
}

/// Every source, by name.
pub static TABLE: &[&dyn Source] = &[&DeviceSource, &IpmiSource, &MemorySource, &ProcessorSource, &RaplSource];

/// Returns the source with this name.
pub fn find(name: &str) -> Option<&'static dyn Source> {
    TABLE.iter().copied().find(|source| source.name() == name)
}

/// Opens a source and reads it once. Returns the number of readings.
///
/// # Errors
/// Fails with a description of what is missing on this machine.
pub fn check(source: &dyn Source, context: &SourceContext) -> Result<usize, String> {
    source.open(context)?.read(true).map(|readings| readings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_sorted_and_documented() {
        let names: Vec<&str> = TABLE.iter().map(|source| source.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for source in TABLE {
            assert_eq!(find(source.name()).map(Source::name), Some(source.name()));
            assert!(source.name().chars().all(|c| c.is_ascii_lowercase()) && !source.about().is_empty());
        }
    }

    #[test]
    fn every_machine_tells_its_processor_time_and_its_memory() {
        let context = SourceContext::of_machine();
        for source in TABLE.iter().filter(|source| ["memory", "processor"].contains(&source.name())) {
            check(*source, &context).unwrap();
        }
    }
}
