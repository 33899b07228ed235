//! What devices say of themselves beside the work: name, driver, memory in use.
//!
//! Knows no engine and no case; measures nothing by itself.

mod cuda;
mod nvml;
mod processor;
mod table;

pub use nvml::Card;
pub use table::{DeviceFacts, Monitor, TABLE, find};
