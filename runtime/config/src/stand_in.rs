//! The placeholder for a vendor, with which a case is checked without one. Reads no file.

use std::path::PathBuf;

use indexmap::IndexMap;

use super::{EngineEntry, Vendor};

impl EngineEntry {
    /// Returns the entry of the engine that computes nothing.
    pub fn null() -> Self {
        let engine = "null".to_owned();
        EngineEntry { engine, library: None, command: Vec::new(), options: IndexMap::new(), opens_onnx: true }
    }
}

impl Vendor {
    /// Name of the vendor that [`Vendor::stand_in`] creates, and of its only framework.
    pub const STAND_IN: &str = "none";

    /// Creates a vendor in place of a vendor.yaml, whose only framework is the engine that computes nothing. It stands in
    /// where a case is checked without a vendor.
    pub fn stand_in() -> Vendor {
        Vendor {
            name: Vendor::STAND_IN.to_owned(),
            about: String::new(),
            default_framework: None,
            frameworks: IndexMap::from([(Vendor::STAND_IN.to_owned(), EngineEntry::null())]),
            compilers: IndexMap::new(),
            devices: Vec::new(),
            visible_devices: None,
            container_options: None,
            monitor: None,
            monitor_command: None,
            backends: IndexMap::new(),
            operator_shells: IndexMap::new(),
            decoders: IndexMap::new(),
            folder: PathBuf::new(),
            file: None,
        }
    }
}
