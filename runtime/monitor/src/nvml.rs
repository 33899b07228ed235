//! Devices known to the library NVML, which belongs to their driver and is opened at run time.

use std::sync::OnceLock;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};

use super::{DeviceFacts, DeviceProcess, DeviceReading, DeviceSample, Monitor, cuda};
use flagperf_core::units::Bytes;

/// Prefixes of NVML's UUIDs: of a device, and of a slice of one.
const PREFIXES: [&str; 2] = ["GPU-", "MIG-"];

/// The monitor of GPUs known to NVML.
#[derive(Clone, Copy, Debug)]
pub struct NvmlMonitor;

impl Monitor for NvmlMonitor {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn about(&self) -> &'static str {
        "CUDA GPUs, through the NVML library of their driver"
    }

    fn check(&self) -> Result<String, String> {
        let nvml = library().ok_or("the NVML library or the driver is missing")?;
        nvml.sys_nvml_version().map_err(|error| error.to_string())
    }

    fn device(&self, name: &str) -> Option<DeviceFacts> {
        let device = NvmlDevice::named_by_engine(name)?;
        Some(DeviceFacts { name: device.name, driver: Some(device.driver), id: Some(device.uuid) })
    }

    fn device_ids(&self) -> Vec<String> {
        library().map(whole_device_uuids).unwrap_or_default()
    }

    fn reading(&self, id: &str) -> Option<DeviceReading> {
        Some(read_device(&library()?.device_by_uuid(id).ok()?))
    }

    fn sample(&self, id: &str, with_energy: bool) -> Option<DeviceSample> {
        Some(sample_device(id, &library()?.device_by_uuid(id).ok()?, with_energy))
    }

    fn memory_used(&self, id: &str) -> Option<Bytes> {
        let device = library()?.device_by_uuid(id).ok()?;
        device.memory_info().ok().map(|memory| Bytes(memory.used))
    }
}

fn read_device(device: &Device<'_>) -> DeviceReading {
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let processes = device.running_compute_processes().ok();
    let reasons = device.current_throttle_reasons().ok();
    DeviceReading {
        processes: processes.map(|found| found.iter().map(|process| process.pid).collect()),
        throttling: reasons.map(throttling),
        at_power_limit: reasons.map(|reasons| reasons.contains(ThrottleReasons::SW_POWER_CAP)),
        clock_mhz: device.clock_info(Clock::SM).ok(),
        clock_max_mhz: device.max_clock_info(Clock::SM).ok(),
        power_w: device.power_usage().ok().map(watts),
        power_limit_w: device.enforced_power_limit().ok().map(watts),
        power_limit_default_w: device.power_management_limit_default().ok().map(watts),
        busy_share: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
    }
}

fn sample_device(id: &str, device: &Device<'_>, with_energy: bool) -> DeviceSample {
    let milli = |amount: f64| amount / 1000.0;
    let memory = device.memory_info().ok();
    let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    let reasons = device.current_throttle_reasons().ok();
    let names = |reasons| throttling(reasons).into_iter().map(str::to_owned).collect();
    let clock = |kind| device.clock_info(kind).ok().map(f64::from);
    DeviceSample {
        device: id.to_owned(),
        name: device.name().ok(),
        memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        memory_total_bytes: memory.as_ref().map(|memory| memory.total),
        utilization_share: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
        power_w: device.power_usage().ok().map(|power| milli(f64::from(power))),
        energy_j: with_energy
            .then(|| device.total_energy_consumption().ok())
            .flatten()
            .map(|energy| milli(energy as f64)),
        clock_mhz: clock(Clock::SM),
        memory_clock_mhz: clock(Clock::Memory),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        throttling: reasons.map(names),
        ecc_corrected_errors: errors(MemoryError::Corrected),
        ecc_uncorrected_errors: errors(MemoryError::Uncorrected),
        processes: processes(device),
    }
}

fn processes(device: &Device<'_>) -> Option<Vec<DeviceProcess>> {
    let memory = |memory| match memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    let found = device.running_compute_processes().ok()?;
    let process = |found: &nvml_wrapper::struct_wrappers::device::ProcessInfo| DeviceProcess {
        pid: found.pid,
        memory_bytes: memory(found.used_gpu_memory.clone()),
        own: None,
    };
    Some(found.iter().map(process).collect())
}

/// Returns the names of the reasons other than the device's own limit of power.
fn throttling(reasons: ThrottleReasons) -> Vec<&'static str> {
    let names = [
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal (software)"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "thermal (hardware)"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    ];
    names.into_iter().filter(|(reason, _)| reasons.contains(*reason)).map(|(_, name)| name).collect()
}

/// A device known to NVML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmlDevice {
    uuid: String,
    /// Name as reported by the driver: manufacturer and model, such as `H100 80GB HBM3`.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
}

impl NvmlDevice {
    /// Returns the device with number `index` in CUDA for this process; `None` when NVML is missing or the device
    /// cannot be determined with certainty.
    pub fn with_cuda_index(index: u32) -> Option<NvmlDevice> {
        let nvml = library()?;
        let uuid = find_uuid(index, cuda::device_uuid(index).as_deref(), &whole_device_uuids(nvml), &|uuid| {
            nvml.device_by_uuid(uuid).is_ok()
        })?;
        let device = nvml.device_by_uuid(uuid.as_str()).ok()?;
        let (name, driver) = (device.name().ok()?, nvml.sys_driver_version().ok()?);
        Some(NvmlDevice { uuid, name, driver })
    }

    /// Returns the device with an engine's name for it: `cuda:1`, possibly followed by a space and more text.
    pub fn named_by_engine(device: &str) -> Option<NvmlDevice> {
        NvmlDevice::with_cuda_index(parse_cuda_index(device)?)
    }

    /// Returns the memory in use on the device by all processes.
    pub fn memory_used(&self) -> Option<Bytes> {
        NvmlMonitor.memory_used(&self.uuid)
    }
}

/// Parses the number in an engine's name for a device.
fn parse_cuda_index(device: &str) -> Option<u32> {
    device.strip_prefix("cuda:")?.split(' ').next()?.parse().ok()
}

fn library() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Option<Nvml>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nvml::init().ok()).as_ref()
}

/// Returns the UUIDs of all devices, without slices of devices (MIG).
fn whole_device_uuids(nvml: &Nvml) -> Vec<String> {
    let count = nvml.device_count().unwrap_or(0);
    (0..count).filter_map(|index| nvml.device_by_index(index).ok()?.uuid().ok()).collect()
}

/// Finds NVML's UUID of the device with number `index` in CUDA. NVML numbers devices in an order of its own, so only
/// CUDA's UUID identifies a device; without it, only the number 0 on a machine with a single device does.
fn find_uuid(index: u32, cuda: Option<&str>, whole: &[String], is_known: &dyn Fn(&str) -> bool) -> Option<String> {
    match (cuda, whole) {
        (Some(uuid), _) => PREFIXES.iter().map(|prefix| format!("{prefix}{uuid}")).find(|uuid| is_known(uuid)),
        (None, [only]) if index == 0 => Some(only.clone()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cuda_number_is_resolved_by_uuid_regardless_of_the_order_of_nvml() {
        let whole = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let known = |uuid: &str| ["GPU-a", "GPU-b", "MIG-c"].contains(&uuid);
        assert_eq!(find_uuid(0, Some("b"), &whole, &known).as_deref(), Some("GPU-b"));
        assert_eq!(find_uuid(0, Some("c"), &whole, &known).as_deref(), Some("MIG-c"), "a slice of a device");
        assert_eq!(find_uuid(0, Some("d"), &whole, &known), None);
    }

    #[test]
    fn without_cuda_a_number_is_resolved_only_on_a_machine_with_one_device() {
        let whole = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        assert_eq!(find_uuid(0, None, &whole, &|_| true), None);
        assert_eq!(find_uuid(0, None, &whole[..1], &|_| true).as_deref(), Some("GPU-a"));
        assert_eq!(find_uuid(1, None, &whole[..1], &|_| true), None);
    }

    #[test]
    fn the_usual_limit_of_power_is_no_throttling() {
        assert_eq!(throttling(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::GPU_IDLE), [""; 0]);
        let hot = ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(throttling(hot), ["thermal (hardware)", "hardware slowdown"]);
    }

    #[test]
    fn the_number_in_a_device_name_is_parsed() {
        let numbers = ["cuda:0", "cuda:12 H200", "cuda:1 H100 80GB HBM3"].map(parse_cuda_index);
        assert_eq!(numbers, [Some(0), Some(12), Some(1)]);
        assert!(
            ["cpu", "cuda", "cuda:", "cuda: 1", "cuda:one", "cuda:-1", ""]
                .iter()
                .all(|name| parse_cuda_index(name).is_none())
        );
    }
}
