//! Reads the name, the driver, the memory in use and the state of devices.
//!
//! Knows no engine and no case; measures nothing by itself.

mod cuda;
mod nvml;
mod processor;
mod sample;
mod table;

pub use nvml::NvmlDevice;
pub use sample::{DeviceProcess, DeviceSample, MEMORY_BYTES_POSSIBLE, SAMPLE_NUMBERS, SampleNumber};
pub use table::{DeviceFacts, DeviceReading, Monitor, TABLE, find};
