//! Reads the name, the driver and the memory in use of devices.
//!
//! Knows no engine and no case; measures nothing by itself.

mod cuda;
mod nvml;
mod processor;
mod table;

pub use nvml::NvmlDevice;
pub use table::{DeviceFacts, DeviceReading, Monitor, TABLE, find};
