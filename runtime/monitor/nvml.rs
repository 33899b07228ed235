//! Devices that the library NVML knows. It comes with their driver and is opened at run time.

use std::sync::OnceLock;

use nvml_wrapper::{Device, Nvml};

use super::{DeviceFacts, Monitor};
use crate::config::visible_devices;
use crate::units::Bytes;

/// The variable that says which devices a process sees, and in which order.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

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
        let memory_used = card.memory();
        Some(DeviceFacts { name: card.name, driver: Some(card.driver), memory_used })
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
    /// The device that this process sees as number `index`; `None` when NVML is not here or does not know it.
    pub fn of(index: u32) -> Option<Card> {
        let nvml = library()?;
        let device = visible(nvml, index)?;
        let (uuid, name, driver) = (device.uuid().ok()?, device.name().ok()?, nvml.sys_driver_version().ok()?);
        Some(Card { uuid, name, driver })
    }

    /// The device behind an engine's name for it (`cuda:1`, and perhaps more after a space).
    pub fn behind(device: &str) -> Option<Card> {
        let index = device.strip_prefix("cuda:")?.split(' ').next()?;
        Card::of(index.parse().ok()?)
    }

    /// Memory in use on it, by every process.
    pub fn memory(&self) -> Option<Bytes> {
        let device = library()?.device_by_uuid(self.uuid.as_str()).ok()?;
        device.memory_info().ok().map(|memory| Bytes(memory.used))
    }
}

fn library() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Option<Nvml>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nvml::init().ok()).as_ref()
}

/// The variable lists indices or the beginnings of UUIDs; without it, devices are in the driver's order.
fn visible(nvml: &Nvml, index: u32) -> Option<Device<'_>> {
    let Some(listed) = visible_devices(VISIBLE) else { return nvml.device_by_index(index).ok() };
    let entry = listed.split(',').nth(index as usize)?.trim().to_owned();
    match entry.parse() {
        Ok(index) => nvml.device_by_index(index).ok(),
        Err(_) => {
            let mut devices = (0..nvml.device_count().ok()?).filter_map(|index| nvml.device_by_index(index).ok());
            devices.find(|device| device.uuid().is_ok_and(|uuid| uuid.starts_with(&entry)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_there_is_no_card() {
        if library().is_none() {
            assert_eq!((Card::of(0), Card::behind("cuda:0 H200")), (None, None));
        }
    }
}
