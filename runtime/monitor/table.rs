//! The table of monitors.

use super::nvml::Gpus;
use super::processor::Processor;
use crate::units::Bytes;

/// A way to ask devices about themselves. A vendor names the one for its devices under `monitor` in vendor.yaml; null is none.
pub trait Monitor: Send + Sync {
    /// Its name in vendor.yaml.
    fn name(&self) -> &'static str;
    /// One line on what it asks.
    fn about(&self) -> &'static str;
    /// The version of what answers.
    ///
    /// # Errors
    /// What is missing on this machine.
    fn check(&self) -> Result<String, String>;
    /// What it knows of a device by the engines' name for it (`cpu`, `cuda:1`, and perhaps more after a space); `None`
    /// when that is none of its devices.
    fn device(&self, name: &str) -> Option<DeviceFacts>;
    /// The ids of all of its devices whose memory it knows; empty when they have none of their own.
    fn devices(&self) -> Vec<String> {
        Vec::new()
    }
    /// Memory in use on the device of this id, by every process.
    fn memory_used(&self, id: &str) -> Option<Bytes> {
        let _ = id;
        None
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Its name, as its driver has it.
    pub name: String,
    /// Version of its driver; `None` when it has none of its own.
    pub driver: Option<String>,
    /// What tells it from every other device (a UUID); `None` when it has nothing of the kind.
    pub id: Option<String>,
}

/// Every monitor of this build, by name.
pub static TABLE: &[&dyn Monitor] = &[&Gpus, &Processor];

/// The monitor of this name.
pub fn find(name: &str) -> Option<&'static dyn Monitor> {
    TABLE.iter().copied().find(|monitor| monitor.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_in_order_and_found() {
        let names: Vec<&str> = TABLE.iter().map(|monitor| monitor.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for monitor in TABLE {
            let name = monitor.name();
            assert!(name.chars().all(|c| c.is_ascii_lowercase()) && !monitor.about().is_empty(), "{name}");
            assert_eq!(find(name).map(Monitor::name), Some(name));
        }
        assert!(find("nvmll").is_none());
    }

    #[test]
    fn only_the_monitor_of_processors_knows_the_processor() {
        for monitor in TABLE {
            let known = monitor.device("cpu").is_some();
            assert_eq!(known, monitor.name() == "processor", "{}", monitor.name());
            assert_eq!(monitor.device("tpu:0"), None, "{}", monitor.name());
        }
    }
}
