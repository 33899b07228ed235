//! The section `monitor_command` of vendor.yaml.

use serde::Deserialize;

/// A command that prints the state of a vendor's devices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorCommand {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Shortest time between two runs of the command, in seconds.
    #[serde(default = "monitor_interval")]
    pub interval_s: u32,
}

/// The interval of FlagPerf's monitors.
const fn monitor_interval() -> u32 {
    5
}

/// Name of the script in a vendor's folder that reads the output of its monitor command.
pub const MONITOR_SCRIPT: &str = "monitor.rhai";
