//! The table of monitors.

use super::DeviceSample;
use super::nvml::NvmlMonitor;
use super::processor::ProcessorMonitor;
use flagperf_core::units::Bytes;

/// Reads properties of devices. A vendor selects the monitor for its devices by `monitor` in vendor.yaml; null selects
/// none.
pub trait Monitor: Send + Sync {
    /// Name of the monitor in vendor.yaml.
    fn name(&self) -> &'static str;
    /// One-line description.
    fn about(&self) -> &'static str;
    /// Returns the version of the library or system that the monitor reads from.
    ///
    /// # Errors
    /// Fails with a description of what is missing on this machine.
    fn check(&self) -> Result<String, String>;
    /// Returns the properties of a device by the engines' name for it (`cpu`, `cuda:1`, possibly followed by a space
    /// and more text); `None` when the device does not belong to this monitor.
    fn device(&self, name: &str) -> Option<DeviceFacts>;
    /// Returns the ids of all devices whose memory the monitor can read; empty when its devices have no memory of their
    /// own.
    fn device_ids(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns the current state of the device with this id; `None` when the monitor cannot read it.
    fn reading(&self, id: &str) -> Option<DeviceReading> {
        let _ = id;
        None
    }
    /// Whether the monitor reads devices, and not the machine itself.
    fn reads_devices(&self) -> bool {
        true
    }
    /// Returns all values that the device with this id reports now; `None` when the monitor cannot read it. The energy is read
    /// only `with_energy`, because this is slow with some drivers.
    fn sample(&self, id: &str, with_energy: bool) -> Option<DeviceSample> {
        let _ = (id, with_energy);
        None
    }
    /// Returns the memory in use by all processes on the device with this id; `None` when it cannot be read.
    fn memory_used(&self, id: &str) -> Option<Bytes> {
        let _ = id;
        None
    }
}

/// The properties of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Name as reported by the driver.
    pub name: String,
    /// Version of the driver; `None` when the device has no driver of its own.
    pub driver: Option<String>,
    /// Unique id of the device (a UUID); `None` when it has none.
    pub id: Option<String>,
}

/// The state of a device at one moment. A field is `None` if the device does not report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReading {
    /// Ids of the processes that compute on the device, in the PID namespace of the driver, which may differ from that of this
    /// process's container.
    pub processes: Option<Vec<u32>>,
    /// The reasons why the device is slowed down, other than its usual power limit; empty when it is not slowed down.
    pub throttling: Option<Vec<&'static str>>,
    /// Whether the device runs at its power limit, and therefore slower. This is usual under full load.
    pub at_power_limit: Option<bool>,
    /// Clock of the compute units in MHz.
    pub clock_mhz: Option<u32>,
    /// Highest clock of the compute units that the device supports, in MHz.
    pub clock_max_mhz: Option<u32>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    pub power_limit_default_w: Option<f64>,
    /// Share of the time since the driver's last sample in which the device computed, from 0 to 1.
    pub busy_share: Option<f64>,
    pub temperature_c: Option<u32>,
}

/// Every monitor of this build, by name.
pub static TABLE: &[&dyn Monitor] = &[&NvmlMonitor, &ProcessorMonitor];

/// Returns the monitor with this name.
pub fn find(name: &str) -> Option<&'static dyn Monitor> {
    TABLE.iter().copied().find(|monitor| monitor.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_sorted_and_found() {
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
    fn only_the_processor_monitor_has_the_processor() {
        for monitor in TABLE {
            let known = monitor.device("cpu").is_some();
            assert_eq!(known, monitor.name() == "processor", "{}", monitor.name());
            assert_eq!(monitor.device("tpu:0"), None, "{}", monitor.name());
        }
    }
}
