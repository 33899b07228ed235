//! The section `monitor_command` of vendor.yaml.

use super::ValueKind;
use super::section::{SectionKind, section};

section! {
    /// A command that prints the state of a vendor's devices.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MonitorCommand {
        /// the program, which starts in the vendor's folder, and its arguments
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) command: Vec<String>,
        /// the shortest time between two runs of the command, in seconds; by default 5
        optional(SectionKind::Value(ValueKind::Count), "5") interval_s: u32,
    }
}

/// Name of the script in a vendor's folder that reads the output of its monitor command.
pub const MONITOR_SCRIPT: &str = "monitor.rhai";
