//! Devices that the library NVML knows. It comes with their driver and is opened at run time.

use std::sync::OnceLock;

use nvml_wrapper::Nvml;

use super::{DeviceFacts, Monitor, cuda};
use crate::units::Bytes;

/// What NVML puts before the UUID of a device, and of a part of one.
const PREFIXES: [&str; 2] = ["GPU-", "MIG-"];

/// The monitor of GPUs that NVML knows.
#[derive(Clone, Copy, Debug)]
pub struct Gpus;

impl Monitor for Gpus {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn about(&self) -> &'static str {
        "GPUs of CUDA, through the library that comes with their driver"
    }

    fn check(&self) -> Result<String, String> {
        let nvml = library().ok_or("no library NVML, or no driver behind it")?;
        nvml.sys_nvml_version().map_err(|error| error.to_string())
    }

    fn device(&self, name: &str) -> Option<DeviceFacts> {
        let card = Card::behind(name)?;
        Some(DeviceFacts { name: card.name, driver: Some(card.driver), id: Some(card.uuid) })
    }

    fn devices(&self) -> Vec<String> {
        library().map(whole_devices).unwrap_or_default()
    }

    fn memory_used(&self, id: &str) -> Option<Bytes> {
        let device = library()?.device_by_uuid(id).ok()?;
        device.memory_info().ok().map(|memory| Bytes(memory.used))
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    uuid: String,
    /// Its name, as its driver says: `H100 80GB HBM3` after the maker.
    pub name: String,
    /// Version of its driver.
    pub driver: String,
}

impl Card {
    /// The device that this process sees as number `index` in CUDA; `None` when NVML is not here, or it cannot be known
    /// for certain which one that is.
    pub fn of(index: u32) -> Option<Card> {
        let nvml = library()?;
        let uuid = resolve(index, cuda::uuid(index).as_deref(), &whole_devices(nvml), &|uuid| {
            nvml.device_by_uuid(uuid).is_ok()
        })?;
        let device = nvml.device_by_uuid(uuid.as_str()).ok()?;
        let (name, driver) = (device.name().ok()?, nvml.sys_driver_version().ok()?);
        Some(Card { uuid, name, driver })
    }

    /// The device behind an engine's name for it (`cuda:1`, and perhaps more after a space).
    pub fn behind(device: &str) -> Option<Card> {
        Card::of(index_in(device)?)
    }

    /// Memory in use on it, by every process.
    pub fn memory(&self) -> Option<Bytes> {
        Gpus.memory_used(&self.uuid)
    }
}

/// The number in an engine's name for a device.
fn index_in(device: &str) -> Option<u32> {
    device.strip_prefix("cuda:")?.split(' ').next()?.parse().ok()
}

fn library() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Option<Nvml>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nvml::init().ok()).as_ref()
}

/// The UUIDs of the devices, parts of devices (MIG) not among them.
fn whole_devices(nvml: &Nvml) -> Vec<String> {
    let count = nvml.device_count().unwrap_or(0);
    (0..count).filter_map(|index| nvml.device_by_index(index).ok()?.uuid().ok()).collect()
}

/// NVML's UUID of the device that CUDA has under a number. NVML has an order of its own, so the number says nothing
/// there: CUDA's UUID does, and without one only the number 0 of a machine with a single device.
fn resolve(index: u32, cuda: Option<&str>, whole: &[String], is_known: &dyn Fn(&str) -> bool) -> Option<String> {
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
    fn a_number_of_cuda_is_the_device_of_its_uuid_whatever_the_order_of_nvml() {
        let whole = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let known = |uuid: &str| ["GPU-a", "GPU-b", "MIG-c"].contains(&uuid);
        assert_eq!(resolve(0, Some("b"), &whole, &known).as_deref(), Some("GPU-b"));
        assert_eq!(resolve(0, Some("c"), &whole, &known).as_deref(), Some("MIG-c"), "a part of a device");
        assert_eq!(resolve(0, Some("d"), &whole, &known), None);
    }

    #[test]
    fn without_cuda_a_number_means_something_on_a_machine_with_one_device_only() {
        let whole = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        assert_eq!(resolve(0, None, &whole, &|_| true), None);
        assert_eq!(resolve(0, None, &whole[..1], &|_| true).as_deref(), Some("GPU-a"));
        assert_eq!(resolve(1, None, &whole[..1], &|_| true), None);
    }

    #[test]
    fn the_number_in_a_device_s_name_is_read() {
        let numbers = ["cuda:0", "cuda:12 H200", "cuda:1 H100 80GB HBM3"].map(index_in);
        assert_eq!(numbers, [Some(0), Some(12), Some(1)]);
        assert!(
            ["cpu", "cuda", "cuda:", "cuda: 1", "cuda:one", "cuda:-1", ""].iter().all(|name| index_in(name).is_none())
        );
    }
}
